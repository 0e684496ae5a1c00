"""Blocks are torch's TransformerEncoderLayer and TransformerDecoderLayer."""

import pytest
import torch
from against_torch import assert_same, drawn

from pyg_outerconv.families import Relation
from pyg_outerconv.nn.attention.blocks import DecoderBlock, EncoderBlock
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.testing import assert_near

CHANNELS, HEADS, LENGTH = 8, 2, 6
CAUSAL = torch.ones(LENGTH, LENGTH).triu().bool()
each_way = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
both_types = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])


def peer(kind, dtype=torch.float64, **options):
    options = {"batch_first": True, "dropout": 0.0, "dim_feedforward": 11, **options}
    return drawn(kind(CHANNELS, HEADS, dtype=dtype, **options))


def x_of(*shape, dtype=torch.float64):
    return torch.randn(*shape, CHANNELS, dtype=dtype, requires_grad=True)


@both_types
@each_way
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_block(dtype, norm_first, activation):
    theirs = peer(
        torch.nn.TransformerEncoderLayer, dtype, norm_first=norm_first, activation=activation
    )
    ours, x = from_torch(theirs), x_of(3, LENGTH, dtype=dtype)
    assert isinstance(ours, EncoderBlock)
    assert_same(ours, theirs, ours, theirs, [x])


@each_way
def test_encoder_block_with_masks(norm_first):
    theirs = peer(torch.nn.TransformerEncoderLayer, norm_first=norm_first, bias=False)
    ours, x = from_torch(theirs, support="causal"), x_of(3, LENGTH)
    there = torch.ones(3, LENGTH, dtype=torch.bool)
    there[0, 3:] = False
    masks = {"src_mask": ~CAUSAL.t(), "src_key_padding_mask": ~there}
    run = lambda x: ours(x, source_mask=there)  # noqa: E731
    assert_same(ours, theirs, run, lambda x: theirs(x, **masks), [x])


@both_types
@each_way
def test_decoder_block(dtype, norm_first):
    theirs = peer(torch.nn.TransformerDecoderLayer, dtype, norm_first=norm_first)
    ours = from_torch(theirs, support="causal")
    assert isinstance(ours, DecoderBlock)
    x, memory = x_of(3, LENGTH, dtype=dtype), x_of(3, 9, dtype=dtype)
    run = lambda x, memory: theirs(x, memory, tgt_mask=~CAUSAL.t())  # noqa: E731
    assert_same(ours, theirs, ours, run, [x, memory])


def test_decoder_block_with_masks_of_the_memory():
    theirs = peer(torch.nn.TransformerDecoderLayer)
    ours = from_torch(theirs, support="causal", memory_support=Relation(1, None))
    x, memory, seen = x_of(2, LENGTH), x_of(2, 9), torch.rand(9, LENGTH) < 0.5
    seen[:2] = True
    there = torch.ones(2, 9, dtype=torch.bool)
    there[1, 5:] = False
    places = torch.ones(2, LENGTH, dtype=torch.bool)
    places[0, 4:] = False
    masks = {
        "tgt_mask": ~CAUSAL.t(),
        "memory_mask": ~seen.t(),
        "memory_key_padding_mask": ~there,
        "tgt_key_padding_mask": ~places,
    }

    def run(x, memory):
        edges = seen.nonzero().t()
        return ours(x, memory, None, edges, source_mask=places, memory_mask=there)

    assert_same(ours, theirs, run, lambda x, memory: theirs(x, memory, **masks), [x, memory])


def test_blocks_run_on_graphs_and_see_edges_alone():
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
    block, x = EncoderBlock(CHANNELS, HEADS, support=Relation(1, None)).eval(), torch.randn(5, 8)
    out = block(x, edges)
    changed = block(x + torch.eye(5)[:, 3:4], edges)
    assert [bool((a != b).any()) for a, b in zip(out, changed, strict=True)] == [
        True,
        False,
        False,
        True,
        False,
    ]


def test_dropout_is_converted_part_by_part():
    theirs = torch.nn.TransformerEncoderLayer(CHANNELS, HEADS, dropout=0.4, batch_first=True)
    theirs.dropout2.p = 0.1
    ours = from_torch(theirs)
    found = (ours.around_attention, ours.feed_forward, ours.around_feed_forward)
    assert [part.dropout.p for part in found] == [0.4, 0.4, 0.1]
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


def test_blocks_begin_anew():
    block, x = DecoderBlock(CHANNELS, HEADS).eval(), torch.randn(2, LENGTH, CHANNELS)
    out = block(x, x).detach()
    block.reset_parameters()
    with pytest.raises(AssertionError):
        assert_near(block(x, x), out, 1e-2)
