"""LinearAttention: attention whose weights are products of features, never computed one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..attention.feature_maps import FeatureMapped
from ..attention.projection import same_batch
from ..attention.queries import Content, Placed
from ..attention.score import present_keys
from ..basis.base import Basis
from ..basis.feature_product import FeatureProduct
from ..basis.subpattern import as_list
from ..equations import row
from ..errors import RefusedValue
from ..graph.positions import graphs_of, places
from ..graph.structure import Structure
from .content_family import Heads, check_heads, kept_symmetries, structure_of_queries
from .family import Family
from .support.sequences import Complete


@row(
    "Linear attention",
    "(φ(K)ᵀ V through D latent nodes) φ(Q) / sums",
    "2006.16236, equation 5; a composition, Andreoli, Proposition 2",
    option="`LinearAttention(heads, channels)`",
)
@row(
    "Linear attention",
    "prefix sums, chunk by chunk",
    "2006.16236, equations 9 to 12",
    option="`LinearAttention(…, causal=True)`",
)
@dataclass(frozen=True)
class LinearAttention(Heads):
    r"""All pairs of sources and targets, weighted by a product of features.

    .. math::
        A_h[m, n] = \frac{\phi(X_m W_{k,h})^{\top} \phi(Q_n W_{q,h})}
            {\sum_{m'} \phi(X_{m'} W_{k,h})^{\top} \phi(Q_n W_{q,h})}

    over all sources of the graph of n, and up to n if causal. From the `"Transformers are RNNs"
    <https://arxiv.org/abs/2006.16236>`_ paper (equations 5 and 9). As a basis it is a composition
    through D latent nodes for each head, M → D → N, whose cost grows with M + N, not with M·N; the
    causal form is a scan. Its edges are all pairs within a graph (``batch``), which are never made;
    edges of the structure are ignored.

    A target whose denominator is zero, as without sources, gets zeros.

    Args:
        heads (int): H, which is K.
        channels (int): D of the keys and queries of each head.
        feature_map (str or Module, optional): φ: ``'elu+1'``, ``'relu'``, ``'exp'``,
            ``'identity'``, or a module such as ``PositiveRandom`` of ``attention``, which may
            change D. If weights are normalised, exponentials do not overflow.
            (default: ``'elu+1'``)
        causal (bool, optional): whether n sees only sources m ≤ n, counted from the first node of
            its graph. (default: ``False``)
        strict (bool, optional): whether causal means m < n. (default: ``False``)
        normalised (bool, optional): whether weights are divided by their sum over the inputs of a
            target. (default: ``True``)
        in_channels (int or tuple, optional): P, or those of sources and of targets; -1 to learn
            them from the first input. (default: ``-1``)
        bias (bool, optional): whether keys and queries have a bias. (default: ``False``)
        align (Family or Module, optional): T, whose Tᵀ X are the queries, or a module that makes
            queries, such as :class:`LearnedQueries`; None for the identity.

    Raises:
        TypeError: an option has the wrong type; when a basis is made, the feature map does not
            return features.
        ValueError: an option is out of range; when a basis is made, there are no features, or
            their shapes do not fit.
    """

    equation = "A_h[m, n] = <phi(X_m W_k), phi(Q_n W_q)> / its sum over m"
    support = Complete()

    heads: int
    channels: int
    feature_map: torch.nn.Module | str = "elu+1"
    causal: bool = False
    strict: bool = False
    normalised: bool = True
    in_channels: int | tuple[int, ...] = -1
    bias: bool = False
    align: Family | torch.nn.Module | None = None
    score: FeatureMapped = field(init=False, repr=False)

    def __post_init__(self) -> None:
        in_channels = self.in_channels
        ends = (
            tuple(in_channels)
            if isinstance(in_channels, tuple | list)
            else (in_channels, in_channels)
        )
        if len(ends) != 2:
            raise RefusedValue("in_channels are of sources and targets", "(P, P_q)", ends)
        options = self.feature_map, self.bias
        object.__setattr__(self, "score", FeatureMapped(self.heads, self.channels, ends, *options))
        super().__post_init__()
        if self.strict and not self.causal:
            raise RefusedValue("strict excludes m = n", "causal=True", self.causal)
        if isinstance(self.align, Family):
            check_heads("an alignment", self.align.num_bases, self.heads)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"head {head} of linear attention" for head in range(self.heads))

    @property
    def symmetries(self) -> tuple[str, ...]:  # type: ignore[override]
        """Permutation-equivariant, unless causal or the alignment is not."""
        return () if self.causal else kept_symmetries(self.support, self.align)

    def basis_on(
        self, structure: Any, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """The product of features as a basis.

        Raises:
            ValueError: there are no features, or their shapes do not fit.
        """
        content, asked = self.content_of(structure, content)
        options = self.align, content, asked, self.causal
        structure = structure_of_queries(structure, self.support, *options)
        key, query, exponents = self.score.features(content.source, asked, bool(self.normalised))
        key = present_keys(key, content.present, exponents)
        same_batch(key, query)
        causal = ("strict" if self.strict else "inclusive") if self.causal else None
        graphs, place = self._graphs_and_places(structure)
        beside: Any = {"target_place": place, "value_type": dtype}
        make = FeatureProduct.of_exponents if exponents else FeatureProduct
        return make(key, query, self.normalised, causal, *graphs, **beside)

    def _graphs_and_places(
        self, structure: Structure
    ) -> tuple[tuple[Tensor | None, Tensor | None], Tensor | None]:
        """The graphs of both ends, and the place of each query, if places are not 0, …, N − 1."""
        if not isinstance(structure, Placed):
            return graphs_of(structure) or (None, None), None
        if not isinstance(structure.place, range):
            raise RefusedValue(
                "causal linear attention takes queries in the order of the sources",
                "a part of these, such as Part(...)",
                self.align,
            )
        place, graphs = as_list(structure.place, structure.device), graphs_of(structure.whole)
        if graphs is None:
            return (None, None), place
        within = places(graphs[0]).index_select(0, place)
        return (graphs[0], graphs[0].index_select(0, place)), within
