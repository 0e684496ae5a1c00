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


def window():
    return family(SlidingWindow(1))


def queries():
    return family(Complete(), align=QUERIES)


def support_of(of, edge_index, **beside):
    """The support of the basis that a family makes of features (n, 3)."""
    structure = of.read(edge_index, **beside)
    x = torch.zeros(structure.size[0], 3)
    return of.basis_on(structure, content=Content(x, x)).over


EDGES, BATCH = torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 1])
QUERIES = LearnedQueries(2, 3)


@pytest.mark.parametrize(
    ("make", "same", "other"),
    [
        (family, {"edge_index": EDGES}, {"edge_index": EDGES.clone()}),
        (window, {"edge_index": None, "size": (50, 50)}, {"edge_index": None, "size": (51, 51)}),
        (window, {"edge_index": (4,)}, {"edge_index": (5,)}),
        (window, {"edge_index": (2, 3)}, {"edge_index": (2, 4)}),
        (
            window,
            {"edge_index": Cells(torch.tensor([[0], [1], [5]]))},
            {"edge_index": Cells(EDGES)},
        ),
        (
            queries,
            {"edge_index": None, "batch": BATCH},
            {"edge_index": None, "batch": BATCH.clone()},
        ),
    ],
    ids=["edges", "numbers", "shape", "shape of an image", "cells", "learned queries"],
)
def test_layers_share_what_is_made_of_the_same(make, same, other):
    of, again = make(), make()
    first = support_of(of, **same)
    assert support_of(of, **same) is first
    assert support_of(again, **same) is first
    assert support_of(of, **other) is not first


def test_what_was_changed_in_place_is_looked_at_again():
    edges, batch = EDGES.clone(), BATCH.clone()
    first = support_of(family(), edges, size=(3, 3))
    edges[0, 0] = 2
    second = support_of(family(), edges, size=(3, 3))
    assert first.pattern.source.tolist() == [0, 1]
    assert second.pattern.source.tolist() == [2, 1]
    support_of(queries(), None, batch=batch)
    batch[1] = 1
    asked = support_of(queries(), None, batch=batch).edges().index.tolist()
    assert asked == [[0, 0, 1, 2, 1, 2], [0, 1, 2, 2, 3, 3]]


def test_graphs_of_nodes_are_looked_at():
    of, sizes = family(Complete()), []
    for batch in (None, BATCH, torch.tensor([0, 1, 2]), None):
        sizes.append(support_of(of, EDGES, batch=batch).num_edges)
    assert sizes == [9, 5, 3, 9]


@pytest.mark.parametrize("make", [family, queries], ids=["edges", "graphs"])
def test_what_was_made_of_what_is_gone_is_gone(make):
    key = EDGES.clone() if make is family else BATCH.clone()
    of, beside = make(), {} if make is family else {"batch": key}
    gone = weakref.ref(support_of(of, key if make is family else None, **beside))
    assert gone() is not None
    del key, beside
    assert gone() is None


def test_rules_are_shared_as_long_as_a_layer_holds_them():
    first, second = window(), window()
    gone = weakref.ref(support_of(first, None, size=(50, 50)))
    assert support_of(second, None, size=(50, 50)) is gone()
    del first
    assert gone() is not None
    del second
    assert gone() is None


def test_a_layer_holds_few_rules():
    of = window()
    rules = [weakref.ref(support_of(of, None, size=(n, n))) for n in range(10, 30)]
    assert 0 < sum(rule() is not None for rule in rules) < 10


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
    assert len(conv.family.support_cache) == 1
    assert len(twin.family.support_cache) == 0
    assert_near(twin(X), expected)


def test_what_inference_made_of_numbers_serves_training():
    conv, x = AttentionConv(3, 4, 2, support=Complete(add_self_loops=False)), torch.randn(11, 3)
    with torch.inference_mode():
        seen = conv(x)
    out = conv(x)
    out.sum().backward()
    assert_near(out, seen)
    assert conv.theta.weight.grad.abs().sum() > 0
