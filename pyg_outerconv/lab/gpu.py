"""What a GPU shows of this package: times of kernels, and what a step of a layer asks of it."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ..families import Chebyshev, Relation, Walk
from ..kernels import BACKENDS, CSR, use_backend
from ..kernels.backends.triton.occupancy import (
    STREAMED,
    Launched,
    launched,
    predicted,
    row_widths,
)
from ..nn import AttentionConv, OuterConv
from ..testing import primitive_calls

CHANNELS, DEGREE = 64, 16
ROWS = 1 << 19
"""Of a timed matrix: its features are larger than the caches of a GPU."""

NODES, KINDS = 20_000, 8
"""Of the graph that layers take a step on."""


# Kernels -----------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """A kernel on rows of 64 channels and 16 entries: its code, and times on a GPU."""

    launch: Launched
    seconds: list[float]

    def line(self, bandwidth: float) -> str:
        """Registers, what a model predicts, and what the rows that are read take, as a share.

        Args:
            bandwidth: of a copy, in bytes read and written a second.
        """
        name, constants, itemsize, code = self.launch
        meta = code.metadata
        model = predicted(name, constants, itemsize, code.n_regs, meta.num_warps, meta.shared)
        line = f"{name:<24} {code.n_regs:>3} registers, {model};"
        if not self.seconds:  # profilers lose events while others use the GPU
            return f"{line} not measured: the profiler saw no run of it"
        time = median(self.seconds)
        line += " measured"
        entries = ROWS * DEGREE * itemsize / time / bandwidth
        if "BLOCK_C" in constants:
            line += f" {entries * CHANNELS * len(row_widths(name, constants)):.0%}"
        elif name in STREAMED:  # one number of an entry: what is read
            line += f" {entries:.0%}"
        return f"{line} in {time * 1e3:.3f} ms"


def kernels(device: str) -> list[str]:
    """A line for each kernel that the primitives start: what is predicted, and what is measured."""
    index = torch.randint(ROWS, (ROWS * DEGREE,), device=device, dtype=torch.int32)
    ptr = torch.arange(0, index.numel() + 1, DEGREE, device=device, dtype=torch.int32)
    csr = CSR(ptr, index, ROWS)
    timed: dict[str, Timed] = {}
    for primitive, (function, shapes) in primitive_calls(csr, CHANNELS, 1).items():
        if primitive.split()[0] not in BACKENDS["triton"].primitives or "biased" in primitive:
            continue
        operands = [
            torch.randn((*shape[:-1], CHANNELS) if shape[-1] == 2 else shape, device=device)
            for shape in shapes.values()
        ]
        for operand in operands:
            operand.requires_grad_()

        def step(function: Callable[..., Tensor] = function, of: list[Tensor] = operands) -> None:
            with use_backend("triton"):
                torch.autograd.grad(function(*of).sum(), of)

        with launched() as started:
            step()
        times = device_times(step)
        for launch in started:
            timed.setdefault(launch.name, Timed(launch, times[launch.name]))
    bandwidth = _bandwidth(device)
    lines = [timed[name].line(bandwidth) for name in sorted(timed)]
    return [*lines, f"(a copy reads and writes {bandwidth / 1e9:.0f} GB a second)"]


def device_times(step: Callable[[], Any], repeats: int = 3) -> dict[str, list[float]]:
    """Seconds that each kernel ran, by its name, in some calls after one that is not counted."""
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in recorded.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name].append(event.device_time * 1e-6)
    return times


def _bandwidth(device: str) -> float:
    """Bytes that a large copy reads and writes in a second."""
    source = torch.empty(1 << 27, device=device)
    target = torch.empty_like(source)
    (times,) = device_times(lambda: target.copy_(source)).values()
    return 2 * source.numel() * source.element_size() / median(times)


# Layers ------------------------------------------------------------------------------------------


class Step:
    """A forward and a backward pass of a layer over a graph."""

    def __init__(self, name: str, device: str) -> None:
        torch.manual_seed(0)
        self.layer, self.has_kinds = LAYERS[name]()
        self.layer.to(device)
        self.x = torch.randn(NODES, CHANNELS, device=device, requires_grad=True)
        self.device = device
        self.renew()

    def renew(self) -> None:
        """Another graph of the same size."""
        self.edges = torch.randint(NODES, (2, NODES * DEGREE), device=self.device)
        kinds = torch.randint(KINDS, (NODES * DEGREE,), device=self.device)
        self.beside = {"edge_type": kinds} if self.has_kinds else {}

    def __call__(self) -> Tensor:
        self.x.grad = None
        self.layer.zero_grad(set_to_none=True)
        out: Tensor = self.layer(self.x, self.edges, **self.beside)
        out.sum().backward()
        return out.detach()

    def gradients(self) -> list[Tensor]:
        """Those of x and of the parameters."""
        return [x.grad for x in (self.x, *self.layer.parameters()) if x.grad is not None]


LAYERS: dict[str, Callable[[], tuple[nn.Module, bool]]] = {
    "GCN": lambda: (OuterConv(CHANNELS, CHANNELS, "gcn"), False),
    "mean": lambda: (OuterConv(CHANNELS, CHANNELS, Walk(1), aggr="mean"), False),
    "max": lambda: (OuterConv(CHANNELS, CHANNELS, Walk(1), aggr="max"), False),
    "R-GCN": lambda: (OuterConv(CHANNELS, CHANNELS, Relation(KINDS)), True),
    "Chebyshev": lambda: (OuterConv(CHANNELS, CHANNELS, Chebyshev(3)), False),
    "GAT": lambda: (OuterConv(CHANNELS, CHANNELS, "gat(4)"), False),
    "GATv2": lambda: (OuterConv(CHANNELS, CHANNELS, "gatv2(4)"), False),
    "Transformer": lambda: (AttentionConv(CHANNELS, CHANNELS, heads=4), False),
}
"""A layer by a name, and whether its edges have types."""


def layers(device: str) -> tuple[list[str], list[str]]:
    """A line for each layer: synchronisations, launches, capture; and what failed."""
    lines, failures = [], []
    for name in LAYERS:
        step = Step(name, device)
        step()  # Triton compiles
        step.renew()
        new, again = synchronizations(step), synchronizations(step)
        times = device_times(step, repeats=1)
        started = sum(map(len, times.values()))
        sorts = sum(len(times[kernel]) for kernel in times if "sort" in kernel.lower())
        if sorts or again:
            failures.append(f"layer {name}: {again} synchronisations, {sorts} sorts in a step")
            # A capture of this would fail, and leave torch's generators unusable.
            lines.append(f"{name:<12} {new:>10} {again:>6} {started:>9} {sorts:>6}  not captured")
            continue
        try:
            capture = "the same bits" if _replays(step) else "OTHER BITS"
        except RuntimeError as raised:  # as above, so that no further layer can be tried
            return lines, [*failures, f"layer {name}, captured: {' '.join(str(raised).split())}"]
        if capture == "OTHER BITS":
            failures.append(f"layer {name}: other bits when a captured step is replayed")
        lines.append(f"{name:<12} {new:>10} {again:>6} {started:>9} {sorts:>6}  {capture}")
    return lines, failures


def synchronizations(step: Callable[[], Any]) -> int:
    """How often a step waits for the GPU, as torch tells."""
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchroniz" in str(warning.message) for warning in told)


def _replays(step: Step) -> bool:
    """Whether a step that was captured in a CUDA graph gives, for other x, the bits of a call."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    gradients = step.gradients()
    with torch.no_grad():
        step.x.copy_(torch.randn_like(step.x))
    graph.replay()
    replayed = [x.clone() for x in (out, *gradients)]
    called = [step(), *step.gradients()]
    return all(map(torch.equal, replayed, called))
