"""Recurrent cells are the equations of their papers; torch's cells, and those of images, too."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from pyg_outerconv.attention import KeyQuery, Softmax
from pyg_outerconv.families import (
    GCN,
    Attention,
    Grid,
    Identity,
    Kernel,
    Mean,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.families.support.neighbours import Hops
from pyg_outerconv.graph import Cells
from pyg_outerconv.nn import ConvGRUCell, ConvLSTMCell, GaussianMixture, unroll
from pyg_outerconv.nn.grids import as_cells, as_images, our_weight
from pyg_outerconv.testing import assert_near, assert_same_gradients

N, P, Q = 6, 3, 4
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 0, 2, 2], [1, 0, 2, 1, 2, 3, 4, 4, 4, 4]])  # 5 is alone
WEIGHT = torch.rand(EDGES.size(1), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
DCRNN = Walk(2, norm="target", direction="both")
KINDS = {
    "gru": (ConvGRUCell, {}),
    "gru, reset after": (ConvGRUCell, {"reset_after": True}),
    "lstm": (ConvLSTMCell, {}),
    "lstm, peepholes": (ConvLSTMCell, {"peephole": True}),
    "lstm, peepholes of nodes": (ConvLSTMCell, {"peephole": True, "num_nodes": N}),
}
of_each_kind = pytest.mark.parametrize("kind", KINDS)


def cell_of(kind, family=DCRNN, in_channels=P, **options):
    """A cell in float64, none of whose parameters is zero."""
    cls, own = KINDS[kind]
    cell = cls(in_channels, Q, family, **own, **options).double()
    if in_channels >= 0:
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def values(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def state_of(cell, *batch):
    one = [values(*batch, N, Q) for _ in range(2)]
    return one[0] if isinstance(cell, ConvGRUCell) else tuple(one)


def parts(state):
    return [state] if isinstance(state, Tensor) else list(state)


def flat(state):
    """A state as one tensor."""
    return torch.cat(parts(state), dim=-1)


def lstm(gates, c, w, dim=-1):
    """Equation 3 of the paper: the state of sums of all gates, of a memory and of peepholes w."""
    i, f, new, o = gates.split(Q, dim)
    memory = (f + w[1] * c).sigmoid() * c + (i + w[0] * c).sigmoid() * new.tanh()
    return (o + w[2] * memory).sigmoid() * memory.tanh(), memory


def assert_same(ours, theirs, inputs):
    assert_near(flat(ours), flat(theirs))
    assert_same_gradients(flat(ours), flat(theirs), inputs)


# The equations, densely ---------------------------------------------------------------------------


def diffusion(x, weights, theta, bias):
    """DCRNN's equation 2 with a dense W; its first sum has the last half of Θ (2 (L + 1), P, Q)."""
    length = len(theta) // 2
    out = bias
    for number, matrix in enumerate((weights.t(), weights)):  # D_I^-1 W^T, then D_O^-1 W
        degree = matrix.sum(1, keepdim=True)
        step = matrix / torch.where(degree == 0, 1.0, degree)
        for power in range(length):
            out = out + torch.matrix_power(step, power) @ x @ theta[number * length + power]
    return out


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_with_walks_in_both_directions_the_gru_is_dcrnns_cell(batch):
    cell = cell_of("gru")
    x, h, weight = values(*batch, N, P), values(*batch, N, Q), WEIGHT.clone().requires_grad_()
    dense = torch.zeros(N, N, dtype=torch.float64).index_put(tuple(EDGES), weight, accumulate=True)

    def gates(conv, x):
        return diffusion(x, dense, conv.theta()[:, 0], conv.bias).split(Q, dim=-1)

    r, u = (gate.sigmoid() for gate in gates(cell.gates, torch.cat([x, h], -1)))
    c = gates(cell.candidate, torch.cat([x, r * h], -1))[0].tanh()
    ours = cell(x, EDGES, h, weight)
    assert_same(ours, u * h + (1 - u) * c, [x, h, weight, *cell.parameters()])


@pytest.mark.parametrize("kind", ["lstm", "lstm, peepholes", "lstm, peepholes of nodes"])
def test_the_lstm_is_equation_3_of_its_paper_on_any_basis(kind):
    family = Stack(GCN(), Identity())
    cell = cell_of(kind, family)
    x, (h, c) = values(2, N, P), state_of(cell, 2)
    basis = family.basis(EDGES, WEIGHT, size=(N, N)).to_dense()
    joint, theta = torch.cat([x, h], -1), cell.gates.theta()[:, 0]
    w = torch.zeros(3, Q) if cell.peephole is None else cell.peephole
    out = torch.einsum("kmn,bmp,kpq->bnq", basis, joint, theta) + cell.gates.bias
    ours = cell(x, EDGES, (h, c), WEIGHT)
    assert_same(ours, lstm(out, c, w), [x, h, c, *cell.parameters()])


# Torch's own cells, and images --------------------------------------------------------------------


def with_weights(cell, named, *inputs):
    """What a cell returns with other parameters, which may carry gradients."""
    assert set(named) == dict(cell.named_parameters()).keys()
    return functional_call(cell, named, inputs)


def test_on_the_identity_the_gru_that_resets_after_is_torchs():
    theirs = torch.nn.GRUCell(P, Q, dtype=torch.float64)
    named = {
        f"{name}.{part}": getattr(theirs, f"{torchs}_{end}").t().expand(*shape, -1)
        for name, end, size in (("input", "ih", P), ("hidden", "hh", Q))
        for part, torchs, shape in (
            ("theta.weight", "weight", (1, size)),
            ("bias", "bias", ()),
        )
    }
    x, h = values(N, P), values(N, Q)
    ours = with_weights(cell_of("gru, reset after", Identity()), named, x, EDGES, h)
    assert_same(ours, theirs(x, h), [x, h, *theirs.parameters()])


def test_on_the_identity_the_lstm_is_torchs():
    theirs = torch.nn.LSTMCell(P, Q, dtype=torch.float64)
    weight = torch.cat([theirs.weight_ih, theirs.weight_hh], dim=1).t()
    named = {
        "gates.theta.weight": weight.expand(1, -1, -1),
        "gates.bias": theirs.bias_ih + theirs.bias_hh,
    }
    cell = cell_of("lstm", Identity())
    x, state = values(N, P), state_of(cell)
    ours = with_weights(cell, named, x, EDGES, state)
    assert_same(ours, theirs(x, state), [x, *state, *theirs.parameters()])


def images(*channels):
    return [values(2, count, 5, 4) for count in channels]


GRID = Grid((3, 3), padding=1)


def test_on_a_grid_the_lstm_is_that_of_images():
    x, h, c = images(P, Q, Q)
    weight, bias = values(4 * Q, P + Q, 3, 3), values(4 * Q)
    w = values(3, Q, 5, 4)
    expected = lstm(F.conv2d(torch.cat([x, h], 1), weight, bias, padding=1), c, w, dim=1)
    cell = ConvLSTMCell(P, Q, GRID, peephole=True, num_nodes=20).double()
    named = {
        "gates.theta.weight": our_weight(weight.flatten(2), 1, False)[:, 0],
        "gates.bias": bias,
        "peephole": as_cells(w, 2),
    }
    state = tuple(as_cells(part, 2) for part in (h, c))
    outputs = with_weights(cell, named, as_cells(x, 2), (5, 4), state)
    ours = [as_images(part, (5, 4)) for part in outputs]
    assert_same(ours, expected, [x, h, c, weight, bias, w])


def test_on_a_grid_the_gru_is_that_of_images():
    x, h = images(P, Q)
    gates, candidate = values(2 * Q, P + Q, 3, 3), values(Q, P + Q, 3, 3)
    r, u = F.conv2d(torch.cat([x, h], 1), gates, padding=1).sigmoid().chunk(2, dim=1)
    new = F.conv2d(torch.cat([x, r * h], 1), candidate, padding=1).tanh()
    named = {
        "gates.theta.weight": our_weight(gates.flatten(2), 1, False)[:, 0],
        "candidate.theta.weight": our_weight(candidate.flatten(2), 1, False)[:, 0],
    }
    cell = ConvGRUCell(P, Q, GRID, bias=False).double()
    out = with_weights(cell, named, as_cells(x, 2), (5, 4), as_cells(h, 2))
    assert_same(as_images(out, (5, 4)), u * h + (1 - u) * new, [x, h, gates, candidate])


def test_on_a_grid_gates_run_as_dense_convolutions():
    cell = cell_of("lstm", GRID)
    path = cell.gates.contraction_path(values(2, 20, P + Q), (5, 4))
    assert "→ convolution" in str(path)


def test_on_cells_with_holes_only_these_have_a_state():
    mask = torch.rand(5, 4) > 0.5
    cell = cell_of("lstm", GRID)
    h, c = cell(values(int(mask.sum()), P), Cells.of_mask(mask))
    assert h.shape == c.shape == (int(mask.sum()), Q)


# States, batches and time -------------------------------------------------------------------------


@of_each_kind
def test_no_state_is_a_state_of_zeros(kind):
    cell = cell_of(kind)
    x = values(2, N, P)
    zeros = [torch.zeros(2, N, Q, dtype=torch.float64) for _ in range(2)]
    state = zeros[0] if isinstance(cell, ConvGRUCell) else tuple(zeros)
    assert_near(flat(cell(x, EDGES)), flat(cell(x, EDGES, state)), 0.0)


@of_each_kind
def test_unrolled_is_step_by_step(kind):
    cell = cell_of(kind)
    xs, weight, start = values(4, 2, N, P), WEIGHT.clone().requires_grad_(), state_of(cell, 2)
    outputs, last = unroll(cell, xs, EDGES, start, edge_weight=weight)
    state, steps = start, []
    for x in xs:
        state = cell(x, EDGES, state, weight)
        steps.append(parts(state)[0])
    inputs = [xs, weight, *parts(start), *cell.parameters()]
    assert_same([outputs], [torch.stack(steps)], inputs)
    assert_near(flat(last), flat(state))


def test_the_basis_is_made_once_for_all_gates_and_steps(monkeypatch):
    basis_calls, basis_on = [], Walk.basis_on
    monkeypatch.setattr(
        Walk, "basis_on", lambda *arguments: basis_calls.append(arguments) or basis_on(*arguments)
    )
    for kind in KINDS:
        basis_calls.clear()
        unroll(cell_of(kind), values(3, N, P), EDGES.clone())  # not that of the cell before
        assert len(basis_calls) == 1


# Any family, and the options of the layer ---------------------------------------------------------


def test_a_learned_basis_is_one_for_all_gates_and_learns():
    function = GaussianMixture(2, 3)
    cell = cell_of("gru", Kernel(function))
    outputs, _ = unroll(
        cell, values(2, N, P), EDGES, edge_attr=torch.rand(EDGES.size(1), 2, dtype=torch.float64)
    )
    outputs.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in function.parameters())
    assert len({id(p) for p in cell.parameters()}) == 4 + len(list(function.parameters()))


def test_values_of_content_are_made_of_what_each_convolution_reads():
    family = Attention(KeyQuery(2, 3, P + Q), Hops(1), Softmax())
    cell = cell_of("gru", family)
    xs, h = values(2, 3, N, P), values(3, N, Q)
    outputs, last = unroll(cell, xs, EDGES, h)
    state = h
    for x in xs:
        r, u = cell.gates(torch.cat([x, state], -1), EDGES).sigmoid().chunk(2, dim=-1)
        c = cell.candidate(torch.cat([x, r * state], -1), EDGES).tanh()
        state = u * state + (1 - u) * c
    assert_same(last, state, [xs, h, *cell.parameters()])
    assert_near(outputs[-1], last)


@of_each_kind
def test_a_mean_is_the_familys_whether_edges_or_a_basis_are_given(kind):
    family = Relation(2, norm=None)
    mean, other = cell_of(kind, family, aggr="mean"), cell_of(kind, Mean(family))
    other.load_state_dict(mean.state_dict())
    x, types = values(N, P), torch.arange(EDGES.size(1)) % 2
    basis = family.basis(EDGES, edge_type=types, size=(N, N), dtype=torch.float64)
    expected = flat(other(x, EDGES, edge_type=types))
    assert_near(flat(mean(x, EDGES, edge_type=types)), expected)
    assert_near(flat(mean(x, basis)), expected)
    outputs, _ = unroll(mean, x.expand(1, -1, -1), basis)
    assert_near(outputs[0], expected[:, :Q])


@of_each_kind
def test_options_of_the_layer_reach_every_convolution(kind):
    cell = cell_of(kind, theta="low-rank(rank=2)", bias=False, root_weight=True, cached=True)
    convolutions = list(cell.children())
    assert convolutions
    for conv in convolutions:
        assert (conv.theta.name, conv.theta.option) == ("low-rank", 2)
        assert conv.bias is None
        assert conv.root_weight
        assert conv.cached


def test_comparing_reductions_act_on_all_gates():
    cell = cell_of("lstm", Relation(2, norm=None), aggr="max")
    x, state = values(N, P), state_of(cell)
    types = torch.arange(EDGES.size(1)) % 2
    out = cell.gates(torch.cat([x, state[0]], -1), EDGES, edge_type=types)
    expected = lstm(out, state[1], torch.zeros(3, Q))
    assert_near(flat(cell(x, EDGES, state, edge_type=types)), flat(expected))


# As a module --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["lstm, peepholes", "lstm, peepholes of nodes"])
def test_peepholes_are_shut_at_first_and_after_a_reset(kind):
    cell, own = cell_of(kind), KINDS[kind][1]
    assert not ConvLSTMCell(P, Q, DCRNN, **own).peephole.any()
    assert cell.peephole.any()
    cell.reset_parameters()
    assert not cell.peephole.any()


def test_a_cell_says_what_it_is():
    assert repr(cell_of("gru")) == f"ConvGRUCell(3, 4, {DCRNN})"
    assert repr(cell_of("lstm", "gcn")) == f"ConvLSTMCell(3, 4, {GCN()})"
