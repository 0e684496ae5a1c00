"""What is known by name: defined in a file of its folder alone, made of one grammar of texts."""

import pytest

from pyg_outerconv import parse_family
from pyg_outerconv.attention import (
    FEATURE_MAPS,
    NORMALISERS,
    SCORES,
    FeatureMap,
    make_normaliser,
    make_score,
)
from pyg_outerconv.attention.feature_maps import make_feature_map
from pyg_outerconv.contract import ORDERS
from pyg_outerconv.families import FAMILIES
from pyg_outerconv.kernels import BACKENDS
from pyg_outerconv.kernels.backend import CHOSEN
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.nn import FORMS, make_theta

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
        "from pyg_outerconv.contract.orders.edges import LabelByLabel\n"
        "class Found(LabelByLabel):\n"
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
        "out = conv(data.x, conv.family.basis_of(conv.family(data)))\n"
        "assert torch.allclose(out, conv(data.x, data.edge_index))\n"
        "assert main(['families']) == 0\n"
    )
    said = run_with_one_more(fresh, "families", FILES["families"][0], code, tmp_path)
    lines = said.splitlines()
    assert lines[0].startswith("OuterConv(16, 16, Found(")
    assert any(line.startswith("found ") and "as GCN" in line for line in lines)


# The grammar ------------------------------------------------------------------------------------

READ = {
    "family": parse_family,
    "score": lambda text: make_score(text, 2, 3, 4),
    "normaliser": make_normaliser,
    "feature map": make_feature_map,
    "form of theta": lambda text: make_theta(text, 3, 6, 6),
}
REGISTRIES = (FAMILIES, SCORES, NORMALISERS, FEATURE_MAPS, FORMS, ORDERS, BACKENDS)


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.what)
def test_every_name_is_found_and_another_refused_with_the_nearest(registry):
    what, names = registry.what, [*registry]
    for name, entry in registry.items():
        assert registry.find(name) is registry.named(name) is registry.require(name) is entry
        if what in READ:
            assert registry.kind_in(f" {registry.name_of(entry)} (3)") is entry
            assert registry.read(registry.name_of(entry))[0] is entry
    for wrong in (f"{names[0]}q", f"{names[-1]}q"):
        for ask in (registry.named, registry.require, READ.get(what, registry.named)):
            with pytest.raises(ValueError, match=f"unknown {what} '.*did you mean .*one of"):
                ask(wrong)


def test_a_word_is_text_where_the_option_takes_text():
    assert type(make_score("feature-map(feature_map=relu)", 2, 3).phi) is FEATURE_MAPS["relu"]
    assert parse_family("multi_head(2, score=dot-product)").score == "dot-product"


def test_a_feature_map_has_options_in_text(monkeypatch):
    class Power(FeatureMap):
        """φ(x) = xⁿ."""

        name = "power"

        def __init__(self, exponent: int = 2) -> None:
            super().__init__()
            self.exponent = exponent

    registered = FEATURE_MAPS.pop("power")
    monkeypatch.setitem(FEATURE_MAPS, "power", registered)  # and is forgotten afterwards
    assert make_feature_map("power(exponent=3)").exponent == 3
    for text in ("'power(exponent=4)'", "power(exponent=4)"):
        score = make_score(f"feature-map(feature_map={text})", 2, 3)
        assert score.phi.exponent == 4


def test_a_name_is_of_one_class_which_may_be_defined_again():
    taken = next(iter(FEATURE_MAPS))
    with pytest.raises(ValueError, match="a feature map has a name of its own"):
        type("Other", (FeatureMap,), {"name": taken})
    assert FEATURE_MAPS[taken].__name__ != "Other"
    FEATURE_MAPS.add(FEATURE_MAPS[taken])


def test_a_backend_that_comes_later_is_chosen_anew():
    CHOSEN["a call of before"] = "native"
    try:
        type("Later", (Reference,), {"name": "later"})
        assert "a call of before" not in CHOSEN
    finally:
        BACKENDS.pop("later")
