"""Fusing a model's linear runs: what is fused, what is left and why, and equal outputs."""

import pytest
import torch
import torch_geometric.nn

from pyg_outerconv.families import GCN
from pyg_outerconv.nn import ComposedConv, OuterConv, fuse
from pyg_outerconv.testing import assert_near

NODES = 1500
EDGES = torch.randint(NODES, (2, 9000), generator=torch.Generator().manual_seed(0))
X = torch.randn(NODES, 64, generator=torch.Generator().manual_seed(1))


def conv(*channels, **kwargs):
    made = OuterConv(*channels, GCN(), **kwargs)
    torch.nn.init.normal_(made.bias)
    return made


class Model(torch.nn.Module):
    """Layers of which each reads the one before."""

    def __init__(self, *layers, between=torch.nn.Identity):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.between = between()
        self.head = torch.nn.Linear(layers[-1].out_channels, 3)

    def forward(self, x, edge_index, edge_weight=None):
        for layer in self.layers:
            x = self.between(layer(x, edge_index, edge_weight=edge_weight))
        return self.head(x)


def composed(model):
    return [module for module in model.modules() if isinstance(module, ComposedConv)]


def assert_same(fused, model, *inputs):
    assert_near(fused(*inputs), model(*inputs), 1e-4)


def test_a_run_becomes_one_layer_and_the_model_stays():
    model = Model(conv(64, 64), conv(64, 64), conv(64, 8)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fused, report = fuse(model, X, EDGES)
    assert report.num_fused == 2
    assert len(composed(fused)) == 1
    assert not [m for m in fused.modules() if type(m) is OuterConv]
    assert_same(fused, model, X, EDGES)
    assert_same(fused, model, X, EDGES, torch.rand(9000))
    assert len(model.layers) == 3
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    lines = str(report).splitlines()
    assert lines[0].startswith("layers.0, layers.1: fused, ")
    assert lines[1].startswith("layers.0 + layers.1, layers.2: fused, ")
    assert "ms in a chain" in lines[0]


def test_sequential_containers_of_pyg_are_read():
    step = "x, edge_index -> x"
    model = torch_geometric.nn.Sequential(
        "x, edge_index",
        [
            (conv(64, 32), step),
            torch.nn.Dropout(0.5),
            (conv(32, 8), step),
            torch.nn.ReLU(),
            (conv(8, 8), step),
        ],
    ).eval()
    fused, report = fuse(model, X, EDGES)
    assert report.num_fused == 1
    assert_same(fused, model, X, EDGES)
    left = fuse(model.train(), X, EDGES).report
    assert [decision.reasons for decision in left.decisions] == [
        ("dropout in training mode lies between them",),
        ("ReLU lies between them",),
    ]


def test_it_is_left_where_a_chain_is_cheaper():
    wide = Model(conv(64, 2), conv(2, 64)).eval()
    fused, report = fuse(wide, X, EDGES)
    assert report.num_fused == 0
    assert type(fused) is Model
    assert fused is not wide
    assert "layers.0, layers.1: left" in str(report)
    decision = report.decisions[0]
    assert decision.composed >= decision.chained
    assert_same(fused, wide, X, EDGES)


def test_both_passes_count_in_training():
    model = Model(conv(64, 64), conv(64, 64))
    trained, inferred = fuse(model.train(), X, EDGES), fuse(model.eval(), X, EDGES)
    assert trained.report.decisions[0].chained > inferred.report.decisions[0].chained


def test_reasons_are_told():
    model = Model(conv(64, 8), conv(8, 8, aggr="max"), conv(8, 8)).eval()
    _, report = fuse(model, X, EDGES)
    assert report.num_fused == 0
    assert "layers.0, layers.1: left, the second has aggr='max'" in str(report)
    assert "layers.1, layers.2: left, the first has aggr='max'" in str(report)


class Branching(torch.nn.Module):
    """The first output is read twice, the second layer is called twice, other edges come in."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = conv(64, 64), conv(64, 64), conv(64, 64)

    def forward(self, x, edge_index, others):
        h = self.first(x, edge_index)
        y = self.second(h, edge_index) + h
        return self.third(self.second(y, edge_index), others)


def test_what_is_read_twice_called_twice_or_on_other_edges_is_no_run():
    model = Branching().eval()
    fused, report = fuse(model, X, EDGES, EDGES.flip(0))
    assert report.num_fused == 0
    assert_same(fused, model, X, EDGES, EDGES.flip(0))
    assert str(report).splitlines() == [
        "first, second: left, the first one's output is read elsewhere too; "
        "second is used at 2 places",
        "second, second: left, add lies between them; second is used at 2 places",
        "first, second: left, add lies between them; "
        "the first one's output is read elsewhere too; second is used at 2 places",
        "second, third: left, they are not seen to be given the same edges; "
        "second is used at 2 places",
    ]


class OfData(torch.nn.Module):
    """Reads the attributes of one object anew for each layer."""

    def __init__(self, change=None):
        super().__init__()
        self.first, self.second, self.third = conv(64, 64), conv(64, 8), conv(8, 8)
        self.change = change

    def forward(self, data):
        x = self.first(data.x, data.edge_index)
        if self.change is not None:
            self.change(data)
        x = self.second(x, data.edge_index)
        return self.third(x, data["others"])


def data_of():
    return torch_geometric.data.Data(x=X, edge_index=EDGES.clone(), others=EDGES.flip(0))


def test_attributes_of_one_object_are_the_same_edges_by_their_name():
    model = OfData().eval()
    fused, report = fuse(model, data_of())
    assert report.num_fused == 1
    assert report.decisions[1].reasons == ("they are not seen to be given the same edges",)
    assert_same(fused, model, data_of())
    read = [node for node in fused.graph.nodes if node.target is getattr]
    assert [node.args[1] for node in read] == ["x", "edge_index"]


class Flip(torch_geometric.nn.MessagePassing):
    """Changes the object that it is given."""

    def forward(self, data):
        data.edge_index = data.edge_index.flip(0)


def test_attributes_of_an_object_that_a_call_may_change_are_not_the_same():
    model = OfData(Flip()).eval()
    fused, report = fuse(model, data_of())
    assert report.num_fused == 0
    assert report.decisions[0].reasons == ("they are not seen to be given the same edges",)
    assert_near(fused(data_of()), model(data_of()), 1e-4)


class Holding(torch.nn.Module):
    """Has its edges as a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = conv(64, 64), conv(64, 8)
        self.register_buffer("edges", EDGES)

    def forward(self, x):
        return self.second(self.first(x, self.edges), self.edges)


def test_a_buffer_is_the_same_at_each_reading():
    model = Holding().eval()
    fused, report = fuse(model, X)
    assert report.num_fused == 1
    assert_same(fused, model, X)


def test_what_changes_a_tensor_in_place_stays():
    class Changing(Holding):
        def forward(self, x):
            x = 2 * x
            x.relu_()
            return super().forward(x)

    model = Changing().eval()
    fused, report = fuse(model, X)
    assert report.num_fused == 1
    assert_same(fused, model, X)


def test_other_weights_and_long_ways_are_told():
    class Long(Holding):
        def forward(self, x, weight):
            x = self.first(x, self.edges, edge_weight=weight)
            for _ in range(3):
                x = torch.nn.functional.relu(x).sin()
            return self.second(x, self.edges)

    (decision,) = fuse(Long().eval(), X, torch.rand(9000)).report.decisions
    assert decision.reasons == (
        "relu, sin, relu, sin, 2 more lie between them",
        "they are not seen to be given the same edge_weight",
    )


def test_a_pair_of_features_and_a_layer_after_itself_are_told():
    class Paired(Holding):
        def forward(self, x):
            x = self.first(self.first(x, self.edges), self.edges)
            return self.second((x, x), self.edges)

    first, second = fuse(Paired().eval(), X).report.decisions
    assert str(first) == "first, first: left, first is used at 2 places"
    assert second.reasons == ("the second reads a pair of features", "first is used at 2 places")


def test_a_model_without_any_pair_says_so():
    assert str(fuse(torch.nn.Linear(64, 8), X).report) == "the model has no OuterConv"
    alone = fuse(Model(conv(64, 8)).eval(), X, EDGES).report
    assert str(alone) == "no convolution is seen to follow another"


class Functional(torch.nn.Module):
    """Dropout as a function, whose switch a trace keeps."""

    def __init__(self):
        super().__init__()
        self.first, self.second = conv(64, 64), conv(64, 8)

    def forward(self, x, edge_index):
        x = torch.nn.functional.dropout(self.first(x, edge_index), 0.3, training=self.training)
        return self.second(x, edge_index)


def test_dropout_as_a_function_is_passed_where_it_is_off_and_refused_where_it_is_on():
    model = Functional().eval()
    fused, report = fuse(model, X, EDGES)
    assert report.num_fused == 1
    assert_same(fused, model, X, EDGES)
    with pytest.raises(ValueError, match=r"training=.*got dropout in training mode"):
        fuse(model.train(), X, EDGES)


class Asking(torch.nn.Module):
    """A branch on a value."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_models_that_cannot_be_traced_are_refused():
    with pytest.raises(ValueError, match=r"torch\.fx can trace: .*TraceError"):
        fuse(Asking(), X)


def test_statistics_of_a_model_in_training_are_not_those_of_the_example():
    model = torch_geometric.nn.Sequential(
        "x, edge_index",
        [
            (conv(64, 64), "x, edge_index -> x"),
            (conv(64, 64), "x, edge_index -> x"),
            torch.nn.BatchNorm1d(64),
        ],
    ).train()
    fused, report = fuse(model, X, EDGES)
    assert report.num_fused == 1
    for one in (model, fused):
        (norm,) = (m for m in one.modules() if isinstance(m, torch.nn.BatchNorm1d))
        assert norm.num_batches_tracked == 0


def test_a_fused_model_trains():
    fused, report = fuse(Model(conv(64, 64), conv(64, 64)).train(), X, EDGES)
    assert report.num_fused == 1
    fused(X, EDGES).square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in fused.parameters())
