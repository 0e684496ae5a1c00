"""A case: contenders that do the same work on the same data; and the registry of cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch import Tensor

from ...errors import RefusedValue, unknown

if TYPE_CHECKING:
    from .targets import Target

# Names of modes and contenders, as results and pages have them.
FORWARD = "forward"
TRAINING = "forward + backward"
PREPARATION = "preparation"
EPOCH = "epoch"

OURS = "outerconv"
PYG = "PyG"
PYG_CSR = "PyG, torch CSR"
PYG_COMPILED = "PyG, compiled"
PYG_CACHED = "PyG, cached"
SCATTER = "torch-scatter"
FLOOR = "matrix products alone"
LOADING = "loading alone"
SPARSE = "outerconv, kept sparse"
DENSE = "dense einsum"
KRONECKER = "dense Kronecker"
TORCH = "torch.nn"
DENSE_FORMS = (DENSE, KRONECKER, TORCH)

# Results of two ways to do the same agree to this, relative to the largest entry.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
QUICK_SHARE = 0.2

Point = float | int | str | None
Step = Callable[[], Any]
Sizes = Mapping[str, float | int | str]


@dataclass(frozen=True)
class Context:
    """The settings that every case shares, of its data and of how it is measured."""

    scale: float = 1.0
    quick: bool = False
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    seed: int = 0
    root: str | None = None
    repeats: int = 1
    memory: bool = False
    threads: int = 1

    @property
    def share(self) -> float:
        """The size of graphs as a share of their full size."""
        return self.scale * (QUICK_SHARE if self.quick else 1.0)

    def size(self, count: int, at_least: int = 1, *, quick: bool = True) -> int:
        """A number of nodes or edges at this scale; a quick run takes a part only if ``quick``."""
        return max(at_least, round(count * (self.share if quick else self.scale)))

    def generator(self) -> torch.Generator:
        """A fresh source of randomness on the CPU, so that devices see the same graphs."""
        return torch.Generator().manual_seed(self.seed)

    def randn(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Normal values, of the context's type and on its device."""
        return torch.randn(shape, generator=generator).to(self.device, self.dtype)

    @property
    def tolerance(self) -> float:
        """How far two contenders may differ, relative to the largest entry."""
        return TOLERANCE[self.dtype]

    @property
    def item_size(self) -> int:
        """Bytes of one value."""
        return self.dtype.itemsize


@dataclass(frozen=True)
class Work:
    """The least memory traffic and the least arithmetic of one step."""

    num_bytes: float
    flops: float


@dataclass(frozen=True)
class Contender:
    """One way to do a case's work.

    Attributes:
        name: one of the names above, or of its own.
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
    """One point of a case, ready to be run."""

    contenders: Sequence[Contender]
    sizes: Sizes
    absent: dict[str, str] = field(default_factory=dict)  # why a peer is not run
    work: dict[str, Work] = field(default_factory=dict)
    inner: int | None = None  # steps in a sample; None lets `measure` choose
    slack: float = 1.0  # how many times the tolerance a peer may differ that rounds more


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
_OF_A_CASE = ("axis", "points", "targets", "memory", "quick")


def case(name: str, group: str, description: str, **options: Any) -> Callable[[SetUp], SetUp]:
    """Register a case; the function below sets up one point of it.

    Several cases may stand above one function.
    """
    of_case = {key: options.pop(key) for key in _OF_A_CASE if key in options}

    def register(set_up: SetUp) -> SetUp:
        if name in CASES:
            raise RefusedValue(f"a case needs a name of its own: {name!r} is taken")

        def make(context: Context, point: Point) -> Setup:
            return set_up(context, **({"point": point} if "axis" in of_case else {}), **options)

        CASES[name] = Case(name, group, description, make, **of_case)
        return set_up

    return register


def select(wanted: Iterable[str], cases: dict[str, Case]) -> list[Case]:
    """The cases of these names or groups, in the order of registration; all for none."""
    names = list(wanted)
    groups = {bench_case.group for bench_case in cases.values()}
    for name in names:
        if name not in cases and name not in groups:
            raise RefusedValue(unknown("benchmark", name, {*cases, *groups}))
    return [
        bench_case
        for bench_case in cases.values()
        if not names or {bench_case.name, bench_case.group} & {*names}
    ]


def synchronizer(device: str) -> Step:
    """A function that waits until a device has done its work."""
    if torch.device(device).type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if torch.device(device).type == "mps":
        return torch.mps.synchronize
    return lambda: None


def free_memory(device: str) -> int:
    """Bytes that can still be had on a device."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
