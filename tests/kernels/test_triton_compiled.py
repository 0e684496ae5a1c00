"""What Triton's kernels are compiled to for a GPU that is not there, and the page that says so.

In processes of their own: Triton reads ``TRITON_INTERPRET`` where kernels are defined.
"""

import re
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")

FOLDER = Path(__file__).resolve().parent


@pytest.fixture
def compiling(fresh, tmp_path):
    """Runs code without the interpreter, and returns what it prints."""

    def run(code, *arguments):
        environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
        done = fresh(code, *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_compiled_it_refuses_a_cpu_and_takes_bfloat16(compiling):
    said = compiling(
        "import torch\n"
        "from pyg_outerconv.kernels.backend import Request\n"
        "from pyg_outerconv.kernels.backends.triton_backend import Triton\n"
        "ask = lambda device: Triton().why_not(\n"
        "    Request('spmm', device, torch.bfloat16, torch.int32, (3, 3), 4, 2))\n"
        "print(Triton.priority, ask('cuda'), ask('cpu'))\n"
    )
    assert said.startswith("20 []")
    assert "runs on cuda, not on cpu" in said
    assert "TRITON_INTERPRET=1" in said


def test_numbers_of_rows_and_pieces_are_not_compiled_into_kernels(compiling):
    said = compiling(
        "from importlib import import_module\n"
        "from triton.runtime import JITFunction\n"
        "for file in ('products', 'segments', 'attend', 'additive', 'extreme'):\n"
        "    room = import_module('pyg_outerconv.kernels.backends.triton.' + file)\n"
        "    for name, kernel in vars(room).items():\n"
        "        if isinstance(kernel, JITFunction) and name.endswith('_kernel'):\n"
        "            sizes = [p for p in kernel.params if p.name in ('jobs', 'num_pieces')]\n"
        "            print(*[p.do_not_specialize for p in sizes])\n"
    )
    assert set(said.split()) == {"True"}


PAGE = FOLDER.parents[1] / "examples" / "triton_kernels.md"
CASES = re.findall(r"^## (\S+)$", PAGE.read_text(), re.MULTILINE)


def table_of(text, case):
    """The lines of a case, by the name of the kernel."""
    section = text.partition(f"## {case}\n\n")[2].partition("\n\n")[0]
    head, _, *lines = [line.strip("| ").split(" | ") for line in section.splitlines()]
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def loads(cell):
    """How many bits are loaded by how many instructions, of a cell such as '8 × 128, 1 × 64'."""
    return {int(bits): int(number) for number, bits in re.findall(r"(\d+) × (\d+)", cell)}


SCRIPT = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


@pytest.mark.pages
@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("case", CASES)
def test_compiled_for_a_gpu_kernels_hold_what_is_said_of_them(case, compiling):
    table = table_of(compiling(SCRIPT, str(FOLDER / "compile_triton.py"), case), case)
    dtype, sizes, *_ = case.split("-")
    bytes_ = getattr(torch, dtype).itemsize
    aligned = all(int(size) * bytes_ % 16 == 0 for size in sizes.split("x")[1:])
    for kernel, row in table.items():
        wide = 64 if dtype == "float64" else 128  # tensor cores take float64 number by number
        assert row["spills"] == row["atomics"] == "0", kernel
        assert dtype != "float32" or row["rounding"] == "–", f"{kernel} rounds float32 to TF32"
        rows = loads(row["loads of rows"])
        if kernel == "segment_sum_kernel":  # of a value for each head
            wide = min(wide, 8 * bytes_ * int(sizes.split("x")[0]))
        if aligned and rows:
            # Not all: of a single row, which is no gather, a thread has but a few numbers.
            share = sum(bits * number for bits, number in rows.items() if bits >= wide)
            assert share >= 0.75 * sum(bits * number for bits, number in rows.items()), kernel
    if f"triton=={triton.__version__}\n" in (FOLDER.parents[1] / "constraints.txt").read_text():
        assert table == table_of(PAGE.read_text(), case), "python tests/kernels/compile_triton.py"


@pytest.mark.parametrize(
    "case", [case for case in CASES if re.match(r"float(32|16)-4x64x64", case)]
)
def test_sums_scores_and_attention_of_64_channels_use_most_of_the_bandwidth(case):
    table = table_of(PAGE.read_text(), case)
    sums = ("spmm", "spmm_theta", "chosen_sum", "additive_rows")
    for kernel in (*sums, "sddmm", "additive", "attend", "target"):
        assert int(table[f"{kernel}_kernel"]["bandwidth"].rstrip("%")) >= 60, kernel
    for kernel, row in table.items():
        assert int(row["registers"]) <= 96, kernel


def test_the_page_has_every_kernel():
    source = FOLDER.parents[1] / "pyg_outerconv" / "kernels" / "backends" / "triton"
    kernels = {
        line.removeprefix("def ").split("(")[0]
        for path in source.glob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith("def ") and line.split("(")[0].endswith("_kernel")
    }
    assert {name for case in CASES for name in table_of(PAGE.read_text(), case)} == kernels
