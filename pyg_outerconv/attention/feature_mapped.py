"""Products of features of keys and queries: the scores of linear attention."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RefusedType, refusal
from ..graph import Features
from ..kernels.tiles import exact
from .edge_context import EdgeContext
from .feature_maps import Exponential, FeatureMap, make_feature_map
from .projection import Projection, Queries, check_queries
from .score import Dot, Score, positive


class FeatureMapped(Score):
    r"""score[m, n] = ⟨φ(X_m W_k + b_k), φ(Q_n W_q + b_q)⟩.

    With the normaliser ``l1``, or with ``identity``, it is the linear attention of the
    `"Transformers are RNNs" <https://arxiv.org/abs/2006.16236>`_ paper (equation 4) on any support.
    Where that is all pairs, a causal sequence, or all pairs within graphs, the basis is a
    :class:`~pyg_outerconv.basis.feature_product.FeatureProduct`, which never
    computes scores one by one.

    Args:
        heads: H.
        channels: D of each head.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        feature_map: φ, by its name or as a module.
        bias: whether keys and queries have a bias.
        bounded: whether exponential features are divided by the largest that a target sees, so that
            none overflows; ``l1`` cancels this factor.

    Raises:
        TypeError, ValueError: an option has another type or is out of range.
    """

    name = "feature-map"
    equation = "s[m, n] = <phi(X_m W_k), phi(Q_n W_q)>"
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
        self.channels = positive("channels of a head", channels)
        of_key, of_query = in_channels if isinstance(in_channels, tuple) else (in_channels,) * 2
        self.key = Projection(of_key, heads, channels, bias)
        self.query = Projection(of_query, heads, channels, bias)
        self.phi = make_feature_map(feature_map)
        self.bounded = bounded

    @property
    def up_to_factor(self) -> bool:  # type: ignore[override]
        """Whether exponentials are bounded, so that scores are known up to a factor."""
        return self.bounded and isinstance(self.phi, Exponential)

    def reset_parameters(self) -> None:
        """Draw new initial values for all parameters."""
        self.key.reset_parameters()
        self.query.reset_parameters()

    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores of the edges, by the equation of the class."""
        key, asked = self.features(source, query)
        is_positive = isinstance(self.phi, FeatureMap) and self.phi.is_positive
        return Dot(asked, key, is_positive=is_positive, exponents=self.up_to_factor)

    def features(self, source: Features, query: Queries) -> tuple[Tensor, Tensor]:
        """φ of keys (M, *batch, H, D') and of queries (N, *batch, H, D').

        If ``up_to_factor``, the exponents of these features, in float32 at least.

        Raises:
            TypeError: the feature map returns no tensor (nodes, *batch, H, D').
        """
        check_queries(self.query, query, source)
        key, asked = self.key(source), self.query(query)
        if self.up_to_factor:
            assert isinstance(self.phi, Exponential)
            return self.phi.exponent(exact(key)), self.phi.exponent(exact(asked))
        return self._of(key), self._of(asked)

    def _of(self, x: Tensor) -> Tensor:
        out = self.phi(x)
        if not isinstance(out, Tensor) or out.shape[:-1] != x.shape[:-1]:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise RefusedType(
                refusal("a feature map keeps nodes and heads", f"{tuple(x.shape[:-1])} + (D,)", got)
            )
        return out
