"""What is defined in a file of its folder is known by name, without an entry anywhere else."""

import pytest

# A file for each folder, where what it defines is found, and by which name.
FILES = {
    "families": (
        "from dataclasses import dataclass\n"
        "from pyg_outerconv.families.gcn import GCN\n"
        "@dataclass(frozen=True)\n"
        "class Found(GCN):\n"
        "    equation = 'as GCN'\n",
        "from pyg_outerconv.families import FAMILIES as names",
    ),
    "attention": (
        "from pyg_outerconv.attention.feature_maps import FeatureMap\n"
        "class Found(FeatureMap):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.attention import FEATURE_MAPS as names",
    ),
    "contract/orders": (
        "from pyg_outerconv.contract.orders.edges import TransformFirst\n"
        "class Found(TransformFirst):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.contract import ORDERS as names",
    ),
    "kernels/backends": (
        "from pyg_outerconv.kernels.backends.reference import Reference\n"
        "class Found(Reference):\n"
        "    name = 'found'\n",
        "from pyg_outerconv.kernels import BACKENDS as names",
    ),
}


def run_with_one_more(fresh, folder, text, code, tmp_path):
    """What code prints where a folder of the package has one file more, in another place."""
    (tmp_path / "one_more.py").write_text(text)
    package = "pyg_outerconv." + folder.replace("/", ".")
    look_there_too = (
        "import pkgutil\n"
        "look = pkgutil.iter_modules\n"
        "def also(path=None, prefix=''):\n"
        f"    if prefix == {package + '.'!r}:\n"
        f"        path.append({str(tmp_path)!r})\n"
        "    return look(path, prefix)\n"
        "pkgutil.iter_modules = also\n"
    )
    done = fresh(look_there_too + code)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", FILES)
def test_one_file_is_enough(folder, tmp_path, fresh):
    """The folder's path gets one more place to look for files, before it is scanned."""
    text, names = FILES[folder]
    code = f"{names}\nassert 'found' in names, sorted(names)\n"
    run_with_one_more(fresh, folder, text, code, tmp_path)


def test_layers_and_the_command_line_know_a_family_of_one_file(tmp_path, fresh):
    """It is no part of what ``pyg_outerconv.families`` exports, and a transform all the same."""
    code = (
        "import torch\n"
        "from torch_geometric.data import Data\n"
        "from pyg_outerconv import OuterConv, families\n"
        "from pyg_outerconv.lab.cli import main\n"
        "assert 'Found' not in families.__all__\n"
        "conv = OuterConv(16, 16, 'found(improved=True)')\n"
        "print(conv)\n"
        "data = Data(x=torch.ones(2, 16), edge_index=torch.tensor([[0, 1], [1, 0]]))\n"
        "found = conv(data.x, conv.family.basis_of(conv.family(data)))\n"
        "assert torch.allclose(found, conv(data.x, data.edge_index))\n"
        "assert main(['families']) == 0\n"
    )
    said = run_with_one_more(fresh, "families", FILES["families"][0], code, tmp_path)
    lines = said.splitlines()
    assert lines[0].startswith("OuterConv(16, 16, Found(")
    assert any(line.startswith("found ") and "as GCN" in line for line in lines)
