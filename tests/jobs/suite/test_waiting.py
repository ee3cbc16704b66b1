"""Which cell a device takes next."""

from __future__ import annotations

from gnomon.jobs.suite.plan import Cell
from gnomon.jobs.suite.waiting import MOST_FAILURES, Waiting


def cell(name: str, *devices: str, group: str = "") -> Cell:
    return Cell(
        id=name,
        job="place",
        model="m",
        selector="@x",
        slot=1,
        repeat=1,
        devices=devices,
        max_time_s=None,
        options={},
        group=group or name,
    )


def test_a_cell_is_taken_once() -> None:
    waiting = Waiting([cell("1", "a", "b"), cell("2", "b")])
    assert waiting.wanted() == ["a", "b"]
    first, second = waiting.take("a"), waiting.take("b")
    assert first is not None and second is not None and (first.id, second.id) == ("1", "2")
    assert waiting.take("a") is None and waiting.take("b") is None and waiting.wanted() == []


def test_two_slots_of_a_group_are_on_two_devices() -> None:
    waiting = Waiting([cell("1", "a", "b", group="g"), cell("2", "a", "b", group="g")])
    assert waiting.take("a") is not None and waiting.take("a") is None
    assert waiting.wanted() == ["b"] and waiting.take("b") is not None


def test_a_slot_that_ended_before_keeps_its_device() -> None:
    one, two = cell("1", "a", "b", group="g"), cell("2", "a", "b", group="g")
    waiting = Waiting([two], [(one, "a")])
    assert waiting.take("a") is None and waiting.take("b") == two


def test_a_cell_that_a_device_failed_goes_to_another() -> None:
    waiting = Waiting([cell("1", "a", "b")])
    taken = waiting.take("a")
    assert taken is not None and waiting.failed(taken, "a")
    assert waiting.take("a") is None and waiting.wanted() == ["b"]
    assert waiting.take("b") == taken and not waiting.failed(taken, "b")
    assert waiting.wanted() == [] and waiting.rest() == []


def test_a_slot_that_another_gave_back_is_taken_by_who_had_passed_it_over() -> None:
    one, two = cell("1", "a", "b", group="g"), cell("2", "a", "b", group="g")
    waiting = Waiting([one, two])
    assert waiting.take("a") == one and waiting.take("b") == two
    assert not waiting.take("a") and waiting.failed(two, "b")
    assert waiting.wanted() == []  # a has the other slot of its group
    assert waiting.rest() == [two]


def test_a_device_that_fails_again_and_again_is_out() -> None:
    waiting = Waiting([cell(str(n), "a") for n in range(MOST_FAILURES + 2)])
    for _ in range(MOST_FAILURES):
        taken = waiting.take("a")
        assert taken is not None and not waiting.failed(taken, "a")
    assert waiting.out == {"a"} and waiting.take("a") is None
    assert len(waiting.rest()) == 2 and waiting.rest() == []


def test_a_device_that_is_well_between_failures_stays() -> None:
    waiting = Waiting([cell(str(n), "a") for n in range(4 * MOST_FAILURES)])
    for number in range(4 * MOST_FAILURES):
        taken = waiting.take("a")
        assert taken is not None
        if number % MOST_FAILURES:
            waiting.failed(taken, "a")
        else:
            waiting.done("a")
    assert not waiting.out
