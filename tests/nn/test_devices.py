"""Parts of a call that are on two devices are refused."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.contract import contract
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import (
    multi_head_attention,
)

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]])
FAMILIES = [GCN(), Walk(2, direction="both"), Chebyshev(3), Stack(Relation(1), Identity())]


def inputs():
    return torch.randn(5, 3), EDGES.clone()


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_basis_elsewhere_is_refused(family):
    conv, (x, edges) = OuterConv(3, 4, family), inputs()
    basis = family.basis(edges, size=(5, 5))
    with pytest.raises(ValueError, match=r"where the features are.*FixedBasis"):
        conv(x, basis.to("meta"))
    with pytest.raises(ValueError, match=r"meta has none.*FakeTensorMode"):
        conv.to("meta")(x.to("meta"), basis.to("meta"))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_shapes_are_found_as_the_refusal_says(family):
    conv, (x, edges) = OuterConv(3, 4, family), inputs()
    basis = conv.basis(x, edges)
    expected = conv(x, basis)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert conv(mode.from_tensor(x), basis).shape == expected.shape


def test_shapes_of_layers_without_edges_are_found_too():
    x = torch.randn(2, 5, 8)
    attention, conv = multi_head_attention(8, 2), OuterConv(8, 4, Identity())
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = mode.from_tensor(x)
        assert attention(x).shape == (2, 5, 8)
        assert conv(x).shape == (2, 5, 4)


def test_folders_of_the_package_need_no_import_of_their_own(fresh):
    code = (
        "import pyg_outerconv as p; p.graph.from_scipy; p.attention.SCORES; p.attention.ALiBi;"
        "p.families.GCN; p.nn.GridConv; p.testing.assert_near; assert 'testing' in dir(p)\n"
        "try: p.other\n"
        "except AttributeError as error: assert 'other' in str(error)\n"
        "else: raise SystemExit('p.other is there')"
    )
    done = fresh(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["edge_weight", "edge_type", "batch", "edge_attr", "pos"])
@pytest.mark.parametrize("kind", [OuterConv, AttentionConv])
def test_what_comes_beside_the_edges_is_in_their_place(kind, name):
    conv = OuterConv(3, 4, "gcn") if kind is OuterConv else AttentionConv(3, 4, 2)
    x, index = torch.randn(5, 3), torch.randint(5, (2, 9))
    if kind is AttentionConv and name == "edge_weight":
        return  # which it does not have
    sizes = {"batch": (5,), "pos": (5, 2), "edge_attr": (9, 2)}
    far = torch.zeros(sizes.get(name, (9,)), device="meta")
    far = far if name in ("pos", "edge_attr", "edge_weight") else far.long()
    with pytest.raises(ValueError, match=f"{name} is where the features are.*cpu.*meta"):
        conv(x, index, **{name: far})


@pytest.mark.parametrize("part", ["basis", "x", "theta"])
def test_a_contraction_is_in_one_place(part):
    parts = {
        "basis": GCN().basis(torch.randint(5, (2, 9)), size=(5, 5)),
        "x": torch.randn(5, 3),
        "theta": torch.randn(1, 1, 3, 4),
    }
    parts[part] = parts[part].to("meta")
    with pytest.raises(ValueError, match=r"basis, x and theta must be on one device.*cpu.*meta"):
        contract(**parts)
