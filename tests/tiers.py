"""Which cases of each test run: all of them, or some that hold every word of their names."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

FEW = 6
"""A test of so many cases runs them all; of cases that only a number tells apart, as many run."""


def covering(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test some cases: each word of their names, numbers excepted, is in one of them.

    The laws run over families × structures × orders: here each family, each structure and each
    order comes once or more often, in an order that depends on names alone.
    """
    tests: dict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0],].append(item)
    for cases in tests.values():
        yield from cases if len(cases) <= FEW else _some(cases)


def _some(cases: list[pytest.Item]) -> Iterator[pytest.Item]:
    seen: set[str] = set()
    numbered = 0
    for case in sorted(cases, key=lambda case: zlib.crc32(case.nodeid.encode())):
        words = {word for word in _words(case) if not word.isdigit()}
        numbered += words <= seen
        if not words <= seen or (numbered <= FEW and len(words) <= 1):
            seen |= words
            yield case


def _words(case: pytest.Item) -> list[str]:
    return case.nodeid.partition("[")[2].rstrip("]").split("-")
