"""What torch.jit.trace keeps of a layer on one graph; of layers on others: ``test_layers.py``."""

import io

import pytest
import torch
from cases import CASES

from pyg_outerconv.families import GCN, Directed, Relation
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.testing import assert_near

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

NODES, CHANNELS, TYPES = 40, 16, 3
EDGES = {"few edges": 150, "many edges": 2500}  # on either side of where they are sorted
every_count = pytest.mark.parametrize("count", EDGES.values(), ids=EDGES)


def graph(count, seed, loops):
    """Features, edges with so many loops among them, and their types."""
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(NODES, (2, count), generator=generator)
    target = torch.where(source == target, (target + 1) % NODES, target)
    target[:loops] = source[:loops]
    types = torch.randint(TYPES, (count,), generator=generator)
    x = torch.randn(NODES, CHANNELS, generator=generator, dtype=torch.float64)
    return x, torch.stack([source, target]), types


class OnEdges(torch.nn.Module):
    """A layer that takes types of edges where its family reads them; on its own edges, if given."""

    def __init__(self, conv, *edges):
        super().__init__()
        self.conv, self.edges = conv.double().eval(), edges

    def forward(self, x, *edges):
        index, types = edges or self.edges
        reads = self.conv.family.makes_use_of("edge_type")
        return self.conv(x, index, edge_type=types if reads else None)


def kept(module, inputs, **options):
    """What torch traces, saved and loaded."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, inputs, **options), file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.slow(cases=16)
@every_count
@pytest.mark.parametrize("family", CASES, ids=str)
def test_a_trace_on_one_graph_is_right_for_other_features(family, count):
    x, index, types = graph(count, 0, 3)
    types = types if "num_relations=3" in str(family) else torch.zeros_like(types)
    conv = OnEdges(OuterConv(CHANNELS, 4, family), index, types)
    other = kept(conv, (x,), check_trace=False)
    assert_near(other(2 * x + 1), conv(2 * x + 1))


@every_count
def test_gradients_of_a_trace_are_right_or_refused(count):
    conv = OnEdges(OuterConv(CHANNELS, 4, GCN()))
    other = torch.jit.trace(conv, graph(count, 0, 0), check_trace=False)
    x, *edges = graph(count, 1, 5)
    found = other(x.requires_grad_(), *edges).square().sum()
    wanted = torch.autograd.grad(conv(x, *edges).square().sum(), x)[0]
    try:
        ours, refused = torch.autograd.grad(found, x)[0], ""
    except RuntimeError as error:
        ours, refused = wanted, str(error)
    assert_near(ours, wanted)
    assert not refused or "backward through pyg_outerconv" in refused


def test_maxima_over_labels_are_traced_for_a_constant_graph_alone():
    conv = OuterConv(4, 3, Directed(Relation(1)), aggr="mean", label_aggr="max")
    conv.requires_grad_(False)
    x, first, other = torch.randn(8, 4), *torch.randint(8, (2, 2, 30))
    with pytest.raises(ValueError, match=r"torch\.jit\.trace keeps how many pairs this graph has"):
        torch.jit.trace(conv, (x, first), check_trace=False)
    for edges in (other, conv.basis(x, other)):
        traced = torch.jit.trace(lambda x, edges=edges: conv(x, edges), (x,), check_trace=False)
        assert_near(traced(-x), conv(-x, edges))
