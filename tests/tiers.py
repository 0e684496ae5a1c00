"""Which cases of each test run: all of them, or some that hold every word of their names."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import pytest

FEW = 4
"""A test of so many cases runs them all; of cases that only a number tells apart, as many run."""
MANY, TESTS, SHARE = 10, 4, 3
"""Of a test of more than so many cases, one in SHARE runs of those whose words all are in so many
tests: a law sees a third of the families, and a family is seen by a third of the laws."""


def every_case(config: pytest.Config) -> bool:
    """Whether all cases are asked for, or some by name, or a number of drawn ones."""
    by_name = config.option.keyword or any("::" in name for name in config.args)
    return bool(config.getoption("all") or config.getoption("draws") or by_name)


def covering(cases: Iterable[str], slow: pytest.Mark | None = None) -> list[str]:
    """Of the cases of a test some: each word of their names, numbers excepted, is in one of them.

    The laws run over families × structures × orders: here each family, each structure and each
    order comes once or more often, in an order that depends on names alone. Of a test marked
    ``slow(cases=n)`` n cases run.
    """
    sorted_cases = sorted(cases, key=_number)
    most = slow.kwargs.get("cases", FEW) if slow else FEW
    if len(sorted_cases) <= most:
        return sorted_cases
    return list(_first(sorted_cases, most)) if slow else _some(sorted_cases)


def shared(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The items but for cases of large tests whose words other tests have too, see ``MANY``.

    Every word stays: its cases run in turns, each word beginning at a test of its own.
    """
    tests = {test: [*cases] for test, cases in groupby(sorted(items, key=_test_of), key=_test_of)}
    words = {test: [_names(case.nodeid) for case in cases] for test, cases in tests.items()}
    having = Counter(word for of_test in words.values() for word in set().union(*of_test))
    turns: Counter[str] = Counter()
    for test, cases in tests.items():
        for case, names in zip(cases, words[test], strict=True):
            rarest = min(names, key=lambda name: (having[name], name), default="")
            if len(cases) > MANY and having[rarest] >= TESTS:
                turns[rarest] += 1
                if (turns[rarest] + _number(rarest)) % SHARE:
                    continue
            yield case


def quickest(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """One case of each test that is not marked ``slow``."""
    for _, cases in groupby(sorted(items, key=_test_of), key=_test_of):
        first = next(cases)
        if not first.get_closest_marker("slow"):
            yield first


def _test_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _some(left: list[str]) -> list[str]:
    """Cases that hold every word, those first that bring most; a few that numbers tell apart."""
    words = {case: _names(case) for case in left}
    seen: set[str] = set()
    taken: dict[str, None] = {}
    for new in range(max(map(len, words.values())), 0, -1):
        for case in left:
            if len(words[case] - seen) >= new:
                seen |= words[case]
                taken[case] = None
    alike = (case for case in left if len(words[case]) <= 1 and case not in taken)
    return [*taken, *islice(alike, FEW)]


def _first(left: list[str], count: int) -> Iterator[str]:
    """So many cases, each with as many words as can be that those before it have not."""
    seen: set[str] = set()
    left = [*left]
    for _ in range(count):
        case = max(left, key=lambda case: len({*_words(case)} - seen))
        seen |= {*_words(case)}
        left.remove(case)
        yield case


def _number(case: str) -> int:
    """A number that depends on the name alone."""
    return zlib.crc32(case.encode())


def _names(case: str) -> set[str]:
    """The words of a case that are no numbers."""
    return {word for word in _words(case) if word and not word.isdigit()}


def _words(case: str) -> list[str]:
    return case.partition("[")[2].rstrip("]").split("-")
