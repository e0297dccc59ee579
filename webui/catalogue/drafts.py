"""A run that is being thought about: a file, what the form changes in it, the faults of that, and what it would be.

Both ways of writing one, fields and TOML, come together here: fields become overrides, further overrides are laid over
them, and the command's own reader judges the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import spec_from_bytes, tables_from_bytes
from testbed.experiment.spec import Spec
from webui.catalogue.launch_form import form_of, overrides_of, place_faults
from webui.catalogue.parts import Section, Table, every_input
from webui.catalogue.planned import CannotRunThere
from webui.catalogue.preview import Preview, preview_of
from webui.catalogue.toml_text import document
from webui.runs.specs import SpecFacts, facts_of


@dataclass
class Draft:
    """One moment of a launch form."""

    text: str
    """The file, without any change."""
    experiment: str
    """Name of the shipped experiment; empty for a file of one's own."""
    on: str
    further: str = ""
    """Overrides as they were typed, one a line."""
    sections: list[Section | Table] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    """Everything that is laid over the file, the fields' first."""
    faults: list[str] = field(default_factory=list)
    """Those that no field has taken."""
    spec: Spec | None = None
    """None: it has faults."""
    preview: Preview | None = None

    @property
    def facts(self) -> SpecFacts | None:
        """As rows and pages have them."""
        return None if self.spec is None else facts_of(self.spec)

    @property
    def all_faults(self) -> list[str]:
        """Every fault, those of fields with their path."""
        return [*self.faults, *(fault for section in self.sections for fault in section.faults)]

    @property
    def field_faults(self) -> list[tuple[str, str, list[str]]]:
        """Faults with the name of the input that they belong beside, and with its path in the file."""
        return [(part.name, part.path, part.own_faults) for part in every_input(self.sections) if part.own_faults]

    @property
    def is_open_ended(self) -> bool:
        """A server for clients of one's own; no run that ends by itself."""
        return bool(self.facts and self.facts.is_open_ended)

    def whole_text(self) -> str:
        """One file that says the same: the very file where nothing is laid over it, else one that is written anew."""
        if not self.overrides:
            return self.text
        try:
            told, _ = tables_from_bytes(self.text.encode(), "", self.overrides)
        except SpecError:
            return self.text
        changed = "\n".join(f"  {line}" for line in self.overrides)
        return document(told, head=f"Made from {self.experiment or 'a file'} with\n{changed}")


def draft_of(
    *,
    text: str,
    on: str,
    experiment: str = "",
    further: str = "",
    posted: Mapping[str, str] | None = None,
    changed: Sequence[str] = (),
    with_fields: bool = True,
) -> Draft:
    """A draft, judged. `posted` is what was typed into the form, `changed` overrides that are to be filled into it."""
    draft = Draft(text, experiment, on, further)
    where = f"{experiment}.toml" if experiment else "spec"
    try:
        told, _ = tables_from_bytes(text.encode(), where)
        shown, _ = tables_from_bytes(text.encode(), where, changed)
    except SpecError as fault:
        draft.faults = fault.lines()
        return draft
    if with_fields:
        draft.sections = form_of(told, shown=shown, posted=posted)
    filled = overrides_of(draft.sections)
    if changed and (not with_fields or tables_from_bytes(text.encode(), where, filled)[0] != shown):
        draft.further = "\n".join(changed)
    draft.overrides = [*filled, *override_lines(draft.further)]
    _judge(draft, where)
    return draft


def override_lines(text: str) -> list[str]:
    """`key=value` texts; empty lines and comments are for people."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _judge(draft: Draft, where: str) -> None:
    try:
        draft.spec = spec_from_bytes(draft.text.encode(), where, draft.overrides)
        if not draft.is_open_ended:
            draft.preview = preview_of(draft.spec, experiment=draft.experiment, backend=draft.on)
    except SpecError as fault:
        draft.faults = place_faults(draft.sections, fault.faults)
    except CannotRunThere as fault:
        draft.faults = [f"on: {draft.on}: {fault}"]
