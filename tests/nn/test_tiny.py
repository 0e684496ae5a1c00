"""A tiny graph is convolved by its list of edges: as by a basis, without a cache or a plan."""

import random

import pytest
import torch

from pyg_outerconv import OuterConv, clear_caches, use_backend
from pyg_outerconv.basis.edges import edge_basis
from pyg_outerconv.contract.plan import PLANS
from pyg_outerconv.families import GCN, Relation
from pyg_outerconv.graph.norm import NORMS
from pyg_outerconv.kernels import edge_sums
from pyg_outerconv.kernels.edge_sums import MOST, TINY
from pyg_outerconv.nn import tiny
from pyg_outerconv.nn.bases import bases, recent
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import derivatives

P, Q = 4, 6
FORMS = (
    "full",
    "basis-decomposed(num_bases=2)",
    "block-diagonal(num_blocks=2)",
    "low-rank(rank=2)",
    "shared",
)


@pytest.fixture(autouse=True)
def small_as_users_have_it(either_way, monkeypatch):
    """Not multiplied as large graphs are, as half of the tests do."""
    monkeypatch.setattr(edge_sums, "MOST", MOST)


@pytest.fixture
def taken(monkeypatch):
    """The calls that went by the list of edges."""
    calls, convolution = [], tiny.convolution

    def counted(*arguments):
        calls.append(convolution(*arguments))
        return calls[-1]

    monkeypatch.setattr(tiny, "convolution", counted)
    return calls


def draw(pick):
    """A layer, one that goes by a basis and a plan, and what both are called with."""
    if pick.random() < 0.5:
        norm = pick.choice([*NORMS])
        loops, improved, as_pyg = (pick.random() < 0.5 for _ in range(3))
        family, labels = GCN(norm, loops, improved, as_pyg), 1
    else:
        labels = pick.choice([1, 3])
        family = Relation(labels, pick.choice(["mean", None, "given"]))
    nodes, edges = pick.choice([(1, 3), (5, 0), (7, 20), (9, 40)])
    options = {
        "root_weight": pick.random() < 0.5,
        "bias": pick.random() < 0.5,
        "label_aggr": pick.choice(["sum", "mean"]),
        "theta": pick.choice(FORMS) if labels > 1 else "full",
        "flow": pick.choice(["source_to_target", "target_to_source"]),
        "cached": pick.choice([None, True, False]),
    }
    dtype = pick.choice([torch.float32, torch.float64])
    x = torch.randn(nodes, P, dtype=dtype, requires_grad=True)
    beside = {}
    if getattr(family, "norm", None) == "given" or pick.random() < 0.4:
        learns = pick.random() < 0.5
        beside["edge_weight"] = (torch.rand(edges, dtype=dtype) + 0.1).requires_grad_(learns)
    if labels > 1:
        beside["edge_type"] = torch.randint(labels, (edges,))
    ours, other = (OuterConv(P, Q, family, **options).to(dtype) for _ in range(2))
    other.load_state_dict(ours.state_dict())
    other.order = "propagate_first"
    return ours, other, x, torch.randint(nodes, (2, edges)), beside


def results(conv, x, index, beside):
    """Y, and its first and second derivatives."""
    learned = [x, *conv.parameters(), *(w for w in beside.values() if w.requires_grad)]
    return derivatives(conv(x, index, **beside), learned, 2)


@pytest.mark.parametrize("seed", range(40))
def test_values_and_derivatives_are_those_of_a_basis(seed, taken):
    torch.manual_seed(seed)
    ours, other, *arguments = draw(random.Random(seed))
    expected = results(other, *arguments)
    assert not taken
    for _ in range(2):  # the second time perhaps by what is cached
        for one, wanted in zip(results(ours, *arguments), expected, strict=True):
            assert_near(one, wanted)
    assert len(taken) == 2
    assert all(one is not None for one in taken)
    with torch.no_grad():
        assert_near(ours(*arguments[:2], **arguments[2]), expected[0])


@pytest.mark.parametrize("family", [GCN(), Relation(1)])
def test_nothing_is_kept_but_where_it_is_asked_for(family):
    clear_caches()
    x, index = torch.randn(5, P), torch.randint(5, (2, 9))
    OuterConv(P, Q, family)(x, index)
    assert len(bases) == len(recent) == len(PLANS) == 0
    OuterConv(P, Q, family, cached=True)(x, index)
    assert len(bases) == 1
    del index
    assert len(bases) == 0


def test_parametrised_weights_are_read():
    x, index = torch.randn(3, P), torch.tensor([[0, 1], [1, 2]])
    conv = OuterConv(P, Q, Relation(1), root_weight=True)
    torch.nn.init.normal_(conv.bias)
    expected = conv(x, index)
    for module, name in ((conv, "bias"), (conv.theta, "weight"), (conv.root, "weight")):
        torch.nn.utils.parametrize.register_parametrization(module, name, Twice())
    assert_near(conv(x, index), 2 * expected)


class Twice(torch.nn.Module):
    """A parametrisation."""

    def forward(self, parameter):
        return 2 * parameter


def test_a_family_that_makes_other_matrices_of_its_edges_is_asked_for_them(taken):
    class TwiceRelation(Relation):
        """Each edge counts twice."""

        def basis_on(self, edges, dtype=None):
            return edge_basis(edges.but(edge_weight=2 * edges.weight(dtype)))

    x, index = torch.randn(3, P), torch.tensor([[0, 1], [1, 2]])
    conv = OuterConv(P, P, TwiceRelation(), theta="identity", bias=False)
    assert_near(conv(x, index), 2 * torch.cat([torch.zeros(1, P), x[:2]]))
    assert not taken


def test_whoever_observes_or_asks_for_more_gets_a_plan(taken):
    x, index = torch.randn(3, P), torch.tensor([[0, 1], [1, 2]])
    seen = []
    for change in (
        lambda conv: setattr(conv, "order", "transform_first"),
        lambda conv: setattr(conv, "max_memory", 2**20),
        lambda conv: setattr(conv, "fuse", False),
        lambda conv: conv.register_message_forward_hook(lambda *_: seen.append(1)),
        lambda conv: conv.register_message_and_aggregate_forward_hook(lambda *_: seen.append(1)),
    ):
        conv = OuterConv(P, Q, "gcn")
        expected, _ = conv(x, index), taken.pop()
        change(conv)
        assert_near(conv(x, index), expected)
        assert not taken
    assert len(seen) == 2
    conv = OuterConv(P, Q, "gcn")
    expected, _ = conv(x, index), taken.pop()
    with use_backend("reference"):
        assert_near(conv(x, index), expected)
    with torch.autocast("cpu", torch.bfloat16):
        low = conv(x, index)
        conv.order = "propagate_first"
        torch.testing.assert_close(low, conv(x, index), rtol=0.05, atol=0.05)
    assert not torch.equal(low, expected)
    assert taken == [None]


def test_the_printed_path_says_so():
    x, index = torch.randn(3, P), torch.tensor([[0, 1], [1, 2]])
    conv = OuterConv(P, Q, "gcn")
    assert str(conv.contraction_path(x, index)).startswith(tiny.NOTE)
    many = torch.randint(3, (2, TINY // P + 1))
    assert not conv.contraction_path(x, many).note
