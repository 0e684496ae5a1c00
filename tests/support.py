"""Runs every combination of dtype, device, order, reduction and derivative against a dense oracle.

``python tests/write_support.py`` writes what it found to SUPPORT.md, and tests compare it with what
they find. A combination works, or is refused by name; a wrong result is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import oracle
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian

from pyg_outerconv.attention import Softmax
from pyg_outerconv.basis import ChannelPolynomial, Composed, Pattern, Repeated
from pyg_outerconv.basis.additive_attention import AdditiveAttentionBasis
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.basis.band import Band
from pyg_outerconv.basis.eye import Eye, UnitMatrices
from pyg_outerconv.basis.feature_product import FeatureProduct
from pyg_outerconv.basis.grid_shift import Axis, GridShift
from pyg_outerconv.basis.multi_head_edges import MultiHeadEdges
from pyg_outerconv.basis.polynomial import CHEBYSHEV, Polynomial
from pyg_outerconv.contract import ORDERS, Order, Problem, contract
from pyg_outerconv.errors import Refused
from pyg_outerconv.kernels import BACKENDS, REDUCTIONS, Request, use_backend
from pyg_outerconv.testing import assert_near, dense_contraction, primitive_calls
from pyg_outerconv.theta import Theta, ThetaOfChannels

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DERIVATIVES = ("forward", "first", "second", "vmap", "jacrev", "forward-mode")
SOURCES, TARGETS, LABELS, IN, OUT = 5, 5, 2, 3, 2
TERMS = 3

# (source, target, label): parallel edges, a loop, a target without edges, labels that are empty.
EDGES = [(0, 1, 0), (0, 1, 0), (2, 1, 0), (3, 1, 1), (4, 0, 1), (1, 2, 0), (2, 2, 1), (0, 2, 0)]

Function = Callable[..., Any]
Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class Combination:
    """Something to try: a function, what it should be equal to in float64, and its tensors."""

    ours: Function
    oracle: Function
    shapes: tuple[tuple[int, ...], ...]
    device: str

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Inputs that every type holds exactly: of so many bits, at random."""
        generator = torch.Generator().manual_seed(0)
        drawn = [torch.randn(shape, generator=generator).double() for shape in self.shapes]
        return [((32 * x).round().clamp(-255, 255) / 32).to(self.device) for x in drawn]

    def expected(self, what: str) -> Any:
        """What a derivative is in float64, computed once for all types."""
        cache = vars(self).setdefault("_expected", {})
        if what not in cache:
            cache[what] = TRUTHS[what](self.oracle, self.tensors)
        return cache[what]


# What is tried -----------------------------------------------------------------------------------


def homes(device: str) -> dict[str, tuple[Function, tuple[tuple[int, ...], ...]]]:
    """Kinds of bases and of Θ: (basis, x and Θ of tensors that x comes first of, their shapes)."""
    source, target, label = torch.tensor(EDGES, device=device).t()
    index, here = torch.stack([source, target]), torch.device(device)
    labelled = Pattern.build(index, label, size=(SOURCES, TARGETS), num_labels=LABELS)
    plain = Pattern.build(index, size=(SOURCES, TARGETS))
    square = Pattern.build(index, size=(SOURCES, SOURCES)).with_values(None)
    x, values, theta = (SOURCES, IN), (len(EDGES),), (LABELS, 1, IN, OUT)
    softmax = Softmax()
    grid = GridShift((Axis(SOURCES, SOURCES - 1, (0, -1)),), ((0,), (1,)), on=here)

    def of_basis(basis_of: Function) -> Function:
        return lambda x, theta, *values: (basis_of(*values), x, theta)

    return {
        "edges": (of_basis(labelled.with_values), (x, theta, values)),
        "edges, mixed Θ": (
            lambda x, c, v, values: (labelled.with_values(values), x, Theta(v, c)),
            (x, (LABELS, 2), (2, 1, IN, OUT), values),
        ),
        "edges, Θ = I": (
            lambda x, values: (labelled.with_values(values), x, Theta.identity(LABELS, IN, x)),
            (x, values),
        ),
        "polynomial": (
            of_basis(lambda v: Polynomial(plain.with_values(v), CHEBYSHEV, LABELS)),
            (x, theta, values),
        ),
        "polynomial, mixed Θ": (
            lambda x, c, v, values: (
                Polynomial(plain.with_values(values), CHEBYSHEV, LABELS),
                x,
                Theta(v, c),
            ),
            (x, (LABELS, 2), (2, 1, IN, OUT), values),
        ),
        "polynomials of channels": (
            lambda x, w, c, values, *numbers: (
                ChannelPolynomial(square.with_values(values), *numbers),
                x,
                ThetaOfChannels(w, c),
            ),
            (x, (IN, OUT), (TERMS, OUT), values, *((TERMS, OUT),) * 3),
        ),
        "identity": (of_basis(lambda: Eye((SOURCES, TARGETS), here)), (x, (1, 1, IN, OUT))),
        "grid": (of_basis(lambda: grid), (x, theta)),
        "grid, Θ = I": (lambda x: (grid, x, Theta.identity(LABELS, IN, x)), (x,)),
        "unit matrices": (
            of_basis(lambda: UnitMatrices((SOURCES, 2), on=here)),
            (x, (2 * SOURCES, 1, IN, OUT)),
        ),
        "product": (
            of_basis(lambda v: Composed(labelled.with_values(v), plain.with_values(v))),
            (x, theta, values),
        ),
        "heads": (of_basis(lambda v: MultiHeadEdges(plain, v)), (x, theta, (len(EDGES), LABELS))),
        "attention": (
            of_basis(lambda q, k: AttentionBasis(plain.with_values(None), q, k, softmax, 0.5)),
            (x, theta, (TARGETS, LABELS, IN), (SOURCES, LABELS, IN)),
        ),
        "additive attention": (
            lambda x, v, near, far: (
                AdditiveAttentionBasis(
                    square, x, (theta := Theta(v, heads="sum")).value, near, far, 0.2
                ),
                x,
                theta,
            ),
            (x, theta, (LABELS, OUT), (LABELS, OUT)),
        ),
        "attention of all": (
            of_basis(
                lambda q, k: AttentionBasis(Band(SOURCES, TARGETS, on=here), q, k, softmax, 0.5)
            ),
            (x, theta, (TARGETS, LABELS, IN), (SOURCES, LABELS, IN)),
        ),
        "factors": (
            of_basis(lambda k, q: FeatureProduct(k, q, normalised=False)),
            (x, theta, (SOURCES, LABELS, IN), (TARGETS, LABELS, IN)),
        ),
        "factors of a sequence": (
            of_basis(lambda k, q: FeatureProduct(k, q, normalised=False, causal="inclusive")),
            (x, theta, (SOURCES, LABELS, IN), (TARGETS, LABELS, IN)),
        ),
        "copies": (
            of_basis(lambda v: Repeated(labelled.with_values(v), before=2)),
            ((2 * SOURCES, IN), theta, values),
        ),
    }


def of_order(order: str, device: str) -> tuple[str, dict[str, Combination | str]]:
    """The kind of basis on which an order is tried; by reduction, what to try or why it refuses.

    An order that needs a kernel of a backend which is not picked here is tried on the reference's.
    """
    one = ORDERS[order]
    for backend, (kind, home) in product((None, "reference"), homes(device).items()):
        asked = nullcontext if backend is None else partial(use_backend, backend)
        parts, shapes = home
        tried: dict[str, Combination | str] = {}
        with asked():
            example = parts(*(torch.ones(shape, device=device) for shape in shapes))
            reasons = {how: one.why_not(Problem(*example, *how)) for how in both_reductions(one)}
        if all(reasons.values()):
            continue
        for (aggr, label_aggr), why in reasons.items():
            ours, truth = _contraction(order, asked, parts, aggr, label_aggr)
            if label_aggr == "sum":
                tried[aggr] = (
                    _refusal(ours, why, shapes, device)
                    if why
                    else Combination(ours, truth, shapes, device)
                )
            elif not why:
                tried[f"{aggr}, then {label_aggr}"] = Combination(ours, truth, shapes, device)
        return kind if backend is None else f"{kind}; backend {backend}", tried
    raise AssertionError(f"no kind of basis here is one that {order} may solve")


def both_reductions(order: Order) -> list[tuple[str, str]]:
    """Over inputs and over labels: all with sums over labels, and two with each other one."""
    compared = [how for how in ("max", "min") if how in order.label_reductions]
    sums = product(REDUCTIONS, ("sum",) if "sum" in order.label_reductions else ())
    return [*sums, *((aggr, how) for how in compared for aggr in ("sum", how))]


def _contraction(
    order: str, asked: Function, parts: Function, aggr: str, label_aggr: str
) -> tuple[Function, Function]:
    def ours(*tensors):
        basis, x, theta = parts(*tensors)
        with asked():
            return contract(basis, x, theta, order, aggr=aggr, label_aggr=label_aggr)

    def truth(*tensors):
        return dense_contraction(*parts(*tensors), aggr, label_aggr)

    return ours, truth


def _refusal(ours: Function, reasons: list[str], shapes, device: str) -> str:
    """The reasons, after the contraction has refused with them."""
    with pytest.raises(Refused) as refused:
        ours(*(torch.ones(shape, device=device) for shape in shapes))
    is_of_basis = "an explicit basis" in str(refused.value)  # of the basis, whatever the order
    assert is_of_basis or all(reason in str(refused.value) for reason in reasons), refused.value
    return "; ".join(reasons)


def of_backend(backend: str, device: str) -> dict[str, Combination | str]:
    """What to try of every primitive, or why the backend has it not."""
    index = torch.tensor(EDGES, device=device).t()[:2]
    csr = Pattern.build(index, size=(SOURCES, TARGETS)).by_target
    tried: dict[str, Combination | str] = {}
    for name, (function, shapes) in primitive_calls(csr, IN, 2).items():
        primitive, *words = name.split()
        if set(words) - {*REDUCTIONS, "dot", "add", "biased", "ends", "tanh"}:
            continue  # further forms of the same
        reduction = words[0] if words and words[0] in REDUCTIONS else "sum"
        request = Request(
            primitive, device, torch.float32, torch.int32, (5, 5), 8, IN, 2, reduction
        )
        reasons = BACKENDS[backend].why_not(request)
        tried[name] = "; ".join(reasons) or Combination(
            _by(function, backend), oracle.primitive(name, csr), tuple(shapes.values()), device
        )
    return tried


def _by(function: Function, backend: str) -> Function:
    def served(*tensors):
        with use_backend(backend):
            return function(*tensors)

    return served


# How it is tried ---------------------------------------------------------------------------------


def try_all(combination: Combination, dtype: torch.dtype) -> dict[str, str]:
    """'yes', or the refusal, for every derivative. Raises AssertionError if wrong."""
    tensors = [x.to(dtype) for x in combination.tensors]
    states = {}
    for derivative in DERIVATIVES:
        try:
            CHECKS[derivative](combination, tensors)
            states[derivative] = "yes"
        except Refused as error:
            states[derivative] = f"refused: {' '.join(str(error).split())}"
    return states


def near(actual: Tensor, expected: Tensor) -> None:
    """Equal, as far as the type of ``actual`` can tell."""
    assert_near(actual.detach(), expected.detach().to(actual.dtype), at_least=1.0)


def derivatives(function: Function, tensors: list[Tensor], second: bool) -> list[Tensor]:
    """Gradients of a fixed sum of the result; or those of a fixed sum of these gradients."""
    generator = torch.Generator().manual_seed(1)

    def along(x: Tensor) -> Tensor:
        direction = torch.randint(-2, 3, x.shape, generator=generator)
        return (x * direction.to(x)).sum()

    leaves = [x.clone().requires_grad_() for x in tensors]
    first = torch.autograd.grad(along(function(*leaves)), leaves, create_graph=second)
    if not second:
        return list(first)
    total = sum(along(gradient) for gradient in first) + sum((x * 0).sum() for x in leaves)
    return list(torch.autograd.grad(total, leaves))


def check_forward(combination: Combination, tensors: list[Tensor]) -> None:
    near(combination.ours(*tensors), combination.expected("forward"))


def check_gradients(combination: Combination, tensors: list[Tensor], second: bool = False) -> None:
    actual = derivatives(combination.ours, tensors, second)
    near_each(actual, combination.expected("second" if second else "first"))


def near_each(actual: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    for derivative, its in zip(actual, expected, strict=True):
        near(derivative, its)


def batches(tensors: list[Tensor]) -> Iterator[tuple[Dims, list[Tensor], list[list[Tensor]]]]:
    """Along which axes ``vmap`` runs, each tensor alone and then all; its operands, its items."""
    count = len(tensors)
    alone = [tuple(0 if i == j else None for i in range(count)) for j in range(count)]
    for dims in (*alone, (0,) * count):
        each = [
            [x] * 3 if dim is None else [x, -x, 0.5 * x]
            for x, dim in zip(tensors, dims, strict=True)
        ]
        batched = [
            xs[0] if dim is None else torch.stack(xs) for xs, dim in zip(each, dims, strict=True)
        ]
        yield dims, batched, [[*item] for item in zip(*each, strict=True)]


def gradients_of(function: Function, count: int) -> Function:
    """Gradients of :func:`summed` in each of its tensors."""
    return torch.func.grad(summed(function), tuple(range(count)))


def check_vmap(combination: Combination, tensors: list[Tensor]) -> None:
    """Over each tensor alone, and over all; gradients over all."""
    values, gradients = combination.expected("vmap")
    for (dims, batched, _), expected in zip(batches(tensors), values, strict=True):
        near(torch.vmap(combination.ours, in_dims=dims)(*batched), expected)
    near_each(torch.vmap(gradients_of(combination.ours, len(tensors)))(*batched), gradients)


def true_vmap(oracle: Function, tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    values = []
    for _, _, items in batches(tensors):
        values.append(torch.stack([oracle(*item) for item in items]))
    of_items = [gradients_of(oracle, len(tensors))(*item) for item in items]
    return values, [torch.stack(one) for one in zip(*of_items, strict=True)]


def summed(function: Function) -> Function:
    """A sum of what a function gives, each entry counted by a whole number of its own."""

    def total(*tensors: Tensor) -> Tensor:
        out = function(*tensors)
        counts = torch.arange(out.numel(), device=out.device).remainder(5) - 2
        return (out * counts.to(out.dtype).view(out.shape)).sum()

    return total


def check_jacrev(combination: Combination, tensors: list[Tensor]) -> None:
    every, expected = tuple(range(len(tensors))), combination.expected("jacrev")
    near_each(torch.func.jacrev(combination.ours, argnums=every)(*tensors), expected)
    near_each(jacobian(combination.ours, tuple(tensors), vectorize=True), expected)


def tangents_of(tensors: list[Tensor]) -> list[list[Tensor]]:
    """Whole numbers, along each tensor alone and then along all."""
    generator = torch.Generator().manual_seed(2)
    every = [torch.randint(-2, 3, x.shape, generator=generator).to(x) for x in tensors]
    alone = [[v if i == j else 0 * v for j, v in enumerate(every)] for i in range(len(every))]
    return [*alone, every]


def check_forward_mode(combination: Combination, tensors: list[Tensor]) -> None:
    expected, directions = combination.expected("forward-mode"), tangents_of(tensors)
    for tangents, its in zip(directions, expected, strict=True):
        near(torch.func.jvp(combination.ours, tuple(tensors), tuple(tangents))[1], its)
    with forward_ad.dual_level():  # along all of them, without torch.func
        dual = combination.ours(*map(forward_ad.make_dual, tensors, directions[-1]))
        near(forward_ad.unpack_dual(dual).tangent, expected[-1])


def true_tangents(oracle: Function, tensors: list[Tensor]) -> list[Tensor]:
    columns = jacobian(oracle, tuple(tensors))
    return [
        torch.stack(
            [torch.tensordot(one, v, v.dim()) for one, v in zip(columns, tangents, strict=True)]
        ).sum(0)
        for tangents in tangents_of(tensors)
    ]


CHECKS: dict[str, Callable[[Combination, list[Tensor]], None]] = {
    "forward": check_forward,
    "first": check_gradients,
    "second": partial(check_gradients, second=True),
    "vmap": check_vmap,
    "jacrev": check_jacrev,
    "forward-mode": check_forward_mode,
}
TRUTHS: dict[str, Callable[[Function, list[Tensor]], Any]] = {
    "forward": lambda oracle, tensors: oracle(*tensors),
    "first": partial(derivatives, second=False),
    "second": partial(derivatives, second=True),
    "vmap": true_vmap,
    "jacrev": lambda oracle, tensors: jacobian(oracle, tuple(tensors)),
    "forward-mode": true_tangents,
}
