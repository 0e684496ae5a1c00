"""Chebyshev: polynomials of the rescaled Laplacian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import edge_basis
from ..basis.polynomial import CHEBYSHEV, Polynomial
from ..errors import RefusedValue
from ..graph.graph import Graph
from ..graph.norm import NORMS, check_norm, degree, divisor
from ..graph.spectrum import largest_eigenvalues
from ..kernels.edge_lists import places_of, share_of_degrees
from ..kernels.index_checks import can_read, has_numbers
from ..memo import Memo
from .family import Family
from .options import check_powers

_eigenvalues = Memo()


@dataclass(frozen=True)
class Chebyshev(Family):
    r"""Chebyshev polynomials of the Laplacian, rescaled to [−1, 1].

    .. math:: A_k = T_k(\hat L), \quad \hat L = 2 L / \lambda_{\max} - I, \quad k = 0, \dots, K - 1

    L is as in PyG: self-loops are dropped, D sums the weights that leave a node, and
    L = I − D^(−1/2) W D^(−1/2) (``'sym'``), I − D⁻¹W (``'source'``, PyG's ``'rw'``) or D − W
    (``None``); ``'target'`` is I − W D⁻¹ with D the weights that reach a node. A node without
    edges keeps the 1 of I. From the `"Convolutional Neural Networks on Graphs with Fast
    Localized Spectral Filtering" <https://arxiv.org/abs/1606.09375>`_ paper, equation 5.

    λ_max carries no gradient, and by default does not depend on the batch:

    - ``'bound'``: 2 for the normalised Laplacians, an upper bound of their eigenvalues, as in PyG's
      ``ChebConv``; for D − W twice the largest degree, of each graph of a batch.
    - ``'exact'``: the largest eigenvalue, of each graph of a batch, computed once for an
      unmodified ``edge_index`` and ``edge_weight`` (see :mod:`pyg_outerconv.memo`). On a
      directed graph eigenvalues may be complex: λ_max is then the largest modulus.

    λ_max of each graph needs ``batch``. Without it all nodes count as one graph, and the results
    differ from those of the single graphs (except with the constant 2 of ``'bound'``).
    On a graph of one node the normalised L is (1), so that ``'exact'`` gives L̂ = (1) and
    ``'bound'`` L̂ = (0); where L = 0 any λ gives L̂ = −I, and λ_max = 2.

    Args:
        num_terms (int): K, including T₀; at most 10,000. (default: ``3``)
        lambda_max (str or float or tuple, optional): ``'bound'``, ``'exact'``, or the number
            itself, one for all graphs or one for each graph of a batch. (default: ``'bound'``)
        norm (str, optional): ``'sym'``, ``'source'``, ``'target'`` or ``None``.
            (default: ``'sym'``)
        as_pyg (bool, optional): Whether edges are read as PyG's ``ChebConv`` reads them: weights
            may be negative, where a negative degree under a root gives NaN, and ``'bound'`` is
            twice the largest entry of L over all graphs, with its gradient. (default: ``False``)

    Raises:
        ValueError: an option is unknown or out of range; when a basis is made, sources and targets
            are a pair, edges run between graphs of the batch, weights are negative with
            ``'bound'``, or leave a degree to divide by that is not positive, or the eigenvalues
            given do not fit the batch.
    """

    equation = "A_k = T_k(2 L / lambda_max - I), k = 0..K-1"

    num_terms: int = 3
    lambda_max: str | float | tuple[float, ...] = "bound"
    norm: str | None = "sym"
    as_pyg: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_powers(self, num_terms=1)
        check_norm(self.norm, ("sym", "source", "target", None))
        lambda_max = self.lambda_max
        if isinstance(lambda_max, str):
            if lambda_max not in ("exact", "bound"):
                raise RefusedValue(
                    "lambda_max must be known", "'exact', 'bound' or a number", repr(lambda_max)
                )
            return
        numbers = lambda_max if isinstance(lambda_max, tuple | list) else (lambda_max,)
        if isinstance(lambda_max, list):
            object.__setattr__(self, "lambda_max", tuple(lambda_max))
        if not all(number > 0 for number in numbers):
            raise RefusedValue("lambda_max must be positive", "> 0", lambda_max)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"T_{k} of the rescaled Laplacian" for k in range(self.num_terms))

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """T_0(L̂), …, T_{K−1}(L̂), as a rule."""
        if edges.is_bare:
            rescaled = edges.but(edge_weight=edges.weight(dtype))
        else:
            rescaled = self._rescaled(edges, dtype)
        return Polynomial.of(edge_basis(rescaled), CHEBYSHEV, self.num_terms)

    def _rescaled(self, edges: Graph, dtype: torch.dtype | None) -> Graph:
        """The edges of L̂."""
        edges.require_one_set("a Laplacian", "Walk(1) or Relation(1)")
        if self.as_pyg and self.lambda_max == "bound":
            is_two = self.norm is not None and _is_nonnegative(edges)
            if not is_two:
                return self._by_largest_entry(edges, dtype)
        edges.require_separate_graphs("a Laplacian")
        if self.lambda_max == "bound":
            edges.require_nonnegative("lambda_max='bound'", "or lambda_max='exact' or a number")
            if self.norm is not None:  # 2 L / 2 − I has no diagonal
                if edges.edge_weight is None and can_read(edges.edge_index):
                    value = self._by_counts(edges, dtype or torch.get_default_dtype())
                    if value is not None:
                        return edges.but(edge_weight=value)
                weight = edges.weight(dtype)
                weight = torch.where(edges.source == edges.target, 0.0, weight).to(weight.dtype)
                negative = edges.has_negative
                return self._normalised(edges.but(edge_weight=weight), dtype, negative)
        laplacian = self._laplacian(edges, dtype)
        scale = 2.0 / self._lambda(edges, laplacian)
        if edges.batch is not None and scale.numel() > 1:
            scale = scale[edges.batch.long()][laplacian.source.long()]
        value = laplacian.weight() * scale.to(laplacian.weight())
        is_diagonal = laplacian.origins() < 0
        value = torch.where(is_diagonal, value - 1.0, value)
        narrow = edges.weight(dtype).dtype
        return laplacian.but(edge_weight=value.to(narrow))

    def _by_largest_entry(self, edges: Graph, dtype: torch.dtype | None) -> Graph:
        """The edges of L̂ with λ_max twice the largest entry of L, with its gradient."""
        laplacian = self._laplacian(edges, dtype)
        value = laplacian.weight()
        value = 2.0 * value / (2.0 * value.max())
        value = value.masked_fill(value == torch.inf, 0.0)
        value = torch.where(laplacian.origins() < 0, value - 1.0, value)
        return laplacian.but(edge_weight=value.to(edges.weight(dtype).dtype))

    def _laplacian(self, edges: Graph, dtype: torch.dtype | None) -> Graph:
        """L: the negated, normalised edges, then one diagonal entry for each node."""
        negative, num_nodes = edges.has_negative, edges.size[0]
        edges = _without_loops(edges)
        if self.norm is None:
            weight = edges.weight(dtype)
            diagonal = degree(weight, edges.source, num_nodes)
            edges = edges.but(edge_weight=-weight)
        else:
            edges = self._normalised(edges, dtype, negative)
            wide = torch.promote_types(edges.weight().dtype, torch.float32)
            diagonal = torch.ones(num_nodes, dtype=wide, device=edges.device)
        nodes = torch.arange(num_nodes, device=edges.device, dtype=edges.edge_index.dtype)
        return edges.with_diagonal(diagonal, nodes)

    def _by_counts(self, edges: Graph, dtype: torch.dtype) -> Tensor | None:
        """The entries of L − I for edges of weight 1; None where there are self-loops."""
        source, target = edges.edge_index.numpy()
        if np.count_nonzero(source == target):
            return None
        norm = NORMS[self.norm]
        # 'sym' is by the degrees of sources at both ends.
        index = edges.edge_index.flip(0) if norm.of_targets else edges.edge_index
        powers = norm.at_source, norm.at_target
        return share_of_degrees(
            index, edges.size, *powers, dtype, of_targets=norm.of_targets
        ).neg_()

    def _normalised(
        self, edges: Graph, dtype: torch.dtype | None, has_negative: bool | None
    ) -> Graph:
        """Edges without loops with the entries of L − I; a weight is negative, if that is known."""
        weight, num_nodes = edges.weight(dtype), edges.size[0]
        narrow, end = weight.dtype, edges.target if self.norm == "target" else edges.source
        about = f"norm={self.norm!r}", self.as_pyg, has_negative
        degrees = divisor(weight, end, num_nodes, *about)
        if self.norm == "sym":
            degrees = degrees.sqrt()
            weight = weight / degrees[edges.source] / degrees[edges.target]
        else:
            weight = weight / degrees[end]
        return edges.but(edge_weight=(-weight).to(narrow))

    def _lambda(self, edges: Graph, laplacian: Graph) -> Tensor:
        """λ_max, one for all graphs (1,) or one for each (G,); without gradient."""
        of_edges: Any = {"dtype": torch.float64, "device": edges.device}
        if isinstance(self.lambda_max, tuple):
            num_graphs = _num_graphs(edges.batch)
            if len(self.lambda_max) != num_graphs:
                raise RefusedValue(
                    "lambda_max needs a number for each graph", num_graphs, len(self.lambda_max)
                )
            lambda_max = torch.tensor(self.lambda_max, dtype=torch.float64)
        elif not isinstance(self.lambda_max, str):
            lambda_max = torch.full((1,), float(self.lambda_max), **of_edges)
        elif self.lambda_max == "exact":
            lambda_max = _eigenvalues.get(
                (self.norm, edges.size),
                lambda: self._exact_lambda(edges),
                *(edges.edge_index, edges.edge_weight, edges.batch),
            )
        elif self.norm is None:
            lambda_max = 2.0 * self._largest_degree(edges, laplacian)
        else:
            lambda_max = torch.full((1,), 2.0, **of_edges)
        return torch.where(lambda_max > 0, lambda_max, 2.0).to(edges.device)

    def _exact_lambda(self, edges: Graph) -> Tensor:
        # In float64 throughout: rounding makes a symmetric Laplacian lopsided, and Lanczos stall.
        weight = edges.weight(torch.float64).detach().double()
        precise = self._laplacian(edges.but(edge_weight=weight), torch.float64)
        return largest_eigenvalues(precise, edges.batch)

    @staticmethod
    def _largest_degree(edges: Graph, laplacian: Graph) -> Tensor:
        first = laplacian.num_edges - laplacian.size[0]  # of the diagonal, which comes last
        diagonal = laplacian.weight()[first:].detach().double()
        graph = edges.batch
        if graph is None:
            graph = torch.zeros(diagonal.numel(), dtype=torch.long, device=diagonal.device)
        zeros = diagonal.new_zeros(_num_graphs(edges.batch))
        return zeros.scatter_reduce(0, graph.long(), diagonal, "amax")


def _is_nonnegative(edges: Graph) -> bool:
    """Whether no weight is negative, as far as their numbers can be read."""
    weight, has_negative = edges.edge_weight, edges.has_negative
    if has_negative is not None:
        return not has_negative
    if weight is None or not weight.numel():
        return True
    plain = has_numbers(weight) and not torch._C._are_functorch_transforms_active()
    return plain and bool(weight.detach().min() >= 0)


def _without_loops(edges: Graph) -> Graph:
    is_loop, summary = edges.source == edges.target, edges.summary
    if summary is not None:
        stay = edges.num_edges - summary.num_loops
        return edges.select(places_of(~is_loop, stay)) if summary.num_loops else edges
    if has_numbers(is_loop) and not bool(is_loop.any()):
        return edges
    return edges.select(~is_loop)


def _num_graphs(batch: Tensor | None) -> int:
    return int(batch.max()) + 1 if batch is not None and batch.numel() else 1
