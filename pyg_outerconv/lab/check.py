"""The command ``outerconv check``: what this machine computes, against the reference in float64."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from math import isnan
from multiprocessing import get_context
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..basis import Pattern
from ..contract import contract
from ..errors import RefusedValue, unknown
from ..families import Relation, Walk
from ..kernels import BACKENDS, CSR, REDUCTIONS, Request
from ..kernels.backend import Backend
from ..kernels.dispatch import by_priority
from ..nn import AttentionConv, OuterConv
from ..testing import primitive_calls
from ..testing.backend_laws import PrimitiveCall, derivatives_by, tangent_by
from ..testing.reference import difference
from .gpu import kernels, layers

if TYPE_CHECKING:
    from .cli.commands import Check

ALLOWED = {torch.float16: 32, torch.bfloat16: 32, torch.float32: 256, torch.float64: 4096}
"""The largest error of each type, in units of its ε; TF32 in the place of float32 makes 4,000."""

DERIVATIVES = ("value", "first", "second", "forward mode")
CHOICE = "(choice)"
"""Stands for a backend where the library chooses."""

SIZES = {
    # rows, columns, entries, channels, heads, the type of indices
    "odd sizes": (40, 30, 150, 5, None, torch.int32),
    "a long row, wide loads": (24, 50, 400, 32, 2, torch.int64),
}


@dataclass(frozen=True)
class Call:
    """A function of tensors, on one of the patterns."""

    primitive: str
    name: str
    function: Callable[..., Tensor]
    shapes: dict[str, tuple[int, ...]]
    heads: int = 1
    channels: int = 1

    def refused_by(self, backend: Backend, dtype: torch.dtype, device: str) -> list[str]:
        """Why a backend does not compute this, if it says so."""
        words = self.name.split()
        reduction = next((word for word in words if word in REDUCTIONS), "sum")
        place = torch.device(device).type
        sizes = ((1, 1), 1, self.channels, self.heads)
        return backend.why_not(
            Request(self.primitive, place, dtype, torch.int32, *sizes, reduction)
        )


@dataclass
class Cell:
    """The worst errors of one backend in one type, in units of ε, by derivative."""

    worst: dict[str, float] = field(default_factory=dict)

    def add(self, errors: dict[str, float]) -> None:
        """Take in the errors of one call; NaN stays."""
        for what, error in errors.items():
            kind = _kind(what)
            worst = self.worst.get(kind, error)
            self.worst[kind] = max(worst, error, key=lambda one: (isnan(one), one))

    def __str__(self) -> str:
        return " ".join(f"{self.worst[kind]:.2g}" for kind in DERIVATIVES if kind in self.worst)


def check(asked: Check) -> int:
    """Run ``outerconv check`` on a device, print its table, return the exit code."""
    device = _device(asked.device)
    machine = _machine(device)
    print(f"{machine}\n")
    here = {one.name: one for one in by_priority() if not _absent(one, device)}
    for backend in by_priority():
        for reason in _absent(backend, device):
            print(f"{backend.name} is not checked: {reason}")
    titles = [str(dtype).removeprefix("torch.") for dtype in ALLOWED]
    print(f"\nworst errors in units of ε, the step of each type at 1: {', '.join(DERIVATIVES)}\n")
    print(_line("", "", titles))
    failures: list[str] = []
    if "triton" in here and torch.device(device).type == "cuda":
        _compile_ahead(device)
    with _deterministic():
        calls = [*_primitives(device), *_layers(device)]
        for primitive, group in groupby(calls, lambda call: call.primitive):
            table = {name: {dtype: Cell() for dtype in ALLOWED} for name in (*here, CHOICE)}
            for call in group:
                failures += _compare(call, table, here, device)
            for name, cells in table.items():
                if any(cell.worst for cell in cells.values()):
                    print(_line(primitive, name, [str(cell) for cell in cells.values()]))
    if torch.device(device).type == "cuda":
        if "triton" in here:
            print("\nkernels for rows of 64 channels, in float32: shares of the bandwidth\n")
            print("\n".join(kernels(device)))
        print("\na training step of a layer, and its capture in a CUDA graph\n")
        print(f"{'':<12} {'waits: new':>10} {'again':>6} {'launches':>9} {'sorts':>6}  replayed")
        lines, failed = layers(device)
        print("\n".join(lines))
        failures += failed
    for failure in failures:
        print(f"\nFAILED {failure} [{machine}]")
    print("\n" + (f"{len(failures)} failed" if failures else "nothing failed"))
    return int(bool(failures))


def _compile_ahead(device: str) -> None:
    """Start all kernels in several processes, so that Triton keeps their code on the disk."""
    jobs = [(device, dtype, n) for dtype in ALLOWED for n in range(len(_primitives(device)))]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        list(pool.map(_start, *zip(*jobs, strict=True)))


def _start(device: str, dtype: torch.dtype, n: int) -> None:
    """Start the kernels of one call."""
    call = _primitives(device)[n]
    if not call.refused_by(BACKENDS["triton"], dtype, device):
        with suppress(Exception):  # the comparison starts them again, and tells
            _computed("triton", call, _inputs(call, dtype, device))


def _compare(
    call: Call, table: dict[str, dict[torch.dtype, Cell]], here: dict[str, Backend], device: str
) -> Iterator[str]:
    """Compare a call of every backend, in every type, with the reference; yield what fails."""
    is_layer = call.primitive not in BACKENDS["reference"].primitives
    kind = torch.device(device).type
    uneven = {name for name, one in here.items() if kind not in one.deterministic}
    for dtype, allowed in ALLOWED.items():
        truth: dict[str, Tensor] = {}
        names = (
            [CHOICE]
            if is_layer
            else [name for name, one in here.items() if not call.refused_by(one, dtype, device)]
        )
        inputs = _inputs(call, dtype, device)
        for name in names:
            where = f"{call.name} of {name} in {str(dtype).removeprefix('torch.')}"
            try:
                exact = {key: x.double() for key, x in inputs.items()}
                truth = truth or _computed("reference", call, exact)
                actual, again = (_computed(name, call, inputs) for _ in range(2))
            except Exception as raised:  # whatever it is, it is what is reported
                yield f"{where}: {type(raised).__name__}: {' '.join(str(raised).split())[:300]}"
                continue
            table[name][dtype].add(errors := _errors(actual, truth, torch.finfo(dtype).eps))
            for what, error in errors.items():
                if not error <= allowed:  # NaN too
                    yield f"{where}, {what}: {error:.3g} ε, at most {allowed} are rounding"
                if name not in uneven and not torch.equal(actual[what], again[what]):
                    yield f"{where}, {what}: other bits the second time"


def _errors(actual: dict[str, Tensor], truth: dict[str, Tensor], step: float) -> dict[str, float]:
    """The largest error of each result, in units of ε at the largest result of its kind.

    A gradient that is a small sum of large terms has errors of the size of these, which gradients
    in other operands show; and where all are small, errors are in units of ε at 1.
    """
    gaps = {what: difference(actual[what], wanted) for what, wanted in truth.items()}
    return {
        what: gap
        / step
        / max(1.0, *(top for one, (_, top) in gaps.items() if _kind(one) == _kind(what)))
        for what, (gap, _) in gaps.items()
    }


def _kind(what: str) -> str:
    """Which of ``DERIVATIVES`` a result is, such as 'first in x'."""
    return next(kind for kind in DERIVATIVES if what.startswith(kind))


def _computed(name: str, call: Call, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The value and all derivatives of a call by a backend, by name."""
    backend = None if name == CHOICE else name
    results = derivatives_by(backend, call.function, inputs)
    return {**results, "forward mode": tangent_by(backend, call.function, inputs)}


def _inputs(call: Call, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Random operands, equal on every machine."""
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)
        for name, shape in call.shapes.items()
    }


# What is called ----------------------------------------------------------------------------------


def _primitives(device: str) -> list[Call]:
    """Every primitive on every pattern, those of one primitive one after another."""
    calls = []
    for place, (rows, cols, entries, channels, heads, index) in SIZES.items():
        basis = _pattern(rows, cols, entries, device)
        matrix = basis.ends
        csr = CSR(matrix.ptr.to(index), matrix.index.to(index), cols)
        some = primitive_calls(csr, channels, heads)
        some["spmm_theta"] = _fused(basis, channels)
        for name, (function, shapes) in some.items():
            title = f"{name} ({place})"
            calls.append(Call(name.split()[0], title, function, shapes, heads or 1, channels))
    return sorted(calls, key=lambda call: call.primitive)


def _pattern(rows: int, cols: int, entries: int, device: str) -> Pattern:
    """Random labelled edges; row 0 has most of the entries, and row 1 has none."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(rows, (entries,), generator=generator)
    target[: entries * 3 // 4] = 0
    target[target == 1] = 2
    source = torch.randint(cols, (entries,), generator=generator)
    label = torch.randint(3, (entries,), generator=generator)
    index = torch.stack([source, target]).to(device)
    return Pattern.build(index, label.to(device), size=(cols, rows), num_labels=3)


def _fused(pattern: Pattern, channels: int) -> PrimitiveCall:
    """The primitive that propagates and transforms in one step, which one order is made of."""

    def fused(value: Tensor, x: Tensor, theta: Tensor) -> Tensor:
        return contract(pattern.with_values(value), x, theta, "fused")

    (sources, _), entries = pattern.size, pattern.num_edges
    return fused, {"value": (entries,), "x": (sources, channels), "theta": (3, 1, channels, 4)}


def _layers(device: str) -> list[Call]:
    """A few layers, as functions of their features and parameters."""
    nodes, channels = 40, 8
    graph = _pattern(nodes, nodes, 200, device)
    edges, kinds = torch.stack([graph.source, graph.target]).long(), graph.label.long()
    layers: dict[str, tuple[nn.Module, dict[str, Tensor]]] = {
        "GCN": (OuterConv(channels, 4, "gcn"), {}),
        "Relation": (OuterConv(channels, 4, Relation(3)), {"edge_type": kinds}),
        "Walk, maximum": (OuterConv(channels, 4, Walk(1), aggr="max"), {}),
        "GAT": (AttentionConv(channels, 4, heads=2, score="additive"), {}),
        "Transformer": (AttentionConv(channels, 4, heads=2), {}),
    }
    calls = []
    for name, (layer, beside) in layers.items():
        shapes = {key: tuple(value.shape) for key, value in layer.named_parameters()}

        def function(
            x: Tensor,
            *values: Tensor,
            layer: nn.Module = layer,
            names: tuple[str, ...] = (*shapes,),
            beside: dict[str, Tensor] = beside,
        ) -> Tensor:
            parameters = dict(zip(names, values, strict=True))
            out: Tensor = functional_call(layer, parameters, (x, edges), beside)
            return out

        calls.append(Call(f"layer {name}", name, function, {"x": (nodes, channels), **shapes}))
    return calls


# Where -------------------------------------------------------------------------------------------


def _device(name: str) -> str:
    """A device that torch has here; 'auto' is CUDA if there is any."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda"):
        raise RefusedValue(unknown("device", name, ("auto", "cpu", "cuda")))
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not (number or "0").isdecimal() or int(number or 0) >= count:
        raise RefusedValue("--device is one that torch has here", f"{count} of {kind}", name)
    return name


def _absent(backend: Backend, device: str) -> list[str]:
    """Why a backend is not checked on a device."""
    reasons = backend.missing()
    kind = torch.device(device).type
    if kind not in backend.devices:
        reasons.append(f"runs on {' and '.join(sorted(backend.devices))}, not on {kind}")
    elif backend.priority <= 0 and backend.name != "reference":
        reasons.append("runs only when asked for by name")
    return reasons


def _machine(device: str) -> str:
    """Versions and the device, in one line."""
    parts = []
    for name in ("pyg_outerconv", "torch", "torch_geometric", "torch_scatter", "triton"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    parts.append(f"Python {platform.python_version()}")
    parts.append(f"{platform.system()} {platform.machine()}")
    if torch.device(device).type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        parts.append(f"CUDA {torch.version.cuda or torch.version.hip}")
        parts.append(f"{torch.cuda.get_device_name(device)} (sm_{major}{minor})")
    else:
        parts.append(f"cpu {torch.backends.cpu.get_cpu_capability()}")
    return ", ".join(parts)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Ask torch for its deterministic operators, as far as it has them."""
    variable = "CUBLAS_WORKSPACE_CONFIG"
    before, mode = os.environ.get(variable), torch.get_deterministic_debug_mode()
    os.environ.setdefault(variable, ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        if before is None:
            del os.environ[variable]


def _line(primitive: str, backend: str, cells: list[str]) -> str:
    return f"{primitive:<21} {backend:<9}  {'  '.join(f'{cell:<22}' for cell in cells)}".rstrip()
