"""Which cases run: some that hold every word; and faults that are drawn of the core."""

import ast
import subprocess
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from mutants import ROOMS, draw, places
from tiers import FEW, MANY, SHARE, TESTS, covering, every_case, quickest, shared


def cases(*names):
    return [f"tests/test_laws.py::test_it[{name}]" for name in names]


def slow(count):
    return SimpleNamespace(kwargs={"cases": count})


def test_every_family_and_every_structure_is_in_some_case():
    families, structures = (
        [f"{kind}({number})" for number in range(count)]
        for kind, count in (("family", 30), ("structure", 25))
    )
    kept = covering(cases(*map("-".join, product(families, structures))))
    assert all(any(f"[{name}-" in case for case in kept) for name in families)
    assert all(any(f"-{name}]" in case for case in kept) for name in structures)
    assert len(kept) < 2 * len(families) + len(structures)


def test_a_few_cases_run_whole_and_of_numbered_ones_a_few():
    few = cases(*"abcd")
    assert sorted(covering(few)) == few
    assert len(covering(cases(*map(str, range(100))))) == FEW
    names = [f"it-{number}" for number in range(100)]
    assert 0 < len(covering(cases(*names))) <= FEW + 1


def test_large_tests_share_out_their_cases_and_each_word_stays():
    families, laws = [f"family{n}" for n in range(40)], [f"law{n}" for n in range(12)]
    items = [SimpleNamespace(nodeid=f"{law}[{name}]") for law in laws for name in families]
    alone = [SimpleNamespace(nodeid=f"formula[{name}-{name}'s]") for name in families]
    few = [SimpleNamespace(nodeid=f"law0's[{name}]") for name in families[:MANY]]
    kept = [item.nodeid for item in shared([*items, *alone, *few])]
    assert {item.nodeid for item in (*alone, *few)} <= set(kept)
    for word in families:
        ran = [
            one for one in kept if one.startswith("law") and "'" not in one and f"[{word}]" in one
        ]
        assert len(ran) == len(laws) // SHARE
    for law in laws:
        ran = [one for one in kept if one.startswith(f"{law}[")]
        assert len(families) // SHARE / 2 < len(ran) < 2 * len(families) // SHARE
    assert len([*shared(items[: (TESTS - 1) * len(families)])]) == (TESTS - 1) * len(families)


def test_what_runs_does_not_depend_on_the_order_of_collection():
    all_of_them = cases(*(f"{a}-{b}" for a, b in product("abcdefgh", "ijklmnop")))
    assert covering(all_of_them[::-1]) == covering(all_of_them)


def test_of_a_slow_test_a_few_cases_run_and_none_is_quick():
    six = cases(*"abcdef")
    kept = covering(six, slow(2))
    assert len(kept) == 2
    assert set(kept) <= set(six)
    assert sorted(covering(six[:2], slow(2))) == six[:2]
    items = [SimpleNamespace(nodeid=name, get_closest_marker={}.get) for name in cases("a", "b")]
    assert list(quickest(items)) == items[:1]
    items = [SimpleNamespace(nodeid=name, get_closest_marker=slow) for name in six]
    assert not list(quickest(items))


@pytest.mark.parametrize("number", range(100))
def test_a_case_that_does_not_run_is_not_made(number, request):
    test_items = [item for item in request.session.items if item.function is request.function]
    assert len(test_items) == (100 if every_case(request.config) else FEW)


def test_make_test_runs_the_library_and_then_every_file_with_a_page():
    tests = Path(__file__).parent
    line = ["make", "-n", "-C", str(tests.parent), "VENV=nowhere", "test"]
    said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    *_, rest, _, pages = (step for step in said.splitlines() if step and "make" not in step)
    assert rest.endswith('-m "not pages"')
    mark = "mark." + "pages"
    marked = {file for file in tests.rglob("test_*.py") if mark in file.read_text()}
    assert len(marked) > 5
    assert {tests.parent / file for file in pages.partition("-m pages ")[2].split()} == marked


@pytest.mark.parametrize("room", ROOMS)
def test_faults_of_a_room_are_drawn_the_same_again(room):
    faults = draw(room, 3, 0)
    assert len(faults) == 3
    assert faults == draw(room, 3, 0)
    assert faults != draw(room, 3, 1)


@pytest.mark.parametrize("room", ROOMS)
def test_a_fault_is_another_program_and_leaves_the_file(room):
    for fault in draw(room, 3, 0):
        text = fault.file.read_text()
        assert fault.code() != compile(text, str(fault.file), "exec")
        assert fault.file.read_text() == text


def test_what_is_said_of_types_and_errors_is_no_fault():
    text = """
def one(count: int = 3) -> int:
    if count < 0:
        raise ValueError(f"{1 + 1} and {2}")
    ratio: float = 2.5
    return count + 4
"""
    assert [ast.unparse(place) for place in places(ast.parse(text))] == [
        "count < 0",
        "0",
        "count + 4",
        "4",
    ]
