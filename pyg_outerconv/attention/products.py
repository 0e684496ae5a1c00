"""Scores that are inner products of both ends of an edge, or compare them by angle or distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis.implicit_edges import ImplicitEdges
from ..equations import row
from ..errors import RefusedValue
from ..graph import Features, SparseMatrix
from ..graph.checks import check_positive
from ..kernels import additive
from ..kernels.index_checks import can_read
from ..kernels.tiles import exact
from .edge_context import EdgeContext
from .projection import (
    EdgeFeatures,
    Ends,
    Projection,
    Queries,
    both_ends,
    channels_of,
    check_queries,
    over_batch,
    project_heads,
    same_batch,
    spread,
)
from .score import Dot, Score


class DotProduct(Score):
    r"""score[m, n] = ⟨Q_n, X_m⟩.

    "dot" in `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1); under a softmax the Gaussian of `"Non-local
    Neural Networks" <https://arxiv.org/abs/1711.07971>`_ (equation 2).

    Args:
        heads: H; all heads are equal, unless each has queries of its own.
        channels, in_channels: ignored.
        scale: factor of the products; 1/√P if None.
    """

    name = "dot-product"
    page = (
        "⟨Q_n, X_m⟩",
        "1508.04025, section 3.1; "
        "Wang et al., *Non-local Neural Networks* (1711.07971), equation 2",
    )

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        scale: float | None = 1.0,
    ) -> None:
        super().__init__(heads)
        self.scale = scale

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        scale = 1.0 / math.sqrt(channels_of(source)) if self.scale is None else float(self.scale)
        return Dot(spread(query, self.heads), spread(source, self.heads), scale)


class Bilinear(Score):
    r"""score[m, n] = X_m Λ_h Q_nᵀ, with Λ (H, P, P_q) of any rank.

    Equation 6 of *Convolution is outer product* (section 4) before Λ is factorised; "general" in
    `"Effective Approaches to Attention-based Neural Machine Translation"
    <https://arxiv.org/abs/1508.04025>`_ (section 3.1).

    Queries are multiplied by Λᵀ, so that keys are X itself; if X is sparse, X is multiplied by Λ.

    Args:
        heads, in_channels: see :class:`Score`.
        channels: ignored; a form of rank D is :class:`KeyQuery`.
        scale: factor of the form.

    Attributes:
        form: the projection whose weight is Λᵀ (H, P_q, P).
    """

    name = "bilinear"
    page = ("X_m Λ Q_nᵀ", "Andreoli, equation 6; Luong et al. (1508.04025), section 3.1")

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        scale: float = 1.0,
    ) -> None:
        super().__init__(heads)
        of_key, of_query = both_ends(in_channels)
        self.scale = float(scale)
        self.form = Projection(of_query, heads, of_key)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        check_queries(self.form, query, source)
        self.form.settle(query, channels_of(source))
        if isinstance(source, SparseMatrix):
            near = project_heads(source, self.form.weight.transpose(1, 2))
            return Dot(spread(query, self.heads), near, self.scale)
        return Dot(self.form(query), spread(source, self.heads), self.scale)


@row("Scores", "the same", "Andreoli, section 4.2", option="one `KeyQuery` in several layers")
class KeyQuery(Score):
    r"""score[m, n] = ⟨Q_n W_q + b_q, X_m W_k + b_k⟩ / √D: a bilinear form of rank D.

    Λ = W_k W_qᵀ / √D in equation 6 of *Convolution is outer product* (section 4), the scaled
    dot-product attention of *Attention Is All You Need* (section 3.2). One module may be given to
    several layers, which then share its parameters.

    With edge features keys are K_m + E_mn W_e; rotary positions rotate queries and keys.

    Args:
        heads, channels, in_channels: see :class:`Score`.
        bias: whether keys and queries have a bias.
        scale: factor of the products; 1/√D if None.
        edge: D_e of ``edge_attr``, or an :class:`EdgeFeatures` that values may share; None for keys
            without edge features.
        rotary: a module (x, positions) -> x, such as :class:`Rotary`; it does not rotate edge
            features.

    Raises:
        ValueError: ``edge`` has other heads or channels, or ``rotary`` other channels.
    """

    name = "key-query"
    page = ("⟨Q_n W_q, X_m W_k⟩ / √D", "Andreoli, section 4, Λ of rank D; 1706.03762, equation 1")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
        scale: float | None = None,
        edge: EdgeFeatures | int | None = None,
        rotary: torch.nn.Module | None = None,
    ) -> None:
        super().__init__(heads)
        check_positive("a score", channels=channels)
        self.channels = channels
        self.scale = 1.0 / math.sqrt(channels) if scale is None else float(scale)
        of_key, of_query = both_ends(in_channels)
        self.key = Projection(of_key, heads, channels, bias)
        self.query = Projection(of_query, heads, channels, bias)
        self.edge = EdgeFeatures(edge, heads, channels) if isinstance(edge, int) else edge
        if self.edge is not None and (self.edge.heads, self.edge.channels) != (heads, channels):
            raise RefusedValue(
                "edge features are added to keys",
                f"{heads} heads of {channels} channels",
                f"{self.edge.heads} of {self.edge.channels}",
            )
        turned = getattr(rotary, "channels", channels)
        if turned != channels:
            raise RefusedValue(
                "rotary positions turn keys and queries", f"{channels} channels", turned
            )
        self.rotary = rotary
        read = {"edge_attr": self.edge, "pos": rotary}
        self.reads_beside = tuple([name for name, by in read.items() if by is not None])

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        check_queries(self.query, query, source)
        at_target, at_source = self.query(query), self.key(source)
        bias = None if self.edge is None else self.edge.of_keys(at_target, support) * self.scale
        if self.rotary is not None:
            of_source, of_target = support.positions
            at_target = self.rotary(at_target, of_target)
            at_source = self.rotary(at_source, of_source)
        return Dot(at_target, at_source, self.scale, bias)


class EmbeddedGaussian(KeyQuery):
    r"""score[m, n] = ⟨Q_n W_q, X_m W_k⟩, whose exponential a softmax normalises.

    Equation 3 of `"Non-local Neural Networks" <https://arxiv.org/abs/1711.07971>`_, with θ = W_q
    and φ = W_k.

    Args:
        heads, channels, in_channels: see :class:`Score`.
        bias: whether keys and queries have a bias.
    """

    name = "embedded-gaussian"
    page = ("⟨Q_n W_q, X_m W_k⟩", "1711.07971, equation 3")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
    ) -> None:
        super().__init__(heads, channels, in_channels, bias, scale=1.0)


# Angles and distances -----------------------------------------------------------------------------


# The most by which rounding may change distances that are differences of squares.
_LOST = {torch.float32: 1e-5, torch.float64: 1e-10}


class Similarity(Score):
    """Scores that compare the features of both ends, or projections of them.

    Args:
        heads: H.
        channels: D, where features are projected; else ignored.
        in_channels: P of the sources, or a pair (P, P_q), for projections.
        projected: whether projections are compared, or the features as they are.
    """

    def __init__(
        self, heads: int, channels: int | None, in_channels: int | tuple[int, int], projected: bool
    ) -> None:
        super().__init__(heads)
        self.ends = Ends(heads, channels, in_channels, own=True) if projected else None

    def compared(
        self, source: Features, query: Queries, support: EdgeContext
    ) -> tuple[Tensor, Tensor]:
        """The vectors of sources (M, *batch, H, D) and of queries (N, *batch, H, D)."""
        if self.ends is None:
            return spread(source, self.heads), spread(query, self.heads)
        return self.ends(source, query, support)  # type: ignore[no-any-return]


class Cosine(Similarity):
    r"""score[m, n] = β cos(X_m, Q_n), or of their projections; 0 where a vector is zero.

    With one learned β it is the score of `"Attention-based Graph Neural Network for
    Semi-supervised Learning" <https://arxiv.org/abs/1803.03735>`_ (AGNN). With projections, and a
    β = 1/τ for each head that stays below 100, the scaled cosine attention of `"Swin Transformer
    V2" <https://arxiv.org/abs/2111.09883>`_ (section 3.3, equation 2):
    ``Cosine(H, D, projected=True, per_head=True, beta=10.0, at_most=100.0)``.

    Unit vectors and scores are in float32 at least: the gradient of β is a product of two vectors
    that are far longer than it where keys are nearly orthogonal to their queries.

    Args:
        heads, channels, in_channels, projected: see :class:`Similarity`.
        beta: β, or its initial value.
        learned: whether β is a parameter.
        per_head: whether each head has its own β.
        at_most: upper bound of β, or None.
    """

    name = "cosine"
    page = (
        "β cos(X_m, Q_n)",
        "Thekumparampil et al., *AGNN* (1803.03735); Swin V2 (2111.09883), equation 2",
    )

    beta: Tensor

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        beta: float = 1.0,
        learned: bool = True,
        per_head: bool = False,
        projected: bool = False,
        at_most: float | None = None,
    ) -> None:
        super().__init__(heads, channels, in_channels, projected)
        self.begins, self.at_most = float(beta), at_most
        count = heads if per_head else 1
        if learned:
            self.beta = Parameter(torch.empty(count))
        else:
            self.register_buffer("beta", torch.empty(count), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        torch.nn.init.constant_(self.beta, self.begins)

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.compared(source, query, support)
        kind = at_source.dtype
        at_source, at_target = exact(at_source), exact(at_target)
        beta = self.beta if self.at_most is None else self.beta.clamp(max=self.at_most)
        query = _unit(at_target) * beta.to(at_target.dtype).unsqueeze(-1)
        return Dot(query, _unit(at_source), value_type=kind)


def _unit(x: Tensor) -> Tensor:
    """The vectors divided by their lengths; zero vectors stay zero.

    Each is divided by its largest entry first, so that no square overflows.
    """
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1.0)
    square = (x * x).sum(-1, keepdim=True)
    empty = square == 0
    return x * square.masked_fill(empty, 1.0).rsqrt().masked_fill(empty, 0.0)


class GaussianDistance(Similarity):
    r"""score[m, n] = −|Q_n − X_m|² / 2σ², of the features or of projections of them.

    Under a softmax these are the weights of kernel regression (Nadaraya 1964, Watson 1964), and the
    responsibilities of Gaussians of equal width.

    Differences are subtracted channel by channel, in tiles of edges, so that the distance of equal
    vectors is 0 wherever they are. Under a softmax it is a product of vectors with two more
    channels, ⟨(q, −|q|²/2, 1), (x, 1, −|x|²/2)⟩, in a dtype in which squares of such size have the
    digits of distances, so that no tensor of scores is needed. Scores are in float32 at least.

    Args:
        heads, channels, in_channels, projected: see :class:`Similarity`.
        sigma: σ, or its initial value.
        learned: whether σ is a parameter, one for each head.

    Raises:
        ValueError: σ is not positive.
    """

    name = "gaussian-distance"
    page = ("−\\|Q_n − X_m\\|² / 2σ²", "1711.07971, section 3.2, by distance")

    log_sigma: Tensor

    def __init__(
        self,
        heads: int,
        channels: int | None = None,
        in_channels: int | tuple[int, int] = -1,
        sigma: float = 1.0,
        learned: bool = False,
        projected: bool = False,
    ) -> None:
        super().__init__(heads, channels, in_channels, projected)
        if not sigma > 0:
            raise RefusedValue("sigma is a width", "> 0", sigma)
        self.sigma = float(sigma)
        self.log_sigma = Parameter(torch.empty(heads)) if learned else None  # type: ignore[assignment]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.log_sigma is not None:
            torch.nn.init.constant_(self.log_sigma, math.log(self.sigma))

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        at_source, at_target = self.compared(source, query, support)
        batch, kind = same_batch(at_source[..., 0], at_target[..., 0]), at_source.dtype
        wide = self._type_of_squares(at_source, at_target, support)
        if wide is not None:
            at_target, at_source = at_target.to(wide), at_source.to(wide)
            return _as_product(self._narrow(at_target), self._narrow(at_source), kind)
        at_source, at_target = support.fold(exact(at_source)), support.fold(exact(at_target))
        sigma = self.sigma if self.log_sigma is None else 1.0
        weight = at_source.new_full(at_source.shape[1:], -0.5 / sigma**2)
        score = additive(support.csr, at_target, -at_source, weight, activation="square")
        score = support.unfold(score, self.heads, batch)
        if self.log_sigma is None:
            return score
        factor = (-2 * self.log_sigma).exp().expand(score.size(0), -1)
        return score * over_batch(support.own_heads(factor), batch).to(score.dtype)

    def _type_of_squares(
        self, source: Tensor, target: Tensor, support: EdgeContext
    ) -> torch.dtype | None:
        """The dtype in which squares, subtracted, leave the digits of distances.

        None if there is none, or if f needs a number for each edge. A support that is a rule takes
        float64, at 2.3 times the time of float32, before it becomes edges. Edges that exist already
        take no wider dtype than scores have, for they are faster by tiles.
        """
        if not support.cancels_terms:
            return None
        own = exact(source[:0]).dtype
        wide = torch.float64 if isinstance(support.basis, ImplicitEdges) else own
        if not (can_read(source) and can_read(target)):
            return wide if wide != own else None
        with torch.no_grad():
            squares = [self._narrow(exact(x)).square().sum(-1) for x in (source, target)]
        size = max((x.amax().item() for x in squares if x.numel()), default=0.0)
        bound = _LOST[own]
        return next((kind for kind in (own, wide) if size * torch.finfo(kind).eps <= bound), None)

    def _narrow(self, x: Tensor) -> Tensor:
        """x / σ, with the σ of each head."""
        if self.log_sigma is None:
            return x / self.sigma
        return x * (-self.log_sigma).exp().to(x.dtype).unsqueeze(-1)


def _as_product(query: Tensor, key: Tensor, value_type: torch.dtype) -> Dot:
    """−|q − k|² / 2 as a product of q and k with two more channels."""
    query = torch.cat([query, -_half_square(query), torch.ones_like(query[..., :1])], -1)
    key = torch.cat([key, torch.ones_like(key[..., :1]), -_half_square(key)], -1)
    return Dot(query, key, value_type=value_type)


def _half_square(x: Tensor) -> Tensor:
    return 0.5 * (x * x).sum(-1, keepdim=True)
