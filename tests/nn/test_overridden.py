"""Steps of messages that a subclass has are called; those that could not be are refused."""

import pytest
import torch
from torch_geometric.nn.conv import MessagePassing

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.basis.multi_head_edges import item
from pyg_outerconv.families import GCN, Directed, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import GridConv
from pyg_outerconv.testing import assert_near

N, P, Q = 6, 3, 4
EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 5, 2], [1, 2, 3, 0, 2, 1, 2, 5, 2]])
FAMILIES = [GCN(), Relation(1), Stack(Relation(1), Identity()), Directed(GCN(add_self_loops=False))]
FLOWS = ("source_to_target", "target_to_source")


def steps(message, aggregate, update):
    """Methods of a subclass, and what they do to tensors."""
    own = {}
    if message:

        def message(self, x_j, edge_value):
            return (edge_value.view(-1, 1) * x_j).relu()

        own["message"] = message
    if aggregate:

        def aggregate(self, inputs, index, dim_size):
            return MessagePassing.aggregate(self, 2 * inputs, index, dim_size=dim_size)

        own["aggregate"] = aggregate
    if update:

        def update(self, inputs):
            return inputs.tanh()

        own["update"] = update
    return own


def expected(conv, basis, x, own):
    """Edge by edge: messages, summed at each target and label, then labels summed."""
    theta, edges = conv.theta()[:, 0], basis.edges()
    at = torch.zeros(basis.num_bases, basis.size[1], theta.size(2), dtype=x.dtype)
    for (m, n), k, value in zip(edges.index.t(), edges.label, edges.values(x.dtype), strict=True):
        sent = value * (x[m] @ theta[k])
        sent = sent.relu() if "message" in own else sent
        at[k, n] += 2 * sent if "aggregate" in own else sent
    out = (at.tanh() if "update" in own else at).sum(0)
    return out if conv.bias is None else out + conv.bias


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("which", range(1, 8))
@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_own_steps_are_called_whatever_fuse_says(family, which, flow):
    own = steps(which & 1, which & 2, which & 4)
    kind = type("Own", (OuterConv,), own)
    heir = type("Heir", (kind,), {})
    x, edges = torch.randn(N, P, dtype=torch.float64), EDGES
    for conv in (kind(P, Q, family, flow=flow).double(), heir(P, Q, family, flow=flow).double()):
        torch.nn.init.normal_(conv.bias)
        basis = conv.basis(x, edges)
        wanted = expected(conv, basis, x, own)
        for fuse in (True, False):
            conv.fuse = fuse
            for edges_or_basis in (edges, basis):
                assert_near(conv(x, edges_or_basis), wanted)
        leaves = [x.requires_grad_(), *conv.parameters()]
        gradients = torch.autograd.grad(conv(x, edges).square().sum(), leaves)
        right = torch.autograd.grad(
            expected(conv, basis, x, own).square().sum(), leaves, allow_unused=True
        )
        for one, other in zip(gradients, right, strict=True):
            assert_near(one, other, at_least=1.0)
        x = x.detach()


def test_steps_may_ask_for_ends_and_leave_out_the_value():
    seen = []

    class Own(OuterConv):
        def message(self, x_j, index, edge_index, size_i=None, more=0):
            seen.append((index, edge_index, size_i))
            return x_j

    conv = Own(P, Q, Relation(1, None), bias=False)
    x = torch.randn(N, P)
    out = conv(x, EDGES)
    assert_near(out, torch.zeros(N, Q).index_add(0, EDGES[1], (x @ conv.theta()[0, 0])[EDGES[0]]))
    ((index, edge_index, size),) = seen
    assert torch.equal(index, EDGES[1])
    assert torch.equal(edge_index, EDGES)
    assert size == N


def test_own_steps_of_walks_run_along_each_step():
    calls = []

    class Own(OuterConv):
        def message(self, x_j, edge_value):
            calls.append(x_j.size(0))
            return super().message(x_j, edge_value)

    conv = Own(P, Q, Walk(3))
    plain = OuterConv(P, Q, Walk(3))
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(N, P)
    assert_near(conv(x, EDGES), plain(x, EDGES))
    assert calls == [EDGES.size(1)] * 3


@pytest.mark.parametrize("options", [{}, {"support": "complete"}, {"normalise": "sigmoid"}])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_own_messages_of_attention_are_called(options, batch):
    class Own(AttentionConv):
        def message(self, x_j, edge_value):
            return (edge_value.view(-1, 1) * x_j).relu()

    conv = Own(P, Q, 2, combine="sum", bias=False, **options).double()
    x = torch.randn(*batch, N, P, dtype=torch.float64)
    out, basis = conv(x, None if options.get("support") else EDGES, return_attention_weights=True)
    theta = conv.theta()[:, 0]
    items = [item(basis, at).to_dense() for at in range(2)] if batch else []
    shares = torch.stack(items) if batch else basis.to_dense()
    sent = torch.einsum("...hmn,...mp,hpq->...hmnq", shares, x, theta).relu()
    assert_near(out, sent.sum((-4, -3)))


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("kind", [OuterConv, AttentionConv, GridConv])
def test_own_fused_steps_are_called_unless_messages_are_asked_for(kind, aggr):
    class OwnFused(kind):  # PyG generates methods by the name of a class
        def message_and_aggregate(self, edge_index, x, theta):
            return 2 * super().message_and_aggregate(edge_index, x, theta)

    options = {OuterConv: {"family": GCN()}, GridConv: {"kernel_size": 3, "dim": 1}}.get(kind, {})
    conv = OwnFused(P, Q, bias=False, aggr=aggr, **options)
    arguments = (torch.randn(2, P, 9),) if kind is GridConv else (torch.randn(N, P), EDGES)
    assert conv.fuse
    doubled, conv.fuse = conv(*arguments), False
    assert_near(doubled, 2 * conv(*arguments))


def test_own_messages_on_images_are_called():
    kind = type("Own", (GridConv,), steps(True, False, False))
    conv = kind(P, Q, 3, dim=1, padding=1, bias=False)
    x = torch.randn(2, P, 7)
    shifts = conv.basis(x).to_dense()
    theta = conv.theta()[:, 0]
    sent = torch.einsum("kmn,bmp,kpq->bkmnq", shifts, x.mT, theta).relu()
    assert_near(conv(x), sent.sum((1, 2)).mT)


# The other flow ---------------------------------------------------------------------------------

SUPPORTS = {
    "hops": {},
    "loops": {"support": "hops(add_self_loops=True)"},
    "complete": {"support": "complete"},
    "causal": {"support": "causal"},
    "window": {"support": "slidingwindow(window=3)"},
    "edges": {"edge_dim": 2},
    "aligned": {"align": Walk(1, powers=(1,))},
}


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("name", SUPPORTS)
@pytest.mark.parametrize("pair", [False, True])
def test_attention_takes_the_other_flow_and_reductions(name, aggr, pair):
    if pair and name in ("causal", "window", "aligned", "loops"):
        pytest.skip("of one set of nodes")
    if name == "edges" and aggr != "add":
        pytest.skip("values of edges are added")
    options = {**SUPPORTS[name], "aggr": aggr}
    plain = AttentionConv(P, Q, 2, **options)
    other = AttentionConv(P, Q, 2, **options, flow=FLOWS[1])
    other.load_state_dict(plain.state_dict())
    x = torch.randn(N, P)
    x = (x, torch.randn(N + 1, P)) if pair else x
    transposed = x[::-1] if pair else x
    reads = name not in ("complete", "causal", "window")
    beside = {"edge_attr": torch.randn(EDGES.size(1), 2)} if name == "edges" else {}
    out = other(transposed, EDGES.flip(0) if reads else None, **beside)
    assert_near(out, plain(x, EDGES if reads else None, **beside))
    other.fuse = False
    assert_near(other(transposed, EDGES.flip(0) if reads else None, **beside), out)
