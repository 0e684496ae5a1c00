"""A layer takes whatever its family reads in the place of edges, and refuses the rest by name."""

import pytest
import torch

from pyg_outerconv import Cells, Grid, OuterConv, Pool
from pyg_outerconv.basis.grid_shift import GridShift
from pyg_outerconv.families import Blocks, Full, Identity, SlidingWindow, Stack
from pyg_outerconv.nn import bases as cache
from pyg_outerconv.testing import assert_near

RING = torch.tensor([[0, 1, 2], [1, 2, 0]])
MASK = torch.tensor([[True, True, False], [False, True, True]])
GRID = Grid((3, 3), padding=1)


def layer(family, **options):
    torch.manual_seed(3)
    return OuterConv(4, 2, family, **options).double()


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_a_shape_a_mask_and_cells_stand_for_edges():
    conv, x = layer(GRID), normal(6, 4)
    whole = conv(x, (2, 3))
    assert_near(conv(x, torch.Size((2, 3))), whole)
    assert_near(conv(x, torch.ones(2, 3, dtype=torch.bool)), whole)
    assert_near(conv(x, Cells.of_shape((2, 3)).listed()), whole)
    assert_near(conv(x, GRID.basis((2, 3))), whole)
    active = x[MASK.flatten()]
    assert_near(conv(active, MASK), conv(active, Cells.of_mask(MASK)))


def test_targets_are_as_many_as_the_family_makes():
    pool, x = layer(Pool((2, 2))), normal(24, 4)
    assert pool(x, (4, 6)).shape == (6, 2)
    assert pool((x, None), (4, 6)).shape == (6, 2)
    assert pool((x, normal(6, 4)), (4, 6)).shape == (6, 2)
    assert pool(x, Pool((2, 2)).basis((4, 6))).shape == (6, 2)
    assert pool(x, (4, 6), size=(24, 6)).shape == (6, 2)


def test_a_stack_hands_cells_to_its_parts():
    conv, x = layer(Stack(GRID, Identity()), bias=False), normal(6, 4)
    part = layer(GRID, bias=False)
    with torch.no_grad():
        part.theta.weight.copy_(conv.theta.weight[:9])
        own = x @ conv.theta()[9, 0]
    assert_near(conv(x, (2, 3)), part(x, (2, 3)) + own)


def test_identity_reads_every_structure():
    conv, x = layer(Identity()), normal(3, 4)
    assert_near(conv(x, (3,)), conv(x, RING))


def test_a_root_weight_adds_features_of_targets():
    conv, x = layer(GRID, root_weight=True), normal(6, 4)
    without = layer(GRID, root_weight=True)
    without.load_state_dict(conv.state_dict())
    without.root_weight = False
    assert_near(conv(x, (2, 3)), without(x, (2, 3)) + x @ conv.root()[0, 0])
    strided = layer(Pool((2, 3)), root_weight=True)
    assert strided((x, normal(1, 4)), (2, 3)).shape == (1, 2)
    with pytest.raises(ValueError, match=r"a pair \(x_source, x_target\) .* M = 6, N = 1"):
        strided(x, (2, 3))


def test_an_unshaped_layer_takes_its_channels_from_images():
    conv = OuterConv(-1, 2, GRID)
    assert conv(torch.randn(3, 6, 5), (2, 3)).shape == (3, 6, 2)
    assert conv.theta.in_channels == 5


def test_kept_rules_are_known_by_value_and_keep_their_edges():
    first, second, x = layer(GRID, cached=True), layer(GRID, cached=True), normal(6, 4)
    rule = first.basis(x, (2, 3))
    assert isinstance(rule, GridShift)
    made = rule.edges()
    assert second.basis(x, [2, 3]) is rule
    assert second.basis(x, (2, 3)).edges() is made
    whole = second.basis(x, Cells.of_shape((2, 3)))
    assert first.basis(x, Cells.of_shape((2, 3))) is whole
    assert first.basis(x, (3, 2)) is not rule
    assert first.basis(x.float(), (2, 3)) is not rule
    assert (
        layer(Grid((3, 3), padding=1, dilation=1, dim=2), cached=True).basis(x, (2, 3)) is not rule
    )
    assert layer(GRID).basis(x, (2, 3)) is not rule, "nothing is kept unless it is asked for"


def test_bases_of_masks_and_cells_are_kept_as_long_as_these():
    conv, x = layer(GRID, cached=True), normal(4, 4)
    mask, cells = MASK.clone(), Cells(MASK.nonzero(), (2, 3))
    before = len(cache.bases)
    found = conv.basis(x, mask), conv.basis(x, cells)
    assert len(cache.bases) == before + 2
    assert conv.basis(x, mask) is found[0]
    assert conv.basis(x, cells) is found[1]
    assert conv.basis(x, mask.clone()) is not found[0]
    mask[0, 0], mask[0, 2] = False, True
    assert conv.basis(x, mask) is not found[0], "a mask that changed is another mask"
    del mask, cells, found
    assert len(cache.bases) == before


def test_what_comes_beside_cells_is_never_served_from_what_was_kept():
    conv, x = layer(GRID, cached=True), normal(6, 4)
    conv(x, (2, 3))
    with pytest.raises(ValueError, match="no further arguments: expected none, got edge_weight"):
        conv(x, (2, 3), torch.ones(3).double())


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("family", [GRID, Full((6, 6)), SlidingWindow((1, 1)), Blocks(2)], ids=str)
def test_compile_of_a_rule_that_was_used_is_one_graph(family, cached):
    conv, x = layer(family, cached=cached), normal(6, 4)
    where = (2, 3) if cached else family.basis((2, 3))
    expected = conv(x, where)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    assert_near(compiled(x, where), expected)
