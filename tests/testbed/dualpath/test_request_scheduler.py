"""The central scheduler: from submission to the last token, who reads, what is refused."""

import msgspec
import pytest

from testbed.dualpath.letters import Envelope
from testbed.dualpath.turn_letters import (
    Abort,
    Assign,
    BlocksPersisted,
    FetchWork,
    Produced,
    ProducedMany,
    ReadQueued,
    TurnEnded,
    TurnProgress,
)
from testbed.events.kv_events import PathChosen, TurnPlaced, TurnStage
from testbed.machine import UnexpectedMessage
from testbed.serving.turns import SubmitTurn, TokenRun, Turn, TurnAdvanced, TurnFailed
from tests.testbed.dualpath.scheduler_desk import Desk, a_turn, with_history


def test_a_turn_goes_to_both_nodes_after_its_prefill_and_then_its_decode_group_has_fetched():
    desk = Desk()
    desk.submit(a_turn())
    desk.fetch("de0")
    assert desk.posts == []
    desk.fetch("pe0")
    assert desk.posts == []
    desk.now = 5
    desk.fetch("de0")
    (pe, first), (de, second) = desk.posts
    assert (pe, de) == ("pe0", "de0")
    assert first == second == Assign(a_turn(), "pe0", 0, "de0", 0, 0, 0)
    assert [event.stage for event in desk.of(TurnStage)] == ["queued", "placed"]
    assert desk.of(TurnPlaced) == [TurnPlaced("a0000.t000", "pe0", 0, "de0", 0, 0, 640, 5)]
    assert desk.of(PathChosen) == [PathChosen("a0000.t000", "none", 0, 0, 0, 0)]


def test_tokens_reach_the_agent_and_the_last_one_says_so_however_letters_overtake_each_other():
    desk = Desk()
    desk.submit(a_turn(answer=3))
    desk.fetch_all()
    # The decode side's letters are before that of the first token, which comes from another node.
    desk.take(ProducedMany((TurnProgress("a0000.t000", 2, True),)))
    desk.take(Produced("a0000.t000", 1))
    assert desk.told == [TurnAdvanced("a0000.t000", 2, False), TurnAdvanced("a0000.t000", 1, True)]
    desk.end(desk.assigned[0])
    assert desk.empty()


def test_the_engine_that_was_chosen_is_carried_from_end_to_end():
    # Known fault 35: a rank that is lost on the way sends KV to the wrong engine.
    desk = Desk(engines=4)
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(4)))
    desk.fetch_all()
    assert sorted((each.prefill_engine, each.decode_engine) for each in desk.assigned) == [(n, n) for n in range(4)]
    for each, placed in zip(desk.assigned, desk.of(TurnPlaced), strict=True):
        assert (placed.turn, placed.prefill_engine, placed.decode_engine) == (
            each.turn.name, each.prefill_engine, each.decode_engine,
        )  # fmt: skip
        wrong = (each.prefill_engine + 1) % 4
        with pytest.raises(UnexpectedMessage, match=f"not at engine {wrong} of pe0"):
            desk.take(TurnEnded(each.turn.name, "pe0", wrong))
        desk.serve(each)
    assert desk.empty()


def test_hits_are_the_full_blocks_of_the_context_that_are_in_storage():
    desk = Desk(unstored_context="compute")
    desk.submit(a_turn(append=1_000, answer=10))
    desk.fetch_all()
    desk.serve(desk.assigned[0], persisted=15)
    desk.submit(a_turn("a0000.t001", number=1, context=1_010, append=50))
    desk.fetch_all()
    assert desk.assigned[1].hit_blocks == 15
    desk.serve(desk.assigned[1])
    # 1,010 + 50 + 4 - 1 tokens are 16 full blocks; a context of 1,000 has but 15 of them.
    desk.submit(a_turn("a0000.t002", number=2, context=1_000, append=50))
    desk.fetch_all()
    assert desk.assigned[2].hit_blocks == 15
    desk.submit(a_turn("a0001.t000", agent=1, context=1_000, append=50))
    desk.fetch_all()
    assert desk.assigned[3].hit_blocks == 0


def test_a_turn_waits_until_its_agents_last_one_has_persisted_all():
    desk = Desk()
    desk.submit(a_turn(append=1_000, answer=1))
    desk.fetch_all()
    first = desk.assigned[0]
    desk.take(Produced(first.turn.name, 1))
    desk.submit(a_turn("a0000.t001", number=1, context=1_001, append=23), a_turn("a0001.t000", agent=1))
    desk.end(first, decode=False)
    desk.fetch_all()
    assert [each.turn.name for each in desk.assigned[1:]] == ["a0001.t000"]
    desk.take(BlocksPersisted(first.turn.name, 15))
    desk.end(first, prefill=False)
    desk.fetch_all()
    assert [(each.turn.name, each.hit_blocks) for each in desk.assigned[2:]] == [("a0000.t001", 15)]
    for each in desk.assigned[1:]:
        desk.serve(each)
    assert desk.empty()


@pytest.mark.parametrize("setting", [{"read_path": "bypass"}, {"persist": False}, {"unstored_context": "compute"}])
def test_nothing_waits_for_storage_where_there_is_nothing_to_wait_for_or_it_is_not_wanted(setting):
    desk = Desk(**setting)
    desk.submit(a_turn(append=1_000, answer=1))
    desk.fetch_all()
    desk.take(Produced("a0000.t000", 1))
    desk.submit(a_turn("a0000.t001", number=1, context=1_001, append=23))
    desk.fetch_all()
    assert len(desk.assigned) == 2


def test_hits_count_what_is_stored_when_the_turn_is_placed_and_a_late_word_of_an_older_turn_is_not_taken():
    desk = Desk(unstored_context="compute")
    desk.submit(a_turn(append=1_000, answer=10))
    desk.fetch_all()
    for _ in range(10):
        desk.take(Produced("a0000.t000", 1))
    desk.submit(a_turn("a0000.t001", number=1, context=1_010, append=200))
    desk.take(BlocksPersisted("a0000.t000", 14))
    desk.fetch_all()
    assert desk.assigned[1].hit_blocks == 14
    desk.take(BlocksPersisted("a0000.t001", 18))
    desk.take(BlocksPersisted("a0000.t000", 15))
    desk.submit(a_turn("a0000.t002", number=2, context=1_210, append=10))
    desk.fetch_all()
    assert desk.assigned[2].hit_blocks == 18


def test_the_last_token_of_a_prompt_is_computed_even_if_all_of_it_is_in_storage():
    desk = Desk()
    desk.submit(a_turn(append=640, answer=1))
    desk.fetch_all()
    desk.serve(desk.assigned[0], persisted=10)
    desk.submit(a_turn("a0000.t001", number=1, context=640, append=0))
    desk.fetch_all()
    assert desk.assigned[1].hit_blocks == 9


@pytest.mark.parametrize(
    ("read_path", "prefill_queue", "decode_queue", "path", "here"),
    [
        ("shorter_queue", 10, 0, "decode", 0),
        ("shorter_queue", 0, 10, "prefill", 100),
        ("prefill", 99_999, 0, "prefill", 100),
        ("decode", 0, 99_999, "decode", 0),
        ("round_robin", 99_999, 0, "prefill", 100),
        ("bypass", 0, 0, "none", 0),
        ("split", 0, 0, "split", 50),
        ("split", 640, 0, "split", 45),
        ("split", 9_000, 0, "decode", 0),
        ("split", 0, 9_000, "prefill", 100),
    ],
)
def test_each_rule_of_reading(read_path, prefill_queue, decode_queue, path, here):
    desk = Desk(read_path=read_path, known={"alpha_tokens": 10**9})
    (turn,) = with_history(desk)
    desk.submit(turn)
    desk.fetch("pe0", prefill_queue)
    desk.fetch("de0", decode_queue)
    last = desk.assigned[-1]
    assert (last.prefill_blocks, last.hit_blocks) == (here, 100)
    chosen = desk.of(PathChosen)[-1]
    assert chosen == PathChosen(
        turn.name, path, here, 0 if path == "none" else 100 - here, prefill_queue, decode_queue
    )  # fmt: skip


def test_without_persistence_nothing_is_known_to_be_stored_but_oracle_needs_none():
    desk = Desk(persist=False)
    desk.submit(a_turn(context=6_400, append=64))
    desk.fetch_all()
    assert desk.assigned[0].hit_blocks == 0
    desk = Desk(persist=False, read_path="bypass")
    desk.submit(a_turn(context=6_400, append=64))
    desk.fetch_all()
    assert desk.assigned[0].hit_blocks == 100


def test_round_robin_reads_alternate_over_all_turns():
    desk = Desk(read_path="round_robin")
    turns = with_history(desk, agents=4)
    desk.submit(*turns)
    desk.fetch_all()
    assert [each.prefill_blocks for each in desk.assigned[-4:]] == [100, 0, 100, 0]


def test_a_burst_sees_its_own_reads_in_the_queues_or_not_as_the_parameter_says():
    for counted_at, expected in (("assignment", [100, 0, 100, 0]), ("fetch", [100, 100, 100, 100])):
        desk = Desk(reads_counted_at=counted_at, path_tie="prefill")
        desk.submit(*with_history(desk, agents=4))
        desk.fetch_all()
        assert [each.prefill_blocks for each in desk.assigned[-4:]] == expected


def test_a_read_counts_until_the_nodes_report_has_it_and_never_twice():
    desk = Desk(read_path="prefill")
    (turn,) = with_history(desk)
    queues = desk.machine.queues.read_queues
    desk.submit(turn)
    desk.fetch_all()
    assert queues.of("pe0") == 6_400
    desk.queue("pe0", 0, taken=1)  # Left before the second letter had come.
    assert queues.of("pe0") == 6_400
    desk.queue("pe0", 6_000, taken=2)
    assert queues.of("pe0") == 6_000
    desk.queue("pe0", 100)
    assert queues.of("pe0") == 100


def test_prefill_placement_sees_a_burst_of_reads_before_paths_are_chosen():
    # alpha is passed by the first turn, so the second one goes to the other node though it has more tokens.
    for nodes, expected in ((None, ["pe0", "pe1"]), (1, ["pe0", "pe0"])):
        known = {"alpha_tokens": 5_000, "beta_tokens": 10**6}
        desk = Desk(prefill=2, engines=2, read_path="prefill", prefill_group_nodes=nodes, known=known)
        turns = with_history(desk, agents=2)
        desk.queue("pe0", 0)
        desk.queue("pe1", 0)
        desk.machine.queues.prefill.tokens[:] = [0, 0, 10, 10]
        desk.submit(*turns)
        desk.fetch("pe0")
        desk.fetch("de0")
        # Pull model: of a group of one node, class 3 must do.
        assert [each.prefill_node for each in desk.assigned[-2:]] == expected


def test_an_overloaded_group_gets_nothing_and_the_head_of_the_queue_waits_for_another():
    desk = Desk(prefill=2, engines=1, prefill_group_nodes=1, known={"beta_tokens": 1_000})
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(4)))
    desk.fetch("pe0")
    desk.fetch("de0")
    assert [each.turn.name for each in desk.assigned] == ["a0000.t000", "a0001.t000"]
    desk.fetch("pe1")
    desk.fetch("de0")
    assert [each.turn.name for each in desk.assigned[2:]] == ["a0002.t000", "a0003.t000"]
    assert desk.assigned[2].prefill_node == "pe1"


def test_a_burst_larger_than_a_window_is_placed_in_one_fetch():
    desk = Desk(known={"beta_tokens": 10**9, "hbm_blocks": 10**6})
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(200)))
    desk.fetch("pe0")
    desk.fetch("de0")
    assert [each.turn.agent for each in desk.assigned] == list(range(200))


def test_decode_turns_wait_for_free_hbm_and_go_on_when_others_end():
    desk = Desk(engines=1, known={"hbm_blocks": 25})
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(3)))
    desk.fetch_all()
    assert len(desk.assigned) == 2  # 11 blocks each: 643 tokens have KV.
    desk.fetch_all()
    assert len(desk.assigned) == 2
    desk.serve(desk.assigned[0])
    desk.fetch_all()
    assert len(desk.assigned) == 3


def test_hbm_may_count_only_by_what_engines_report():
    desk = Desk(engines=1, hbm_counted_at="report", known={"hbm_blocks": 25})
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(3)))
    desk.fetch("pe0")
    desk.fetch("de0", free=25)
    assert len(desk.assigned) == 2
    desk.fetch("de0", free=25)
    assert len(desk.assigned) == 3


def test_turns_are_spread_over_decode_groups_by_tokens():
    desk = Desk(decode=2)
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(6)))
    desk.fetch_all()
    desk.fetch_all()
    assert sorted(each.decode_node for each in desk.assigned) == ["de0"] * 3 + ["de1"] * 3


@pytest.mark.parametrize(
    ("ties", "prefills", "decodes"),
    [
        ("lowest", [("pe0", 0)] * 5, [("de0", 0)] * 5),
        (
            "rotate",
            [("pe0", 0), ("pe1", 0), ("pe0", 1), ("pe1", 1), ("pe0", 0)],
            [("de0", 0), ("de1", 0), ("de0", 1), ("de1", 1), ("de0", 0)],
        ),
    ],
)
def test_a_lone_agent_goes_around_all_nodes_or_stays_on_the_first(ties, prefills, decodes):
    desk = Desk(prefill=2, decode=2, engines=2, placement_ties=ties)
    for number in range(5):
        desk.submit(a_turn(f"a0000.t{number:03d}", number=number))
        desk.fetch_all()
        desk.serve(desk.assigned[-1])
    assert [(each.prefill_node, each.prefill_engine) for each in desk.assigned] == prefills
    assert [(each.decode_node, each.decode_engine) for each in desk.assigned] == decodes


def test_round_robin_placement_waits_for_no_fetch_and_takes_each_engine_in_turn():
    desk = Desk(prefill=2, decode=1, engines=2, placement="round_robin")
    desk.submit(*(a_turn(f"a{n:04d}.t000", agent=n) for n in range(5)))
    places = [(each.prefill_node, each.prefill_engine, each.decode_engine) for each in desk.assigned]
    assert places == [("pe0", 0, 0), ("pe0", 1, 1), ("pe1", 0, 0), ("pe1", 1, 1), ("pe0", 0, 0)]
    for each in desk.assigned:
        desk.serve(each)
    assert desk.empty()


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"hbm_blocks": 10}, "11 blocks of KV do not fit into the HBM of a decode engine of 10"),
        ({"prefill_buffer_blocks": 9}, "10 blocks of KV do not fit into the PE buffer of 9"),
        ({"decode_buffer_blocks": 9}, "10 blocks of KV do not fit into the DE buffer of 9"),
    ],
)
def test_a_turn_that_no_engine_can_ever_hold_is_refused_at_once_and_holds_nobody_up(known, reason):
    # Known faults 25 and 32: it would be preempted, or waited for, for ever.
    desk = Desk(known=known)
    desk.submit(a_turn(), a_turn("a0001.t000", agent=1, append=64))
    assert desk.told == [TurnFailed("a0000.t000", reason)]
    assert [(event.stage, event.detail) for event in desk.of(TurnStage)] == [("failed", reason), ("queued", "")]
    desk.fetch_all()
    assert [each.turn.name for each in desk.assigned] == ["a0001.t000"]
    desk.serve(desk.assigned[0])
    assert desk.empty()


def test_oracle_needs_no_buffers():
    desk = Desk(read_path="bypass", known={"prefill_buffer_blocks": 0, "decode_buffer_blocks": 0})
    desk.submit(a_turn())
    desk.fetch_all()
    assert len(desk.assigned) == 1


def test_the_largest_turn_that_is_taken_fits_into_a_receive():
    desk = Desk(known=dict.fromkeys(("hbm_blocks", "prefill_buffer_blocks", "decode_buffer_blocks"), 2**40))
    big = (1 << 63) - 1

    def turn(runs):
        prompt = tuple(TokenRun(big - n, (1 << 31) + n, 70_000) for n in range(runs - 1))
        return Turn("a123456.t123456", 123_456, 123_456, prompt, 10**9, (TokenRun(big, 1 << 31, 70_000),))

    desk.submit(turn(180))
    desk.fetch_all()
    assert len(msgspec.msgpack.encode(Envelope("leader", desk.assigned[0]))) < 4_096 - 250
    desk.submit(msgspec.structs.replace(turn(181), name="other"))
    assert desk.told == [TurnFailed("other", "181 runs of tokens do not fit into a letter, which has room for 180")]


STRAY = [
    SubmitTurn(a_turn()),
    Produced("a0000.t000", 5),
    Produced("a0000.t000", 0),
    Produced("nobody", 1),
    ProducedMany((TurnProgress("a0000.t000", 1), TurnProgress("nobody", 1))),
    BlocksPersisted("nobody", 1),
    TurnEnded("a0000.t000", "pe0", 1),
    TurnEnded("a0000.t000", "pe9", 0),
    TurnEnded("nobody", "pe0", 0),
    ReadQueued("storage0", 5),
    FetchWork("pe0", "decode", (), 0),
    FetchWork("de0", "decode", (), 0),
    FetchWork("pe7", "prefill", (), 0),
    Abort("a0000.t000", "why not"),
    TurnFailed("a0000.t000", "not for me"),
]


def waiting(desk):
    pass


def half_placed(desk):
    desk.fetch("pe0")


def assigned(desk):
    desk.fetch_all()


def half_ended(desk):
    desk.fetch_all()
    desk.end(desk.assigned[0], prefill=False)


@pytest.mark.parametrize("stray", STRAY, ids=lambda message: f"{type(message).__name__}")
@pytest.mark.parametrize("reach", [waiting, half_placed, assigned, half_ended])
def test_what_makes_no_sense_in_a_state_raises_and_changes_nothing(reach, stray):
    desk = Desk()
    desk.submit(a_turn(answer=4))
    reach(desk)
    before = len(desk.posts), len(desk.told), len(desk.events)
    with pytest.raises(UnexpectedMessage):
        desk.take(stray)
    assert (len(desk.posts), len(desk.told), len(desk.events)) == before
    # And the turn still runs to its end.
    desk.fetch_all()
    (turn,) = desk.assigned
    for _ in range(4):
        desk.take(Produced("a0000.t000", 1))
    desk.end(turn, decode=reach is not half_ended)
    assert desk.told[-1] == TurnAdvanced("a0000.t000", 1, True)
    assert desk.empty()


@pytest.mark.parametrize("reach", [waiting, half_placed])
@pytest.mark.parametrize(
    "early", [Produced("a0000.t000", 1), BlocksPersisted("a0000.t000", 1), TurnEnded("a0000.t000", "pe0", 0)]
)
def test_no_engine_can_speak_of_a_turn_that_it_was_not_given(reach, early):
    desk = Desk()
    desk.submit(a_turn())
    reach(desk)
    with pytest.raises(UnexpectedMessage, match="without a turn a0000"):
        desk.take(early)
