"""A FixedBasis moves with its module; a persistent one is saved, and loaded on other edges."""

import copy
import io
import pickle

import pytest
import torch

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.families import Grid
from pyg_outerconv.nn import FixedBasis
from pyg_outerconv.testing import assert_near

FAMILIES = [
    "gcn",
    "gcn(add_self_loops=False)",
    "walk(2)",
    "walk(2, direction=both, norm=None)",
    "chebyshev(3)",
    "relation(2)",
    "directed(gcn(add_self_loops=False))",
    "stack(walk(1), identity, gcn)",
    "compose(gcn, walk(1))",
]
of_each_family = pytest.mark.parametrize("family", FAMILIES)


class Net(torch.nn.Module):
    """A layer on a graph that is drawn by a seed, of as many nodes and other edges."""

    def __init__(self, family, seed, edges, persistent=True):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        index = torch.randint(6, (2, edges), generator=draw)
        kinds = torch.arange(edges) % 2 if family == "relation(2)" else None
        self.conv = OuterConv(3, 4, family)
        basis = self.conv.family.basis(index, None, kinds, size=(6, 6))
        self.basis = FixedBasis(basis, persistent)

    def forward(self, x):
        return self.conv(x, self.basis())


@pytest.mark.parametrize("family", [*FAMILIES, "walk(2, powers=(2,))"])
def test_it_follows_its_module(family):
    net, x = Net(family, 0, 12, persistent=False), torch.randn(6, 3)
    expected, dense = net(x), net.basis().to_dense(torch.float32)
    assert set(net.state_dict()) == {f"conv.{key}" for key in net.conv.state_dict()}
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert_near(copied(x), expected)
    assert_near(net.double()(x.double()), expected.double(), 1e-6)
    assert net.basis().dtype in (torch.float64, None)
    assert_near(net.float()(x), expected)
    assert net.to(torch.float64).basis().size == (6, 6)
    assert net.float().to("meta").basis().device.type == "meta"
    net = Net(family, 0, 12, persistent=False).to_empty(device="cpu")
    assert_near(net.basis().to_dense(torch.float32), dense)


def test_it_may_be_of_a_rule():
    shifts = FixedBasis(Grid((3, 3)).basis((6, 6)))
    assert shifts.to("meta")().device.type == "meta"


@pytest.mark.parametrize("edges", [0, 5, 20])
@of_each_family
def test_a_checkpoint_brings_its_edges(family, edges):
    saved, other, file = Net(family, 0, 12), Net(family, 1, edges), io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert any(key.startswith("basis.basis.") for key in state)
    assert not other.load_state_dict(state).missing_keys
    x = torch.randn(6, 3)
    assert_near(other(x), saved(x))
    assert_near(other.basis().to_dense(torch.float32), saved.basis().to_dense(torch.float32))


@of_each_family
def test_loading_keeps_the_type_of_the_module(family):
    saved, other, x = Net(family, 0, 12), Net(family, 1, 9).double(), torch.randn(6, 3)
    other.load_state_dict(saved.state_dict())
    assert_near(other(x.double()), saved(x).double(), 1e-6)
    assert other.basis().dtype in (torch.float64, None)


def test_what_was_loaded_shares_nothing_with_what_was_saved():
    saved, other, x = Net("gcn", 0, 12), Net("gcn", 1, 9), torch.randn(6, 3)
    other.load_state_dict(saved.state_dict())
    expected = other(x).detach()
    saved.basis().value.zero_()
    assert_near(other(x), expected)
    assert_near(copy.deepcopy(other)(x), expected)


def test_a_basis_that_is_not_persistent_has_no_keys():
    saved, other = Net("gcn", 0, 12), Net("gcn", 1, 9, persistent=False)
    assert set(other.state_dict()) == {"conv.theta.weight", "conv.bias"}
    with pytest.raises(RuntimeError, match=r"Unexpected key.*basis\.0\.source"):
        other.load_state_dict(saved.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing key.*basis\.0\.source"):
        saved.load_state_dict(other.state_dict())


def test_an_empty_state_leaves_the_basis_as_it_was():
    net, x = Net("walk(2)", 0, 12), torch.randn(6, 3)
    expected = net(x)
    assert net.load_state_dict({}, strict=False).missing_keys
    assert_near(net(x), expected)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("source", lambda part: part + 6, "the source of each edge is one of the basis"),
        ("target", lambda part: part - 7, "expected 0 to 5, got -7 to"),
        ("label", lambda part: part + 1, "the label of each edge"),
        ("target", lambda part: part[:3], "the target of each edge"),
        ("source", lambda part: part.float(), "the source of each edge"),
        ("value", lambda part: part[:3], "numbers of a basis fit it"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name, change, message):
    net, x = Net("gcn", 0, 12), torch.randn(6, 3)
    expected, state = net(x), net.state_dict()
    state[f"basis.basis.0.{name}"] = change(state[f"basis.basis.0.{name}"])
    with pytest.raises(RuntimeError, match=message):
        net.load_state_dict(state)
    assert_near(net(x), expected)


def test_a_basis_of_more_than_edges_and_numbers_is_not_persistent():
    x, index = torch.randn(6, 3), torch.randint(6, (2, 12))
    _, basis = AttentionConv(3, 4, 2)(x, index, return_attention_weights=True)
    FixedBasis(basis)
    with pytest.raises(ValueError, match=r"expected basis.edges\(\), got MultiHeadEdges"):
        FixedBasis(basis, persistent=True)
    FixedBasis(basis.edges(), persistent=True)
