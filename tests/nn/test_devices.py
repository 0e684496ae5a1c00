"""Shapes without values, and folders of the package."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.nn import (
    multi_head_attention,
)

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4], [1, 2, 3, 0, 2, 1]])
FAMILIES = [GCN(), Walk(2, direction="both"), Chebyshev(3), Stack(Relation(1), Identity())]


def inputs():
    return torch.randn(5, 3), EDGES.clone()


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
