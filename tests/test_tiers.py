"""Of each test, the cases that run hold every word of the names of all."""

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple

from tiers import FEW, covering, quickest


class Case(NamedTuple):
    nodeid: str
    get_closest_marker: Callable[[str], Any]


def cases(*names, **slow):
    marker = SimpleNamespace(kwargs=slow) if slow else None
    return [Case(f"tests/test_laws.py::test_it[{name}]", {"slow": marker}.get) for name in names]


def test_every_family_and_every_structure_is_in_some_case():
    families, structures = (
        [f"{kind}({number})" for number in range(count)]
        for kind, count in (("family", 30), ("structure", 25))
    )
    kept = [item.nodeid for item in covering(cases(*map("-".join, product(families, structures))))]
    assert all(any(f"[{name}-" in case for case in kept) for name in families)
    assert all(any(f"-{name}]" in case for case in kept) for name in structures)
    assert len(kept) < 2 * len(families) + len(structures)


def test_a_few_cases_run_whole_and_of_numbered_ones_a_few():
    few = cases(*"abcd")
    assert list(covering(few)) == few
    assert len(list(covering(cases(*map(str, range(100)))))) == FEW
    names = [f"it-{number}" for number in range(100)]
    assert 0 < len(list(covering(cases(*names)))) <= FEW + 1


def test_what_runs_does_not_depend_on_the_order_of_collection():
    all_of_them = cases(*(f"{a}-{b}" for a, b in product("abcdefgh", "ijklmnop")))
    names = {item.nodeid for item in covering(all_of_them)}
    assert {item.nodeid for item in covering(all_of_them[::-1])} == names


def test_of_a_slow_test_a_few_cases_run_and_none_is_quick():
    slow = cases(*"abcdef", cases=2)
    kept = list(covering(slow))
    assert len(kept) == 2
    assert all(case in slow for case in kept)
    assert list(covering(slow[:2])) == slow[:2]
    assert not list(quickest(slow))
    both = cases("a", "b")
    assert list(quickest(both)) == both[:1]
