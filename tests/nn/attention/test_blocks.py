"""Blocks and stacks of them: torch's layers of a Transformer, windows, long sequences, pools."""

import random

import oracle
import pytest
import torch
from against_torch import assert_same, drawn, drawn_mask, drawn_padding
from torch.nn.functional import scaled_dot_product_attention
from versions import one_graph_since

from pyg_outerconv import Cells, flatten_grid
from pyg_outerconv.basis import Band
from pyg_outerconv.nn.attention.blocks import (
    BlockStack,
    DecoderBlock,
    EncoderBlock,
    EncoderDecoder,
    long_sequence_block,
    windowed_block,
)
from pyg_outerconv.nn.attention.multi_head import set_pooling
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.testing import assert_near, assert_same_gradients

CHANNELS, HEADS, LENGTH = 8, 2, 6


def peer(kind, dtype=torch.float64, **options):
    options = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 11, **options}
    return drawn(kind(CHANNELS, HEADS, dtype=dtype, **options))


def x_of(*shape, dtype=torch.float64):
    return torch.randn(*shape, CHANNELS, dtype=dtype, requires_grad=True)


def drawn_options(pick):
    """Options of a layer of a Transformer, without dropout or in evaluation."""
    activation = pick.choice(("relu", "gelu", torch.nn.functional.silu, torch.nn.Tanh()))
    options = {name: pick.random() < 0.5 for name in ("norm_first", "bias", "batch_first")}
    options |= {"layer_norm_eps": pick.choice((1e-5, 0.1)), "dropout": pick.choice((0.0, 0.4))}
    return {"activation": activation, **options}


def assert_torchs(ours, theirs, run, run_theirs, inputs):
    """Equal with batches first in ours, and as they are in torch's."""
    batch_first = next(m.batch_first for m in theirs.modules() if hasattr(m, "batch_first"))
    turned = (lambda x: x) if batch_first or inputs[0].dim() == 2 else (lambda x: x.transpose(0, 1))
    assert_same(ours, theirs, run, lambda *x: turned(run_theirs(*map(turned, x))), inputs)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("start", range(0, 60, 5))
def test_encoders_with_every_option_and_mask_are_torchs(start):
    for seed in range(start, start + 5):
        torch.manual_seed(seed)
        pick = random.Random(seed)
        options = drawn_options(pick)
        theirs = peer(torch.nn.TransformerEncoderLayer, **options)
        if whole := pick.random() < 0.5:
            norm = pick.choice((None, torch.nn.LayerNorm(CHANNELS, dtype=torch.float64)))
            theirs = drawn(torch.nn.TransformerEncoder(theirs, pick.choice((1, 3)), norm))
        theirs.train(options["dropout"] == 0.0)
        batch = pick.choice(((), (3,)))
        mask = drawn_mask(pick, LENGTH, LENGTH, HEADS)
        there, padding = drawn_padding(pick, mask.theirs, *batch, LENGTH)
        ours = from_torch(theirs, **mask.options)
        assert isinstance(ours, BlockStack if whole else EncoderBlock)
        beside = {"source_mask": there, "edge_attr": mask.attr}
        arguments = {"mask" if whole else "src_mask": mask.theirs, "src_key_padding_mask": padding}
        arguments["is_causal"] = mask.is_causal

        def run(x, ours=ours, mask=mask, beside=beside):
            return ours(x, mask.edges, **beside)

        def run_theirs(x, theirs=theirs, arguments=arguments):
            return theirs(x, **arguments)

        assert_torchs(ours, theirs, run, run_theirs, [x_of(*batch, LENGTH)])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("start", range(0, 60, 5))
def test_decoders_with_every_option_and_mask_are_torchs(start):
    for seed in range(start, start + 5):
        torch.manual_seed(seed)
        pick = random.Random(seed)
        options = drawn_options(pick)
        kind = pick.choice((DecoderBlock, BlockStack, EncoderDecoder))
        if kind is EncoderDecoder:
            options |= {"num_encoder_layers": 1, "num_decoder_layers": 2}
            theirs = peer(torch.nn.Transformer, **options)
        else:
            theirs = peer(torch.nn.TransformerDecoderLayer, **options)
        if kind is BlockStack:
            norm = pick.choice((None, torch.nn.LayerNorm(CHANNELS, dtype=torch.float64)))
            theirs = drawn(torch.nn.TransformerDecoder(theirs, 2, norm))
        theirs.train(options["dropout"] == 0.0)
        batch = pick.choice(((), (3,)))
        own, other, early = (
            drawn_mask(pick, sources, targets, HEADS)
            for sources, targets in ((LENGTH, LENGTH), (9, LENGTH), (9, 9))
        )
        masks = dict(own.options)
        masks |= {f"memory_{name}": value for name, value in other.options.items()}
        there, padding = drawn_padding(pick, own.theirs, *batch, LENGTH)
        memory_mask, memory_padding = drawn_padding(pick, other.theirs, *batch, 9)
        beside = {"edge_index": own.edges, "edge_attr": own.attr, "source_mask": there}
        beside |= {
            "memory_index": other.edges,
            "memory_attr": other.attr,
            "memory_mask": memory_mask,
        }
        arguments = {"tgt_mask": own.theirs, "tgt_key_padding_mask": padding}
        arguments |= {"memory_mask": other.theirs, "memory_key_padding_mask": memory_padding}
        arguments["tgt_is_causal"] = own.is_causal
        if kind is EncoderDecoder:
            masks |= {f"encoder_{name}": value for name, value in early.options.items()}
            arguments["src_mask"] = early.theirs
            beside["of_source"] = {"edge_index": early.edges, "edge_attr": early.attr}
        ours = from_torch(theirs, **masks)
        assert isinstance(ours, kind)

        def run(memory, x, ours=ours, beside=beside, kind=kind):
            return ours(*((memory, x) if kind is EncoderDecoder else (x, memory)), **beside)

        def run_theirs(memory, x, theirs=theirs, arguments=arguments, kind=kind):
            return theirs(*((memory, x) if kind is EncoderDecoder else (x, memory)), **arguments)

        assert_torchs(ours, theirs, run, run_theirs, [x_of(*batch, 9), x_of(*batch, LENGTH)])


def test_each_part_is_copied_with_its_own_options():
    theirs = peer(torch.nn.TransformerDecoderLayer)
    theirs.norm1 = torch.nn.LayerNorm(CHANNELS, 0.3, elementwise_affine=False)
    theirs.norm2.eps = 0.2
    theirs.linear1.requires_grad_(False)
    theirs.self_attn.in_proj_weight.requires_grad_(False)
    theirs.linear2 = torch.nn.Linear(11, CHANNELS, bias=False, dtype=torch.float64)
    theirs.self_attn = torch.nn.MultiheadAttention(
        CHANNELS, HEADS, 0.0, add_bias_kv=True, batch_first=True, dtype=torch.float64
    ).requires_grad_(False)
    ours, x, memory = from_torch(theirs), x_of(3, LENGTH), x_of(3, 4)
    assert_near(ours(x, memory), theirs(x, memory))
    learn = [sum(p.numel() for p in m.parameters() if p.requires_grad) for m in (ours, theirs)]
    assert learn[0] == learn[1]
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert all(p.any() for p in (theirs.norm2.weight, theirs.linear1.weight))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_layers_that_are_one_stay_one():
    theirs = torch.nn.TransformerEncoder(peer(torch.nn.TransformerEncoderLayer), 3)
    theirs.layers = torch.nn.ModuleList([theirs.layers[0], theirs.layers[1], theirs.layers[0]])
    ours, x = from_torch(theirs), x_of(2, LENGTH)
    assert ours.blocks[0] is ours.blocks[2] is not ours.blocks[1]
    assert_same(ours, theirs, ours, theirs, [x])


@pytest.mark.slow
@one_graph_since(2, 13)
def test_a_converted_transformer_is_one_graph_for_a_compiler():
    """With sources of each kind."""
    theirs = peer(torch.nn.Transformer, num_encoder_layers=1, num_decoder_layers=1)
    options = {"batch_first": True, "dtype": torch.float64}
    added = torch.nn.MultiheadAttention(
        CHANNELS, HEADS, add_bias_kv=True, add_zero_attn=True, **options
    )
    theirs.decoder.layers[0].self_attn = drawn(added)
    ours, inputs = from_torch(theirs.eval()), (x_of(2, 4), x_of(2, LENGTH))
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    assert_same(ours, theirs, ours, theirs, inputs)
    out, expected = compiled(*inputs), ours(*inputs)
    assert_near(out, expected)
    assert_same_gradients(out, expected, [*inputs, *ours.parameters()])


def test_blocks_and_pools_of_one_node_or_none():
    for nodes in (0, 1):
        x = torch.randn(2, nodes, CHANNELS)
        assert EncoderBlock(CHANNELS, HEADS, support="causal")(x).shape == x.shape
        assert DecoderBlock(CHANNELS, HEADS)(x, x).shape == x.shape
        pooled = set_pooling(CHANNELS, CHANNELS, HEADS, num_queries=3)(x)
        assert pooled.shape == (2, 3, CHANNELS)
        assert bool(pooled.isfinite().all())


def test_dropout_is_converted_part_by_part():
    theirs = torch.nn.TransformerEncoderLayer(CHANNELS, HEADS, dropout=0.4, batch_first=True)
    theirs.dropout2.p = 0.1
    ours = from_torch(theirs)
    parts = (ours.around_attention, ours.feed_forward, ours.around_feed_forward)
    assert [part.dropout.p for part in parts] == [0.4, 0.4, 0.1]
    assert ours.attention.family.normalise.dropout == 0.4


def test_attentions_of_a_block_can_share_keys_and_queries():
    own, shared = (DecoderBlock(CHANNELS, HEADS, share_score=share) for share in (False, True))
    encoder = EncoderBlock(CHANNELS, HEADS, score=shared.score)
    count = lambda module: sum(parameter.numel() for parameter in module.parameters())  # noqa: E731
    of_score = count(shared.score)
    assert count(own) - count(shared) == of_score
    assert (
        count(torch.nn.ModuleList([encoder, shared])) == count(encoder) + count(shared) - of_score
    )
    x = torch.randn(2, LENGTH, CHANNELS)
    shared.eval()(x, encoder.eval()(x)).square().sum().backward()
    alone = shared.score.query.weight.grad.clone()
    shared.zero_grad()
    shared(x, encoder(x).detach()).square().sum().backward()
    assert not torch.allclose(alone, shared.score.query.weight.grad)  # the encoder's share is gone
    own, memory = shared.attention.family.score, shared.memory_attention.family.score
    assert own.query.weight is memory.query.weight


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
    oracle.assert_same(block(x, Cells.of_shape(shape)), theirs(x, mask), [table.weight])


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
    attended = basis.to_dense()[0].t() != 0
    if num_random:
        assert bool((attended | ~seen).all())
        assert bool(((attended & ~seen).sum(1) <= num_random).all())
        assert bool((attended & ~seen).any())
        seen = attended
    assert torch.equal(attended, seen)
    oracle.assert_same(block(x), theirs(x, ~seen), [x])


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
    oracle.assert_same(out, expected, parameters)


def test_sets_of_a_batch_vector_are_pooled_apart():
    pool = set_pooling(5, CHANNELS, HEADS, num_queries=2).double()
    x, batch = torch.randn(9, 5, dtype=torch.float64), torch.tensor([0, 1, 0, 2, 2, 1, 0, 2, 2])
    out = pool(x, batch=batch).view(3, 2, CHANNELS)
    for graph in range(3):
        assert_near(out[graph], pool(x[batch == graph]))


def test_the_order_of_a_set_does_not_matter():
    pool, x = set_pooling(5, CHANNELS, HEADS, num_queries=2).double(), torch.randn(9, 5).double()
    assert_near(pool(x[torch.randperm(9)]), pool(x))
