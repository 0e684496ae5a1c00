"""A contraction problem: a basis, the input and Θ; its checks, and the problems of its leaves."""

from __future__ import annotations

from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edge_sets import hidden_part
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import Edges, counted
from ..errors import RefusedType, RefusedValue, unknown
from ..graph.sparse_features import as_matrix
from ..graph.sparse_matrix import Features, SparseMatrix
from ..kernels import REDUCTIONS
from ..kernels.capture import is_capturing
from ..kernels.index_checks import has_numbers
from ..kernels.mode import Mode
from ..kernels.mode import mode as mode_now
from ..signatures import check_type
from ..theta import Theta, ThetaValue

LINEAR = ("sum", "mean")  # reductions that Θ may come before

_NONE = False, False, False
AnyBasis = TypeVar("AnyBasis", bound=Basis)


class Problem:
    """Y = Σ_k A_kᵀ X Θ_k; orders solve those whose basis is a leaf, which :func:`problems` makes.

    Attributes:
        basis: K matrices of size M × N: explicit edges, a polynomial, the identity, and so on.
        x: (M, *batch, P), or (M, P) if sparse; integers (M,), the row of Θ_k that each source
            takes; or None, which is X = I: source m takes row m.
        parameter: Θ (K, G, P/G, Q/G), dense, a mixture, or values and outputs of heads: Θ_k is
            block-diagonal with G blocks; G = 1 is a full matrix.
        aggr: over the inputs m of each label: 'sum', 'mean', 'max' or 'min'.
        label_aggr: over the labels k that reach a target: 'sum', 'max' or 'min'.
        bias: (Q,) to be added to every row of Y, by orders with ``adds_bias``, else by
            :func:`.contract`.
        values: (M, *batch, H, V) the values X V_h + b_h, if Θ is of heads and they are computed.
        mode: what surrounds the call.
        few: see :class:`.Plan`; None where each order asks by itself.
    """

    few: int | None = None

    def __init__(
        self,
        basis: Basis,
        x: Features,
        parameter: ThetaValue,
        aggr: str = "sum",
        label_aggr: str = "sum",
        bias: Tensor | None = None,
        values: Tensor | None = None,
        mode: Mode | None = None,
    ) -> None:
        self.basis, self.mode = basis, mode or mode_now()
        self.x = x if type(x) is Tensor else as_matrix(x)
        self.parameter = Theta(parameter) if isinstance(parameter, Tensor) else parameter
        self.aggr, self.label_aggr = aggr, label_aggr
        self.bias, self.values = bias, values

    def of(self, kind: type[AnyBasis]) -> AnyBasis:
        """The basis, with its type narrowed to ``kind``."""
        assert isinstance(self.basis, kind)
        return self.basis

    @property
    def features(self) -> Tensor:
        """X as a dense tensor (M, *batch, P), for orders that need one."""
        assert isinstance(self.x, Tensor)
        return self.x

    @property
    def theta(self) -> Tensor:
        """Θ as a tensor (K, G, P/G, Q/G); computed anew if Θ is a mixture or of heads."""
        return self.parameter.full()

    @property
    def mixture(self) -> Theta | None:
        """Θ if it is a mixture, else None."""
        return None if self.parameter.coefficient is None else self.parameter

    @property
    def counted(self) -> Edges:
        """The basis as one whose edges can be counted without making them."""
        assert isinstance(self.basis, Edges)
        return self.basis

    @property
    def edges(self) -> EdgeBasis:
        """The basis as explicit edges; a basis with implicit edges makes them now."""
        return self.counted.edges()

    @property
    def num_edges(self) -> int:
        """E."""
        return self.counted.num_edges

    @property
    def is_captured(self) -> bool:
        """Whether the call is captured as a CUDA graph: there are numbers, but none can be read."""
        return self.device.type == "cuda" and is_capturing()

    @property
    def has_numbers(self) -> bool:
        """Whether there are numbers: not under a compiler, nor of fake tensors."""
        x = self.x if isinstance(self.x, Tensor) else None
        return has_numbers(x) or (not self.mode.compiles and self.is_captured)

    @property
    def is_one_each(self) -> bool:
        """Whether each (target, label) pair has at most one edge; False without numbers."""
        if not self.has_numbers:
            return False
        own = vars(self.basis.pattern) if isinstance(self.basis, EdgeBasis) else {}
        if self.is_captured and "num_target_pairs" not in own:
            return False
        return self.num_edges == self.counted.num_target_pairs

    def num_pairs(self, at_target: bool) -> float:
        """U_in or U_out, for costs; the most there can be, where to count waits for a device."""
        name = "num_target_pairs" if at_target else "num_source_pairs"
        if isinstance(self.basis, EdgeBasis):
            pattern = self.basis.pattern
            if pattern.device.type != "cpu" and name not in vars(pattern):
                return float(min(pattern.num_edges, pattern.size[at_target] * pattern.num_labels))
        return float(getattr(self.counted, name))

    @property
    def of_heads(self) -> Theta | None:
        """Θ if it is values and outputs of heads, else None."""
        return None if self.parameter.heads is None else self.parameter

    @property
    def factor(self) -> float | None:
        """The number c if Θ_k = c I for every k, as in pooling, else None."""
        mixture = self.mixture
        return mixture.constant if mixture is not None and mixture.is_unit else None

    @property
    def num_labels(self) -> int:
        """K."""
        return self.parameter.shape[0]

    @property
    def num_blocks(self) -> int:
        """G."""
        return self.parameter.shape[1]

    @property
    def in_channels(self) -> int:
        """P."""
        return self.parameter.shape[1] * self.parameter.shape[2]

    @property
    def out_channels(self) -> int:
        """Q."""
        return self.parameter.shape[1] * self.parameter.shape[3]

    @property
    def itemsize(self) -> int:
        """Bytes of one number of Θ's dtype."""
        return self.dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of Θ, which X and the basis share."""
        return self.parameter.dtype

    @property
    def device(self) -> torch.device:
        """The device of Θ, which X and the basis share."""
        return self.parameter.device

    @property
    def gradients(self) -> tuple[bool, bool, bool]:
        """Whether gradients are required of X, of Θ, and of the values of the basis."""
        if not self.mode.wants_gradients:
            return _NONE
        x = self.x.value if isinstance(self.x, SparseMatrix) else self.x
        of_x = x is not None and x.requires_grad
        return of_x, self.parameter.requires_grad, self.basis.learns

    @property
    def has_features(self) -> bool:
        """Whether X is dense; sparse X, indices and None can only be multiplied with Θ."""
        return isinstance(self.x, Tensor) and self.x.is_floating_point()

    @property
    def narrows(self) -> bool:
        """Whether Θ comes first: Q < P, or there are no dense features to propagate."""
        return not self.has_features or self.out_channels < self.in_channels

    @property
    def batch(self) -> tuple[int, ...]:
        """The dimensions of x between nodes and channels."""
        return tuple(self.x.shape[1:-1]) if self.x is not None and self.has_features else ()

    @property
    def num_columns(self) -> int:
        """The number of items of the batch."""
        return prod(self.batch)

    def transform(self) -> Tensor:
        """X Θ_k for every label: (M, K, *batch, Q)."""
        x = self.x
        if isinstance(x, SparseMatrix):
            return x.transform(self.theta)
        if x is not None and x.is_floating_point():
            return self.parameter.transform(x)
        # Row m of X Θ_k is a row of Θ_k; check_shapes makes sure that G = 1.
        table = self.theta[:, 0].transpose(0, 1)
        return table if x is None else table.index_select(0, x)

    def transform_label(self, label: int) -> Tensor:
        """X Θ_k for one label: (M, *batch, Q)."""
        one = Problem(self.basis, self.x, self.parameter.labels(label, label + 1))
        return one.transform().squeeze(1)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_k H_k Θ_k for H (N, K, *batch, P): (N, *batch, Q)."""
        return self.parameter.combine(h.flatten(0, 1), h.size(0))

    def collect_label(self, h: Tensor, label: int) -> Tensor:
        """H_k Θ_k for one label and H_k (N, *batch, P): (N, *batch, Q)."""
        return self.parameter.labels(label, label + 1).combine(h, h.size(0))


# Checks -------------------------------------------------------------------------------------------


LABEL_REDUCTIONS = ("sum", "max", "min")


def check_kinds(basis: Basis, x: Features, theta: ThetaValue, bias: Tensor | None = None) -> None:
    """Check the types of the arguments of :func:`contract`, and the shape of a bias."""
    for name, value, hint in (
        ("basis", basis, Basis),
        ("x", x, Features),
        ("theta", theta, ThetaValue),
        ("bias", bias, Tensor | None),
    ):
        check_type("a contraction", name, value, hint)
    if len(theta.shape) != 4:
        labels, shape = f"({basis.num_bases}, G, P/G, Q/G)", tuple(theta.shape)
        raise RefusedValue("theta needs a matrix for each label", labels, shape)
    if bias is not None and bias.shape != (channels := theta.shape[1] * theta.shape[3],):
        raise RefusedValue("a bias is of output channels", (channels,), tuple(bias.shape))


def check_shapes(problem: Problem) -> None:
    """Check shapes, devices and dtypes of a contraction."""
    basis, x, theta = problem.basis, problem.x, problem.parameter
    shape, num_labels, coefficient = tuple(theta.shape), basis.num_bases, theta.coefficient
    if shape[0] != num_labels:
        expected = f"({num_labels}, G, P/G, Q/G)"
        raise RefusedValue("theta needs a matrix for each label", expected, shape)
    if coefficient is not None:
        coefficient_shape, count = tuple(coefficient.shape), theta.num_matrices
        if coefficient_shape[1:] not in ((count,), (count, shape[3])) or (
            len(coefficient_shape) == 3 and shape[1] != 1
        ):
            rule = "a mixture needs a coefficient for each label and matrix"
            raise RefusedValue(rule, f"(K, {count})", coefficient_shape)
    sources, channels = basis.size[0], shape[1] * shape[2]
    if x is None or (isinstance(x, Tensor) and not x.is_floating_point()):
        _check_rows(x, sources, channels, shape[1])
    elif x.dim() < 2 or x.size(0) != sources or x.size(-1) != channels:
        rule = "x must have a row for each source and a column for each channel"
        raise RefusedValue(rule, f"({sources}, {channels})", tuple(x.shape))
    place = theta.device  # a meta tensor has no memory, and CPU kernels would read it all the same
    if basis.device != place or (x is not None and x.device != place):
        places = {str(part.device) for part in (basis, x, theta) if part is not None}
        rule = "basis, x and theta must be on one device"
        raise RefusedValue(rule, "one device", sorted(places))
    if coefficient is not None and coefficient.dtype != theta.dtype:
        rule = "coefficients must have the dtype of the matrices"
        raise RefusedType(rule, theta.dtype, coefficient.dtype)
    of_x = x if x is not None and x.is_floating_point() else theta
    if torch.is_autocast_enabled(of_x.device.type):
        return
    if of_x.dtype != theta.dtype:
        raise RefusedType("x must have the dtype of theta", theta.dtype, of_x.dtype)
    if basis.dtype not in (None, of_x.dtype):
        rule = "the basis must have the dtype of x; basis.to(x.dtype) casts it"
        raise RefusedType(rule, of_x.dtype, basis.dtype)


def _check_rows(x: Tensor | None, sources: int, channels: int, groups: int) -> None:
    """Check that rows of Θ can be looked up: all of them, or those of indices."""
    if groups != 1:
        rule = "without features the rows of theta are the embedding, which needs full matrices"
        raise RefusedValue(rule, "G = 1", groups)
    if x is None:
        if sources != channels:
            rule = "without features theta needs a row for each source"
            raise RefusedValue(rule, f"{sources} in_channels", channels)
    elif x.shape != (sources,):
        raise RefusedValue(
            "x of indices needs one for each source", f"({sources},)", tuple(x.shape)
        )
    elif x.numel() and not 0 <= int(x.min()) <= int(x.max()) < channels:
        index_range = f"[{int(x.min())}, {int(x.max())}]"
        raise RefusedValue("indices of x must be rows of theta", f"[0, {channels})", index_range)


def check_inputs(problem: Problem) -> None:
    """Check that the inputs of a label can be compared or counted."""
    if problem.aggr in ("max", "min") and not problem.has_features:
        rule = (
            f"{problem.aggr} over the inputs of a label needs dense node features, "
            "whose zeros are compared too"
        )
        kind = "none" if problem.x is None else "indices"
        kind = "SparseFeatures" if isinstance(problem.x, SparseMatrix) else kind
        raise RefusedValue(rule, "a dense x", kind)
    if problem.basis.hides_edges:
        what = f"{problem.aggr} over the inputs of a label counts or compares its edges"
        raise _hidden_edges(what, problem.basis)


def _hidden_edges(what: str, basis: Basis) -> RefusedValue:
    expected = "an explicit basis: basis.edges(), or the family Explicit(...) in a layer"
    return RefusedValue(f"{what}, so edges must be explicit", expected, repr(basis))


# Problems ----------------------------------------------------------------------------------------


def problems(whole: Problem) -> list[Problem]:
    """The problems whose results add up to that of a whole; the first one has the bias.

    With a sum over labels each leaf of the basis is one problem. With a max or min over labels the
    whole basis is one problem, because labels of all its parts are compared at a target.
    """
    basis, x, theta, aggr = whole.basis, whole.x, whole.parameter, whole.aggr
    if aggr not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", aggr, REDUCTIONS))
    if whole.label_aggr not in LABEL_REDUCTIONS:
        raise RefusedValue(unknown("reduction over labels", whole.label_aggr, LABEL_REDUCTIONS))
    if whole.label_aggr != "sum":
        x, theta = _with_bias_channel(x, theta)
        part = hidden_part(basis)
        if part is not None:
            what = f"{whole.label_aggr} over labels leaves out labels without edges"
            raise _hidden_edges(what, part)
        return [Problem(counted(basis), x, theta, aggr, whole.label_aggr, whole.bias)]
    parts: list[Problem] = []
    for leaf, part_of_theta in basis.absorb(theta, aggr):
        values = whole.values if leaf is basis else None  # absorbing may have changed Θ
        bias = None if parts else whole.bias
        parts.append(Problem(leaf, x, part_of_theta, aggr, "sum", bias, values))
        if part_of_theta.bias is not None:
            parts += _value_bias(parts[-1])
    return parts


def _with_bias_channel(x: Features, theta: Theta) -> tuple[Features, Theta]:
    """X with one more channel of ones, and Θ with the bias of values as its row for it."""
    of_bias = theta.full_bias()
    if of_bias is None:
        return x, theta
    if not isinstance(x, Tensor) or not x.is_floating_point():
        rule = "comparing labels with a bias of values needs dense x"
        raise RefusedValue(rule, "dense features", x)
    wider = Theta(torch.cat([theta.full(), of_bias], 2))
    return torch.cat([x, torch.ones_like(x[..., :1])], -1), wider


def _value_bias(problem: Problem) -> list[Problem]:
    """The problem that adds the bias of values, if the orders of the leaf do not add it.

    Its X is a channel of ones, its Θ_h = b_h O_h.
    """
    of_bias = None if problem.basis.has_heads else problem.parameter.full_bias()
    if of_bias is None:
        return []
    ones = of_bias.new_ones((problem.basis.size[0], *(1,) * len(problem.batch), 1))
    x = ones.expand(-1, *problem.batch, 1)
    return [Problem(problem.basis, x, Theta(of_bias), problem.aggr)]
