"""What is wrong with values that a person wrote, all of it at once: path, value, and what is allowed there.

msgspec stops at the first fault and knows paths only in part. This walk over a struct's type information finds every
fault, and msgspec has the last word where a struct checks its fields against each other. It knows types, not files.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

SHOWN = 60
"""So much of a value is repeated in a complaint."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Complaint(NamedTuple):
    """One fault. `str` of it is one line."""

    path: str
    """As workload.arrivals.rate_per_s, or captures[0].node."""
    value: str
    """As the author wrote it, shortened; `missing` where there is none."""
    allowed: str
    """What may stand there."""

    def __str__(self) -> str:
        return f"{self.path}: {self.value}: {self.allowed}"


class SpecError(Exception):
    """An experiment that cannot be run as written. `str` of it is one line for each fault."""

    def __init__(self, source: str, faults: Sequence[Complaint], sources: Sequence[str] = ()) -> None:
        self.source = source
        self.faults = tuple(faults)
        self.sources = tuple(sources) or (source,) * len(self.faults)
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line for each fault: FILE: PATH: VALUE: what is allowed."""
        return [f"{where}: {fault}" for where, fault in zip(self.sources, self.faults, strict=True)]


def complaints(kind: type[Any], told: Any, path: str = "") -> list[Complaint]:
    """Every fault of `told` as a value of the struct `kind`; none if msgspec would take it."""
    return _check(_type_of(kind), told, path)  # type: ignore[arg-type]  # a class is hashable


@cache
def _type_of(kind: type[Any]) -> inspect.Type:
    """Looked at once: a sweep checks the same struct at each of its points."""
    return inspect.type_info(kind)


def shown(value: Any) -> str:
    """`value` on one line, in TOML's spelling as far as it has one, shortened."""
    if isinstance(value, float) and not math.isfinite(value):
        text = repr(value)
    elif isinstance(value, int) and abs(value) >= 2**63:
        text = "a number of more than 63 bits"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{joined('', str(key))} = {shown(entry)}" for key, entry in value.items()) + "}"
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def joined(path: str, key: str) -> str:
    """`path` and one key more; keys that are no bare words are quoted as in TOML."""
    word = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
    return f"{path}.{word}" if path else word


def one_of(names: Iterable[str], wrong: str) -> str:
    """`one of …`, with a guess at what was meant."""
    known = list(names)
    close = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"{guess}allowed: {', '.join(known)}" if known else "nothing is allowed here"


def unknown_key(path: str, key: str, value: Any, known: Iterable[str]) -> Complaint:
    """The complaint about a key that the table at `path` does not have."""
    return Complaint(joined(path, key), shown(value), f"no such key; {one_of(known, key)}")


def _check(kind: inspect.Type, told: Any, path: str) -> list[Complaint]:
    match kind:
        case inspect.StructType():
            return _check_struct(kind, told, path)
        case inspect.UnionType():
            return _check_union(kind, told, path)
        case inspect.DictType():
            return _check_dict(kind, told, path)
        case inspect.ListType() | inspect.VarTupleType() | inspect.TupleType():
            return _check_list(kind, told, path)
        case _ if not _fits(kind, told):
            return [Complaint(path, shown(told), allowed(kind))]
        case _:
            return []


def _check_struct(kind: inspect.StructType, told: Any, path: str) -> list[Complaint]:
    if not isinstance(told, dict):
        return [Complaint(path, shown(told), "a table")]
    fields = {field.encode_name: field for field in kind.fields}
    known = [*([kind.tag_field] if kind.tag_field else []), *fields]
    found = [unknown_key(path, key, value, known) for key, value in told.items() if key not in known]
    for name, field in fields.items():
        where = joined(path, name)
        if name in told:
            found += _check(field.type, told[name], where)
        elif field.required:
            found.append(Complaint(where, "missing", allowed(field.type)))
    return found or _last_word(kind.cls, told, path)


def _last_word(kind: type[Any], told: dict[str, Any], path: str) -> list[Complaint]:
    """What the struct's own `__post_init__` says; the field it names first is the place."""
    try:
        msgspec.convert(told, kind)
    except msgspec.ValidationError as fault:
        words = str(fault).split(" - at `$")[0]
        first = _WORD.match(words)
        if first and first[0] in kind.__struct_fields__:
            name = first[0]
            value = shown(told[name]) if name in told else shown(_default_of(kind, name))
            return [Complaint(joined(path, name), value, words)]
        return [Complaint(path or "the whole file", shown(told), words)]
    return []


def _default_of(kind: type[Any], name: str) -> Any:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    return msgspec.to_builtins(fields[name].default, enc_hook=str)


def _check_union(kind: inspect.UnionType, told: Any, path: str) -> list[Complaint]:
    """A table goes to the struct whose tag it has; anything else must fit one of the members."""
    structs = [member for member in kind.types if isinstance(member, inspect.StructType)]
    if structs and (isinstance(told, dict) or len(structs) == len(kind.types)):
        return _check_tagged(structs, told, path)
    if any(not _check(member, told, path) for member in kind.types):
        return []
    members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
    nested = [member for member in members if isinstance(member, inspect.TupleType | inspect.ListType)]
    if len(members) == 1 and nested and isinstance(told, list):
        return _check(members[0], told, path)
    return [Complaint(path, shown(told), " or ".join(allowed(member) for member in members))]


def _check_tagged(structs: list[inspect.StructType], told: Any, path: str) -> list[Complaint]:
    by_tag = {str(member.tag): member for member in structs}
    field = structs[0].tag_field
    if field is None:
        return _check_struct(structs[0], told, path)
    if not isinstance(told, dict):
        return [Complaint(path, shown(told), f"a table with {field} = one of {', '.join(by_tag)}")]
    if field not in told:
        return [Complaint(joined(path, field), "missing", one_of(by_tag, ""))]
    if not (isinstance(told[field], str) and told[field] in by_tag):
        return [Complaint(joined(path, field), shown(told[field]), one_of(by_tag, str(told[field])))]
    return _check_struct(by_tag[told[field]], told, path)


def _check_dict(kind: inspect.DictType, told: Any, path: str) -> list[Complaint]:
    if not isinstance(told, dict):
        return [Complaint(path, shown(told), "a table")]
    found = _check_count(told, kind.min_length, kind.max_length, path)
    for key, value in told.items():
        where = joined(path, key)
        if not _fits(kind.key_type, key):
            found.append(Complaint(where, f"the name {shown(key)}", allowed(kind.key_type)))
        found += _check(kind.value_type, value, where)
    return found


def _check_list(
    kind: inspect.ListType | inspect.VarTupleType | inspect.TupleType, told: Any, path: str
) -> list[Complaint]:
    if not isinstance(told, list | tuple):
        return [Complaint(path, shown(told), allowed(kind))]
    if isinstance(kind, inspect.TupleType):
        if len(told) != len(kind.item_types):
            return [Complaint(path, shown(told), allowed(kind))]
        pairs = zip(kind.item_types, told, strict=True)
        return [fault for n, (item, value) in enumerate(pairs) for fault in _check(item, value, f"{path}[{n}]")]
    found = _check_count(told, kind.min_length, kind.max_length, path)
    for number, value in enumerate(told):
        found += _check(kind.item_type, value, f"{path}[{number}]")
    return found


def _check_count(told: Any, least: int | None, most: int | None, path: str) -> list[Complaint]:
    if (least is None or len(told) >= least) and (most is None or len(told) <= most):
        return []
    limits = (("at least", least), ("at most", most))
    said = " and ".join(f"{word} {limit}" for word, limit in limits if limit is not None)
    return [Complaint(path, f"{len(told)} entries", f"{said} entries")]


def _fits(kind: inspect.Type, told: Any) -> bool:
    match kind:
        case inspect.AnyType():
            return True
        case inspect.NoneType():
            return told is None
        case inspect.BoolType():
            return isinstance(told, bool)
        case inspect.IntType():
            return isinstance(told, int) and not isinstance(told, bool) and abs(told) < 2**63 and _in_range(kind, told)
        case inspect.FloatType():
            number = isinstance(told, int | float) and not isinstance(told, bool)
            return number and abs(told) < 2**63 and math.isfinite(told) and _in_range(kind, told)
        case inspect.StrType():
            return isinstance(told, str) and _in_length(kind, told)
        case inspect.LiteralType():
            return any(told == value and type(told) is type(value) for value in kind.values)
        case _:
            return True


def _in_range(kind: inspect.IntType | inspect.FloatType, told: float) -> bool:
    return not (
        (kind.ge is not None and told < kind.ge)
        or (kind.gt is not None and told <= kind.gt)
        or (kind.le is not None and told > kind.le)
        or (kind.lt is not None and told >= kind.lt)
    )


def _in_length(kind: inspect.StrType, told: str) -> bool:
    return not (
        (kind.min_length is not None and len(told) < kind.min_length)
        or (kind.max_length is not None and len(told) > kind.max_length)
        or (kind.pattern is not None and not re.search(kind.pattern.replace("$", r"\Z"), told))
    )


def allowed(kind: inspect.Type) -> str:
    """What a value of this type may be, in words."""
    match kind:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return _bounds("a whole number", kind)
        case inspect.FloatType():
            return _bounds("a number", kind)
        case inspect.StrType(pattern=str(pattern)):
            return PATTERNS.get(pattern, f"text that matches {pattern}")
        case inspect.StrType():
            return _length("text", kind)
        case inspect.LiteralType():
            return "one of " + ", ".join(shown(value) for value in kind.values)
        case inspect.TupleType():
            return "[" + ", ".join(allowed(item) for item in kind.item_types) + "]"
        case inspect.ListType() | inspect.VarTupleType():
            return f"a list, each {allowed(kind.item_type)}"
        case inspect.UnionType():
            members = [member for member in kind.types if not isinstance(member, inspect.NoneType)]
            return " or ".join(dict.fromkeys(allowed(member) for member in members))
        case inspect.StructType() | inspect.DictType():
            return "a table"
        case _:
            return "any value"


PATTERNS: Mapping[str, str] = {
    f"^[a-z][a-z0-9-]{{0,{most - 1}}}$": f"a small letter, then small letters, digits or '-', at most {most} characters"
    for most in (16, 40)
}
"""Patterns of the spec in words."""


def _bounds(noun: str, kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f"{noun} from {kind.ge} to {kind.le}"
    limits = (("at least", kind.ge), ("above", kind.gt), ("at most", kind.le), ("below", kind.lt))
    said = [f"{word} {limit}" for word, limit in limits if limit is not None]
    return " ".join((noun, ", ".join(said))) if said else noun


def _length(noun: str, kind: inspect.StrType) -> str:
    if kind.min_length is not None and kind.max_length is not None:
        return f"{noun} of {kind.min_length} to {kind.max_length} characters"
    return f"{noun} of at most {kind.max_length} characters" if kind.max_length is not None else noun
