"""One experiment's launch form as a whole: sections, what was changed as overrides, faults put where they belong.

Overrides are those of `looplane run --set`, so a form and a command line that say the same make the same run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.experiment.complaints import Complaint
from webui.catalogue.fields import Schema, Source, format_schema, make_part, make_section, members, tag_of
from webui.catalogue.parts import MISSING, NONE, Alternatives, Field, Part, Section, Table, shown_text
from webui.catalogue.toml_text import path_text, value_text

GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("question", "Question and trials", ("title", "question", "name", "seed", "repeats", "time_limit_s")),
    ("scales", "Scales of an emulation", ("dilation", "byte_scale", "nodes")),
)
"""Keys of the file's top that stand together: id, title, keys."""
LAST: tuple[str, ...] = ("captures", "faults", "hardware")
EXAMPLES = {
    "sweep": ("workload.arrivals.rate_per_s", "[8, 16, 32]"),
    "expect": ("systems.NAME.ttft_ms.p99", "{ at_most = 250 }"),
}
Tables = Mapping[str, Any]


def form_of(
    told: Tables, *, shown: Tables | None = None, posted: Mapping[str, str] | None = None
) -> list[Section | Table]:
    """The sections for a file's tables. `shown` are the tables with changes that are to be filled in, `posted` what was
    typed on the page.
    """
    source, shown = Source(posted), told if shown is None else shown
    top: Schema = format_schema()["properties"]

    def part(key: str) -> Part:
        values = (told.get(key, MISSING), shown.get(key, MISSING), top[key].get("default", MISSING))
        return make_part(key, top[key], key, key, values, source)

    sections: list[Section | Table] = []
    for name, title, keys in GROUPS:
        parts = tuple(part(key) for key in keys)
        sections.append(Section(f"*{name}", title, parts, any(one.told for one in parts)))
    sections[1:1] = [*_systems(told, shown, source), *_whole(part("workload"), part("network"))]
    sections += [*_neighbours(told, shown, source), *(_table(key, top[key], told, shown, source) for key in EXAMPLES)]
    rest = tuple(part(key) for key in LAST)
    sections.append(Section("*more", "Captures, faults and hardware", rest, any(one.told for one in rest)))
    return sections


def _whole(*parts: Part) -> list[Section]:
    return [part for part in parts if isinstance(part, Section)]


def _dict(told: Tables, key: str) -> Mapping[str, Any]:
    found = told.get(key)
    return found if isinstance(found, Mapping) else {}


def _systems(told: Tables, shown: Tables, source: Source) -> list[Section]:
    kinds, _ = members(format_schema()["properties"]["systems"]["additionalProperties"])
    by_tag = {tag_of(one): one for one in kinds}
    found = []
    for name, table in _dict(told, "systems").items():
        schema = by_tag.get(str(table.get("kind"))) if isinstance(table, Mapping) else None
        if schema is None:
            continue
        values: tuple[Any, Any, Any] = (table, _dict(shown, "systems").get(name, table), {})
        words = str(schema.get("description", ""))
        title = f"System {name}" + (f" ({table['kind']})" if table["kind"] != name else "")
        found.append(make_section(schema, path_text("systems", name), f"systems.{name}", title, values, source, words))
    return found


def _neighbours(told: Tables, shown: Tables, source: Source) -> list[Section]:
    schema = members(format_schema()["properties"]["neighbours"]["additionalProperties"])[0][0]
    return [
        make_section(schema, path_text("neighbours", name), f"neighbours.{name}", f"Neighbour {name}",
                     (table, _dict(shown, "neighbours").get(name, table), {}), source, str(schema["description"]))
        for name, table in _dict(told, "neighbours").items()
    ]  # fmt: skip


def _table(key: str, schema: Schema, told: Tables, shown: Tables, source: Source) -> Table:
    entries = dict(_dict(told, key))
    added = [name.removeprefix(f"{key}.") for name in source.posted or () if name.startswith(f"{key}.")]
    new = {name: _dict(shown, key).get(name) for name in [*_dict(shown, key), *added] if name not in entries}
    fields = []
    for name, one in [*entries.items(), *new.items()]:
        value = _dict(shown, key).get(name, one)
        stated = one if name in entries else None
        fields.append(
            Field(
                path=path_text(key, name), name=f"{key}.{name}", label=name, control="toml", whole=False,
                stated=stated, default=MISSING, told=name in entries,
                value=source.text(f"{key}.{name}", shown_text(value, "toml")),
            )
        )  # fmt: skip
    title = {"sweep": "Sweep", "expect": "Expectations"}[key]
    words = str(schema["description"]).split(" Metrics: ")[0]
    return Table(key, title, tuple(fields), bool(entries), words, source.text(f"add-key:{key}", "").strip(),
                 source.text(f"add-value:{key}", "").strip(), EXAMPLES[key])  # fmt: skip


# --- what was changed ------------------------------------------------------------------------------------------------


def overrides_of(parts: Sequence[Part]) -> list[str]:
    """The changes as `--set` takes them."""
    return [f"{path}={value_text(value)}" for path, value in changes(parts)]


def changes(parts: Sequence[Part]) -> list[tuple[str, Any]]:
    """Path and value of everything that is shown otherwise than the file says it."""
    found: list[tuple[str, Any]] = []
    for part in parts:
        if isinstance(part, Field):
            value = value_of(part)
            if value is not None and not same(value, part.stated):
                found.append((part.path, value))
        elif isinstance(part, Section):
            found += changes(part.parts)
        elif isinstance(part, Table):
            found += changes(part.parts)
            if part.key:
                found.append((path_text(part.path, part.key), _toml_value(part.value)))
        else:
            found += _changed_kind(part)
    return found


def _changed_kind(part: Alternatives) -> list[tuple[str, Any]]:
    chosen = next((one for one in part.variants if one.tag == part.chosen), None)
    if chosen is None:
        # None of the kinds: the reader says what is allowed, but for `none`, which a file says by saying nothing.
        return [] if part.chosen in (NONE, part.stated) else [(part.path, {"kind": part.chosen})]
    if part.chosen == part.stated and part.told:
        return changes(chosen.parts)
    if part.chosen == part.stated and not changes(chosen.parts):
        return []
    return [(part.path, whole(chosen))]


def whole(section: Section) -> dict[str, Any]:
    """A table in full, but for what is as it is by default."""
    found: dict[str, Any] = {} if section.tag in ("", "set") else {"kind": section.tag}
    for part in section.parts:
        if isinstance(part, Field):
            value = value_of(part)
            if value is not None and (part.default is MISSING or not same(value, part.default)):
                found[part.name.rpartition(".")[2]] = value
        elif isinstance(part, Section):
            if inner := whole(part):
                found[part.path.rpartition(".")[2]] = inner
        elif isinstance(part, Alternatives):
            chosen = next((one for one in part.variants if one.tag == part.chosen), None)
            if chosen is not None and (part.is_changed or part.optional):
                found[part.path.rpartition(".")[2]] = whole(chosen)
    return found


def value_of(field: Field) -> Any:
    """What is typed, as a value; as text where it is none of the right kind, so that the reader complains about it.
    None: nothing is typed, and the file's word stands.
    """
    text = field.value.strip()
    if field.control == "text":
        return field.value if text or field.stated else None
    if not text:
        return None
    if field.control == "select":
        return next((value for words, value in field.choices if words == text), text)
    if field.control == "number":
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        return text
    return _toml_value(text)


def _toml_value(text: str) -> Any:
    try:
        told = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return told["value"] if len(told) == 1 else text


def same(one: Any, other: Any) -> bool:
    """Whether two values mean the same in a file: 1 and 1.0 do, 1 and true do not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


# --- faults ----------------------------------------------------------------------------------------------------------


def place_faults(parts: Sequence[Part], complaints: Sequence[Complaint]) -> list[str]:
    """Puts each fault to the field that it is about; gives back those that are about none."""
    places = _places(parts)
    left = []
    for complaint in complaints:
        fitting = [path for path in places if _is_about(complaint.path, path)]
        if fitting:
            places[max(fitting, key=len)].append(f"{complaint.value}: {complaint.allowed}")
        else:
            left.append(str(complaint))
    return left


def _is_about(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def _places(parts: Sequence[Part]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in parts:
        if isinstance(part, Field):
            found[part.path] = part.faults
        elif isinstance(part, Alternatives):
            found[part.path] = part.own_faults
            found |= _places([one for one in part.variants if one.tag == part.chosen])
        elif isinstance(part, Table):
            found[part.path] = part.own_faults
            found |= _places(part.parts)
        else:
            found |= _places(part.parts)
    return found
