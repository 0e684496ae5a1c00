"""A case: contenders that do the same work on the same data; and the registry of cases.

A new case is one function that sets it up, below one ``@case(...)`` in a file of ``cases/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue, unknown
from .context import Context
from .names import FORWARD, TRAINING
from .targets import Target

Point = float | int | str | None


@dataclass(frozen=True)
class Work:
    """The least memory traffic and the least arithmetic of one step."""

    num_bytes: float
    flops: float


@dataclass(frozen=True)
class Contender:
    """One way to do a case's work.

    Attributes:
        name: as in :mod:`.names`, or of its own.
        steps: a closure for each mode that is timed, such as ``'forward'``.
        check: what must agree with ours: the result, then gradients; None for a contender that
            does only a part of the work and is there to show a bound.
        own: whether it is ours too, so that its breaking off is an error; that of a peer is the
            reason why it is absent.
        ready: called with the number of steps before each sample, outside the timing.
    """

    name: str
    steps: dict[str, Callable[[], Any]]
    check: Callable[[], Sequence[Tensor]] | None = None
    own: bool = False
    ready: Callable[[int], Any] | None = None


@dataclass(frozen=True)
class Setup:
    """One point of a case, ready to be run.

    Attributes:
        contenders: ours first.
        sizes: sizes of the data, by name.
        absent: peers that are not run, each with the reason.
        work: the least work of a step, by mode, where it is known.
        inner: number of steps in one sample; None lets :func:`measure` choose.
        notes: remarks printed with the results.
    """

    contenders: Sequence[Contender]
    sizes: Mapping[str, float | int | str]
    absent: dict[str, str] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)
    inner: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A benchmark.

    Attributes:
        name, group: names that ``--only`` takes.
        description: the computation, in one line.
        make: sets up one point.
        axis: name of the quantity that a sweep varies, None for a single point.
        points: chooses the points of a sweep.
        targets: values that its results must reach.
        memory: the contenders whose peak memory is measured too.
        quick: whether it is part of a quick run.
    """

    name: str
    group: str
    description: str
    make: Callable[[Context, Point], Setup]
    axis: str | None = None
    points: Callable[[Context], Sequence[Point]] = lambda context: (None,)
    targets: tuple[Target, ...] = ()
    memory: tuple[str, ...] = ()
    quick: bool = True


CASES: dict[str, Case] = {}

SetUp = Callable[..., Setup]


def case(
    name: str,
    group: str,
    description: str,
    *,
    axis: str | None = None,
    points: Callable[[Context], Sequence[Point]] | None = None,
    targets: tuple[Target, ...] = (),
    memory: tuple[str, ...] = (),
    quick: bool = True,
    **parameters: Any,
) -> Callable[[SetUp], SetUp]:
    """Register a case; the function below sets up one point of it.

    The function is called with the context, the point if the case has an ``axis``, and
    ``parameters``. Several cases may stand above one function.

    Raises:
        ValueError: the name is taken.
    """

    def register(set_up: SetUp) -> SetUp:
        if name in CASES:
            raise RefusedValue(f"a case needs a name of its own: {name!r} is taken")

        def make(context: Context, point: Point) -> Setup:
            return set_up(context, **({"point": point} if axis else {}), **parameters)

        CASES[name] = Case(
            name,
            group,
            description,
            make,
            axis,
            points or (lambda context: (None,)),
            targets,
            memory,
            quick,
        )
        return set_up

    return register


def select(wanted: Iterable[str], cases: dict[str, Case]) -> list[Case]:
    """The cases of these names or groups, in the order of registration; all for none.

    Raises:
        ValueError: a name is neither; the nearest is named.
    """
    names = list(wanted)
    groups = {found.group for found in cases.values()}
    for name in names:
        if name not in cases and name not in groups:
            raise RefusedValue(unknown("benchmark", name, {*cases, *groups}))
    return [found for found in cases.values() if not names or {found.name, found.group} & {*names}]


def layer_contender(
    name: str,
    forward: Callable[[], Tensor],
    x: Tensor,
    parameters: Iterable[Tensor],
    direction: Tensor,
    own: bool = False,
) -> Contender:
    """A layer: its forward pass without gradient, and with the gradients of x and parameters.

    Args:
        name: of the contender.
        forward: Y of x and the parameters.
        x: (M, P) that requires a gradient.
        parameters: further tensors whose gradients a training step needs.
        direction: (N, Q) the gradient of Y.
        own: see :class:`Contender`.
    """
    wanted = [x, *parameters]

    def without() -> Tensor:
        with torch.no_grad():
            return forward()

    def training() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), wanted, direction)

    def check() -> tuple[Tensor, Tensor]:
        out = forward()
        gradient = torch.autograd.grad(out, x, direction)[0]
        return out.detach(), gradient

    return Contender(name, {FORWARD: without, TRAINING: training}, check, own)
