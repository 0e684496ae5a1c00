"""Products with the matrices of heads: values before their propagation, outputs after it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.checks import holds
from ..graph.sparse_matrix import Features, SparseMatrix
from ..theta import Theta
from .cost import Operations, Steps
from .problem import Problem


def values_of(theta: Theta, x: Features) -> Tensor:
    """X V_h + b_h: (M, *batch, H, V)."""
    projected = project(x, theta.value)
    return projected if theta.bias is None else projected + theta.bias.to(projected.dtype)


def project(x: Features, weight: Tensor) -> Tensor:
    """X W_h for every head: features (M, *batch, P), W (H, P, D): (M, *batch, H, D).

    Sparse features take one sparse product. Indices (M,) pick rows of W; None takes all rows.
    """
    heads, rows, width = weight.shape
    if isinstance(x, SparseMatrix):
        return x.transform(weight.unsqueeze(1))
    wide = weight.transpose(0, 1)
    if x is None:
        return wide
    if not x.is_floating_point():
        if not holds(((x >= 0) & (x < rows)).all()):
            came = f"[{int(x.min())}, {int(x.max())}]"
            raise RefusedValue("indices of x must be rows of theta", f"[0, {rows})", came)
        return wide.index_select(0, x)
    check_type(x, weight)
    return (x @ wide.reshape(rows, heads * width)).unflatten(-1, (heads, width))


def check_type(x: Tensor, weight: Tensor) -> None:
    """Raise TypeError if the dtypes of features and parameters differ and autocast is off."""
    if not x.is_floating_point() or x.dtype == weight.dtype:
        return
    if not torch.is_autocast_enabled(x.device.type):
        raise RefusedType("x must have the dtype of theta", weight.dtype, x.dtype)


# Values and outputs of a problem ------------------------------------------------------------------


def value_width(problem: Problem) -> int:
    """V: the number of channels of the values of one head."""
    theta = problem.of_heads
    return problem.out_channels if theta is None else theta.inner.size(3)


def steps_of_values(problem: Problem, send: Callable[[Steps, int], object]) -> Steps:
    """The values of each head, what ``send`` does with their V channels, and outputs of heads."""
    steps, theta, x = Steps(problem), problem.of_heads, problem.x
    (sources, targets), columns = problem.basis.size, problem.num_columns * problem.num_labels
    if theta is None:
        send(steps.transform(float(sources * columns)), problem.out_channels)
        return steps
    width = theta.inner.size(3)
    inputs = sources * problem.in_channels * problem.num_columns
    inputs = x.num_entries if isinstance(x, SparseMatrix) else inputs
    operations = Operations(2.0 * inputs * problem.num_labels * width, calls=1)
    steps.work("values", operations, sum(problem.gradients[:2]))
    steps.learns = any(problem.gradients[:2])
    send(steps, width)
    if theta.outer is not None:  # outputs of heads require gradients if anything does
        after = Operations(2.0 * targets * columns * width * problem.out_channels, calls=1)
        steps.work("outputs of heads", after, 2.0 * any(problem.gradients))
    return steps


def values(problem: Problem) -> Tensor:
    """The values of each head, X V_h + b_h or X Θ_h: (M, *batch, H, V)."""
    theta = problem.of_heads
    if problem.values is not None:
        return problem.values
    if theta is not None:
        return values_of(theta, problem.x)
    return problem.transform().movedim(1, -2)


def collect_values(problem: Problem, received: Tensor) -> Tensor:
    """Y (N, *batch, Q) from the values received by each head, (N, *batch, H, V)."""
    theta = problem.of_heads
    return received.sum(-2) if theta is None else theta.collect(received)


def needs_batch(problem: Problem) -> list[str]:
    """A reason if the basis has a batch of another shape than the features."""
    batch = problem.basis.batch
    if batch in ((), problem.batch):
        return []
    return [f"the basis has batch shape {batch}, and x has {problem.batch}"]
