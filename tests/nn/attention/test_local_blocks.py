"""Windowed and long-sequence blocks, and pooling by learned queries, against dense attention."""

import pytest
import torch
from oracle import assert_same
from torch.nn.functional import scaled_dot_product_attention

from pyg_outerconv import Cells, flatten_grid
from pyg_outerconv.basis import Band
from pyg_outerconv.nn.attention.blocks import long_sequence_block, windowed_block
from pyg_outerconv.nn.attention.multi_head import set_pooling
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.testing import assert_near

HEADS, CHANNELS = 2, 8


def with_torchs_weights(block, **options):
    """torch's layer, whose weights the block takes over, as a function of x and an added mask."""
    theirs = torch.nn.TransformerEncoderLayer(
        CHANNELS, HEADS, 4 * CHANNELS, 0.0, batch_first=True, dtype=torch.float64, **options
    )
    left = block.load_state_dict(from_torch(theirs).state_dict(), strict=False)
    assert not left.unexpected_keys
    assert len(left.missing_keys) == len(block.attention.family.terms)  # their tables

    def run(x, mask):
        return theirs(x, src_mask=mask if mask.dim() == 2 else mask.repeat(x.size(0), 1, 1))

    return run


def windows_of(shape, window, shift):
    """(n,) the window of each cell by torch's roll and view, as the paper cuts them."""
    rows = torch.arange(shape[0]).add(window - shift).div(window, rounding_mode="floor")
    columns = torch.arange(shape[1]).add(window - shift).div(window, rounding_mode="floor")
    return (rows[:, None] * 100 + columns).flatten()


@pytest.mark.parametrize("shift", [0, 2])
def test_a_windowed_block_is_attention_within_windows_and_a_table(shift):
    shape, window = (8, 12), 4
    block = windowed_block(CHANNELS, HEADS, window, shift, dropout=0.0).double()
    table = block.attention.family.terms[0]
    torch.nn.init.normal_(table.weight)
    x = torch.randn(3, 96, CHANNELS, dtype=torch.float64)
    row, column = torch.cartesian_prod(torch.arange(8), torch.arange(12)).t()
    # Equation 4 of the paper: an entry for each pair of relative rows and columns.
    gap = [(end[None, :] - end[:, None]).clamp(-3, 3) + 3 for end in (row, column)]
    bias = table.weight[(gap[0] * 7 + gap[1])].movedim(-1, 0)  # (H, target, source)
    same = windows_of(shape, window, shift)
    mask = bias.masked_fill(same[:, None] != same[None, :], -torch.inf)
    theirs = with_torchs_weights(block, norm_first=True, activation="gelu")
    assert_same(block(x, Cells.of_shape(shape)), theirs(x, mask), [table.weight])


def test_turns_of_windows_reach_the_whole_image():
    blocks = [windowed_block(CHANNELS, HEADS, 4, shift).eval().double() for shift in (0, 2, 0, 2)]
    x, cells = torch.randn(64, CHANNELS, dtype=torch.float64), Cells.of_shape((8, 8))
    changed = x.clone()
    changed[0] = torch.randn(CHANNELS)
    far = []
    for block in blocks:
        x, changed = block(x, cells), block(changed, cells)
        far.append(int((x != changed).any(1).sum()))
    assert far == [16, 36, 64, 64]


def test_a_windowed_block_runs_on_volumes():
    block = windowed_block(CHANNELS, HEADS, (2, 2, 3), (1, 1, 0))
    videos = torch.randn(2, CHANNELS, 4, 4, 6)
    assert block(flatten_grid(videos), Cells.of_shape((4, 4, 6))).shape == (2, 96, CHANNELS)


@pytest.mark.parametrize("num_random", [0, 3])
def test_a_long_sequence_block_is_dense_attention_under_its_mask(num_random):
    block = long_sequence_block(
        CHANNELS, HEADS, 3, num_global=2, num_random=num_random, dropout=0.0
    ).double()
    theirs = with_torchs_weights(block)
    x = torch.randn(2, 40, CHANNELS, dtype=torch.float64, requires_grad=True)
    place = torch.arange(40)
    seen = (place[:, None] - place).abs() <= 3
    seen |= (place[:, None] < 2) | (place < 2)
    _, basis = block.attention(x[0], return_attention_weights=True)
    found = basis.to_dense()[0].t() != 0
    if num_random:
        assert bool((found | ~seen).all())
        assert bool(((found & ~seen).sum(1) <= num_random).all())
        assert bool((found & ~seen).any())
        seen = found
    assert torch.equal(found, seen)
    assert_same(block(x), theirs(x, ~seen), [x])


def test_a_long_sequence_block_without_global_places_stays_a_rule():
    block = long_sequence_block(CHANNELS, HEADS, 3, dilation=2)
    basis = block.attention.basis(torch.randn(50, CHANNELS), None)
    assert isinstance(basis.over, Band)


def test_set_pooling_is_attention_of_seeds():
    pool = set_pooling(5, CHANNELS, HEADS, num_queries=3).double()
    for parameter in pool.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(4, 11, 5, dtype=torch.float64)
    seeds, score = pool.family.align.weight, pool.family.score
    project = lambda x, w, b: torch.einsum("...mp,hpd->...hmd", x, w) + b.unsqueeze(1)  # noqa: E731
    query = project(seeds, score.query.weight, score.query.bias).expand(4, -1, -1, -1)
    key = project(x, score.key.weight, score.key.bias)
    value = project(x, pool.theta.value, pool.value_bias)
    heads = scaled_dot_product_attention(query, key, value)
    expected = torch.einsum("bhnv,hvq->bnq", heads, pool.theta.output) + pool.bias
    out = pool(x)
    assert out.shape == (4, 3, CHANNELS)
    parameters = list(pool.parameters())
    assert any(parameter is seeds for parameter in parameters)
    assert_same(out, expected, parameters)


def test_sets_of_a_batch_vector_are_pooled_apart():
    pool = set_pooling(5, CHANNELS, HEADS, num_queries=2).double()
    x, batch = torch.randn(9, 5, dtype=torch.float64), torch.tensor([0, 1, 0, 2, 2, 1, 0, 2, 2])
    out = pool(x, batch=batch).view(3, 2, CHANNELS)
    for graph in range(3):
        assert_near(out[graph], pool(x[batch == graph]))


def test_the_order_of_a_set_does_not_matter():
    pool, x = set_pooling(5, CHANNELS, HEADS, num_queries=2).double(), torch.randn(9, 5).double()
    assert_near(pool(x[torch.randperm(9)]), pool(x))
