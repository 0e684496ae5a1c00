"""Kernel: values made by a function, in a pattern that is sorted once; and dropped edges."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import STRUCTURES
from torch_geometric.data import Batch, Data

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import Pattern, drop_edges
from pyg_outerconv.families import GCN, Directed, Identity, Kernel, Relation, Stack
from pyg_outerconv.families.kernel import _patterns
from pyg_outerconv.families.options import functions_of, nested
from pyg_outerconv.graph import Graph
from pyg_outerconv.memo import Memo
from pyg_outerconv.nn.edge_functions import BSpline, EdgeNetwork, GaussianMixture
from pyg_outerconv.testing import (
    assert_contraction,
    assert_near,
)

EDGE_INDEX = torch.tensor([[0, 1, 2, 0, 0], [1, 2, 0, 1, 2]])


def powers(edge_attr):
    """1, u and u² of the first attribute."""
    u = edge_attr[:, 0]
    return torch.stack([torch.ones_like(u), u, u * u], dim=1)


def attributes(edges, dim=2):
    generator = torch.Generator().manual_seed(0)
    shape = (edges.num_edges, dim)
    attr = torch.rand(shape, generator=generator, dtype=torch.float64)
    return replace(edges, edge_attr=attr.requires_grad_())


@pytest.mark.parametrize("name", STRUCTURES)
def test_matrices_are_sums_over_the_edges_of_every_graph(name):
    edges = attributes(STRUCTURES[name])
    basis = Kernel(powers, 3).basis(edges)
    dense = torch.zeros(3, *edges.size).double()
    for edge, (source, target) in enumerate(edges.edge_index.t().tolist()):
        weight = 1 if edges.edge_weight is None else edges.edge_weight[edge]
        dense[:, source, target] += powers(edges.edge_attr)[edge] * weight
    assert_near(basis.to_dense(), dense)
    x = torch.randn(edges.size[0], 2, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(3, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    learnt = [edges.edge_attr, *([] if edges.edge_weight is None else [edges.edge_weight])]
    assert_contraction(basis, x, theta, learnt, depth=2)


def test_a_graph_does_not_store_values_that_learn():
    data = Data(edge_index=EDGE_INDEX, edge_attr=torch.rand(5, 2), num_nodes=3)
    for family in (Kernel(powers, 3), Stack(Identity(), Kernel(powers, 3))):
        with pytest.raises(ValueError, match="a transform stores constant values"):
            family(data)
        assert family.basis_of(data).num_bases == family.num_bases


def test_one_attribute_may_be_a_vector():
    u = torch.rand(5)
    basis = Kernel(powers, 3).basis(EDGE_INDEX, edge_attr=u)
    assert_near(
        basis.to_dense(), Kernel(powers, 3).basis(EDGE_INDEX, edge_attr=u[:, None]).to_dense()
    )


def test_the_pattern_is_kept_and_values_are_made_anew():
    family, builds = Kernel(powers, 3), []
    real = Pattern.build
    first = family.basis(EDGE_INDEX, edge_attr=torch.rand(5, 1))
    Pattern.build = staticmethod(lambda *args, **kwargs: builds.append(1) or real(*args, **kwargs))
    try:
        second = family.basis(EDGE_INDEX, edge_attr=torch.rand(5, 1))
        assert not builds
    finally:
        Pattern.build = staticmethod(real)
    assert second.pattern is first.pattern
    assert not torch.equal(second.value, first.value)
    other = replace(family, cached=False).basis(EDGE_INDEX, edge_attr=torch.rand(5, 1))
    assert other.pattern is not first.pattern


@pytest.mark.parametrize("wrap", [lambda kernel: kernel, lambda kernel: Stack(kernel, Identity())])
def test_a_cached_layer_is_never_stale(wrap):
    function = GaussianMixture(2, 3)
    conv = OuterConv(2, 2, wrap(Kernel(function)), cached=True)
    x, u = torch.randn(3, 2), torch.rand(5, 2)
    before = conv(x, EDGE_INDEX, edge_attr=u)
    with torch.no_grad():
        function.mu += 1.0
    after = conv(x, EDGE_INDEX, edge_attr=u)
    fresh = copy.deepcopy(conv)(x, EDGE_INDEX.clone(), edge_attr=u)
    assert not torch.allclose(before, after)
    assert_near(after, fresh)
    out = conv(x, EDGE_INDEX, edge_attr=u).sum()
    out.backward()
    conv(x, EDGE_INDEX, edge_attr=u).sum().backward()  # its graph was not freed with the first


def test_the_functions_parameters_are_the_layers():
    function = GaussianMixture(2, 3)
    conv = OuterConv(2, 4, Stack(Kernel(function), Directed(Kernel(function))))
    names = dict(conv.named_parameters())
    assert names["functions.0.mu"] is function.mu
    assert len(conv.functions) == 1, "one module, wherever it is"
    assert "functions.0.sigma" in conv.state_dict()
    assert conv.double().functions[0].mu.dtype == torch.float64
    twin = copy.deepcopy(conv)
    kernel = next(part for part in nested(twin.family) if isinstance(part, Kernel))
    assert kernel.fn is twin.functions[0]
    assert kernel.fn is not function
    assert functions_of(twin.family) == [twin.functions[0]]
    other = OuterConv(2, 4, Stack(Kernel(GaussianMixture(2, 3)), Directed(Kernel(function))))
    assert len(other.functions) == 2


def test_a_function_keeps_its_values_until_it_is_told_to_reset():
    function = EdgeNetwork(2, 5)
    weight = function.layers[0].weight.clone()
    conv = OuterConv(2, 4, Kernel(function))
    assert torch.equal(function.layers[0].weight, weight)
    conv.reset_parameters()
    assert not torch.equal(function.layers[0].weight, weight)


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_positions_of_both_ends(flow):
    edge_index = torch.tensor([[0, 1, 3, 2], [1, 0, 1, 0]])
    pos = torch.rand(4, 2).double(), torch.rand(2, 2).double()
    x = torch.randn(4, 3).double(), None
    conv = OuterConv(3, 2, Kernel(powers, 3, on="pos"), flow=flow).double()
    if flow == "target_to_source":
        edge_index, pos, x = edge_index.flip(0), pos[::-1], x[::-1]
    out = conv(x, edge_index, size=(4, 2) if flow == "source_to_target" else (2, 4), pos=pos)
    if flow == "target_to_source":
        edge_index, pos, x = edge_index.flip(0), pos[::-1], x[::-1]
    u = pos[0][edge_index[0]] - pos[1][edge_index[1]]
    plain = OuterConv(3, 2, Kernel(powers, 3)).double()
    plain.load_state_dict(conv.state_dict())
    assert_near(out, plain(x, edge_index, size=(4, 2), edge_attr=u))


def test_positions_are_scaled_by_the_largest_or_by_a_number():
    pos = torch.tensor([[0.0, 0.0], [2.0, 1.0], [4.0, -4.0]])
    seen = []

    def look(u):
        seen.append(u)
        return u[:, :1]

    edge_index = torch.tensor([[0, 2, 1], [1, 0, 1]])
    Kernel(look, 1, on="pos", normalised=True).basis(edge_index, pos=pos)
    Kernel(look, 1, on="pos", normalised=8.0).basis(edge_index, pos=pos)
    away = torch.tensor([[-2.0, -1.0], [4.0, -4.0], [0.0, 0.0]])
    assert_near(seen[0], away / 8 + 0.5)
    assert_near(seen[1], away / 16 + 0.5)
    Kernel(look, 1, on="pos", normalised=True).basis(edge_index[:, 2:], size=(3, 3), pos=pos)
    assert_near(seen[2], torch.full((1, 2), 0.5))
    Kernel(look, 1, on="pos", normalised=True).basis(edge_index[:, :0], size=(3, 3), pos=pos)
    assert seen[3].shape == (0, 2)


def test_data_gives_attributes_and_positions():
    data = Data(
        edge_index=EDGE_INDEX, edge_attr=torch.rand(5, 2), pos=torch.rand(3, 2), num_nodes=3
    )
    both = Batch.from_data_list([data, data])
    for family in (Kernel(powers, 3), Kernel(powers, 3, on="pos")):
        one = family.basis_of(data).to_dense()
        assert_near(
            family.basis_of(both).to_dense(), torch.stack([torch.block_diag(a, a) for a in one])
        )


def test_what_the_function_says_is_the_number_of_labels():
    assert Kernel(BSpline((5, 4))).num_bases == 20
    assert Kernel(EdgeNetwork(3, 8)).num_bases == 9
    assert type(Kernel(powers, np.int64(3)).num_bases) is int
    assert Kernel(GaussianMixture(2, 3)).labels[2] == "function 2 of edge_attr"


# Learned and dropped edges -------------------------------------------------------------------


def many(count=4000, labels=2):
    index, label = torch.randint(50, (2, count)), torch.randint(labels, (count,))
    return Relation(labels, None).basis(Graph.read(index, edge_type=label, size=(50, 50))).edges()


def test_nothing_is_dropped_where_nothing_is_trained_or_p_is_0():
    basis = many()
    assert drop_edges(basis, 0.5, training=False) is basis
    assert drop_edges(basis, 0.0) is basis
    assert not drop_edges(basis, 1.0).value.any()


def test_a_generator_says_what_is_dropped():
    basis = many()
    one, same, other = (
        drop_edges(basis, 0.5, generator=torch.Generator().manual_seed(seed)).value
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_an_edge_is_dropped_under_all_its_labels_together():
    edge_index = torch.randint(50, (2, 500))
    basis = Kernel(lambda u: u.expand(-1, 3), 3).basis(edge_index, edge_attr=torch.ones(500))
    together = drop_edges(basis, 0.5, whole=True)
    by_edge = together.value[torch.argsort(basis.pattern.order)].view(3, 500)
    assert torch.equal(by_edge[0], by_edge[1])
    assert torch.equal(by_edge[0], by_edge[2])
    apart = drop_edges(basis, 0.5).value[torch.argsort(basis.pattern.order)].view(3, 500)
    assert not torch.equal(apart[0], apart[1])
    loops = GCN().basis(torch.tensor([[0, 1], [1, 0]]))
    assert_near(drop_edges(loops, 1.0, whole=True).to_dense()[0], torch.eye(2) / 2)


def test_gradients_reach_the_values_that_are_left():
    weight = torch.rand(40, dtype=torch.float64, requires_grad=True)
    basis = Relation(1, None).basis(torch.randint(9, (2, 40)), weight)
    dropped = drop_edges(basis, 0.5)
    gradient = torch.autograd.grad(dropped.value.sum(), weight)[0]
    assert set(gradient.tolist()) == {0.0, 2.0}


def test_kept_patterns_die_with_their_edges():
    assert isinstance(_patterns, Memo)
    before = len(_patterns)
    edge_index = EDGE_INDEX.clone()
    Kernel(powers, 3).basis(edge_index, edge_attr=torch.rand(5))
    assert len(_patterns) == before + 1
    del edge_index
    assert len(_patterns) == before


def test_messages_are_the_definition_and_can_be_masked():
    conv = OuterConv(2, 3, Kernel(powers, 3)).double()
    x, u = torch.randn(3, 2).double(), torch.rand(5, 1).double()
    fused = conv(x, EDGE_INDEX, edge_attr=u)
    conv.fuse = False
    assert_near(conv(x, EDGE_INDEX, edge_attr=u), fused)
    conv.explain, conv._apply_sigmoid = True, False
    conv._edge_mask = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0]).double()
    keep = conv._edge_mask.bool()
    masked = conv(x, EDGE_INDEX, edge_attr=u)
    conv.explain = False
    assert_near(masked, conv(x, EDGE_INDEX[:, keep], edge_attr=u[keep]))
