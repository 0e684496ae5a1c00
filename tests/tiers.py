"""Which cases of each test run: all of them, or some that hold every word of their names."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import pytest

FEW = 4
"""A test of so many cases runs them all; of cases that only a number tells apart, as many run."""


def covering(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test some cases: each word of their names, numbers excepted, is in one of them.

    The laws run over families × structures × orders: here each family, each structure and each
    order comes once or more often, in an order that depends on names alone. Of a test marked
    ``slow(cases=n)`` n cases run.
    """
    for cases in _tests(items):
        slow = cases[0].get_closest_marker("slow")
        most = slow.kwargs.get("cases", FEW) if slow else FEW
        if len(cases) <= most:
            yield from cases
        else:
            yield from _first(cases, most) if slow else _some(cases)


def quickest(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """One case of each test that is not marked ``slow``."""
    for cases in _tests(items):
        if not cases[0].get_closest_marker("slow"):
            yield cases[0]


def _tests(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test."""
    tests = groupby(sorted(items, key=_test_of), key=_test_of)
    return [list(cases) for _, cases in tests]


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _some(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Cases that hold every word, those first that bring most; a few that numbers tell apart."""
    words = {case: {word for word in _words(case) if not word.isdigit()} for case in cases}
    seen: set[str] = set()
    taken: dict[pytest.Item, None] = {}
    left = sorted(cases, key=_number)
    for new in range(max(map(len, words.values())), 0, -1):
        for case in left:
            if len(words[case] - seen) >= new:
                seen |= words[case]
                taken[case] = None
    alike = (case for case in left if len(words[case]) <= 1 and case not in taken)
    return [*taken, *islice(alike, FEW)]


def _first(cases: list[pytest.Item], count: int) -> Iterator[pytest.Item]:
    """So many cases, each with as many words as can be that those before it have not."""
    seen: set[str] = set()
    left = sorted(cases, key=_number)
    for _ in range(count):
        case = max(left, key=lambda case: len({*_words(case)} - seen))
        seen |= {*_words(case)}
        left.remove(case)
        yield case


def _number(case: pytest.Item) -> int:
    """A number that depends on the name alone."""
    return zlib.crc32(case.nodeid.encode())


def _words(case: pytest.Item) -> list[str]:
    return case.nodeid.partition("[")[2].rstrip("]").split("-")
