"""What the tests of attention share: bases of content, parameters, and the dense truth of both."""

from dataclasses import dataclass, replace

import oracle
import torch
from cases import STRUCTURES
from contractions import normal

from pyg_outerconv.basis import Pattern
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.basis.band import Band
from pyg_outerconv.basis.multi_head_edges import MultiHeadEdges
from pyg_outerconv.contract import ORDERS, contract
from pyg_outerconv.contract.problem import Problem, problems
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.kernels import segment_softmax
from pyg_outerconv.testing import assert_near
from pyg_outerconv.testing.reference import derivatives
from pyg_outerconv.theta import Theta

HEAD_ORDERS = ("heads_transform_first", "heads_propagate_first")
ATTEND_ORDERS = ("attend_transform_first", "attend_propagate_first")
# Labels of a support and heads: one support for all, some heads for each label, one for each.
SHARES = ((1, 2), (3, 6), (3, 3))
FORMS = ("full", "identity", "mixture", "concat", "sum", "output", "concat+b", "sum+b", "output+b")


@dataclass(frozen=True)
class Shares:
    """The softmax, with nothing dropped."""

    is_softmax: bool = True
    dropped: float = 0.0

    def __call__(self, csr, score):
        return segment_softmax(csr, score) if self.is_softmax else score.sigmoid()


def pattern_of(name, num_labels, index_dtype=torch.long):
    """The edges of a structure, with its edge types where there are three labels."""
    structure = STRUCTURES[name]
    types = structure.edge_type if num_labels == 3 else None
    index = structure.edge_index.to(index_dtype)
    origin = torch.arange(structure.num_edges)
    return Pattern.build(index, types, size=structure.size, num_labels=num_labels, origin=origin)


def attention_basis(
    over, heads=2, batch=(), biased=False, present=False, normalise=None, factor=0.7, shared=False
):
    """A basis of queries and keys of two channels, and its tensors that want gradients.

    ``over`` is a pattern or a rule. With ``shared``, bias and sources are of all items of a batch.
    """
    over = over.with_values(None) if isinstance(over, Pattern) else over
    over = replace(over) if isinstance(over, Band) else over  # which has no edges yet
    (sources, targets), of_label = over.size, heads // over.num_bases
    query, key = normal(targets, *batch, heads, 2), normal(sources, *batch, heads, 2)
    own = (1,) * len(batch) if shared else batch
    bias = normal(over.num_edges, *own, of_label) if biased else None
    there = torch.rand(sources, *(() if shared else batch)) < 0.7 if present else None
    basis = AttentionBasis(over, query, key, normalise or Shares(), factor, bias, there)
    return basis, [query, key] + ([bias] if biased else [])


def heads_of(pattern, heads, batch=()):
    """A basis of values for each edge and head, and these."""
    value = normal(pattern.num_edges, *batch, heads // pattern.num_labels)
    return MultiHeadEdges(pattern, value), [value]


def parameter_of(form, heads, rows, columns):
    """Θ of a form, of H·columns outputs where heads are concatenated, and its tensors."""
    bias = normal(heads, columns) if form.endswith("+b") else None
    value = normal(heads, rows, columns)
    kind = form.removesuffix("+b")
    if kind == "full":
        theta = normal(heads, 1, rows, columns)
        return theta, [theta]
    if kind == "identity":
        return Theta.identity(heads, rows, value), []
    if kind == "mixture":
        coefficient = normal(heads, 2)
        theta = Theta(normal(2, 1, rows, columns), coefficient)
        return theta, [coefficient, theta.inner]
    output = normal(heads, columns, columns + 1) if kind == "output" else None
    together = "sum" if kind in ("sum", "output") else "concat"
    theta = Theta(value.unsqueeze(1), outer=output, bias=bias, heads=together)
    return theta, [part for part in (value, output, bias) if part is not None]


# The truth ----------------------------------------------------------------------------------------


def dense_values(basis):
    """(H, *batch, M, N) the matrices, from scores edge by edge, without any order or kernel."""
    if isinstance(basis, MultiHeadEdges):
        pattern, value = basis.pattern, basis.value
    else:
        pattern, value = basis.pattern, _shares(basis)
    shared = value.size(-1)
    (sources, targets), batch = pattern.size, tuple(value.shape[1:-1])
    out = value.new_zeros(pattern.num_labels, targets, sources, *batch, shared)
    where = tuple(t.long() for t in (pattern.label, pattern.target, pattern.source))
    out = out.index_put(where, value, accumulate=True)  # (L, N, M, *batch, shared)
    return out.movedim(-1, 1).flatten(0, 1).movedim((1, 2), (-1, -2))


def _shares(basis):
    pattern, labels = basis.pattern, basis.num_labels
    label, target, source = (t.long() for t in (pattern.label, pattern.target, pattern.source))
    shared, batch = basis.num_bases // labels, basis.batch
    key, query = (x.unflatten(-2, (labels, shared)) for x in (basis.key, basis.query))
    at = (slice(None),) * len(batch)
    edges = range(pattern.num_edges)
    score = (
        torch.stack(
            [
                basis.factor
                * (query[target[e]][(*at, label[e])] * key[source[e]][(*at, label[e])]).sum(-1)
                for e in edges
            ]
        )
        if pattern.num_edges
        else query.new_zeros(0, *batch, shared)
    )
    score = score if basis.bias is None else score + basis.bias
    if basis.present is not None:
        there = basis.present.view(
            *basis.present.shape, *(1,) * (score.dim() - basis.present.dim())
        )
        score = score.masked_fill(~there[source], -torch.inf)
    if not basis.normalise.is_softmax:
        return score.sigmoid()
    group, flat = target * labels + label, score.flatten(1)
    columns = []
    for column in flat.unbind(1):  # entries at -inf are left out, so that nothing is NaN
        kept = column.detach() > -torch.inf
        shares = oracle.softmax(group[kept], column[kept].unsqueeze(1)).squeeze(1)
        columns.append(torch.zeros_like(column).masked_scatter(kept, shares))
    return torch.stack(columns, 1).view(score.shape) if columns else score


def dense_truth(basis, x, theta):
    """Σ_h A_hᵀ (X V_h + b_h) O_h with dense matrices, for each item of a batch."""
    return dense_product(dense_values(basis), x, theta)


def dense_product(matrices, x, theta):
    """The same of matrices (H, *batch, M, N)."""
    full = _unblocked(theta if isinstance(theta, torch.Tensor) else theta.full())
    rows = x
    if isinstance(x, SparseFeatures):
        dense = x.value.new_zeros(x.shape)
        rows = dense.index_put((_rows(x), x.csr.index.long()), x.value, accumulate=True)
    elif x is None:
        rows = torch.eye(full.size(1), dtype=full.dtype)
    elif not x.is_floating_point():
        rows = torch.nn.functional.one_hot(x, full.size(1)).to(full.dtype)
    batch, size = rows.shape[1:-1], matrices.shape[-2:]
    rows = rows.flatten(1, -2) if batch else rows.unsqueeze(1)
    matrices = matrices.flatten(1, -3) if matrices.dim() > 3 else matrices.unsqueeze(1)
    matrices = matrices.expand(full.size(0), rows.size(1), *size)
    out = torch.einsum("hbmn,mbp,hpq->nbq", matrices, rows, full)
    if isinstance(theta, Theta) and theta.bias is not None:
        out = out + torch.einsum("hbmn,hv,hvq->nbq", matrices, theta.bias, theta.outer_matrices())
    return out.reshape(size[1], *batch, full.size(2))


def _unblocked(theta):
    groups = theta.size(1)
    return torch.stack([torch.block_diag(*one) for one in theta]) if groups > 1 else theta[:, 0]


def _rows(x):
    counts = x.csr.ptr.diff().long()
    return torch.arange(x.shape[0]).repeat_interleave(counts)


# The comparison -----------------------------------------------------------------------------------


def legal(basis, x, theta):
    """The names of the orders that may solve all of it."""
    parts = problems(Problem(basis, x, theta))
    return [name for name, order in ORDERS.items() if not any(map(order.why_not, parts))]


def assert_all_orders(basis, x, theta, tensors, depth=1, orders=None):
    """Every legal order, and the choice, equal the truth in value and derivatives."""
    rows = x.value if isinstance(x, SparseFeatures) else x
    inputs = [t for t in (rows, *tensors) if t is not None and t.requires_grad]
    expected = derivatives(dense_truth(basis, x, theta), inputs, depth)
    names = legal(basis, x, theta) if orders is None else orders
    for name in (None, *names):
        fresh = replace(basis) if isinstance(basis, AttentionBasis) else basis
        actual = derivatives(contract(fresh, x, theta, name), inputs, depth)
        for number, (derivative, reference) in enumerate(zip(actual, expected, strict=True)):
            try:
                assert_near(derivative, reference, 1e-9 if number else None, at_least=0.1)
            except AssertionError as error:
                raise AssertionError(f"order {name}, result {number}: {error}") from error
    return names
