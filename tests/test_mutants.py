"""Faults are drawn the same again, and each is another program than the file it was drawn from."""

import ast

import pytest
from mutants import ROOMS, draw, places


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
