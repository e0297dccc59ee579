"""Every letter is in the union, and goes through an envelope as what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import msgspec

from testbed.dualpath import chunk_letters, handover_letters, pool_letters, round_letters, turn_letters
from testbed.dualpath.letter import Letter
from testbed.dualpath.letters import AnyLetter, Envelope
from testbed.dualpath.mail import sealed

SUBJECTS = (chunk_letters, handover_letters, pool_letters, round_letters, turn_letters)


def _defined() -> Iterator[type[Letter]]:
    for module in SUBJECTS:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Letter) and kind.__module__ == module.__name__:
                yield kind


def test_every_letter_is_in_the_union_once_and_has_a_tag_of_its_own() -> None:
    defined, listed = list(_defined()), list(get_args(AnyLetter))
    assert sorted(kind.__name__ for kind in defined) == sorted(kind.__name__ for kind in listed)
    assert len({kind.__struct_config__.tag for kind in listed}) == len(listed)


def test_letters_of_every_subject_come_out_of_their_envelope_as_they_went_in() -> None:
    letters: list[AnyLetter] = [
        chunk_letters.ReadChunks(
            "pe0", 3, "pe1-2", "a", "snic0", 7, 10**12, (chunk_letters.ChunkPlace(2**63 - 1, 1 << 40),)
        ),
        handover_letters.BufferGranted("a", "buffer", ((0, 3), (9, 1)), 2),
        pool_letters.PoolPlaces(4, (pool_letters.PoolPlace(-1, 0, 5),)),
        round_letters.RoundStart(2, (round_letters.EngineLoad(5, 6, 7), round_letters.EngineLoad())),
        turn_letters.ProducedMany((turn_letters.TurnProgress("a", 1, done=True),)),
    ]
    decoder = msgspec.msgpack.Decoder(Envelope)
    for letter in letters:
        assert decoder.decode(sealed("leader", letter)) == Envelope("leader", letter)
