"""Graphs are classified as one disjoint union, exactly as each graph alone, and as by PyG."""

from dataclasses import replace
from io import StringIO
from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from small_graphs import GIN, dataset, graphs
from torch_geometric.data import Data

from pyg_outerconv.families import parse_family
from pyg_outerconv.lab.data import entry
from pyg_outerconv.lab.data.graph import union_of
from pyg_outerconv.lab.train import Experiment, Settings, load_trained, make_split
from pyg_outerconv.lab.train.inputs import Graphs, OfGraphs, check_block_diagonal, clusters
from pyg_outerconv.lab.train.model import ours, structure_on
from pyg_outerconv.lab.train.peers import peer
from pyg_outerconv.testing import assert_near

MEANS = "stack(gcn(norm='target', add_self_loops=False), identity)"
SUMS = "stack(identity, gcn(norm=None, add_self_loops=False))"


@pytest.fixture(autouse=True)
def _float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def settings(family, **changes):
    defaults = {"pool": "sum", "hidden": 8, "depth": 2, "dropout": 0.0}
    return Settings("MUTAG", family, "ten-fold", **{**defaults, "batch_size": 5, **changes})


def doubled(contender, asked):
    """A model, and its inputs with the features as they are, not in float32."""
    torch.manual_seed(0)
    model, inputs = contender.model(2, asked), contender.inputs
    assert isinstance(inputs, Graphs)
    inputs.x = dataset().data.x
    return model, inputs


CASES = [
    (GIN, {"update": "mlp", "layer_norm": "batch", "skip": "concat"}),
    ("gcn", {"pool": "mean"}),
    (MEANS, {"pool": "max", "skip": "concat"}),
    ("chebyshev(3)", {"pool": "mean"}),
    ("walk(2)", {"skip": "max", "input_layer": "activated"}),
    ("walk(2)", {"skip": "sum"}),
    ("relation(4)", {"pool": "max", "theta": "basis-decomposed:2"}),
    ("identity", {"update": "mlp"}),
    ("gat(heads=2)", {"pool": "mean"}),
    ("stack(gat(heads=2), identity)", {}),
]
each = pytest.mark.parametrize(("family", "changes"), CASES, ids=str)


@each
def test_a_union_is_its_graphs_one_by_one(family, changes):
    asked = settings(family, **changes)
    model, inputs = doubled(ours(dataset(), asked), asked)
    model.eval()
    wanted = []
    for graph in graphs():
        alone = union_of([graph])
        layers = structure_on(parse_family(family), alone, asked)
        wanted.append(model(graph.x, OfGraphs(layers, clusters(alone.batch, 1))))
    assert_near(inputs.logits(model, torch.arange(12)), torch.cat(wanted))
    chosen = torch.tensor([1, 4, 11])
    batch = inputs.some(chosen)
    assert_near(model(batch.x, batch.structure)[batch.rows], torch.cat(wanted)[chosen])


@each
@pytest.mark.parametrize("who", [ours, peer])
def test_batches_add_up_to_the_gradient_of_the_union(who, family, changes):
    asked = settings(family, **{**changes, "layer_norm": "none"})
    try:
        contender = who(dataset(), asked)
    except ValueError as error:
        if who is ours or "PyG has no layer" not in str(error):
            raise
        pytest.skip("PyG has no such layer")
    model, inputs = doubled(contender, asked)
    y, chosen = dataset().data.y, torch.tensor([0, 1, 2, 4, 5, 7, 10, 11])
    parameters = [value for value in model.parameters() if value.requires_grad]

    def gradients(logits, of):
        loss = F.cross_entropy(logits, y[of]) * of.numel() / chosen.numel()
        return list(torch.autograd.grad(loss, parameters))

    wanted = gradients(inputs.logits(model, chosen), chosen)
    parts = [
        gradients(model(batch.x, batch.structure)[batch.rows], batch.nodes)
        for batch in inputs.batches(chosen, 0, 0)
    ]
    assert len(parts) == 2
    for got, one in zip(map(sum, zip(*parts, strict=True)), wanted, strict=True):
        assert_near(got, one)


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("family", "name"),
    [(GIN, "GINConv"), ("gcn", "GCNConv"), (MEANS, "SAGEConv"), (SUMS, "GraphConv")],
)
def test_from_a_seed_pygs_model_is_the_same_function(family, name, pool):
    asked = settings(family, pool=pool, update="mlp", layer_norm="batch", skip="concat", peer=True)
    theirs = peer(dataset(), asked)
    assert theirs.name == f"PyG {name}"
    logits_and_gradients = []
    for contender in (ours(dataset(), asked), theirs):
        model, inputs = doubled(contender, asked)
        logits = inputs.logits(model, torch.arange(12))
        F.cross_entropy(logits, dataset().data.y).backward()
        logits_and_gradients.append(
            (logits, model.head.weight.grad, model.norms[0][0].linear.weight.grad)
        )
    for mine, other in zip(*logits_and_gradients, strict=True):
        assert_near(mine, other)


def test_batches_depend_on_seed_and_epoch_alone_and_have_each_graph_once():
    asked = settings("gcn")
    inputs = ours(dataset(), asked).inputs

    def order(seed, epoch):
        return [batch.nodes.tolist() for batch in inputs.batches(torch.arange(12), seed, epoch)]

    torch.manual_seed(1)
    first = order(0, 0)
    torch.manual_seed(2)
    assert order(0, 0) == first
    assert sorted(chain.from_iterable(first)) == list(range(12))
    assert [len(batch) for batch in first] == [5, 5, 2]
    assert first != order(0, 1) != order(1, 0) != first


def test_a_basis_that_joins_graphs_is_refused():
    batch = torch.tensor([0, 0, 1, 1, 2, 2, 2])
    inside = torch.tensor([[0, 1, 2, 4, 5], [1, 0, 3, 6, 4]])
    check_block_diagonal(parse_family("walk(2)").basis(inside, size=(7, 7)), batch)
    for pair in ([1, 2], [2, 1], [0, 6], [5, 3]):
        edges = torch.cat([inside, torch.tensor(pair)[:, None]], dim=1)
        for family in ("walk(2)", "gcn", "stack(identity, chebyshev(3))"):
            with pytest.raises(ValueError, match="without edges between them"):
                check_block_diagonal(parse_family(family).basis(edges, size=(7, 7)), batch)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pool": "none"}, "pool sum, mean or max, got pool none"),
        ({"architecture": "blocks"}, "architecture is of classifiers of nodes"),
        ({"propagation": "gcn"}, "propagation is of classifiers of nodes"),
        ({"labels_as_features": 0.5}, "labels_as_features is of classifiers of nodes"),
        ({"correct_and_smooth": "1,1,1,1"}, "correct_and_smooth is of classifiers of nodes"),
        ({"skip": "last"}, "a readout reads the last layer: expected skip 'none'"),
    ],
)
def test_settings_of_nodes_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        ours(dataset(), settings("gcn", **changes))


def test_pooling_of_nodes_that_have_classes_is_refused():
    asked = settings("gcn")
    with pytest.raises(ValueError, match="KarateClub has classes of nodes: expected pool none"):
        ours(replace(dataset(), entry=entry("KarateClub")), asked)


def test_graphs_without_features_are_refused():
    graph_dataset = dataset()
    del graph_dataset.data.x
    graph_dataset.data.num_nodes = graph_dataset.data.batch.numel()
    with pytest.raises(ValueError, match="by the features of their nodes"):
        ours(graph_dataset, settings("gcn"))


def test_ten_folds_test_every_graph_once_and_share_out_classes():
    y = torch.tensor([0] * 23 + [1] * 41 + [2] * 16)
    splits = [make_split(Data(y=y), "ten-fold", seed) for seed in range(10)]
    assert torch.equal(sum(split.test.int() for split in splits), torch.ones(80, dtype=torch.int32))
    for number, split in enumerate(splits):
        assert torch.equal(split.validation, splits[(number + 1) % 10].test)
        assert torch.equal(split.train, ~(split.test | split.validation))
        assert int(split.test.sum()) == 8
        for label, count in enumerate((23, 41, 16)):
            assert abs(int((y[split.test] == label).sum()) - count / 10) < 1
    again = make_split(Data(y=y), "ten-fold", 10)
    assert not torch.equal(again.test, splits[0].test)


def test_graphs_are_predicted_by_their_numbers(tmp_path, monkeypatch):
    torch.set_default_dtype(torch.float32)
    graph_dataset, asked, said = dataset(30), settings(GIN, epochs=2, seeds=1), StringIO()
    monkeypatch.setattr(
        "pyg_outerconv.lab.train.folder.load", lambda *args, **kwargs: graph_dataset
    )
    Experiment(asked, tmp_path / "run", log=lambda line: None, dataset=graph_dataset).run()
    load_trained(tmp_path / "run").predictions().write(said)
    assert said.getvalue().splitlines()[0] == "graph,class,probability"
    assert len(said.getvalue().splitlines()) == 31
