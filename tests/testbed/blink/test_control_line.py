"""Who is alive, who runs and who is wanted, in four words."""

from __future__ import annotations

from testbed.blink.control_line import Control, ControlLine, Heart, asked_word, unpack_control
from testbed.blink.ring import CONTROL, RingLayout
from testbed.network.memory_region import PlainMemory

LAYOUT = RingLayout(16, 64, 64)


def line() -> tuple[PlainMemory, ControlLine]:
    memory = PlainMemory(LAYOUT.size)
    return memory, ControlLine(memory, LAYOUT)


def test_zeroed_memory_is_a_first_life_that_nobody_wants_replaced() -> None:
    _, control = line()
    assert control.read() == Control(0, 0, 0, 0)
    assert not control.restart_asked()


def test_the_line_is_a_cache_line_behind_everything_else() -> None:
    assert LAYOUT.control % CONTROL == 0
    assert LAYOUT.extraction(LAYOUT.slots) <= LAYOUT.control <= LAYOUT.size - CONTROL


def test_a_life_that_was_asked_for_begins_once() -> None:
    memory, control = line()
    assert memory.compare_swap(asked_word(LAYOUT), 0, 1) == 0
    assert control.restart_asked()
    assert control.begin_life() == 1
    assert not control.restart_asked()
    assert memory.compare_swap(asked_word(LAYOUT), 0, 1) == 1, "who asks for the same life again changes nothing"
    assert not control.restart_asked()


def test_the_dpu_reads_what_the_gpu_wrote() -> None:
    memory, control = line()
    control.beat()
    control.beat()
    control.note_launch(77)
    data = bytes(memory.view[LAYOUT.control : LAYOUT.control + CONTROL])
    assert unpack_control(data) == control.read() == Control(2, 0, 0, 77)


def test_a_heart_beats_when_it_is_due_and_not_before_its_start() -> None:
    _, control = line()
    heart = Heart(control, 10)
    heart.beat(5)
    assert (control.read().heartbeat, heart.sooner(None), heart.sooner(7)) == (0, None, 7)
    heart.start(20)
    assert (heart.sooner(None), heart.sooner(7), heart.sooner(30)) == (20, 7, 20)
    for now in (20, 29, 30, 31, 55):
        heart.beat(now)
    assert control.read().heartbeat == 3
    assert heart.sooner(None) == 65
