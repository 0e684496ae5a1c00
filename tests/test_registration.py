"""What is defined in a file of its folder is known by name, without an entry anywhere else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A file for each folder, where what it defines is found, and by which name.
FILES = {
    "basis": (
        "from dataclasses import dataclass\n"
        "from pyg_outerconv.basis.gcn import GCN\n"
        "@dataclass(frozen=True)\n"
        "class Found(GCN):\n"
        "    equation = 'as GCN'\n",
        "from pyg_outerconv.basis import FAMILIES as names",
    ),
    "score": (
        "from pyg_outerconv.score.feature_maps import FeatureMap\n"
        "class Found(FeatureMap):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.score import FEATURE_MAPS as names",
    ),
    "contract/orders": (
        "from pyg_outerconv.contract.orders.transform_first import TransformFirst\n"
        "class Found(TransformFirst):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.contract import ORDERS as names",
    ),
    "kernels": (
        "from pyg_outerconv.kernels.reference import Reference\n"
        "class Found(Reference):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.kernels import BACKENDS as names",
    ),
}


@pytest.mark.parametrize("folder", FILES)
def test_one_file_is_enough(folder, tmp_path):
    """The folder's path gets one more place to look for files, before it is scanned."""
    text, names = FILES[folder]
    (tmp_path / "one_more.py").write_text(text)
    package = "pyg_outerconv." + folder.replace("/", ".")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pkgutil\n"
            "look = pkgutil.iter_modules\n"
            "def also(path=None, prefix=''):\n"
            f"    if prefix == {package + '.'!r}:\n"
            f"        path.append({str(tmp_path)!r})\n"
            "    return look(path, prefix)\n"
            "pkgutil.iter_modules = also\n"
            f"{names}\n"
            "assert 'found' in names, sorted(names)\n",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
