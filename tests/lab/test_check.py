"""``outerconv check``: it passes here, names what fails, and calls nothing absent a failure."""

import pytest
import torch

from pyg_outerconv.kernels import BACKENDS
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.lab import check
from pyg_outerconv.lab.cli import main


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """One pattern and two types; the guide that shows the command runs all of it."""
    sizes = {name: check.SIZES[name] for name in [*check.SIZES][-1:]}
    monkeypatch.setattr(check, "SIZES", sizes)
    types = (torch.float16, torch.float32)
    monkeypatch.setattr(check, "ALLOWED", {dtype: check.ALLOWED[dtype] for dtype in types})


@pytest.fixture
def only(monkeypatch):
    """Checks calls of some primitives alone."""

    def choose(*names):
        some = [one for one in check._primitives("cpu") if one.primitive in names]
        monkeypatch.setattr(check, "_primitives", lambda device: some)
        monkeypatch.setattr(check, "_layers", lambda device: [])

    return choose


@pytest.fixture
def broken():
    """A backend of sums as exact as TF32 or NaN, a softmax never the same, and no products."""
    calls = []

    class Broken(Reference):
        name, priority = "broken", 1
        primitives = frozenset(
            {"spmm", "segment_softmax", "sddmm", "segment_sum", "grouped_matmul"}
        )
        spmm = staticmethod(lambda *arguments: Reference().spmm(*arguments) * (1 + 1e-3))

        def segment_softmax(self, *arguments):
            calls.append(arguments)
            return Reference().segment_softmax(*arguments) * (1 + len(calls) * 2.0**-22)

        sddmm = staticmethod(lambda *arguments: Reference().sddmm(*arguments) * torch.nan)

        def grouped_matmul(self, *arguments):
            raise RuntimeError("no kernel image is available")

    yield
    del BACKENDS["broken"]


def run(capsys):
    code = main(["check", "--device", "cpu"])
    lines = capsys.readouterr().out.splitlines()
    return code, lines, [line for line in lines if line.startswith("FAILED")]


def test_it_passes_and_shows_every_primitive_of_every_backend(capsys):
    code, lines, failures = run(capsys)
    assert code == 0
    assert failures == []
    assert lines[-1] == "nothing failed"
    shown = {tuple(line.split()[:2]) for line in lines if line}
    for name, backend in BACKENDS.items():
        if "cpu" in backend.devices and backend.priority > 0 and not backend.missing():
            assert {
                (primitive, name) for primitive in backend.primitives - {"segment_sum"}
            } <= shown
    assert f"torch {torch.__version__}" in lines[0]


def test_it_names_what_a_broken_backend_computes(broken, only, capsys):
    only("spmm", "segment_softmax", "sddmm", "grouped_matmul")
    code, lines, failures = run(capsys)
    assert code == 1
    assert lines[-1] == f"{len(failures)} failed"
    assert all(" of broken in " in line for line in failures)
    assert all(f"torch {torch.__version__}" in line for line in failures)
    assert any("spmm sum " in line and "float32, value:" in line for line in failures)
    assert not any("spmm sum " in line and "float16, value:" in line for line in failures)
    assert any("sddmm " in line and "float32, value: nan" in line for line in failures)
    assert any("float32, value: other bits the second time" in line for line in failures)
    assert any("RuntimeError: no kernel image is available" in line for line in failures)


def test_a_backend_that_is_not_installed_is_named_and_no_failure(only, capsys, monkeypatch):
    only("spmm")
    monkeypatch.setattr(
        type(BACKENDS["scatter"]), "missing", lambda self: ["torch-scatter is away"]
    )
    code, lines, failures = run(capsys)
    assert code == 0
    assert failures == []
    assert "scatter is not checked: torch-scatter is away" in lines
    assert {line.split()[1] for line in lines if line.startswith("spmm ")} > {"reference"}
    assert not any(line.split()[1:2] == ["scatter"] for line in lines)


@pytest.mark.parametrize("device", ["tpu", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_here_is_refused(device, refused):
    refused(["check", "--device", device], device)
