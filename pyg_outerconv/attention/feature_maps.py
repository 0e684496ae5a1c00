"""Feature maps φ of keys and queries, whose products are the scores of linear attention."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from ..equations import row
from ..errors import RefusedType
from ..graph import Features
from ..graph.checks import check_dense, check_positive
from ..kernels.index_checks import can_read
from ..kernels.tiles import exact
from ..registry import Named, Registry
from ..signatures import typed
from .edge_context import EdgeContext
from .projection import Projection, Queries, both_ends, check_queries
from .score import Dot, Score

FEATURE_MAPS: Registry[type[FeatureMap]] = Registry("feature map")
"""All feature maps by name."""


class FeatureMap(Named, torch.nn.Module, registry=FEATURE_MAPS):
    """φ of keys and queries, (..., D) to (..., D').

    The weight of a pair is ⟨φ(k), φ(q)⟩. To add a feature map, define a subclass with a ``name``,
    which registers it, and :meth:`forward`.

    Attributes:
        name: the name by which layers make it.
        is_positive: whether features are never negative.
    """

    name: ClassVar[str]
    is_positive: ClassVar[bool] = True


class Exponential(FeatureMap):
    """φ(x) = e^g(x); :meth:`exponent` is g, of which shares are made that do not leave the range.

    Attributes:
        overflows: whether features themselves do, so that a normaliser must cancel their factor.
    """

    overflows: ClassVar[bool] = True

    @abstractmethod
    def exponent(self, x: Tensor) -> Tensor:
        """g(x), (..., D) to (..., D')."""

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return self.exponent(x).exp()

    def is_ordinary(self, x: Tensor) -> bool:
        """Whether all features are seen to be from e^-10 to e^10, so that no product is lost."""
        return _within(self.exponent(x.detach()), 10.0)


class EluPlusOne(Exponential):
    """φ(x) = elu(x) + 1, from *Transformers are RNNs* (equation 7): eˣ below zero, x + 1 above."""

    name = "elu+1"
    page = ("elu(x) + 1", "2006.16236, equation 7")
    overflows = False

    def exponent(self, x: Tensor) -> Tensor:
        """ln φ(x): x below zero, ln(1 + x) above."""
        return x.clamp(max=0.0) + x.relu().log1p()

    def forward(self, x: Tensor) -> Tensor:
        """The features; this form keeps the digits of small ones, which elu(x) + 1 loses."""
        return x.clamp(max=0.0).exp() + x.relu()

    def is_ordinary(self, x: Tensor) -> bool:
        """The same, without logarithms: ln(1 + x) is less than x."""
        return _within(x.detach(), 10.0)


class Rectified(Exponential):
    """φ(x) = max(x, 0); all weights of a query may be zero."""

    name = "relu"
    page = ("max(x, 0)", "")
    overflows = False

    def exponent(self, x: Tensor) -> Tensor:
        """ln max(x, 0), -inf where x is not positive."""
        log = x.clamp(min=torch.finfo(x.dtype).tiny).log()
        return log.masked_fill(x <= 0, -torch.inf)

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return x.relu()

    def is_ordinary(self, x: Tensor) -> bool:
        """Whether the largest feature of each row is seen to be 0, or from e^-20 to e^20."""
        if not _can_bound(x):
            return False
        row = x.detach().amax(-1)
        return _within(row.masked_fill(row <= 0, 1.0).log(), 20.0)


class Unchanged(FeatureMap):
    """φ(x) = x: the weights are the products themselves, of either sign.

    With ``normalised=False`` it is attention whose f is the identity (equation 6 of *Convolution is
    outer product*). A sum of signed weights may be zero, so do not normalise by the sum.
    """

    name = "identity"
    page = ("x", "Andreoli, equation 6")
    is_positive = False

    def forward(self, x: Tensor) -> Tensor:
        """The features."""
        return x


class Exp(Exponential):
    """φ(x) = eˣ, channel by channel."""

    name = "exp"
    page = ("eˣ", "")

    def exponent(self, x: Tensor) -> Tensor:
        """g(x) = x."""
        return x


@row(
    "Linear attention",
    "exp kernels",
    "Choromanski et al., *Performers* (2009.14794), lemma 1",
    option="`PositiveRandom` features",
)
class PositiveRandom(Exponential):
    r"""Random features whose products are an unbiased estimate of the softmax kernel:

    .. math::
        \phi(x) = \frac{1}{\sqrt{R}} \exp\left(\omega_r^{\top} x - \|x\|^2 / 2\right)_{r \le R},
        \qquad E \langle \phi(k), \phi(q) \rangle = \exp \langle k, q \rangle

    with directions ω that are orthogonal to each other in groups of D. Features are computed of
    x / D^¼, so that scores are divided by √D, as in attention. From the `"Rethinking Attention with
    Performers" <https://arxiv.org/abs/2009.14794>`_ paper (FAVOR+, lemma 1 and section 2.4).

    Args:
        channels: D.
        num_features: R.
        seed: seed of the directions, which are a buffer.

    Raises:
        TypeError, ValueError: a number is not positive.
    """

    omega: Tensor

    @typed
    def __init__(self, channels: int, num_features: int, seed: int = 0) -> None:
        super().__init__()
        check_positive("random features", channels=channels, num_features=num_features)
        self.channels, self.num_features = channels, num_features
        generator = torch.Generator().manual_seed(seed)
        blocks = []
        for _ in range(-(-num_features // channels)):
            drawn = torch.randn(channels, channels, generator=generator)
            # Orthogonal directions with the lengths of independent normal vectors. The signs of the
            # triangular factor make both signs of a direction equally likely.
            length = torch.randn(channels, channels, generator=generator).norm(dim=0)
            axes, triangle = torch.linalg.qr(drawn)
            blocks.append(axes * triangle.diagonal().sign() * length)
        self.register_buffer("omega", torch.cat(blocks, 1)[:, :num_features])

    def exponent(self, x: Tensor) -> Tensor:
        """ωᵀx − ‖x‖²/2 − ln(R)/2 of x / D^¼."""
        check_dense("random features are of as many channels as a head has", x, self.channels)
        x = x * self.channels**-0.25
        square = x.square().sum(-1, keepdim=True) + math.log(self.num_features)
        return x @ self.omega.to(x.dtype) - square / 2

    def extra_repr(self) -> str:
        """D and R."""
        return f"{self.channels}, num_features={self.num_features}"


def _within(x: Tensor, bound: float) -> bool:
    """Whether no number exceeds a bound; False where they cannot be read, or are short."""
    return _can_bound(x) and (not x.numel() or max(-x.amin().item(), x.amax().item()) <= bound)


def _can_bound(x: Tensor) -> bool:
    """Whether numbers can be read and have the range in which bounds are set."""
    return can_read(x) and x.dtype in (torch.float32, torch.float64)


def make_feature_map(name: str | torch.nn.Module) -> torch.nn.Module:
    """The feature map of a text, as :func:`make_score`; a module is returned as it is."""
    phi: torch.nn.Module = name if isinstance(name, torch.nn.Module) else FEATURE_MAPS.make(name)
    return phi


class FeatureMapped(Score):
    r"""score[m, n] = ⟨φ(X_m W_k + b_k), φ(Q_n W_q + b_q)⟩.

    With the normaliser ``l1``, or with ``identity``, it is the linear attention of the
    `"Transformers are RNNs" <https://arxiv.org/abs/2006.16236>`_ paper (equation 4) on any support.
    Where that is all pairs, a causal sequence, or all pairs within graphs, the basis is a
    :class:`~pyg_outerconv.basis.feature_product.FeatureProduct`, which never
    computes scores one by one.

    Args:
        heads, channels, in_channels: see :class:`Score`.
        feature_map: φ, by its name or as a module.
        bias: whether keys and queries have a bias.
        bounded: whether exponential features that overflow are refused. With ``l1`` they never are:
            they are divided by the largest that a target sees, which cancels.
    """

    name = "feature-map"
    page = (
        "⟨φ(X_m W_k), φ(Q_n W_q)⟩",
        "Katharopoulos et al., *Transformers are RNNs* (2006.16236), equation 4",
    )

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        feature_map: torch.nn.Module | str = "elu+1",
        bias: bool = False,
        bounded: bool = True,
    ) -> None:
        super().__init__(heads)
        check_positive("a score", channels=channels)
        self.channels = channels
        of_key, of_query = both_ends(in_channels)
        self.key = Projection(of_key, heads, channels, bias)
        self.query = Projection(of_query, heads, channels, bias)
        self.phi = make_feature_map(feature_map)
        self.bounded = bounded

    @property
    def up_to_factor(self) -> bool:  # type: ignore[override]
        """Whether exponentials must be bounded, so that scores are known up to a factor."""
        return self.bounded and isinstance(self.phi, Exponential) and self.phi.overflows

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        key, asked, exponents = self.features(source, query, support.cancels_factors)
        is_positive = isinstance(self.phi, FeatureMap) and self.phi.is_positive
        return Dot(asked, key, is_positive=is_positive, exponents=exponents)

    def features(
        self, source: Features, query: Queries, only_shares: bool
    ) -> tuple[Tensor, Tensor, bool]:
        """φ of keys (M, *batch, H, D') and of queries (N, *batch, H, D'); whether as exponents.

        Exponents are in float32 at least. They are in the place of exponentials of which only
        shares are wanted, unless all of these are of ordinary size.

        Raises:
            TypeError: the feature map returns no tensor (nodes, *batch, H, D').
        """
        check_queries(self.query, query, source)
        key, asked = self.key(source), self.query(query)
        phi = self.phi
        if not (only_shares and self.bounded and isinstance(phi, Exponential)):
            return self._of(key), self._of(asked), False
        if phi.is_ordinary(key) and phi.is_ordinary(asked):
            return self._of(key), self._of(asked), False
        return phi.exponent(exact(key)), phi.exponent(exact(asked)), True

    def _of(self, x: Tensor) -> Tensor:
        out = self.phi(x)
        if not isinstance(out, Tensor) or out.shape[:-1] != x.shape[:-1]:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise RefusedType(
                "a feature map keeps nodes and heads", f"{tuple(x.shape[:-1])} + (D,)", got
            )
        return out
