"""Orders for products of features φ(Q)φ(K)ᵀ: by D latent nodes, or by a scan if they are causal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import ClassVar

import torch
from torch import Tensor

from ...basis.feature_product import FeatureProduct, divided
from ...graph.positions import exact_type
from ...kernels.linear_attention import collect, scan, scan_exponentials, spread
from ...theta import autocast_pair
from ..cost import Operations, Steps, moving
from ..heads import collect_values, needs_batch, steps_of_values, value_width, values
from ..order import Need, Order, needs_features
from ..problem import Problem


def _needs_latent_nodes(problem: Problem) -> list[str]:
    if problem.of(FeatureProduct).causal is None:
        return needs_batch(problem)
    return ["needs a basis without causality: sums over prefixes take a scan"]


def _needs_causality(problem: Problem) -> list[str]:
    if problem.of(FeatureProduct).causal is not None:
        return needs_batch(problem)
    return ["needs a causal basis: without causality two dense products suffice"]


def _folds(problem: Problem) -> tuple[int, int]:
    """(R, B): how many items of the batch have their own factors, and how many share each."""
    return (
        (problem.num_columns, 1) if problem.of(FeatureProduct).batch else (1, problem.num_columns)
    )


def _at_full_precision(problem: Problem) -> AbstractContextManager[None]:
    """A context without autocast: sums over all nodes exceed the range of float16."""
    return torch.autocast(problem.device.type, enabled=False)


def _in_full(*tensors: Tensor) -> list[Tensor]:
    """The tensors in their widest dtype, at least float32."""
    wide = exact_type(*[tensor.dtype for tensor in tensors])
    return [tensor.to(wide) for tensor in tensors]


class LatentTransformFirst(Order):
    """Compute X Θ_h or the values of each head, then multiply by φ(K)ᵀ and by φ(Q)."""

    name = "latent_transform_first"
    solves = (FeatureProduct,)
    needs: ClassVar[tuple[Need, ...]] = (_needs_latent_nodes,)
    theta_first = knows_shapes = True

    def steps(self, problem: Problem) -> Steps:
        """M·H·P·V, then those of :meth:`send`, all dense."""
        return steps_of_values(problem, self.send)

    def send(self, steps: Steps, width: int) -> None:
        """(M + N)·H·D·V for φ(K)ᵀ and φ(Q)."""
        problem, basis = steps.problem, steps.problem.of(FeatureProduct)
        nodes = float(sum(basis.size))
        columns = float(problem.num_labels * problem.num_columns * width)
        memory = nodes * columns * problem.itemsize
        work = Operations(2.0 * nodes * basis.num_channels * columns, calls=2) + moving(memory)
        steps.work("φ(K)ᵀ, then φ(Q)", work, steps.learns + problem.gradients[2], memory)

    def run(self, problem: Problem) -> Tensor:
        return collect_values(problem, _received(problem, values(problem)))


def _received(problem: Problem, value: Tensor) -> Tensor:
    """φ(Q)(φ(K)ᵀ V) for each head and values V (M, *batch, H, V): (N, *batch, H, V).

    A column of ones is appended to the values; it yields the sums to divide by.
    """
    basis, (own, shared), dtype = problem.of(FeatureProduct), _folds(problem), value.dtype
    heads, width = value.shape[-2:]
    with _at_full_precision(problem):
        query, key, value = _in_full(basis.query, basis.key, value)
        query, key = (
            part.reshape(part.size(0), own * heads, part.size(-1)) for part in (query, key)
        )
        value = value.reshape(value.size(0), own, shared, heads, width).transpose(2, 3)
        value = value.reshape(value.size(0), own * heads, shared * width)
        if basis.normalised:
            value = torch.cat([value, value.new_ones(*value.shape[:2], 1)], -1)
        chunks = basis.chunks(value.size(-1))
        if basis.causal is not None:
            assert chunks is not None  # a causal basis has chunks
            run = scan_exponentials if basis.exponents else scan
            out = run(query, key, value, chunks, basis.causal == "strict")
        else:
            out = spread(query, collect(key, value, chunks), chunks)
        if basis.normalised:
            out = divided(out[..., :-1], out[..., -1:])
    out = out.view(out.size(0), own, heads, shared, width).transpose(2, 3)
    return out.reshape(out.size(0), *problem.batch, heads, width).to(dtype)


class Scan(LatentTransformFirst):
    """Compute the values of each head, then scan states of D × V numbers along the sequence.

    Propagating X first is not implemented: its states of D × P numbers for each head are larger.
    """

    name = "scan"
    needs = (_needs_causality,)

    def send(self, steps: Steps, width: int) -> None:
        """(M + N)·H·D·V for states, and N·H·C·(D + V) within chunks of C."""
        super().send(steps, width)
        problem, basis = steps.problem, steps.problem.of(FeatureProduct)
        chunks = basis.chunks(width)
        assert chunks is not None  # a causal basis has chunks
        copies = float(problem.num_labels * problem.num_columns)
        scores = chunks.count * chunks.size * chunks.size * copies
        within = Operations(2.0 * scores * (basis.num_channels + width), calls=2)
        states = 2.0 * chunks.count * basis.num_channels * width * copies
        memory = (scores + states) * problem.itemsize
        steps.work("within chunks", within, 2.0 * any(problem.gradients), memory)


class Latent(Order):
    """φ(K)ᵀ X for all heads in one product, Θ_h at the latent nodes, then φ(Q)."""

    name = "latent"
    solves = (FeatureProduct,)
    needs = (_needs_latent_nodes, needs_features)
    knows_shapes = True

    def steps(self, problem: Problem) -> Steps:
        """M·H·D·P, G·H·D·P·V, and N·H·D·V, all dense."""
        basis, (of_x, of_theta, of_basis) = problem.of(FeatureProduct), problem.gradients
        rows = float(problem.num_labels * basis.num_channels * problem.num_columns)
        width = float(value_width(problem) if _concatenates(problem) else problem.out_channels)
        inside = 2.0 * basis.num_blocks * rows * problem.in_channels * width
        first = Operations(2.0 * basis.size[0] * rows * problem.in_channels, calls=2)
        last = Operations(2.0 * basis.size[1] * rows * width, calls=2)
        latent = basis.num_blocks * rows * (problem.in_channels + width)
        memory = latent + basis.query.numel() + basis.size[1] * problem.num_columns * width
        memory *= problem.itemsize
        steps = Steps(problem).work("φ(K)ᵀ X", first, of_x + of_basis)
        steps.work("Θ at latent nodes", Operations(inside, calls=2), of_theta + (of_x or of_basis))
        steps.work("φ(Q)", last, of_basis + any(problem.gradients))
        return steps.work("latent nodes", moving(memory), memory=memory)

    def run(self, problem: Problem) -> Tensor:
        theta, x = problem.of_heads, problem.features
        matrix = theta.inner if theta and _concatenates(problem) else problem.theta
        with _at_full_precision(problem):
            out = _through(problem, x, matrix)
        like, _ = autocast_pair(x, matrix)
        return out.to(like.dtype)


def _through(problem: Problem, x: Tensor, matrix: Tensor) -> Tensor:
    """Y (N, *batch, Q): heads are concatenated, or summed by the last product."""
    basis, (own, shared) = problem.of(FeatureProduct), _folds(problem)
    query, key, x, matrix = _in_full(basis.query, basis.key, x, matrix)
    heads, channels, inputs = problem.num_labels, basis.num_channels, x.size(-1)
    query, key = (part.reshape(part.size(0), own, heads, channels) for part in (query, key))
    x = x.reshape(x.size(0), own, shared * inputs)
    chunks = basis.chunks(inputs)
    latent = collect(key.flatten(2), torch.cat([x, x.new_ones(*x.shape[:2], 1)], -1), chunks)
    latent = latent.unflatten(2, (heads, channels))
    latent, total = latent[..., :-1].unflatten(-1, (shared, inputs)), latent[..., -1:]
    if basis.normalised:
        sums = spread(query.flatten(1, 2), total.flatten(1, 2), chunks)
        query = divided(query, sums.view(*query.shape[:-1], 1))
    latent = _transformed(problem, latent, total, matrix)  # (G, own, H, D, shared, V)
    if _concatenates(problem):
        out = spread(query.flatten(1, 2), latent.flatten(1, 2).flatten(-2), chunks)
        out = out.view(out.size(0), own, heads, shared, latent.size(-1)).transpose(2, 3)
    else:
        out = spread(query.flatten(2), latent.flatten(2, 3).flatten(-2), chunks)
    return out.reshape(basis.size[1], *problem.batch, problem.out_channels)


def _transformed(problem: Problem, latent: Tensor, total: Tensor, matrix: Tensor) -> Tensor:
    """Θ_h applied at the latent nodes, with the bias of values times the sums of φ(K)."""
    blocks = latent.unflatten(-1, matrix.shape[1:3])
    out = torch.einsum("grhdbxp,hxpq->grhdbxq", blocks, matrix).flatten(-2)
    theta = problem.of_heads
    if theta is None or theta.bias is None:
        return out
    bias = theta.bias if _concatenates(problem) else theta.full_bias()
    assert bias is not None
    return out + total.unsqueeze(-1) * bias.reshape(-1, 1, 1, out.size(-1)).to(out.dtype)


def _concatenates(problem: Problem) -> bool:
    """Whether heads are concatenated: Θ_h as a matrix of Q columns would be mostly zeros."""
    theta = problem.of_heads
    return theta is not None and theta.heads == "concat"
