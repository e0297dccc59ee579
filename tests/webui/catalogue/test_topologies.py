"""What is shipped as networks: every system of every experiment once, the same shape once, with its lanes' weights."""

from __future__ import annotations

from dataclasses import replace

from django.test import Client

from webui.catalogue.selectors import experiment_get, experiment_list
from webui.catalogue.topologies import topologies_of

API = "/api/v1/topologies"


def test_every_system_of_every_experiment_has_one_and_no_shape_comes_twice() -> None:
    found = topologies_of(experiment_list())
    uses = [(use.experiment, use.system) for one in found for use in one.used_by]
    shipped = [(one.name, system) for one in experiment_list() for system in one.systems]
    assert sorted(uses) == sorted(shipped)
    assert len({one.shape for one in found}) == len({one.name for one in found}) == len(found)
    for one in found:
        names = {node.name for node in one.shape.nodes}
        fabrics = {fabric.name for fabric in one.shape.fabrics}
        assert {port.fabric for node in one.shape.nodes for port in node.ports} == fabrics
        assert all(set(node.attached) <= names for node in one.shape.nodes)


def test_a_file_that_cannot_be_read_has_none() -> None:
    demo = experiment_get(name="blink/demo")
    assert demo
    assert topologies_of([replace(demo, fault="line 3: no such key")]) == []


def test_the_api_gives_all_or_one_experiments(logged_in: Client) -> None:
    [small] = logged_in.get(API, {"experiment": "blink/small"}).json()
    assert small["name"] == "blink/small:blink"
    assert small["used_by"] == [{"experiment": "blink/small", "system": "blink", "kind": "blink"}]
    assert {node["role"] for node in small["nodes"]} >= {"client", "dpu", "gpu"}
    fabrics = {fabric["name"]: fabric for fabric in small["fabrics"]}
    assert (fabrics["front"]["protocol"], fabrics["front"]["lanes"]) == ("TCP", [])
    assert fabrics["compute"]["protocol"] == "RoCEv2"
    assert {"number": 2, "high": 0, "low": 64} in fabrics["compute"]["lanes"]
    assert fabrics["compute"]["high_limit"] == 240
    everything = logged_in.get(API).json()
    assert len(everything) > 20
    assert any(one["nodes"] == small["nodes"] for one in everything)


def test_an_experiment_that_is_not_there_is_named(logged_in: Client) -> None:
    answer = logged_in.get(API, {"experiment": "blink/none"})
    assert answer.status_code == 404
    assert answer.json()["error"]["path"] == "experiment"
    assert "blink/none" in answer.json()["error"]["message"]
    assert logged_in.get(API, {"experiments": "blink/small"}).status_code == 422
