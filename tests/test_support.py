"""SUPPORT.md says what is found here: every order and backend is tried in every combination."""

import pytest
import torch
from support import near
from write_support import (
    DEVICES,
    FILE,
    HEAD,
    NOT_MEASURED,
    backend_rows,
    backends_to_try,
    here,
    order_rows,
    recorded,
)

from pyg_outerconv.contract import ORDERS
from pyg_outerconv.kernels import BACKENDS

AGAIN = "(`python tests/write_support.py` writes SUPPORT.md)"


def lines_of(device, name):
    """The recorded lines that begin with a name; the test is skipped where nothing is recorded."""
    text = recorded()[device]
    if text == NOT_MEASURED:
        pytest.skip(f"SUPPORT.md has no record of {device} yet {AGAIN}")
    return [line for line in text.splitlines() if line.startswith(f"| {name} |")]


# Each order and backend is tried wherever the default tier runs.
each_device_here = pytest.mark.parametrize("device", [one for one in DEVICES if here(one)])


@pytest.mark.slow(cases=12)
@each_device_here
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_said_of_an_order_is_so(order, device):
    assert lines_of(device, order) == order_rows(order, device), AGAIN


@pytest.mark.slow(cases=3)
@each_device_here
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_said_of_a_backend_is_so(backend, device):
    if backend not in backends_to_try(device):
        pytest.skip(f"{backend} does not serve {device} here without being asked for")
    assert lines_of(device, backend) == backend_rows(backend, device), AGAIN


def test_the_head_is_what_the_command_writes():
    assert FILE.read_text(encoding="utf-8").startswith(HEAD), AGAIN


def test_nothing_else_is_said():
    for device, text in recorded().items():
        if text == NOT_MEASURED:
            continue
        orders, primitives = (_named(part) for part in text.split("### Primitives"))
        assert orders == {"order", "---", *ORDERS}
        assert primitives <= {"backend", "---", *BACKENDS}, device


def _named(table):
    return {line.split(" | ")[0][2:] for line in table.splitlines() if line.startswith("| ")}


def test_a_wrong_result_is_not_recorded_as_anything():
    with pytest.raises(AssertionError, match="largest difference"):
        near(torch.ones(3), torch.tensor([1.0, 1.0, 1.1]).double())
