"""What the tests of contractions share: bases, kinds of X and of Θ, and a truth for reductions."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from cases import STRUCTURES

from pyg_outerconv.basis import EdgeBasis, Pattern, Polynomial
from pyg_outerconv.contract import ORDERS
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.testing import awkward_structures
from pyg_outerconv.theta import Theta

# One of each kind of leaf, and of two together.
FAMILIES = {
    "edges": Relation(3),
    "one label": GCN(add_self_loops=False),
    "polynomial": Chebyshev(3),
    "identity": Identity(),
    "stack": Stack(Walk(1), Relation(3), Identity()),
}
KINDS = ("dense", "batch", "none", "indices", "sparse")

# Orders that no built-in backend of a CPU runs unless it is asked for by name.
NEEDS_REFERENCE = {"fused"}
# Orders that need Θ to be a mixture of matrices.
OF_MIXTURES = ("label_mixing", "recurrence_forward_mixed", "recurrence_clenshaw_mixed")
# Orders of bases, Θ or reductions of their own, which have tests of their own.
OF_SEMIRING = ("all_edges", "compare_labels")
OF_GRIDS = ("convolution", "pooling")
OF_UNITS = ("fully_connected",)
OF_PRODUCTS = ("chain_transform", "chain_propagate", "per_copy")
OF_HEADS = tuple(n for n in ORDERS if n.startswith(("attend_", "heads_", "dense_attention_")))
OF_FACTORS = ("latent_transform_first", "latent", "scan")
OF_CHANNELS = ("channel_recurrence",)
OWN = (*OF_CHANNELS, *OF_SEMIRING, *OF_GRIDS, *OF_UNITS, *OF_PRODUCTS, *OF_HEADS, *OF_FACTORS)
GENERAL = [name for name in ORDERS if name not in OWN]
OF_EDGES = [name for name in GENERAL if name != "per_node" and not name.startswith("recurrence")]


def normal(*shape, dtype=torch.float64, grad=True):
    """A normal tensor that wants a gradient."""
    return torch.randn(shape, dtype=dtype, requires_grad=grad)


def features(kind, size, channels, dtype=torch.float64, grad=True):
    """X of a kind, for ``size`` sources; of 'none', ``channels`` has to be ``size``."""
    if kind == "none":
        return None
    if kind == "indices":
        return torch.randint(channels, (size,))
    if kind == "batch":
        return normal(size, 2, 3, channels, dtype=dtype, grad=grad)
    if kind == "dense":
        return normal(size, channels, dtype=dtype, grad=grad)
    x = SparseFeatures.of((torch.rand(size, channels) < 0.4).to(dtype).to_sparse_csr())
    return x.with_values(normal(x.num_entries, dtype=dtype, grad=grad))


def parameter(num_labels, groups, rows, columns, matrices=None, dtype=torch.float64, grad=True):
    """Θ (K, G, P/G, Q/G): one tensor, or a mixture of some matrices."""
    if matrices is None:
        return normal(num_labels, groups, rows // groups, columns // groups, dtype=dtype, grad=grad)
    coefficient = normal(num_labels, matrices, dtype=dtype, grad=grad)
    shape = matrices, groups, rows // groups, columns // groups
    return Theta(normal(*shape, dtype=dtype, grad=grad), coefficient)


def tensors_of(theta):
    """The tensors that Θ is made of."""
    return [theta.inner, theta.coefficient] if isinstance(theta, Theta) else [theta]


def home_of(order, dtype=torch.float64):
    """(basis, Θ's number of matrices) of a graph with parallel edges, on which an order is legal.

    The values of its edges, if it has any, want gradients; see :func:`values_of`.
    """
    edges = awkward_structures(dtype)["multi-edge"]
    if order == "per_node":
        return Identity().basis(edges, dtype=dtype), None
    if order.startswith("recurrence"):
        basis = Chebyshev(3).basis(edges, dtype=dtype)
        learnt = with_values(basis, basis.operator.value.detach().requires_grad_())
        return learnt, 2 if order in OF_MIXTURES else None
    pattern = Pattern.build(edges.edge_index, edges.edge_type, size=edges.size, num_labels=3)
    value = pattern.sort_values(edges.edge_weight.detach()).requires_grad_()
    return EdgeBasis(pattern, value), 2 if order == "label_mixing" else None


def values_of(basis):
    """The values of its edges, as a list: none of the identity."""
    edges = basis.operator if isinstance(basis, Polynomial) else basis
    return [edges.value] if isinstance(edges, EdgeBasis) else []


def with_values(basis, *value):
    """The same basis with other values, if it has any."""
    if isinstance(basis, Polynomial):
        return replace(basis, operator=basis.operator.with_values(*value))
    return basis.with_values(*value) if value else basis


def random_edges(nodes, count, num_labels, values=True, dtype=torch.float32):
    """Edges at random, with values that want gradients, or ones."""
    index, label = torch.randint(nodes, (2, count)), torch.randint(num_labels, (count,))
    pattern = Pattern.build(index, label, size=(nodes, nodes), num_labels=num_labels)
    return EdgeBasis(pattern, normal(count, dtype=dtype) if values else None)


# Reductions over labels ---------------------------------------------------------------------------

REDUCTIONS = ("sum", "mean", "max", "min")
PAIRS_OF_REDUCTIONS = list(product(REDUCTIONS, ("sum", "max", "min")))
COMPARED = [pair for pair in PAIRS_OF_REDUCTIONS if pair[1] != "sum"]
both = pytest.mark.parametrize(("aggr", "label_aggr"), PAIRS_OF_REDUCTIONS)
not_sums = pytest.mark.parametrize(("aggr", "label_aggr"), PAIRS_OF_REDUCTIONS[1:])


def edges_of(name, num_labels=3):
    """Edges of some labels with values of both signs."""
    structure = STRUCTURES[name]
    pattern = Pattern.build(
        structure.edge_index, structure.edge_type, size=structure.size, num_labels=num_labels
    )
    return EdgeBasis(pattern, normal(pattern.num_edges))


def identity(num_labels, channels, dtype=torch.float64):
    return Theta.identity(num_labels, channels, torch.empty(0, dtype=dtype))


def has_edges(basis):
    """Whether which edges a basis has is known without making powers or products."""
    return not any(name in repr(basis) for name in ("Polynomial", "Composed"))
