"""Windows and blocks of grids are the masks that coordinates say, whatever cells there are."""

from itertools import product

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Blocks, Grid, SlidingWindow
from pyg_outerconv.graph import Cells
from pyg_outerconv.testing import assert_near, awkward_cells

CELLS = awkward_cells()


def window(sizes, dilations=(1, 1), causal=False):
    def sees(here, there):
        steps = [divmod(n - m, d) for m, n, d in zip(here, there, dilations, strict=True)]
        near = all(
            rest == 0 and abs(step) <= w for (step, rest), w in zip(steps, sizes, strict=True)
        )
        return near and (not causal or here <= there)

    return sees


def block(sizes, shifts=(0, 0)):
    def of(place):
        return [(i - t) // s for i, s, t in zip(place, sizes, shifts, strict=True)]

    return lambda here, there: of(here) == of(there)


RULES = {
    SlidingWindow(1): window((1, 1)),
    SlidingWindow((2, 0)): window((2, 0)),
    SlidingWindow((1, 2), dilation=(2, 1)): window((1, 2), (2, 1)),
    SlidingWindow(1, 2, causal=True): window((1, 1), (2, 2), True),
    SlidingWindow((1, 2), causal=True): window((1, 2), (1, 1), True),
    Blocks(2): block((2, 2)),
    Blocks((1, 3)): block((1, 3)),
    Blocks((2, 3), shift=1): block((2, 3), (1, 1)),
    Blocks(3, shift=(0, 2)): block((3, 3), (0, 2)),
}


def mask_of(rule, cells):
    """The dense mask, cell by cell; grids of a batch are apart."""
    listed = cells.listed()
    places = [tuple(place) for place in listed.index.tolist()]
    grids = [0] * len(places) if cells.batch is None else cells.batch.tolist()
    mask = torch.zeros(len(places), len(places), dtype=torch.bool)
    for m, n in product(range(len(places)), repeat=2):
        mask[m, n] = grids[m] == grids[n] and rule(places[m], places[n])
    return mask


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("family", RULES, ids=str)
def test_pairs_are_those_of_the_coordinates(family, name):
    cells = CELLS[name]
    mask, edges = mask_of(RULES[family], cells), family.basis(cells).edges()
    assert torch.equal(edges.support()[0], mask)
    assert edges.num_edges == int(mask.sum()), "each pair comes once"
    key = edges.pattern.target.long() * len(mask) + edges.pattern.source
    assert bool((key.diff() > 0).all())


@pytest.mark.parametrize("family", RULES, ids=str)
def test_supports_of_grids_keep_their_cells(family):
    conv, x = OuterConv(3, 2, family, bias=False).double(), torch.randn(12, 3).double()
    mask = mask_of(RULES[family], Cells.of_shape((3, 4))).double()
    assert_near(conv(x, (3, 4)), mask.t() @ x @ conv.theta()[0, 0])
    assert family.outputs((3, 4)).shape == (3, 4)


def test_a_window_is_all_the_shifts_of_a_kernel():
    """A window of w on each side is a kernel of 2w + 1, whose labels are not told apart."""
    for cells in ((6, 5), CELLS["holes"], CELLS["unbounded"]):
        kernel = Grid((3, 5), padding=(1, 2)).basis(cells).to_dense()
        assert_near(SlidingWindow((1, 2)).basis(cells).to_dense()[0], kernel.sum(0))


def test_sequences_with_holes_are_windowed_by_their_coordinates():
    cells = Cells(torch.tensor([[4], [0], [1], [6]]))
    expected = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    assert torch.equal(SlidingWindow(2).basis(cells).to_dense()[0].long(), expected)
    expected = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    assert torch.equal(Blocks(4, shift=1).basis(cells).to_dense()[0].long(), expected)


def test_shifted_blocks_are_the_masked_windows_of_a_rolled_image():
    """What Swin's mask leaves of windows that a cyclic shift rolls round the ends."""
    side, size, shift = 6, 3, 1
    place = torch.arange(side)
    region = (place >= side - size).long() + (place >= side - shift)
    rolled = (place // size) * 3 + region  # windows, cut where the image was rolled
    block = torch.empty_like(rolled)
    block[(place + shift) % side] = rolled
    both = block.unsqueeze(1) * 100 + block
    mask = both.view(-1, 1) == both.view(1, -1)
    assert torch.equal(Blocks(size, shift=shift).basis((side, side)).support()[0], mask)


def test_three_axes():
    family, shape = SlidingWindow((0, 1, 2), causal=True), (2, 3, 4)
    mask = mask_of(window((0, 1, 2), (1, 1, 1), True), Cells.of_shape(shape))
    assert torch.equal(family.basis(shape).support()[0], mask)
    assert family.num_axes == 3
    assert family.reads is Cells
