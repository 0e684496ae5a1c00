"""Supports are made once for the same structure, and never served for another."""

import copy
import weakref

import pytest
import torch

from pyg_outerconv.attention import DotProduct, LearnedQueries, Softmax
from pyg_outerconv.attention.queries import Content
from pyg_outerconv.families import Attention, Cluster, Relation
from pyg_outerconv.families.support.sequences import Complete, SlidingWindow
from pyg_outerconv.graph.cells import Cells
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

X = torch.randn(6, 3)


def family(support=None, **options):
    return Attention(DotProduct(1), support or Relation(1, None), Softmax(), **options)


def support_of(of, given, **beside):
    """The support of the basis that a family makes of features (n, 3)."""
    structure = of.read(given, **beside)
    x = torch.zeros(structure.size[0], 3)
    return of.basis_on(structure, content=Content(x, x)).over


def test_layers_share_what_is_made_of_the_same_edges():
    edges = torch.tensor([[0, 1], [1, 2]])
    assert support_of(family(), edges) is support_of(family(), edges)
    assert support_of(family(), edges.clone()) is not support_of(family(), edges)


def test_edges_that_were_changed_in_place_are_looked_at_again():
    edges = torch.tensor([[0, 1], [1, 2]])
    first = support_of(family(), edges, size=(3, 3))
    edges[0, 0] = 2
    second = support_of(family(), edges, size=(3, 3))
    assert first.pattern.source.tolist() == [0, 1]
    assert second.pattern.source.tolist() == [2, 1]


def test_types_and_graphs_of_nodes_are_looked_at():
    of, edges = family(Complete()), torch.tensor([[0, 1], [1, 2]])
    sizes = []
    for batch in (None, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 2]), None):
        sizes.append(support_of(of, edges, batch=batch).num_edges)
    assert sizes == [9, 5, 3, 9]


def test_the_edges_of_a_structure_that_is_gone_are_gone():
    edges = torch.tensor([[0, 1], [1, 2]])
    gone = weakref.ref(support_of(family(), edges))
    assert gone() is not None
    del edges
    assert gone() is None


def test_rules_are_shared_as_long_as_a_layer_holds_them():
    first, second = family(SlidingWindow(1)), family(SlidingWindow(1))
    rule = support_of(first, None, size=(50, 50))
    assert support_of(second, None, size=(50, 50)) is rule
    assert support_of(second, None, size=(51, 51)) is not rule
    gone = weakref.ref(rule)
    del rule, first
    assert gone() is not None
    del second
    assert gone() is None


def test_a_layer_holds_few_rules():
    of = family(SlidingWindow(1))
    rules = [weakref.ref(support_of(of, None, size=(n, n))) for n in range(10, 30)]
    assert 0 < sum(rule() is not None for rule in rules) < 10


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_shapes_of_grids_are_known_by_value(shape):
    of = family(SlidingWindow(1))
    assert support_of(of, shape) is support_of(of, tuple(shape))
    assert support_of(of, shape) is not support_of(of, (*shape[:-1], shape[-1] + 1))


def test_listed_cells_are_known_by_their_tensors():
    of, index = family(SlidingWindow(1)), torch.tensor([[0], [1], [5]])
    one, other = Cells(index), Cells(torch.tensor([[0], [4], [5]]))
    assert support_of(of, one) is support_of(of, one)
    assert support_of(of, one).num_edges == support_of(of, other).num_edges == 5
    assert not torch.equal(support_of(of, one).edges().index, support_of(of, other).edges().index)


def test_learned_queries_share_what_is_made_of_the_graphs():
    of, batch = family(Complete(), align=LearnedQueries(2, 3)), torch.tensor([0, 0, 1])
    again = batch.clone()
    first = support_of(of, None, batch=batch)
    assert support_of(of, None, batch=batch) is first
    assert support_of(of, None, batch=again) is not first
    again[1] = 1
    assert support_of(of, None, batch=again).edges().index.tolist() == [
        [0, 0, 1, 2, 1, 2],
        [0, 1, 2, 2, 3, 3],
    ]


def test_graphs_that_are_gone_leave_nothing_behind():
    of, batch = family(Complete(), align=LearnedQueries(2, 3)), torch.tensor([0, 0, 1])
    gone = weakref.ref(support_of(of, None, batch=batch))
    assert gone() is not None
    del batch
    assert gone() is None


def test_assignments_are_read_at_every_call():
    """Clusters ask their own members."""
    of, cluster = family(Cluster()), torch.tensor([0, 0, 1])

    def edges():
        structure = of.read(cluster, size=(3, 2))
        content = Content(torch.zeros(3, 3), torch.zeros(2, 3))
        return of.basis_on(structure, content=content).heads().edges().index.tolist()

    assert edges() == [[0, 1, 2], [0, 0, 1]]
    cluster[0] = 1
    assert edges() == [[1, 0, 2], [0, 1, 1]]


def test_a_copied_layer_has_supports_of_its_own():
    conv = AttentionConv(3, 4, 2, support=SlidingWindow(1))
    expected = conv(X)
    twin = copy.deepcopy(conv)
    assert len(conv.family.held) == 1
    assert len(twin.family.held) == 0
    assert_near(twin(X), expected)


def test_what_inference_made_of_numbers_serves_training():
    conv, x = AttentionConv(3, 4, 2, support=Complete(add_self_loops=False)), torch.randn(11, 3)
    with torch.inference_mode():
        seen = conv(x)
    found = conv(x)
    found.sum().backward()
    assert_near(found, seen)
    assert conv.theta.weight.grad.abs().sum() > 0
