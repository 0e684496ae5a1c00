"""Heads of attention by name: PyG's layers with PyG's weights, and labels beside others."""

import copy

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from pyg_outerconv import OuterConv, parse_family
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.families import Attention, Hops
from pyg_outerconv.nn import AttentionConv, label_terms
from pyg_outerconv.nn.recipes import layer_of, structure_of
from pyg_outerconv.testing import assert_near
from pyg_outerconv.theta import as_theta, full

EDGES = torch.tensor([[0, 1, 1, 2, 3, 0, 3, 4, 5, 5, 2], [1, 0, 2, 1, 0, 3, 1, 4, 2, 3, 5]])
P, H, Q = 5, 2, 3


def graph():
    x = torch.randn(6, P, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=EDGES.clone(), num_nodes=6)


def put(ours, theirs, combine):
    """PyG's weights into our layer; the number of heads is H."""
    score = ours.family.score
    of_heads = lambda lin: lin.weight.view(H, Q, -1).transpose(1, 2)  # noqa: E731
    bias_of = lambda b: b if combine == "concat" else b.view(H, Q).mean(0)  # noqa: E731
    with torch.no_grad():
        if isinstance(theirs, GATConv):
            ours.theta.weight.copy_(of_heads(theirs.lin))
            score.att_source.copy_(theirs.att_src[0])
            score.att_target.copy_(theirs.att_dst[0])
            ours.bias.copy_(theirs.bias)
        elif isinstance(theirs, GATv2Conv):
            ours.theta.weight.copy_(of_heads(theirs.lin_l))
            score.ends.target.weight.copy_(of_heads(theirs.lin_r))
            score.ends.target.bias.copy_((theirs.lin_l.bias + theirs.lin_r.bias).view(H, Q))
            score.att.copy_(theirs.att[0])
            ours.bias.copy_(theirs.bias + bias_of(theirs.lin_l.bias))
        else:
            ours.theta.weight.copy_(of_heads(theirs.lin_value))
            score.key.weight.copy_(of_heads(theirs.lin_key))
            score.key.bias.copy_(theirs.lin_key.bias.view(H, Q))
            score.query.weight.copy_(of_heads(theirs.lin_query))
            score.query.bias.copy_(theirs.lin_query.bias.view(H, Q))
            ours.root.weight.copy_(theirs.lin_skip.weight.T[None])
            ours.bias.copy_(theirs.lin_skip.bias + bias_of(theirs.lin_value.bias))


@pytest.mark.parametrize("make", [OuterConv, layer_of])
@pytest.mark.parametrize("combine", ["concat", "mean"])
@pytest.mark.parametrize(
    ("text", "kind"), [("gat", GATConv), ("gatv2", GATv2Conv), ("transformer", TransformerConv)]
)
def test_heads_alone_are_the_layer_of_pyg(text, kind, combine, make):
    data, concat = graph(), combine == "concat"
    theirs = kind(P, Q, heads=H, concat=concat).double()
    if text == "gat":
        torch.nn.init.normal_(theirs.bias)
    named, has_root = f"{text}(heads={H}, combine={combine})", text == "transformer"
    ours = make(P, Q * (H if concat else 1), named, root_weight=has_root).double()
    put(ours, theirs, combine)
    edges = structure_of(parse_family(f"{text}(heads={H})"), data)
    edges = edges if isinstance(ours, AttentionConv) else data.edge_index
    x, lin = data.x.requires_grad_(), {"gat": "lin", "gatv2": "lin_l", "transformer": "lin_value"}
    actual, wanted = ours(x, edges), theirs(x, data.edge_index)
    assert_near(actual, wanted)
    mine = torch.autograd.grad(actual.square().sum(), [x, ours.theta.weight])
    its = torch.autograd.grad(wanted.square().sum(), [x, getattr(theirs, lin[text]).weight])
    assert_near(mine[0], its[0])
    if text != "gatv2":  # whose weights of both ends add up in ours
        assert_near(mine[1], its[1].view(H, Q, P).transpose(1, 2))


def test_heads_by_name_are_attention_whose_modules_a_layer_makes():
    named = Attention("cosine(beta=2.0)", Hops(2), "softmax", heads=2, combine="concat")
    layers = []
    for family in (named, "multi_head(2, score=cosine(beta=2.0), support=hops(2))"):
        torch.manual_seed(0)
        layers.append(OuterConv(P, 6, family).double())
    one, other = layers
    assert one.family.score is not other.family.score
    states = [list(layer.state_dict().items()) for layer in layers]
    assert all(k == m and torch.equal(v, w) for (k, v), (m, w) in zip(*states, strict=True))
    assert_near(one(graph().x, EDGES), other(graph().x, EDGES))
    for text in ("gat(2)", "gatv2(2)", "transformer(2)", "multi_head(2)"):
        family = parse_family(text)
        assert isinstance(family, Attention)
        assert parse_family(repr(family)) == family
        assert isinstance(family.averaged(3).sized(P, 6), Attention)


def test_a_layer_of_attention_in_modules_puts_its_heads_together():
    torch.manual_seed(0)
    named = OuterConv(P, 6, "multi_head(2, score=cosine)").double()
    torch.manual_seed(0)
    with_modules = OuterConv(
        P, 6, parse_family("multi_head(2, score=cosine)").sized(P, 6, True)
    ).double()
    assert with_modules.theta.weight.shape == (2, P, 3)
    assert_near(with_modules(graph().x, EDGES), named(graph().x, EDGES))


MIXED = [
    "stack(gat(heads=2), gcn)",
    "stack(gcn, transformer(2, combine=mean), identity)",
    "stack(multi_head(2, score=dot-product), stack(gatv2(3), walk(1)))",
    "stack(multi_head(3, score=cosine(beta=2.0), support=hops(2), normalise=sigmoid), high_pass)",
    "stack(gat(2, combine=sum), gat(2, combine=mean))",
    "stack(scale(gat(2), -0.5), reverse(gat(2)))",
    "sub(gat(2), transformer(2))",
    "directed(gat(3))",
    "select(gatv2(3), (2, 0))",
]


@pytest.mark.parametrize("text", MIXED)
def test_the_layer_is_the_sum_over_its_labels(text):
    data = graph()
    conv = OuterConv(P, 6, text).double()
    edges = structure_of(parse_family(text), data)
    out = conv(data.x, edges)
    basis = conv.basis(data.x, edges)
    assert basis.num_bases == len(conv.family.labels) == parse_family(text).num_bases
    theta = full(conv.theta.parameter(data.x)).squeeze(1)
    wanted = torch.einsum("kmn,mp,kpq->nq", basis.to_dense(), data.x, theta) + conv.bias
    assert_near(out, wanted)
    assert_near(conv(data.x, EDGES), wanted)
    terms = label_terms(conv, data.x, edges)
    assert_near(sum(terms.term(k) for k in range(terms.num_labels)) + conv.bias, wanted)
    assert_near(terms.without(0, out), wanted - terms.term(0))
    other = OuterConv(-1, 6, text).double()
    other.load_state_dict(conv.state_dict())
    assert_near(other(data.x, EDGES), wanted)
    assert_near(copy.deepcopy(conv)(data.x, EDGES), wanted)


def test_what_depends_on_no_features_is_made_once(monkeypatch):
    from pyg_outerconv.families import GCN

    calls = []
    basis_on = GCN.basis_on
    monkeypatch.setattr(GCN, "basis_on", lambda *args: calls.append(1) or basis_on(*args))
    data = graph()
    conv = OuterConv(P, 6, "stack(gat(2), gcn)").double()
    structure = structure_of(parse_family("stack(gat(2), gcn)"), data)
    first = conv(data.x, structure)
    assert_near(conv(data.x, structure), first)
    assert len(calls) == 1
    weighted = torch.rand(EDGES.size(1), dtype=torch.float64, requires_grad=True)
    for _ in range(2):  # weights that learn are never kept
        conv(data.x, EDGES, weighted).sum().backward()
    assert len(calls) == 3


@pytest.mark.parametrize("text", ["stack(gat(2), gcn)", "stack(identity, gat(3, combine=mean))"])
def test_gat_in_a_stack_is_one_step_unless_another_order_is_asked_for(text, monkeypatch):
    data = graph()
    conv = OuterConv(P, 6, text).double()
    path = conv.contraction_path(data.x, EDGES)
    assert "attend_ends" in path.chosen
    leaves = [data.x.requires_grad_(), *conv.parameters()]
    out = conv(data.x, EDGES)
    for other in ({"order": "heads_transform_first"}, {"max_memory": 10**6}, {"fuse": False}):
        same = copy.deepcopy(conv)
        vars(same).update(other)
        own = [data.x, *same.parameters()]
        assert_near(same(data.x, EDGES), out)
        gradients = [
            torch.autograd.grad(y.sin().sum(), of, retain_graph=True)
            for y, of in ((out, leaves), (same(data.x, EDGES), own))
        ]
        for actual, expected in zip(*gradients, strict=True):
            assert_near(actual, expected)

    def shares_of_edges(basis):
        raise AssertionError("the shares of edges are made")

    monkeypatch.setattr(AdditiveAttentionBasis, "heads", shares_of_edges)
    assert_near(conv(data.x, EDGES), out)


def test_a_theta_is_that_of_the_other_labels():
    conv = OuterConv(P, 6, "stack(gat(2), relation(3))", theta="basis-decomposed:2")
    names = [name for name, _ in conv.theta.named_parameters()]
    assert names == ["parts.0.weight", "parts.1.weight", "parts.1.comp"]
    conv = OuterConv(4, 8, "stack(gat(2), gcn)", theta="grouped:2").double()
    x = torch.randn(6, 4, dtype=torch.float64)
    basis, theta = conv.basis(x, EDGES), as_theta(conv.theta.parameter(x))
    assert theta.shape == (3, 1, 4, 8)
    wanted = torch.einsum("kmn,mp,kpq->nq", basis.to_dense(), x, theta.full()[:, 0])
    assert_near(conv(x, EDGES), wanted)


def test_attention_dropout_acts_in_training_alone():
    conv, data = layer_of(P, 6, "gat(2, dropout=0.6)").double(), graph()
    assert_near(conv.eval()(data.x, EDGES), conv(data.x, EDGES))
    assert not torch.allclose(conv.train()(data.x, EDGES), conv(data.x, EDGES))
