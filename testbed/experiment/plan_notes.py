"""What a plan must say of itself: what is synthetic, scaled, slowed, or not modelled under its clock.

Words alone, made from what has been decided already (`testbed.experiment.plan_draft`); they change nothing in a plan.
"""

from __future__ import annotations

from testbed.experiment.hardware import hardware_notes
from testbed.experiment.outlines import NodeOutline
from testbed.experiment.packet_budget import has_images, kernel_rate, roce_ports, saturated, true_rates
from testbed.experiment.plan_draft import Draft
from testbed.network.wire_profile import BULK_READ_BYTES
from testbed.units import GBIT_PER_S, serialization_time


def notes_of(draft: Draft) -> tuple[str, ...]:
    """All of them, in the order in which they are shown."""
    return (
        *draft.scale_notes,
        *_scales(draft),
        *draft.system_notes,
        *_dilation(draft.dilation, draft.outlines),
        *hardware_notes(draft.spec.hardware, draft.clock),
        *(_simulated_surroundings(draft) if draft.clock == "simulated" else _surroundings(draft)),
    )


def _scales(draft: Draft) -> list[str]:
    """The text's origin, and what rates and bytes have become."""
    spec, byte_scale, dilation, profile = draft.spec, draft.byte_scale, draft.dilation, draft.wire_profile
    images = has_images(draft.outlines)
    speaks = not images and any(outline.role == "client" for outline in draft.outlines)
    synthetic = (
        "prompts are excerpts of a bundled public-domain text, answers come from a Markov model of it: synthetic"
    )
    notes = [synthetic] if speaks else []
    if draft.clock == "simulated":
        unused = "dilation does" if images else "dilation and byte_scale do"
        notes.append(f"simulated clock: true rates and true time; the experiment's {unused} not apply")
        return [*notes, *_image_notes(byte_scale, images=images)]
    rates, ports = true_rates(spec), roce_ports(draft.outlines)
    notes.append(profile.words())
    for name in ports:
        slowed = kernel_rate(rates[name], byte_scale, dilation)
        notes.append(f"{name} ports: {rates[name] / GBIT_PER_S:g} Gbit/s true, {slowed / 1e6:g} Mbit/s in the kernel")
    notes.append(
        f"all {sum(ports.values())} RoCE ports saturated would be {saturated(spec, ports, byte_scale, dilation)} of "
        f"{profile.packets_per_s} packets/s"
    )
    notes += _image_notes(byte_scale, images=images)
    if byte_scale > 1 and not images and "compute" in ports:
        slowed = kernel_rate(rates["compute"], byte_scale, dilation)
        here = profile.read_time(slowed, BULK_READ_BYTES, spec.network.compute.path_mtu) / dilation
        modelled_us = serialization_time(BULK_READ_BYTES, rates["compute"]) / 1000
        notes.append(
            f"rings and metadata are not scaled, so a READ of {BULK_READ_BYTES // 1024} KiB of them takes "
            f"{here / 1000:.0f} us of true time here (wire profile); its bits alone take {modelled_us:.1f} us on the "
            "modelled network"
        )
    return notes


def _dilation(dilation: float, outlines: tuple[NodeOutline, ...]) -> list[str]:
    if dilation == 1 or not any(outline.processes for outline in outlines):
        return []
    words = f"host work is real work, which a dilation of {dilation:g} does not stretch as it stretches the GPU's steps"
    return [f"{words}: a piece of 1 ms takes {1 / dilation:.3g} ms of true time; figures need a dilation of 1"]


def _image_notes(byte_scale: int, *, images: bool) -> list[str]:
    if not images or byte_scale == 1:
        return []
    words = f"KV blocks are images: one byte for {byte_scale} true ones, each with its id, place and checksum"
    return [f"{words}; every figure in bytes is a true one"]


def _surroundings(draft: Draft) -> list[str]:
    """What is about one system: neighbours, other cores than its own choice."""
    chosen = {outline.role: draft.cores[outline.name] for outline in draft.outlines}
    notes = []
    if "reserved" in chosen.values():
        who = ", ".join(role for role, cores in chosen.items() if cores == "reserved")
        notes.append(f"{who} on reserved cores, which no neighbour may use and which cannot be sold: a core of its own "
                     "where the bench has three or more; of two the hardware's, whose silicon goes first")  # fmt: skip
    silicon = [outline.role for outline in draft.outlines if outline.cores == "hardware"]
    moved = [role for role in silicon if chosen[role] != "hardware"]
    if moved:
        notes.append(f"{', '.join(moved)} on cores of the host: no silicon of its own, and its lateness is not judged")
    return notes


def _simulated_surroundings(draft: Draft) -> list[str]:
    """What of neighbours, mitigations and cores a simulation has, and what it has not."""
    spec, name, outlines, cores = draft.spec, draft.system, draft.outlines, draft.cores
    system = spec.systems[name]
    notes = [f"{other}: under the simulated clock nothing of it is modelled" for other in system.mitigations
             if other != "pinning"]  # fmt: skip
    if threads := sum(spec.neighbours[other].threads for other in system.neighbours):
        works = any(outline.processes and cores[outline.name] == "host" for outline in outlines)
        told = "is as measured beside so many (profiles/host-contention.toml)" if works else "is none of this system's"
        notes.append(f"{name}: {threads} threads of neighbours; none runs, and work on the host's cores {told}")
    moved = [outline.role for outline in outlines if outline.cores == "hardware" and cores[outline.name] == "host"]
    if moved:
        notes.append(f"{name}: {', '.join(moved)} on cores of the host: only an emulation shows what that does")
    return notes
