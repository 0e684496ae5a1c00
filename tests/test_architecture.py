"""The arrows between folders, and what an import needs, are checked by a machine."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pyg_outerconv"

# Each folder may import these others. Nothing may import what stands above it.
ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "places": {"files"},
    "found": set(),
    "kernels": {"errors", "found"},
    "plot": {"errors"},
    "theta": {"errors"},
    "basis": {"errors", "found", "kernels", "theta", "plot"},
    "position": {"errors", "basis"},
    "contract": {"errors", "found", "places", "kernels", "theta", "basis"},
    "score": {"errors", "found", "kernels", "theta", "basis", "position", "contract"},
    "nn": {"errors", "kernels", "basis", "position", "contract", "score", "plot"},
    "convert": {"errors", "basis", "score", "nn"},
    "testing": {"errors", "kernels", "basis", "contract", "nn"},
    "data": {"errors", "files", "places"},
    "train": {"errors", "files", "basis", "nn", "kernels", "data"},
    "bench": {
        "errors",
        "files",
        "kernels",
        "basis",
        "contract",
        "score",
        "nn",
        "convert",
        "data",
        "train",
    },
    "show": {"errors", "files", "basis", "data", "train"},
    "cli": {
        "errors",
        "files",
        "basis",
        "kernels",
        "contract",
        "nn",
        "data",
        "train",
        "bench",
        "show",
    },
}


def imports(path):
    """The first names below the package that a file imports, wherever in the file."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = parts[: len(parts) - node.level]
            target = (*base, *(node.module or "").split("."))
            names = [target] if node.module else [(*base, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")]
        elif isinstance(node, ast.Import):
            names = [name.name.split(".") for name in node.names]
        else:
            continue
        for name in names:
            if name[0] == "pyg_outerconv" and len(name) > 1 and name[1]:
                yield name[1]


@pytest.mark.parametrize("folder", ALLOWED)
def test_arrows_point_one_way(folder):
    files = (
        [PACKAGE / f"{folder}.py"]
        if (PACKAGE / f"{folder}.py").exists()
        else sorted((PACKAGE / folder).rglob("*.py"))
    )
    assert files
    for path in files:
        own_modules = {"__init__", folder}
        forbidden = set(imports(path)) - ALLOWED[folder] - own_modules - {"__version__"}
        assert not forbidden, f"{path.name} imports {sorted(forbidden)}"


def test_every_folder_is_in_the_picture():
    found = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists())
    }
    assert found - {"__init__", "__main__"} == set(ALLOWED)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )


def test_the_package_works_without_any_extra():
    extras = ("torch_scatter", "triton", "matplotlib", "pandas", "rdflib", "pytest")
    done = run(
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({extras!r}))  # None: the import system refuses them\n"
        "import torch, pyg_outerconv, pyg_outerconv.testing, pyg_outerconv.cli\n"
        "conv = pyg_outerconv.OuterConv(3, 2, 'gcn')\n"
        "print(conv(torch.ones(2, 3), torch.tensor([[0], [1]])).shape)\n"
        "print(pyg_outerconv.backends())\n"
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 2])" in done.stdout
    assert "native" in done.stdout
