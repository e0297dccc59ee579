from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.chains import BadChains, ChainView, chain_table, chunk_name

sizes = st.integers(1, 9).flatmap(lambda nodes: st.tuples(st.just(nodes), st.integers(1, nodes)))


def names(count: int) -> list[str]:
    return [f"storage{number}" for number in range(count)]


@given(sizes, st.integers(1, 2**63 - 1))
def test_a_chain_has_each_node_once_and_depends_on_the_id_alone(size: tuple[int, int], block: int) -> None:
    nodes, replicas = size
    chain = ChainView(names(nodes), replicas).live(block)
    assert len(set(chain)) == len(chain) == replicas
    assert chain == ChainView(names(nodes), replicas).planned(block)


@given(sizes)
def test_every_node_has_every_place_equally_often(size: tuple[int, int]) -> None:
    nodes, replicas = size
    table = chain_table(names(nodes), replicas)
    for place in range(replicas):
        assert len(set(Counter(chain[place] for chain in table).values())) == 1
        assert {chain[place] for chain in table} == set(names(nodes))


def test_the_chunks_of_a_lost_node_are_on_all_others_alike() -> None:
    table = chain_table(names(5), 2)
    partners = Counter(other for chain in table if "storage2" in chain for other in chain if other != "storage2")
    assert set(partners) == {"storage0", "storage1", "storage3", "storage4"}
    assert len(set(partners.values())) == 1


def test_random_ids_spread_over_the_nodes() -> None:
    view = ChainView(names(3), 2)
    heads = Counter(view.live(block * 0x9E3779B97F4A7C15 % 2**63)[0] for block in range(1, 3001))
    assert all(900 < count < 1100 for count in heads.values()), heads


@given(sizes, st.integers(1, 2**63 - 1), st.data())
def test_lost_nodes_leave_the_order_of_the_others(size: tuple[int, int], block: int, data: st.DataObject) -> None:
    nodes, replicas = size
    view = ChainView(names(nodes), replicas)
    gone = data.draw(st.sets(st.sampled_from(names(nodes))))
    for node in sorted(gone):
        assert view.lose(5, node)
        assert not view.lose(6, node), "once"
    assert view.lost == dict.fromkeys(gone, 5)
    planned = view.planned(block)
    assert view.live(block) == tuple(node for node in planned if node not in gone)
    for place, node in enumerate(planned):
        assert view.after(block, node) == tuple(other for other in planned[place + 1 :] if other not in gone)


def test_more_replicas_than_nodes_are_refused() -> None:
    with pytest.raises(BadChains, match="replicas: 3: chains of that length need as many storage nodes, there are 2"):
        chain_table(names(2), 3)
    with pytest.raises(KeyError):
        ChainView(names(2), 1).lose(0, "pe0")


def test_a_chunks_name_is_its_id_in_sixteen_digits() -> None:
    assert chunk_name(0xAB) == "00000000000000ab"
    assert len(chunk_name(2**63 - 1)) == 16
