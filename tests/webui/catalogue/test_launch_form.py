"""The launch form: every shipped experiment, every field, as a file, as changes and back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import spec_from_bytes, tables_from_bytes
from webui.catalogue.launch_form import changes, form_of, overrides_of, place_faults
from webui.catalogue.parts import Alternatives, Field, Section, every_field

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "experiments"
EXPERIMENTS = sorted(FOLDER.rglob("*.toml"))


def tables(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


def typed(sections: Any) -> dict[str, str]:
    """What a browser sends of a form that nobody has touched."""
    found: dict[str, str] = {}

    def look(part: Any) -> None:
        if isinstance(part, Field):
            found[part.name] = part.value
        elif isinstance(part, Alternatives):
            found[part.name] = part.chosen
            for one in part.variants:
                look(one)
        else:
            for one in part.parts:
                look(one)

    for section in sections:
        look(section)
    return found


def at(told: dict[str, Any], path: str) -> Any:
    keys: Any = tomllib.loads(f"{path} = 0")
    while isinstance(keys, dict):
        ((key, keys),) = keys.items()
        told = told[key]
    return told


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_a_form_that_nobody_has_touched_changes_nothing(path: Path) -> None:
    told = tomllib.loads(path.read_text())
    sent = typed(form_of(told))
    assert len(sent) > 40
    form = form_of(told, posted=sent)
    assert overrides_of(form) == []
    assert not any(section.is_changed for section in form)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_number_that_is_changed_is_that_number_in_the_run(path: Path) -> None:
    text = path.read_bytes()
    told = tomllib.loads(text.decode())
    posted = {}
    for field in every_field(form_of(told)):
        if field.control == "number" and field.value:
            posted[field.name] = str(int(field.value) + 1) if field.whole else str(float(field.value) * 1.25 + 0.5)
    form = form_of(told, posted=posted)
    laid, _ = tables_from_bytes(text, path.name, overrides_of(form))
    assert len(posted) > 20
    for field in every_field(form):
        if field.name in posted:
            assert at(laid, field.path) == pytest.approx(float(posted[field.name])), field.path


def test_choices_texts_and_lists() -> None:
    told = tables("blink/interference")
    posted = {
        "nodes": "namespace",
        "question": 'What does "it" do?\r\nAnd why?',
        "network.compute.path_mtu": "1024",
        "systems.blink.prefix_cache": "true",
        "systems.vllm-beside.neighbours": '["compile"]',
        "systems.blink.dilation": "4",
        "neighbours.compile.threads": "2",
        "add-key:sweep": "workload.arrivals.rate_per_s",
        "add-value:sweep": "[4, 8]",
    }
    overrides = overrides_of(form_of(told, posted=posted))
    assert overrides == [
        'question="What does \\"it\\" do?\\nAnd why?"',
        "systems.blink.prefix_cache=true",
        "systems.blink.dilation=4",
        'systems.vllm-beside.neighbours=["compile"]',
        "network.compute.path_mtu=1024",
        'nodes="namespace"',
        "neighbours.compile.threads=2",
        'sweep."workload.arrivals.rate_per_s"=[4, 8]',
    ]
    spec = spec_from_bytes((FOLDER / "blink/interference.toml").read_bytes(), "x", overrides)
    assert spec.sweep == {"workload.arrivals.rate_per_s": [4, 8]}
    assert spec.neighbours["compile"].threads == 2


def test_another_kind_is_the_whole_table() -> None:
    told = tables("blink/interference")
    posted = {
        "kind:workload.arrivals": "burst",
        "workload.arrivals[burst].size": "8",
        "workload.arrivals[poisson].rate_per_s": "9",  # of the kind that is not chosen
        "kind:workload.shared_prefixes": "set",
        "workload.shared_prefixes[set].texts": "4",
        "workload.shared_prefixes[set].tokens": "256",
    }
    overrides = overrides_of(form_of(told, posted=posted))
    assert overrides == [
        'workload.arrivals={ kind = "burst", size = 8 }',
        "workload.shared_prefixes={ texts = 4, tokens = 256 }",
    ]
    spec_from_bytes((FOLDER / "blink/interference.toml").read_bytes(), "x", overrides)


def test_a_default_that_the_file_does_not_say_is_written_in_full() -> None:
    told = {"name": "a", "title": "b", "systems": {"blink": {"kind": "blink"}}}
    form = form_of(told, posted={"workload.arrivals[poisson].burstiness": "2.0"})
    assert overrides_of(form) == ['workload.arrivals={ kind = "poisson", rate_per_s = 1.0, burstiness = 2.0 }']


def test_changes_of_a_clone_are_filled_in() -> None:
    text = (FOLDER / "blink/interference.toml").read_bytes()
    overrides = ["workload.requests=8", 'workload.arrivals={ kind = "burst", size = 8 }', 'sweep."a.b"=[1]']
    shown, _ = tables_from_bytes(text, "x", overrides)
    told = tomllib.loads(text.decode())
    form = form_of(told, shown=shown)
    assert overrides_of(form) == overrides
    assert overrides_of(form_of(told, posted=typed(form))) == overrides


def test_all_faults_stand_at_their_fields() -> None:
    text = (FOLDER / "blink/interference.toml").read_bytes()
    posted = {
        "workload.requests": "many",
        "workload.lengths[uniform].prompt_low": "0",
        "systems.blink.model": "gpt-9",
        "captures": '[{ node = "gpu0" }]',
        "seed": "-1",
        "add-key:expect": "systems.blink.nonsense",
        "add-value:expect": "{ at_most = 1 }",
    }
    form = form_of(tomllib.loads(text.decode()), posted=posted)
    with pytest.raises(SpecError) as caught:
        spec_from_bytes(text, "x", overrides_of(form))
    left = place_faults(form, caught.value.faults)
    assert left == []
    faulty = {part.path: part.faults for part in every_field(form) if part.faults}
    assert "a whole number" in faulty["workload.requests"][0]
    assert (
        "at least 1" in faulty["workload.lengths.prompt_low"][0] or "from 1" in faulty["workload.lengths.prompt_low"][0]
    )
    assert set(faulty) >= {"workload.requests", "workload.lengths.prompt_low", "captures", "seed"}
    assert any("unknown metric" in fault for section in form for fault in section.faults)


def test_every_field_says_what_it_is() -> None:
    form = form_of(tables("dualpath/small"))
    assert {section.title for section in form if isinstance(section, Section)} >= {"Workload", "Network"}
    silent = [one.path for one in every_field(form) if not one.help and ".lanes." not in one.path
              and not one.path.startswith("expect.")]  # fmt: skip
    assert silent == []
    ids = [one.id for one in every_field(form)]
    assert len(ids) == len(set(ids))


def test_paths_of_changes_are_those_of_the_command_line() -> None:
    told = {"name": "a", "title": "b", "systems": {"my-own": {"kind": "blink"}}, "expect": {"a b": {"at_most": 1}}}
    form = form_of(told, posted={"expect.a b": "{ at_most = 2 }", "systems.my-own.slots": "8"})
    assert changes(form) == [("systems.my-own.slots", 8), ('expect."a b"', {"at_most": 2})]
