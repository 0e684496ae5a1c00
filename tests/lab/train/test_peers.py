"""PyG's layer for a family is the same convolution: with its weights ours gives its output."""

import json
from dataclasses import MISSING

import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Chebyshev,
    Directed,
    Explicit,
    Grid,
    Identity,
    Relation,
    Stack,
    Union,
    Walk,
    parse_family,
)
from pyg_outerconv.lab.data import Dataset, entry
from pyg_outerconv.lab.family_options import (
    any_family,
    defaults,
    make_family,
    needs_python,
    short_name,
)
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.model import OURS, ours
from pyg_outerconv.lab.train.peers import begin_as, peer
from pyg_outerconv.nn.recipes import layer_of
from pyg_outerconv.pyg import outer_conv
from pyg_outerconv.testing import assert_near


def graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(12, (2, 40), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    types = torch.randint(3, (edges.size(1),), generator=generator)
    x = torch.randn(12, 5, generator=generator)
    graph_data = Data(x=x, edge_index=edges, edge_type=types, y=torch.arange(12) % 2)
    return Dataset(entry("KarateClub"), graph_data, None, "")


# A family, settings beside it as JSON, and what the peer is called.
SAME = r"""
gcn | | GCNConv
gcn(improved=True) | | GCNConv
gcn(add_self_loops=False) | | GCNConv
gcn(norm='target') | | GCNConv(normalize=False)
gcn(norm=None) | | GINConv
walk(2) | | TAGConv(K=2)
walk(3, norm='target') | | TAGConv(K=3)
walk(2, norm='sym') | | TAGConv(K=2)
walk(2, norm=None) | | TAGConv(K=2)
walk(2, direction='backward') | | TAGConv(K=2)
walk(2, add_self_loops=True) | | TAGConv(K=2)
walk(2, norm=sym, powers=(2,), add_self_loops=True) | | SGConv(K=2)
chebyshev(3) | | ChebConv(K=3)
chebyshev(3, lambda_max='bound') | | ChebConv(K=3)
chebyshev(3, lambda_max=1.7) | | ChebConv(K=3)
chebyshev(2, norm='source', lambda_max='bound') | | ChebConv(K=2)
relation(3) | | RGCNConv
relation(3) | {"root_weight": true} | RGCNConv
relation(3, norm=None) | | RGCNConv
relation(3, norm=None) | {"theta": "basis-decomposed:2", "root_weight": true} | RGCNConv
relation(3) | {"theta": "block-diagonal(num_blocks=1)"} | RGCNConv
relation(1, norm=mean) | {"root_weight": true} | SAGEConv
relation(1, norm=None) | {"root_weight": true} | GraphConv
directed(gcn) | | DirGNNConv(GCNConv)
directed(gcn(add_self_loops=False)) | {"root_weight": true} | DirGNNConv(GCNConv, bias=False)
reverse(gcn) | | DirGNNConv(GCNConv, alpha=1)
reverse(gcn(add_self_loops=False)) | {"root_weight":true} | DirGNNConv(GCNConv, bias=False, alpha=1)
scale(directed(gcn), 0.5) | | DirGNNConv(GCNConv)
scale(directed(gcn(add_self_loops=False)), (0.25, 0.75)) | | DirGNNConv(GCNConv, alpha=0.75)
identity | | Linear
identity | {"propagation":"diffusion(ppr, alpha=0.1,length=3)"} | Linear, then APPNP(K=3, alpha=0.1)
gcn | {"architecture": "blocks", "layer_norm": "layer"} | GCNConv
stack(gcn(add_self_loops=False), identity) | | ARMAConv(act=None)
stack(gcn(norm=None, add_self_loops=False), identity) | | GraphConv
stack(identity, gcn(norm=target, add_self_loops=False)) | | SAGEConv
stack(relation(1, norm=mean), identity) | | SAGEConv
stack(relation(1, norm=None), identity) | | GraphConv
stack(relation(3), identity) | | RGCNConv
gat(heads=4) | | GATConv(heads=4)
stack(gat(heads=4), identity) | {"out_heads": 2} | GATConv(heads=4, residual)
stack(identity, gat(heads=4)) | | GATConv(heads=4, residual)
stack(gatv2(heads=2), identity) | | GATv2Conv(heads=2, residual)
stack(transformer(heads=2), identity) | | TransformerConv(heads=2, residual)
gat(heads=4, add_self_loops=False) | {"out_heads": 1, "activation": "elu"} | GATConv(heads=4)
gatv2(heads=2) | | GATv2Conv(heads=2)
gatv2(heads=2, share_weights=True) | | GATv2Conv(heads=2)
transformer(heads=2) | {"root_weight": true} | TransformerConv(heads=2)
transformer(heads=2, combine=mean) | | TransformerConv(heads=2)
""".strip().split("\n")
# Where PyG's layer has one bias, as ours has, and no half of each direction, a step of SGD moves
# both alike.
MORE_BIASES = ("gatv2", "transformer", "directed", "reverse")


@pytest.mark.parametrize("featureless", [False, True])
@pytest.mark.parametrize("row", SAME)
def test_from_a_seed_both_begin_as_the_same_function(row, featureless):
    family, said, name = map(str.strip, row.split("|"))
    options, dataset = json.loads(said or "{}"), graph()
    if "relation(1" in family or "powers" in family:
        del dataset.data.edge_type
    if "powers" in family:  # PyG has one degree for both ends
        dataset.data.edge_index = to_undirected(dataset.data.edge_index)
    if featureless:
        del dataset.data.x
        dataset.data.num_nodes = 12
        needs_features = "gatv2" in family or "transformer" in family
        if "block" in options.get("theta", "") or needs_features:
            return  # which is refused
        name = name.replace("RGCN", "FastRGCN")
    settings = Settings("KarateClub", family, "public", input_dropout=0.5, **options)
    began, left, stepped = [], [], []
    for contender in (ours(dataset, settings), peer(dataset, settings)):
        torch.manual_seed(7)
        model = contender.model(2, settings).train()
        began.append(model(contender.inputs.x, contender.inputs.structure))
        left.append(torch.rand(3))
        began[-1].square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        stepped.append(model.eval()(contender.inputs.x, contender.inputs.structure))
    assert contender.name == f"PyG {name}"
    assert_near(began[1], began[0], 1e-5)  # with the same numbers dropped
    assert torch.equal(left[0], left[1])
    assert not torch.equal(stepped[0], began[0])
    if not any(word in family for word in MORE_BIASES):
        assert_near(stepped[1], stepped[0], 1e-4)


TAKE_SPARSE = ["gcn", "gcn(norm='target')", "directed(gcn)", "identity", "gat(2)", "gatv2(2)"]


@pytest.mark.parametrize("family", [*TAKE_SPARSE, "walk(2)", "chebyshev(3)", "relation(3)"])
def test_both_get_the_same_features_which_pygs_layer_may_take_dense(family):
    dataset = graph()
    dataset.data.x = (dataset.data.x > 0.7).float()
    settings = Settings("KarateClub", family, "public", features="sparse", peer=True)
    outs, takes_sparse = [], family in TAKE_SPARSE
    for contender in (ours(dataset, settings), peer(dataset, settings)):
        x = contender.inputs.x
        assert (x.layout == torch.sparse_csr) == (takes_sparse or contender.key == OURS)
        assert ("stored dense" in contender.note) == (x.layout == torch.strided)
        torch.manual_seed(7)
        model = contender.model(2, settings).eval()
        outs.append(model(x, contender.inputs.structure))
        outs[-1].square().sum().backward()
        assert_near(outs[-1], model(x.to_dense(), contender.inputs.structure), 1e-5)
    assert_near(outs[1], outs[0], 1e-5)


def test_what_the_halves_of_directions_mean_is_told():
    assert "half as far" in peer(graph(), Settings("KarateClub", "directed(gcn)", "public")).note


@pytest.mark.parametrize(
    "change",
    [
        {"family": "high_pass"},
        {"family": "gat(2, combine=sum)"},
        {"family": "gat(2)", "root_weight": True},
        {"family": "transformer(2, add_self_loops=True)"},
        {"family": "stack(transformer(2, add_self_loops=True), identity)"},
        {"family": "stack(walk(2), identity)"},
        {"family": "stack(directed(gcn), identity)"},
        {"family": "identity", "propagation": "gcn"},
        {"family": "relation(1, norm=given)", "root_weight": True},
        {"family": "stack(gcn, identity)"},
        {"family": "directed(walk(2))"},
        {"family": "scale(directed(gcn), 0.4)"},
        {"family": "scale(directed(gcn), (2.0, -1.0))"},
        {"family": "scale(reverse(gcn), 0.5)"},
        {"family": "scale(gcn, 0.5)"},
        {"family": "walk(2, direction='both')"},
        {"family": "walk(2, powers=(2,))"},
        {"family": "walk(2, aggr='mean')"},
        {"family": "relation(3, norm='given')"},
        {"family": "gcn", "theta": "shared"},
        {"family": "gcn", "aggr": "mean"},
        {"family": "gcn", "root_weight": True},
        {"family": "relation(3)", "theta": "low-rank:2"},
    ],
)
def test_what_pyg_has_not_is_refused(change):
    settings = Settings(**{"dataset": "KarateClub", "split": "public", **change})
    with pytest.raises(ValueError, match="leave --peer out"):
        peer(graph(), settings)


@pytest.mark.parametrize(
    ("theirs", "family"),
    [
        (pyg.GCNConv(5, 4), "gcn"),
        (pyg.ChebConv(5, 4, 3), "chebyshev(3)"),
        (pyg.GATConv(5, 2, 2), "gat(2)"),
        (pyg.RGCNConv(5, 4, 3, num_bases=2), "relation(3)"),
    ],
    ids=str,
)
def test_a_recipe_read_backwards_and_forwards_gives_the_same_parameters(theirs, family):
    relational = {"theta": "basis-decomposed:2", "root_weight": True} if "rel" in family else {}
    mine = layer_of(5, 4, family, **relational)
    begin_as(theirs, mine)
    back = dict(outer_conv(theirs).named_parameters())
    for name, value in mine.named_parameters():
        assert torch.equal(back[name], value)


# Families are read from text, and what a text must have is said where it lacks it -----------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gcn", GCN()),
        ("GCN(norm='target', add_self_loops=False)", GCN(norm="target", add_self_loops=False)),
        ("walk(3, norm=None)", Walk(3, norm=None)),
        ("chebyshev(2, 2)", Chebyshev(2, 2)),
        ("relation", Relation(7)),
        ("relation(9, None)", Relation(9, None)),
        ("stack(gcn, walk(1))", Stack(GCN(), Walk(1))),
        ("identity", Identity()),
    ],
)
def test_text_makes_families(text, wanted):
    assert make_family(text, num_relations=7) == wanted
    assert make_family(text, directed=True, num_relations=7) == Directed(wanted)


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        (GCN(), "gcn"),
        (Walk(2), "walk(length=2)"),
        (Walk(3, norm=None), "walk(length=3, norm=None)"),
        (Directed(), "directed"),
        (Directed(Walk(1)), "directed(walk(length=1))"),
        (Stack(GCN(norm="target"), Identity()), "stack(gcn(norm='target'), identity)"),
    ],
)
def test_short_names_name_the_family(family, wanted):
    assert short_name(family) == wanted
    assert parse_family(wanted) == family


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_its_defaults(name):
    family = FAMILIES[name]
    if family in (Stack, Union, Directed):
        assert defaults(family) == {}
    elif needs_python(family):
        with pytest.raises(ValueError, match=rf"expected {family.__name__}\(...\) in Python"):
            make_family(name)
    elif MISSING in defaults(family).values() or family in (Explicit, Grid):
        with pytest.raises(ValueError, match="must be told|its number of axes|one of window"):
            make_family(name)
    else:
        assert family(**defaults(family)) == family()


def test_families_of_content_are_for_training_alone():
    for text in ("linearattention(2, 4)", "stack(gcn, linearattention(2, 4))", "gat", "gat(2)"):
        assert make_family(text).makes_use_of("x")
        with pytest.raises(ValueError, match="without features: .* got .*(linear_attention|gat)"):
            any_family(text, {})
