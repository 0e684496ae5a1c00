"""Models of PyG's BasicGNN made of our layers, and models in evaluation mode."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from against_pyg import copy_weights
from oracle import assert_same
from torch.nn import BatchNorm1d, Dropout, Linear, Sequential
from torch_geometric import EdgeIndex
from torch_geometric.nn import GAT, GCN, GraphSAGE, to_hetero

from pyg_outerconv.nn import AttentionGNN, OuterGNN
from pyg_outerconv.nn.models import evaluating
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 5, 6], [1, 2, 3, 0, 2, 1, 4, 6, 5]])
WEIGHT = torch.rand(9) + 0.1
BATCH = torch.tensor([0, 0, 0, 0, 0, 1, 1])
NORMS = [None, "batch_norm", "layer_norm", "graph_norm", "pair_norm", "instance_norm"]


def x_of(*shape):
    return torch.randn(*(shape or (7, 4)))


def copy_model(ours, theirs):
    """Give our model the parameters of PyG's."""
    for mine, its in zip(ours.convs, theirs.convs, strict=True):
        copy_weights(mine, its)
    for name in ("jk", "lin", "norms"):
        if hasattr(ours, name):
            getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())


def assert_same_models(ours, theirs, *arguments, **options):
    x = x_of().double().requires_grad_()
    out, expected = (model.double()(x, *arguments, **options) for model in (ours, theirs))
    assert_same(out, expected, [x])


@pytest.mark.parametrize("jk", [None, "last", "cat", "max", "lstm"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("out_channels", [None, 3])
def test_a_model_of_gcn_is_pygs(jk, norm, out_channels):
    options = {"jk": jk, "norm": norm, "out_channels": out_channels, "act": "elu"}
    ours, theirs = OuterGNN(4, 6, 3, family="gcn", **options), GCN(4, 6, 3, **options)
    copy_model(ours, theirs)
    beside = {"batch": BATCH, "batch_size": 2} if ours.supports_norm_batch else {}
    assert_same_models(ours, theirs, EDGES, WEIGHT.double(), **beside)
    assert repr(ours) == repr(theirs).replace("GCN", "OuterGNN")


def test_a_model_of_sage_is_pygs():
    ours = OuterGNN(4, 6, 2, 3, family="relation(1)", root_weight=True, act_first=True)
    theirs = GraphSAGE(4, 6, 2, 3, act_first=True)
    copy_model(ours, theirs)
    assert_same_models(ours, theirs, EDGES)


@pytest.mark.parametrize("jk", [None, "cat"])
def test_a_model_of_attention_is_pygs_gat(jk):
    loops = "hops(add_self_loops=True)"
    ours = AttentionGNN(4, 6, 2, 3, heads=2, score="additive", support=loops, jk=jk)
    theirs = GAT(4, 6, 2, 3, heads=2, jk=jk)
    copy_model(ours, theirs)
    assert [conv.combine for conv in ours.convs] == ["concat", "mean" if jk is None else "concat"]
    assert_same_models(ours, theirs, EDGES)


def test_dropout_is_that_of_the_model_and_of_attention():
    ours = AttentionGNN(4, 6, 2, heads=2, dropout=0.5)
    assert [conv.family.normalise.dropout for conv in ours.convs] == [0.5, 0.5]
    x = x_of()
    assert not torch.equal(ours(x, EDGES), ours(x, EDGES))
    assert torch.equal(ours.eval()(x, EDGES), ours(x, EDGES))


def test_edge_features_reach_attention():
    model, attr = AttentionGNN(4, 6, 2, heads=2, edge_dim=3), torch.randn(9, 3)
    x = x_of()
    hidden = model.convs[0](x, EDGES, edge_attr=attr).relu()
    assert_near(model(x, EDGES, edge_attr=attr), model.convs[1](hidden, EDGES, edge_attr=attr))


# Trimming ----------------------------------------------------------------------------------------

# As a sampler lists them: two seeds, the sources of their edges, and the sources of these.
NODES_OF_HOP, EDGES_OF_HOP = [2, 3, 2], [4, 4]
SAMPLED = torch.tensor([[2, 3, 4, 2, 5, 6, 1, 5], [0, 0, 1, 1, 2, 3, 4, 4]])


@pytest.mark.parametrize("kind", ["list", "EdgeIndex"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OuterGNN(4, 6, 2, 3, family="gcn"), GCN(4, 6, 2, 3)),
        (OuterGNN(4, 6, 2, 3, family="relation(1)", root_weight=True), GraphSAGE(4, 6, 2, 3)),
    ],
    ids=["gcn", "sage"],
)
def test_trimmed_models_are_pygs(ours, theirs, kind):
    edges = SAMPLED if kind == "list" else EdgeIndex(SAMPLED, sparse_size=(7, 7))
    copy_model(ours, theirs)
    sampled = {
        "num_sampled_nodes_per_hop": NODES_OF_HOP,
        "num_sampled_edges_per_hop": EDGES_OF_HOP,
    }
    x = x_of()
    out = ours(x, copy.copy(edges), **sampled)
    expected = theirs(x, copy.copy(edges), **sampled)
    assert out.shape == (5, 3)
    assert_near(out, expected)
    if ours.convs[0].root is not None:  # degrees of targets alone: seeds see all that they need
        assert_near(out[:2], ours(x, SAMPLED)[:2])


def test_weights_are_trimmed_with_edges():
    model, x, weight = OuterGNN(4, 6, 2, 3, family="relation(1)"), x_of(), torch.rand(8) + 0.1
    out = model(
        x,
        SAMPLED,
        edge_weight=weight,
        num_sampled_nodes_per_hop=NODES_OF_HOP,
        num_sampled_edges_per_hop=EDGES_OF_HOP,
    )
    assert_near(out[:2], model(x, SAMPLED, edge_weight=weight)[:2])


# State -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize(
    "model",
    [OuterGNN(-1, 6, 2, 3, family="walk(2)", jk="cat"), AttentionGNN(-1, 6, 2, heads=2)],
    ids=lambda model: type(model).__name__,
)
def test_lazy_models_are_copied_and_made_by_the_first_input(model, copied):
    model = copied(model)
    out = model(x_of(), EDGES)
    other, x = copied(model), x_of()
    assert_near(other(x, EDGES), model(x, EDGES))
    model.reset_parameters()
    assert out.shape == model(x, EDGES).shape
    assert not torch.equal(other(x, EDGES), model(x, EDGES))


def test_a_model_becomes_heterogeneous():
    model = OuterGNN((-1, -1), 6, 2, 3, family="relation(1)", root_weight=True)
    kinds = [("a", "to", "b"), ("b", "to", "a")]
    model = to_hetero(model, (["a", "b"], kinds))
    edges = torch.tensor([[0, 1, 2], [0, 2, 1]])
    out = model({"a": x_of(4, 5), "b": x_of(3, 2)}, dict.fromkeys(kinds, edges))
    assert {name: value.shape for name, value in out.items()} == {"a": (4, 3), "b": (3, 3)}


def test_evaluation_mode_is_of_all_parts_and_each_has_its_own_again_after_errors_too():
    """Of a model in training whose norm is in evaluation mode, as when it is fine-tuned."""
    model, x = Sequential(Linear(3, 4), BatchNorm1d(4), Dropout(0.5)).train(), torch.randn(5, 3)
    model[1].eval()
    modes = lambda: [part.training for part in model.modules()]  # noqa: E731
    before = modes()
    with evaluating(model):
        assert not any(modes())
        assert not model(x).requires_grad
        assert torch.equal(model(x), model(x))
        with torch.enable_grad():
            assert model(x).requires_grad
    assert modes() == before
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert modes() == before
    assert torch.is_grad_enabled()
    with torch.no_grad(), evaluating(model):
        with evaluating(model):
            pass
        assert not any(modes())
        assert not torch.is_grad_enabled()
    assert modes() == before
