"""Parts of a call that are on two devices are refused; a basis in a module moves with it."""

import copy
import doctest
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import AttentionConv, OuterConv, compose
from pyg_outerconv.contract import contract
from pyg_outerconv.families import GCN, Chebyshev, Grid, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import (
    ConvGRUCell,
    ConvLSTMCell,
    FixedBasis,
    fixed_basis,
    gat_conv,
    multi_head_attention,
    transformer_conv,
)
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]])
FAMILIES = [GCN(), Walk(2, direction="both"), Chebyshev(3), Stack(Relation(1), Identity())]
GRAPH_LAYERS = {
    **{str(family): OuterConv(3, 4, family, root_weight=True) for family in FAMILIES},
    "low-rank": OuterConv(3, 4, Walk(2), theta="low-rank(rank=2)"),
    "cached": OuterConv(3, 4, GCN(), cached=True),
    "max": OuterConv(3, 4, GCN(), aggr="max"),
    "composed": compose(OuterConv(3, 5, GCN()), OuterConv(5, 4, Walk(1))),
    "lazy": OuterConv(-1, 4, GCN()),
    "attention": AttentionConv(3, 4, 2),
    "gat": gat_conv(3, 2, 2),
    "transformer": transformer_conv(3, 2, 2),
    "gru": ConvGRUCell(3, 4, GCN()),
    "lstm": ConvLSTMCell(3, 4, Walk(1)),
}
MATCH = r"where its parameters are|where the features are|one place|meta has none"


def inputs():
    return torch.randn(5, 3), EDGES.clone()


def moved(layer, names):
    """A copy of a layer some of whose parameters are on meta."""
    layer = copy.deepcopy(layer)
    for name, parameter in list(layer.named_parameters()):
        if name in names:
            owner, _, key = name.rpartition(".")
            made = torch.nn.Parameter(parameter.to("meta"))
            setattr(layer.get_submodule(owner), key, made)
    return layer


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", [name for name in GRAPH_LAYERS if name != "lazy"])
def test_parameters_elsewhere_are_refused_one_by_one(name, fuse):
    layer = GRAPH_LAYERS[name]
    for key in [key for key, _ in layer.named_parameters()]:
        broken = moved(layer, [key])
        for part in broken.modules():
            if isinstance(part, OuterConv):
                part.fuse = fuse
        with pytest.raises(ValueError, match=r"where its parameters are.*got meta"):
            broken(*inputs())
    with pytest.raises(ValueError, match="to_empty"):
        copy.deepcopy(layer).to("meta")(*inputs())


@pytest.mark.parametrize("name", GRAPH_LAYERS)
def test_features_and_edges_elsewhere_are_refused(name):
    layer, (x, edges) = copy.deepcopy(GRAPH_LAYERS[name]), inputs()
    before = {key: repr(value) for key, value in layer.state_dict().items()}
    for given in ((x.to("meta"), edges), (x, edges.to("meta")), (x.to("meta"), edges.to("meta"))):
        with pytest.raises(ValueError, match=MATCH):
            layer(*given)
    assert {key: repr(value) for key, value in layer.state_dict().items()} == before


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


# A basis in a module ----------------------------------------------------------------------------


class Net(torch.nn.Module):
    def __init__(self, family):
        super().__init__()
        self.conv = OuterConv(3, 4, family)
        self.basis = FixedBasis(family.basis(EDGES, size=(5, 5)))

    def forward(self, x):
        return self.conv(x, self.basis())


@pytest.mark.parametrize("family", [*FAMILIES, Walk(2, powers=(2,)), GCN(add_self_loops=False)])
def test_a_fixed_basis_follows_its_module(family):
    net, x = Net(family), torch.randn(5, 3)
    expected, keys = net(x), set(net.state_dict())
    assert keys == {f"conv.{key}" for key in net.conv.state_dict()}
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert_near(copied(x), expected)
    assert_near(net.double()(x.double()), expected.double(), 1e-6)
    assert net.basis().dtype in (torch.float64, None)
    assert_near(net.float()(x), expected)
    assert net.to(torch.float64).basis().size == (5, 5)
    assert net.float().to("meta").basis().device.type == "meta"
    net = Net(family).to_empty(device="cpu")
    assert_near(net.basis().to_dense(torch.float32), family.basis(EDGES, size=(5, 5)).to_dense())


def test_a_fixed_basis_of_a_rule_and_of_nothing():
    shifts = FixedBasis(Grid((3, 3)).basis((6, 6)))
    assert shifts.to("meta")().device.type == "meta"
    with pytest.raises(TypeError, match="basis has a type: expected Basis, got a tensor"):
        FixedBasis(EDGES)
    assert doctest.testmod(fixed_basis).failed == 0


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
