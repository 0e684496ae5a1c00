"""``python tests/kernels/compile_triton.py`` compiles every Triton kernel for an H100, and for an
A100, where no GPU is, and writes examples/triton_kernels.md: what each kernel's machine code does.

Triton's JIT compiles what it would start: the launchers run on a CPU, and the JIT specialises
(sizes of 1, multiples of 16, aligned pointers) and compiles, for a device that is only named. Its
code is then read by the disassemblers that come with Triton. With names of cases as arguments they
alone are compiled, and what would be written is printed.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from pyg_outerconv.kernels.activation import Activation
from pyg_outerconv.kernels.backend import Attention, Groups, Neurons
from pyg_outerconv.kernels.backends.triton import INTERPRETED, addressing, balance, occupancy
from pyg_outerconv.kernels.backends.triton_backend import Triton

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "triton_kernels.md"
WIDEST = 16  # bytes of one load


@dataclass(frozen=True)
class Case:
    """Sizes of the operands of every primitive.

    Attributes:
        dtype: of the operands.
        heads, channels, outputs: H, P and Q.
        pieces: whether rows are long enough to be cut into pieces.
        target: the compute capability, times ten.
    """

    dtype: torch.dtype
    heads: int
    channels: int
    outputs: int
    pieces: bool = False
    target: int = 90

    @property
    def aligned(self) -> bool:
        """Whether rows of channels begin at multiples of the widest load."""
        step = WIDEST // self.dtype.itemsize
        return self.channels % step == 0 and self.outputs % step == 0

    def __str__(self) -> str:
        """Its name, which is the argument of this script."""
        name = str(self.dtype).removeprefix("torch.")
        sizes = f"{self.heads}x{self.channels}x{self.outputs}"
        target = "" if self.target == 90 else f"-sm_{self.target}"
        return f"{name}-{sizes}{'-pieces' if self.pieces else ''}{target}"


CASES = {
    str(case): case
    for case in (
        Case(torch.float32, 4, 64, 64),
        Case(torch.float32, 3, 20, 12, pieces=True),
        Case(torch.float32, 1, 5, 7, pieces=True),
        Case(torch.float16, 4, 64, 64),
        Case(torch.float16, 3, 24, 40, pieces=True),
        Case(torch.bfloat16, 8, 256, 128),
        Case(torch.float64, 4, 64, 64),
        Case(torch.float64, 3, 10, 6, pieces=True),
        Case(torch.float32, 4, 64, 64, target=80),
        Case(torch.bfloat16, 8, 256, 128, target=80),
    )
}


@dataclass
class Code:
    """What the machine code of the kernels of one name does, of all that a case compiles.

    Attributes:
        registers: the most of a thread.
        warps: resident on a processor, at least; ``share``: of the bandwidth, as predicted.
        spills: instructions that store registers in memory, or load them from there.
        rows: loads of rows of channels, by bytes; ``others``: of all else.
        matrix: instructions of tensor cores, by name.
        atomics: their number.
        tf32: whether products round float32 to TF32.
    """

    registers: int = 0
    warps: int = occupancy.WARPS
    share: float = 1.0
    spills: int = 0
    rows: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    matrix: Counter[str] = field(default_factory=Counter)
    atomics: int = 0
    tf32: bool = False

    def cells(self) -> tuple[str, ...]:
        """Its line of the table."""
        return (
            str(self.registers),
            str(self.warps),
            f"{self.share:.0%}",
            str(self.spills),
            _counted({f"{8 * size}": number for size, number in self.rows.items()}),
            _counted({f"{8 * size}": number for size, number in self.others.items()}),
            _counted(self.matrix),
            str(self.atomics),
            "tf32" if self.tf32 else "–",
        )


HEAD = (
    "kernel", "registers", "warps", "bandwidth", "spills", "loads of rows", "other loads",
    "tensor cores", "atomics", "rounding",
)  # fmt: skip


def _counted(numbers: dict[str, int] | Counter[str]) -> str:
    ordered = sorted(
        numbers.items(), key=lambda item: (-int("0" + re.sub(r"\D", "", item[0])), item)
    )
    return ", ".join(f"{number} × {name}" for name, number in ordered) or "–"


# What the JIT compiles ---------------------------------------------------------------------------


def compiled(case: Case) -> dict[str, Code]:
    """The code of every kernel that the primitives would start, by the kernel's name."""
    assert not INTERPRETED
    device = {"device": lambda: 0, "stream": lambda device=None: 0}
    target = GPUTarget("cuda", case.target, 32)
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            **{f"get_current_{name}": answer for name, answer in device.items()},
        )
    )
    codes: dict[str, Code] = {}
    seen: set[str] = set()

    def compile_only(plan: balance.Plan, _jobs: int, like: Any, arguments: tuple[Any, ...]) -> None:
        """In the place of ``Plan.start``."""
        kernel, constants = plan.kernel, plan.constants
        done = kernel.run(*arguments, *plan.sizes, grid=(1,), warmup=True, **constants)
        if done.hash not in seen:
            seen.add(done.hash)
            code = codes.setdefault(kernel.__name__, Code())
            registers = read(done, code)
            sizes = like.dtype.itemsize, registers, done.metadata.num_warps, done.metadata.shared
            prediction = occupancy.predicted(kernel.__name__, constants, *sizes)
            code.warps, code.share = (
                min(code.warps, prediction.warps),
                min(code.share, prediction.share),
            )

    balance.Plan.start = compile_only
    balance.LIMIT = 8 if case.pieces else 256
    call_all(case)
    return codes


def call_all(case: Case) -> None:
    """Every primitive once, on a matrix with a long row and an empty one."""
    backend, heads, channels = Triton(), case.heads, case.channels
    ptr = torch.tensor([0, 3, 3, 43], dtype=torch.int32)
    index = torch.zeros(43, dtype=torch.int32)
    far = (torch.tensor([0, 43], dtype=torch.int32), index, index)

    def dense(*shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=case.dtype)

    value, x, rows = dense(43, heads), dense(1, heads, channels), dense(3, heads, channels)
    backend.spmm(ptr, index, value, x)
    backend.spmm(ptr, index, value, dense(1, 1, channels))
    backend.spmm(ptr, index, None, x)
    backend.spmm_arg(ptr, index, value, x, True)
    arg = backend.spmm_arg(ptr, index, None, x, False).int()
    backend.chosen(index, arg, value, x)
    backend.chosen_sum(ptr, index, index, arg[:1].contiguous(), value, x)
    backend.chosen_sample(ptr, index, None, arg, rows, x)
    backend.sddmm(ptr, index, rows, x)
    backend.segment_sum(ptr, value)
    backend.segment_softmax(ptr, value)
    sent = dense(1, heads, case.outputs)
    products = Attention(rows, x, sent, value, 0.5, False)
    of_ends = Attention(rows[:, :, 0].contiguous(), value[:1], sent, None, 0.2, True)
    for attention in (products, of_ends):
        out, total = backend.attend(ptr, index, attention)
        backend.attend_backward(ptr, index, *far, attention, out, total, out)
    weight = dense(1, heads, channels)
    relu, tanh = Activation("leaky_relu", 0.2, 0), Activation("tanh", 0.2, 1)
    backend.additive(ptr, index, Neurons(rows, x, weight, None, relu))
    backend.additive(ptr, index, Neurons(rows, x, None, x, tanh))
    backend.additive_rows(ptr, index, Neurons(rows, x, None, None, relu), value, 2)
    backend.additive_rows(ptr, index, Neurons(rows, x, None, x, tanh), value, 1)
    theta, products = dense(3, channels, case.outputs), dense(43, channels)
    indexed, plain = Groups(ptr, index, index, 5), Groups(ptr, None, None, 43)
    for groups in (indexed, plain):
        backend.grouped_matmul(products, theta, groups)
        backend.grouped_outer(products, dense(43, case.outputs), groups)
    backend.spmm_theta(ptr, index, index, value[:, 0].contiguous(), dense(1, channels), theta)


# What its machine code does ----------------------------------------------------------------------


def read(done: Any, code: Code) -> int:
    """Add what a compiled kernel does to ``code``; return the registers of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(done.asm["cubin"])
        file.flush()
        usage = _output(knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name)
        options = "--print-code", "--print-line-info", "--no-dataflow"
        text = _output(knobs.nvidia.nvdisasm.path, *options, file.name)
    (registers,) = re.findall(r"REG:(\d+)", usage)
    code.registers = max(code.registers, int(registers))
    code.tf32 |= "inputPrecision = tf32" in done.asm["ttir"]
    for place, name in instructions(text):
        operation, *kinds = name.split(".")
        if operation in ("LDL", "STL"):
            code.spills += 1
        elif operation in ("LDG", "LDGSTS"):
            (code.rows if place in ROWS else code.others)[_bytes(kinds)] += 1
        elif operation.endswith("MMA") and operation != "HFMA2":
            code.matrix[operation] += 1
        elif operation.startswith(("ATOM", "RED")) and not operation.startswith("REDUX"):
            code.atomics += 1
    return int(registers)


def instructions(text: str) -> Iterator[tuple[tuple[str, int], str]]:
    """The line of the source, as file and number, and the name of each instruction."""
    place = ("", 0)
    for line in text.splitlines():
        if at := re.search(r'//## File "([^"]+)", line (\d+)', line):
            place = (Path(at[1]).name, int(at[2]))
        elif one := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            yield place, one[1]


def lines_of_rows() -> set[tuple[str, int]]:
    """The lines of ``addressing.py`` that load rows of channels."""
    path = Path(addressing.__file__)
    return {
        (path.name, number)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and node.name in ("head_rows", "row_tile", "theta_tile")
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


ROWS = lines_of_rows()


def _bytes(kinds: list[str]) -> int:
    """How many bytes an instruction loads: 4 if it does not say."""
    sizes = (re.fullmatch(r"[US]?(8|16|64|128)", kind) for kind in kinds)
    return next((int(size[1]) // 8 for size in sizes if size), 4)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# The page ----------------------------------------------------------------------------------------

TEXT = f"""# What Triton's kernels are compiled to

Written by `python tests/kernels/compile_triton.py`, with Triton {triton.__version__} for an H100
(sm_90), or where a case says so for an A100 (sm_80), where no GPU is; tests compile cases again and
compare. It tells what the code does, not how fast it is.

A case is named by its type, heads × channels × output channels, and `pieces` where long rows are
cut. A line is of all kernels of one name that the primitives start in this case: the most registers
of a thread; the warps, of {occupancy.WARPS}, that are resident on a processor, and the share of the
bandwidth that these can use for rows of 16 entries, as `occupancy.py` predicts it, the least of
both; instructions that store registers in memory or load them from there (spills); loads of rows of
channels, and of indices, values and all else, by bits; instructions of tensor cores; atomics; and
whether products round to TF32. Where channels fill 16 bytes, rows are loaded by 128 bits; narrower
loads beside these are of a single row, of which a thread holds a few numbers.

At 64 channels all kernels but those of float64 take 96 registers or fewer, and those of sums,
scores and attention are predicted 60% or more. Below that, in 16-bit types, are `extreme_kernel`,
where a thread holds a product and a position for each number that it reads; `softmax_kernel`, which
holds positions and exponentials of its scores, and has no wide rows to read; and `chosen_kernel`,
which reads numbers one by one.
"""


def section(name: str) -> str:
    """The table of a case."""
    lines = [HEAD, ("---",) * len(HEAD)]
    lines += [(kernel, *code.cells()) for kernel, code in sorted(compiled(CASES[name]).items())]
    return f"## {name}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> int:
    """Write the page; or print the sections of the cases that are named."""
    if names := sys.argv[1:]:
        print("\n".join(map(section, names)), end="")
        return 0
    # A process each, for the JIT keeps what it compiled for a device, whatever its target.
    fresh = {"max_tasks_per_child": 1, "mp_context": get_context("spawn")}
    with ProcessPoolExecutor(os.cpu_count(), **fresh) as processes:
        sections = list(processes.map(section, CASES))
    PAGE.write_text("\n".join([TEXT, *sections]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
