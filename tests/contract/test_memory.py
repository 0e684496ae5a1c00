"""What an order holds: never entries × channels, and no more than its cost says."""

from functools import partial

import pytest
import torch
from contractions import (
    GENERAL,
    NEEDS_REFERENCE,
    OF_EDGES,
    OF_MIXTURES,
    normal,
    parameter,
    random_edges,
    tensors_of,
)
from matrices import backends_on
from probes import Largest, Watched, held_by

from pyg_outerconv.basis import Polynomial
from pyg_outerconv.contract import ORDERS, Problem, contract
from pyg_outerconv.families import Chebyshev
from pyg_outerconv.kernels import BACKENDS, use_backend
from pyg_outerconv.testing import awkward_structures

CHEBYSHEV = Chebyshev(3).basis(awkward_structures()["multi-edge"]).recurrence
NATIVE = [name for name in GENERAL if name not in NEEDS_REFERENCE and name != "per_node"]


def problem_of(order, nodes, count, num_labels, widths, values=True, matrices=4):
    if order.startswith("recurrence"):
        edges = random_edges(nodes, count, 1, values)
        basis = Polynomial(edges, CHEBYSHEV, num_labels)
    else:
        basis = edges = random_edges(nodes, count, num_labels, values)
    matrices = matrices if order in OF_MIXTURES else None
    theta = parameter(num_labels, 1, *widths, matrices, torch.float32)
    x = normal(nodes, widths[0], dtype=torch.float32)
    inputs = [x, *tensors_of(theta), *([edges.value] if values else [])]
    return Problem(basis, x, theta), inputs


def largest_of(order, case, inputs, backend, monkeypatch):
    """Bytes of the largest tensor in forward, backward, and backward of that."""
    watched = Watched(BACKENDS[backend])
    monkeypatch.setitem(BACKENDS, backend, watched)
    with use_backend(backend), Largest() as outside:
        out = contract(case.basis, case.x, case.parameter, order)
        first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        torch.autograd.grad(sum(gradient.sin().sum() for gradient in first), inputs)
    monkeypatch.undo()
    return max(watched.nbytes, outside.nbytes)


# Many more edges than pairs of a node and a label, and tiles smaller than either.
NODES, EDGES, LABELS, CHANNELS = 60, 8_000, 3, 16


# A backend without grouped products has no compact orders; the choice knows.
RUNS = [
    pytest.param(*param.values, order, marks=param.marks, id=f"{param.values[0]}-{order}")
    for param in backends_on("cpu")
    for order in NATIVE
    if not order.endswith("compact") or "grouped_matmul" in BACKENDS[param.values[0]].primitives
]


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize(("backend", "order"), RUNS)
def test_no_order_holds_entries_times_channels(order, backend, monkeypatch):
    for widths in ((CHANNELS, CHANNELS + 1), (CHANNELS + 1, CHANNELS)):
        case, inputs = problem_of(order, NODES, EDGES, LABELS, widths)
        monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", 4096)
        largest = largest_of(order, case, inputs, backend, monkeypatch)
        assert largest < EDGES * CHANNELS * 4 / 2


@pytest.mark.parametrize("order", OF_EDGES)
def test_compact_forms_hold_pairs_and_full_ones_hold_all(order):
    """40 labels that reach few nodes each: 2000 rows in full, at most 200 pairs."""
    case, _ = problem_of(order, 50, 200, 40, (CHANNELS, CHANNELS), matrices=1)
    memory, full = ORDERS[order].cost(case).memory, 50 * 40 * CHANNELS * 4
    if order in ("transform_first", "propagate_first", "dense"):
        assert memory >= full
    elif order != "label_by_label":
        assert memory <= 200 * (CHANNELS + 1) * 4
    else:
        assert memory < full


@pytest.mark.parametrize("order", [name for name in GENERAL if name != "per_node"])
@pytest.mark.parametrize("values", [False, True], ids=["ones", "values"])
@pytest.mark.parametrize("widths", [(16, 16), (16, 4), (4, 16)], ids=str)
@pytest.mark.parametrize("edges", [20_000, 1_000])
def test_an_order_holds_what_its_cost_says(order, edges, widths, values):
    case, inputs = problem_of(order, 200, edges, 8, widths, values, matrices=8)
    backend = "reference" if order in NEEDS_REFERENCE else "native"
    with use_backend(backend):
        run = partial(contract, case.basis, case.x, case.parameter, order)
        saved, largest = held_by(run, inputs)
        claimed = ORDERS[order].cost(case).memory
    assert saved <= 1.3 * claimed
    if backend != "reference":  # which holds entries × channels
        # Views of the values of edges, and their gradients, count as inputs.
        temporary = 0 if values and largest == inputs[-1].nbytes else largest
        assert saved + temporary <= 2.2 * claimed
        assert claimed <= 3 * (saved + largest)
