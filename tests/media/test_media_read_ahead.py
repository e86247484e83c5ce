"""Reading ahead changes when items are made, not what they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from holmes.media.encode_video import read_ahead


def test_the_next_item_is_made_while_this_one_is_in_use() -> None:
    made = {number: threading.Event() for number in range(4)}

    def numbers() -> Iterator[int]:
        for number in range(3):
            made[number].set()
            yield number
        made[3].set()

    seen = []
    for number in read_ahead(numbers()):
        assert made[number + 1].wait(timeout=30), "nothing was read while this item was in use"
        if number < 1:
            assert not made[number + 2].is_set(), "one item ahead, not more: they are large"
        seen.append(number)
    assert seen == [0, 1, 2]


def test_all_items_are_made_by_one_other_thread() -> None:
    threads = set(read_ahead(threading.get_ident() for _ in range(5)))
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_a_fault_comes_after_the_items_before_it() -> None:
    def faulty() -> Iterator[int]:
        yield 1
        raise ValueError("the file ends here")

    seen = []
    with pytest.raises(ValueError, match="the file ends here"):
        seen.extend(read_ahead(faulty()))
    items = read_ahead(faulty())
    assert next(items) == 1


def test_who_stops_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    items = read_ahead(iter(range(100)))
    assert next(items) == 0
    assert threading.active_count() == before + 1
    items.close()  # type: ignore[attr-defined]  # it is a generator
    assert threading.active_count() == before


def test_nothing_gives_nothing() -> None:
    assert list(read_ahead(iter([]))) == []
