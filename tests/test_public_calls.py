"""Every public call, with one argument after another replaced by a hostile value.

It succeeds, or is refused in one line with the rule, what it expects and what came, and leaves its
other arguments as they were.
"""

import inspect
import zlib

import pytest
import torch
from public_calls import CALLS, public_names, why_apart
from torch.nn import Module

from pyg_outerconv.errors import Refused

PLAIN = {
    "None": lambda: None,
    "text": lambda: "x",
    "3.5": lambda: 3.5,
    "-1": lambda: -1,
    "10^30": lambda: 10**30,
    "NaN": lambda: float("nan"),
    "a switch": lambda: True,
    "an empty list": list,
    "a list of two kinds": lambda: [1, "a"],
    "an empty tuple": lambda: (),
    "a dictionary": dict,
    "an object": object,
}
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
DRAWN = 6
"""Tensors drawn for each argument."""


def hostile(name, option):
    """Makers of values by name; tensors are drawn, of any size and dtype, on a CPU or meta."""
    values = dict(PLAIN)
    if name.startswith("testing."):  # laws compute with dense tensors, of sizes that fit
        return values
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {option}".encode()))

    def number(below):
        return int(torch.randint(below, (1,), generator=generator))

    for _ in range(DRAWN):
        shape = tuple(number(5) for _ in range(1 + number(3)))
        dtype, on = DTYPES[number(len(DTYPES))], "meta" if number(4) == 0 else "cpu"
        drawn = torch.full(shape, (1, -5, 2)[number(3)], device=on).to(dtype)
        values[f"{dtype} {shape} on {on}, {len(values)}"] = drawn.clone
    return values


def options_of(call):
    """The names of the arguments of a call, and the places of those of any number."""
    named = inspect.signature(call.function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [one.name for one in named if one.kind in kinds and not one.name.startswith("_")]
    return [*names, *range(len(call.several))]


def replaced(call, option, value):
    """The call with another value for an argument."""
    if isinstance(option, str):
        return call._replace(arguments={**call.arguments, option: value})
    several = list(call.several)
    several[option] = value
    return call._replace(several=tuple(several))


def contents(call, option):
    """Copies of the tensors in the other arguments."""
    held = [*call.several, *(one for name, one in call.arguments.items() if name != option)]
    states = [one.state_dict().values() if isinstance(one, Module) else [one] for one in held]
    return [one.clone() for state in states for one in state if type(one) is torch.Tensor]


def test_every_public_name_has_a_call():
    names = public_names()
    doors = {"graph.Graph.read"}  # methods that are called with what users have
    assert {name for name, one in names.items() if why_apart(one) is None} | doors == set(CALLS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_a_hostile_argument_is_taken_or_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        CALLS[name]()()
    except Refused as error:
        pytest.skip(f"not on this machine: {error}")
    for option in options_of(CALLS[name]()):
        for what, make in hostile(name, option).items():
            call = replaced(CALLS[name](), option, make())
            before = contents(call, option)
            try:
                call()
            except Refused as refused:
                message = str(refused)
                assert "\n" not in message, (option, what)
                assert "expected" in message, (option, what, message)
            except AssertionError:
                assert name.startswith("testing."), (option, what)
            except Exception as error:
                raise AssertionError(f"{option}={what}: {error!r}") from error
            for one, other in zip(before, contents(call, option), strict=True):
                assert one.is_meta or torch.equal(one, other), (option, what)
