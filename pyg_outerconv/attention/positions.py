"""Encodings of the positions of nodes: learned ones, waves, and those in graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from math import inf, prod

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
from torch_geometric.utils import is_undirected

from ..equations import row
from ..errors import RefusedIndex, RefusedValue, unknown
from ..graph.checks import check_dense, check_positive, holds
from ..graph.edge_index import require_data
from ..graph.graph import Graph
from ..graph.interop import edge_list_of
from ..graph.positions import as_coordinates, as_whole, exact_type, places_within
from ..signatures import typed


class AddedPositions(torch.nn.Module, ABC):
    """X plus a vector for the position of each node: ``x + encode(position)``.

    Subclasses define :meth:`encode`.

    Args:
        channels: P.
        axes: D, the number of coordinates of a position.
    """

    def __init__(self, channels: int, axes: int) -> None:
        super().__init__()
        self.channels, self.axes = channels, axes

    @abstractmethod
    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The encodings (n, P) of positions (n, D), in ``dtype``."""

    def places(self, count: int, device: torch.device) -> Tensor:
        """Default positions (n, 1) of ``count`` nodes, 0, 1, 2, …; ValueError on several axes."""
        if self.axes > 1:
            raise RefusedValue(
                "positions on several axes must be given", f"(n, {self.axes})", "None"
            )
        return torch.arange(count, device=device).unsqueeze(1)

    def forward(self, x: Tensor, position: Tensor | None = None) -> Tensor:
        r"""The features plus the encodings of the positions, (\*batch, n, P) in the dtype of x.

        Args:
            x: (\*batch, n, P).
            position: (n,) or (n, D), shared by the batch; None for the defaults of :meth:`places`.

        Raises:
            TypeError: positions are not numbers, or features no dense floating point ones.
            ValueError: shapes do not fit.
        """
        check_dense("positions are added to features of as many channels", x, self.channels, 2)
        if position is None:
            coordinates = self.places(x.size(-2), x.device)
        else:
            coordinates = as_coordinates(position, self.axes)
        if len(coordinates) != x.size(-2):
            raise RefusedValue("each node has one position", x.size(-2), len(coordinates))
        return x + self.encode(coordinates, x.dtype)


_SPREAD = 0.02  # the usual standard deviation of such tables in transformers


@row("Positions", "a table to X, of any axes", "Dosovitskiy et al., *ViT* (2010.11929), equation 1")
class LearnedPositions(AddedPositions):
    r"""X plus a learned vector for the place of each node.

    .. math:: Y_n = X_n + W[p_n] \qquad\text{or}\qquad Y_n = X_n + \sum_d W_d[p_{n,d}]

    Section 3.5 of `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ compares such
    tables with sinusoids; on grids, a table of all cells is that of `"An Image is Worth 16x16
    Words" <https://arxiv.org/abs/2010.11929>`_ (equation 1; appendix D.4 has sums over axes).

    Without positions, nodes are at 0, 1, 2, … of a sequence, which may be shorter than the table,
    or are all cells of the grid, the last axis running fastest.

    Args:
        shape: the number of places, or of cells on each axis.
        channels: P.
        separable: whether the table is a sum of one table for each axis, with M_1 + … + M_D
            vectors instead of M_1 · … · M_D.

    Attributes:
        weight: (M_1·…·M_D, P), or (M_1 + … + M_D, P), one axis after another.

    Raises:
        TypeError: a number is not an integer.
        ValueError: a number is not positive, or ``shape`` is empty.

    >>> LearnedPositions((4, 6), 8, separable=True).weight.shape
    torch.Size([10, 8])
    """

    @typed
    def __init__(self, shape: int | Sequence[int], channels: int, separable: bool = False) -> None:
        sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        if not sizes:
            raise RefusedValue("places are on an axis", "one number or more", sizes)
        for size in sizes:
            check_positive("a table of positions", shape=size)
        check_positive("a table of positions", channels=channels)
        super().__init__(channels, len(sizes))
        self.shape, self.separable = sizes, separable
        rows = sum(sizes) if separable else prod(sizes)
        self.weight = Parameter(torch.empty(rows, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal law of standard deviation 0.02."""
        torch.nn.init.normal_(self.weight, std=_SPREAD)

    def places(self, count: int, device: torch.device) -> Tensor:
        """Default positions (n, D): 0, 1, 2, … on one axis, all cells of the grid on several."""
        if self.axes == 1:
            return super().places(count, device)
        if count != prod(self.shape):
            rule = "nodes without positions are all cells of the grid"
            raise RefusedValue(rule, f"{prod(self.shape)} nodes for {self.shape}", count)
        ranges = (torch.arange(size, device=device) for size in self.shape)
        return torch.cartesian_prod(*ranges)

    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The vectors (n, P) of positions (n, D), in ``dtype``.

        Raises:
            IndexError: a position is outside the table.
            ValueError: a position is not a whole number.
        """
        place = as_whole(position)
        sizes = torch.tensor(self.shape, device=place.device)
        inside = (place >= 0) & (place < sizes)
        if not torch.compiler.is_compiling() and not holds(inside.all()):
            wrong = place[~inside.all(1)][0].tolist()
            raise RefusedIndex("positions are in the table", f"0 <= position < {self.shape}", wrong)
        if self.separable:
            return self.weight[place + (sizes.cumsum(0) - sizes)].sum(1).to(dtype)
        return self.weight.index_select(0, numbered(place, self.shape)).to(dtype)

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.shape}, {self.channels}{', separable=True' if self.separable else ''}"


def numbered(place: Tensor, shape: Sequence[int]) -> Tensor:
    """Row numbers (n,) of places (n, D) in a table of ``shape``, the last axis running fastest."""
    number = place[:, 0]
    for axis in range(1, len(shape)):
        number = number * shape[axis] + place[:, axis]
    return number


def _angles(position: Tensor, channels: int, base: float) -> Tensor:
    r"""The angle of each position on each axis at each frequency.

    .. math:: \alpha_{n,d,i} = p_{n,d} \cdot b^{-2i/C}, \qquad i = 0, \dots, C/2 - 1

    for positions (n, D) and C channels of each axis, ``channels`` = C·D: (n, D, C/2). Wavelengths
    grow geometrically from 2π to 2π·b.
    """
    of_axis = channels // position.size(1)
    step = torch.arange(0, of_axis, 2, dtype=position.dtype, device=position.device)
    return position.unsqueeze(-1) * float(base) ** (-step / of_axis)


def _check_frequencies(channels: int, base: float, axes: int) -> None:
    """Refuse channels that are no pairs on each axis, and a base that is not positive."""
    check_positive("positions", channels=channels, axes=axes)
    if channels % (2 * axes):
        rule = "each axis takes pairs of channels, a sine and a cosine of each frequency"
        raise RefusedValue(rule, f"channels a multiple of {2 * axes}", channels)
    if not 0 < base < inf:
        raise RefusedValue("the base of frequencies is positive", "finite, > 0", base)


def _options(positions: SinusoidalPositions | Rotary) -> str:
    layout = "" if positions.interleaved else ", interleaved=False"
    return f"{positions.channels}, base={positions.base:g}, axes={positions.axes}{layout}"


@typed
def sinusoidal(
    position: Tensor, channels: int, base: float = 10000.0, interleaved: bool = True
) -> Tensor:
    r"""The encoding of section 3.5 of `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_.

    .. math::
        PE[p, 2i] = \sin(p / b^{2i/P}), \qquad PE[p, 2i + 1] = \cos(p / b^{2i/P}),
        \qquad i = 0, \dots, P/2 - 1

    Positions and channels count from 0. PyG's ``PositionalEncoding`` differs: sines come first, and
    exponents are i / (P/2 − 1). PE[p + k] is PE[p] rotated by angles that depend on k alone, so
    ⟨PE[p], PE[q]⟩ depends on p − q. On D axes, each has P/D of the channels, the first axis the
    first of them.

    Args:
        position: (n,) or (n, D), integers or floating point; it may carry gradients.
        channels: P, a multiple of 2·D.
        base: b.
        interleaved: whether the sine and the cosine of a frequency are neighbours; otherwise
            an axis has its sines first, then its cosines.

    Returns:
        (n, P), in the dtype of ``position``, or in torch's default dtype for integers. Angles are
        computed in float32 at least.

    Raises:
        TypeError: positions are not numbers, or an option has the wrong type.
        ValueError: ``position`` has another shape, or a number is out of range.

    >>> sinusoidal(torch.tensor([0.0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    >>> sinusoidal(torch.tensor([0.0]), 4, interleaved=False).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    coordinates = as_coordinates(position)
    _check_frequencies(channels, base, coordinates.size(1))
    own = position.is_floating_point()
    dtype = position.dtype if own else torch.get_default_dtype()
    angle = _angles(coordinates.to(exact_type(dtype)), channels, base)
    ends = angle.sin(), angle.cos()
    both = torch.stack(ends, dim=-1) if interleaved else torch.stack(ends, dim=-2)
    return both.reshape(len(coordinates), channels).to(dtype)


@row(
    "Positions",
    "sin, cos(n / base^(2i/P)) to X",
    "1706.03762, section 3.5",
    option="`sinusoidal`, `SinusoidalPositions`",
)
class SinusoidalPositions(AddedPositions):
    r"""X plus sinusoidal encodings of positions; see :func:`sinusoidal`. No parameters.

    Args:
        channels, base, interleaved: see :func:`sinusoidal`.
        axes: D; with several, positions must be passed.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·D, or a number is not positive.

    >>> SinusoidalPositions(8)(torch.zeros(5, 20, 8)).shape  # a batch of five sequences
    torch.Size([5, 20, 8])
    """

    @typed
    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        _check_frequencies(channels, base, axes)
        super().__init__(channels, axes)
        self.base, self.interleaved = base, interleaved

    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The encodings (n, P) of positions (n, D), computed in float32 at least, in ``dtype``."""
        exact = position.to(exact_type(position.dtype, dtype))
        return sinusoidal(exact, self.channels, self.base, self.interleaved).to(dtype)

    def extra_repr(self) -> str:
        """The options."""
        return _options(self)


@row(
    "Positions",
    "rotates queries and keys by their positions",
    "Su et al., *RoFormer* (2104.09864), equation 34",
    option="`KeyQuery(…, rotary=Rotary(…))`",
)
class Rotary(torch.nn.Module):
    r"""A rotation of each pair of channels by the node's position times the pair's frequency.

    .. math::
        \begin{pmatrix} y_{2i} \\ y_{2i+1} \end{pmatrix} =
        \begin{pmatrix} \cos p\theta_i & -\sin p\theta_i \\ \sin p\theta_i & \cos p\theta_i
        \end{pmatrix} \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix},
        \qquad \theta_i = b^{-2i/D}

    Equations 15 and 34 of `"RoFormer: Enhanced Transformer with Rotary Position Embedding"
    <https://arxiv.org/abs/2104.09864>`_, whose pairs count from 1. The inner product of a rotated
    query and a rotated key depends on their relative position alone: ⟨R_n q, R_m k⟩ =
    ⟨q, R_{m−n} k⟩. Only nodes are rotated, so no tensor of edges is needed. It has no parameters.

    Each of several axes rotates an equal share of the channels, the first axis the first share.

    Args:
        channels: D, the channels of one head; a multiple of 2·axes.
        base: b.
        axes: the number of coordinates of a position.
        interleaved: whether pairs are neighbouring channels, as in the paper; otherwise channel i
            of the C channels of an axis is paired with i + C/2, as in many pre-trained models.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·axes, or a number is not positive.

    >>> turn = Rotary(channels=2)
    >>> turn(torch.tensor([[[1.0, 0.0]]]), torch.tensor([0.0])).tolist()
    [[[1.0, 0.0]]]
    """

    @typed
    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        super().__init__()
        _check_frequencies(channels, base, axes)
        self.channels, self.base, self.axes = channels, base, axes
        self.interleaved = interleaved

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        r"""The rotated vectors.

        Args:
            x: (nodes, \*batch, heads, D) queries or keys, or (nodes, \*, D).
            position: (nodes, axes), or (nodes,) on one axis. Angles are computed in float32 at
                least, then rounded to the dtype of x.

        Raises:
            TypeError: positions are not numbers, or x is no dense floating point tensor.
            ValueError: shapes do not fit.
        """
        coordinates = as_coordinates(position, self.axes)
        check_dense("rotary positions rotate vectors", x)
        if x.dim() < 2 or x.size(-1) != self.channels or x.size(0) != len(coordinates):
            rule = "rotary positions rotate a vector of each node and head"
            expected = f"({len(coordinates)}, *, {self.channels})"
            raise RefusedValue(rule, expected, tuple(x.shape))
        exact = coordinates.to(exact_type(coordinates.dtype, x.dtype))
        angle = _angles(exact, self.channels, self.base)
        angle = angle.view(len(x), *(1,) * (x.dim() - 2), *angle.shape[1:])
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        count = self.channels // (2 * self.axes)
        pair = -1 if self.interleaved else -2
        form = (self.axes, count, 2) if self.interleaved else (self.axes, 2, count)
        first, second = x.unflatten(-1, form).unbind(pair)
        rotated = first * cos - second * sin, first * sin + second * cos
        return torch.stack(rotated, dim=pair).flatten(-3)

    def extra_repr(self) -> str:
        """The options."""
        return _options(self)


_ATTRIBUTES = {"laplacian": "laplacian_eigenvector_pe", "random-walk": "random_walk_pe"}
_LARGE = 0.999  # entries above this share of the largest count as equal to it, for rounding


@row(
    "Positions",
    "eigenvectors of the Laplacian; returns of random walks",
    "Dwivedi et al. (2003.00982), section 4.1; (2110.07875), section 3.1",
)
class GraphPositions(torch.nn.Module):
    r"""Encodings of the positions of nodes in a graph without coordinates.

    - ``'laplacian'``: entries of the eigenvectors of I − D^(−1/2) W D^(−1/2) with the smallest
      eigenvalues, without the first. From section 4.1 of `"Benchmarking Graph Neural
      Networks" <https://arxiv.org/abs/2003.00982>`_ and section 2.1 of `"A Generalization of
      Transformer Networks to Graphs" <https://arxiv.org/abs/2012.09699>`_. The sign
      of an eigenvector is arbitrary: it is random in training, for every graph and eigenvector,
      otherwise the first of the largest entries is positive.
    - ``'random-walk'``: the probabilities of being back after 1, 2, …, C steps. From section 3.1 of
      `"Graph Neural Networks with Learnable Structural and Positional Representations"
      <https://arxiv.org/abs/2110.07875>`_. PyG's transform treats weights and parallel edges
      differently in degrees and in steps, so both are refused.

    PyG's transforms compute both, graph by graph of a batch. A graph with fewer than C eigenvectors
    (of n nodes n − 1 are found, from 100 nodes on n − 2) is padded with zeros.

    Args:
        kind: ``'laplacian'`` or ``'random-walk'``.
        channels: C.
        flip: whether signs of eigenvectors are random in training.

    Raises:
        TypeError: ``channels`` is not an integer.
        ValueError: ``channels`` is not positive, or the kind is unknown.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> GraphPositions("random-walk", channels=2)(path).tolist()
    [[0.0, 0.5], [0.0, 1.0], [0.0, 0.5]]
    """

    @typed
    def __init__(self, kind: str, channels: int, flip: bool = True) -> None:
        super().__init__()
        if kind not in _ATTRIBUTES:
            raise RefusedValue(unknown("kind of graph positions", kind, _ATTRIBUTES))
        check_positive("an encoding of graphs", channels=channels)
        self.kind, self.channels, self.flip = kind, channels, flip

    @property
    def attribute(self) -> str:
        """Attribute of the data in which :meth:`store`, and PyG's transforms, put encodings."""
        return _ATTRIBUTES[self.kind]

    def forward(self, data: Data) -> Tensor:
        """The stored encodings (N, C), or :meth:`encode`; with random signs in training."""
        require_data(data)
        stored_position = data.get(self.attribute)
        position = self.encode(data) if stored_position is None else stored_position
        if position.shape != (data.num_nodes, self.channels):
            rule = f"data.{self.attribute} has a row for each node"
            expected = (data.num_nodes, self.channels)
            raise RefusedValue(rule, expected, tuple(position.shape))
        if self.kind == "random-walk" or not (self.flip and self.training):
            return position
        batch = data.get("batch")
        group = torch.zeros(len(position), dtype=torch.long) if batch is None else batch
        group = group.to(position.device)
        count = int(group.max()) + 1 if group.numel() else 0
        sign = torch.randint(0, 2, (count, self.channels), device=position.device) * 2 - 1
        return position * sign[group].to(position.dtype)

    def store(self, data: Data) -> Data:
        """A copy of the data with its encodings, for ``pre_transform=`` of a data set."""
        out = copy(data)
        out[self.attribute] = self.encode(data)
        return out

    def encode(self, data: Data) -> Tensor:
        """The encodings (N, C) of the nodes of ``data``, in torch's default dtype.

        Raises:
            TypeError: ``data`` is not a homogeneous graph.
            ValueError: the data has no edges; edges run between graphs of a batch; weights are
                negative; or random walks get weights or parallel edges.
        """
        edges = edge_list_of(data)
        if self.kind == "random-walk":
            return self._walks(edges)
        edges.require_nonnegative("the Laplacian")
        dtype = torch.get_default_dtype()
        out = torch.zeros(edges.size[0], self.channels, dtype=dtype, device=edges.device)
        for nodes, graph in _graphs(edges):
            out[nodes] = self._eigenvectors(graph).to(out)
        return out

    def _walks(self, edges: Graph) -> Tensor:
        if edges.edge_weight is not None:
            raise RefusedValue("walks take all edges alike", "no edge_weight", edges.edge_weight)
        index, count = edges.edge_index, edges.size[0]
        distinct = len((index[0].long() * count + index[1]).unique())
        if distinct != edges.num_edges:
            raise RefusedValue("walks take each edge once", f"{distinct} edges", edges.num_edges)
        transform = AddRandomWalkPE(self.channels, attr_name=self.attribute)
        return transform(Data(edge_index=index.long(), num_nodes=count))[self.attribute]

    def _eigenvectors(self, graph: Data) -> Tensor:
        """The eigenvectors (n, C) of one graph, padded with zeros."""
        nodes = int(graph.num_nodes or 0)
        sparse = nodes >= AddLaplacianEigenvectorPE.SPARSE_THRESHOLD
        count = min(self.channels, nodes - (2 if sparse else 1))
        if count < 1:
            return torch.zeros(nodes, self.channels)
        symmetric = is_undirected(graph.edge_index, graph.edge_weight, nodes)
        # The same start of the sparse solver at every call.
        start = np.random.default_rng(0).random(nodes, dtype=np.float32)
        transform = AddLaplacianEigenvectorPE(count, self.attribute, symmetric, v0=start)
        vectors = transform(graph)[self.attribute]
        return F.pad(_signed(vectors), (0, self.channels - count))


def _signed(vectors: Tensor) -> Tensor:
    """Columns with signs that do not depend on the solver: the first large entry is positive."""
    length = vectors.abs()
    # In symmetric graphs the largest entries are pairs of opposite signs, up to rounding.
    first = (length >= _LARGE * length.amax(0)).int().argmax(0, keepdim=True)
    return torch.where(vectors.gather(0, first) < 0, -vectors, vectors)


def _graphs(edges: Graph) -> Iterator[tuple[Tensor, Data]]:
    """The nodes of each graph of a batch, and the graph by itself."""
    nodes = torch.arange(edges.size[0], device=edges.device)
    batch = torch.zeros_like(nodes) if edges.batch is None else edges.batch
    edges.require_separate_graphs("an encoding of graphs")
    place, weight = places_within(batch), edges.weight(torch.get_default_dtype())
    members = batch.argsort(stable=True).split(batch.bincount().tolist())
    of_source = batch[edges.source]
    order = of_source.argsort(stable=True)
    counts = of_source.bincount(minlength=len(members)).tolist()
    for own, chosen in zip(members, order.split(counts), strict=True):
        index = place[edges.edge_index[:, chosen].long()]
        yield own, Data(edge_index=index, edge_weight=weight[chosen], num_nodes=len(own))
