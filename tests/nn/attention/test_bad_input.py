"""What layers of attention refuse: a message that says the rule, before anything is computed."""

import pytest
import torch

from pyg_outerconv import nn
from pyg_outerconv.attention import KeyQuery, LearnedQueries
from pyg_outerconv.nn import linear_attention
from pyg_outerconv.nn.attention.blocks import EncoderBlock, FeedForward, Skip
from pyg_outerconv.nn.attention.local_blocks import windowed_block
from pyg_outerconv.nn.attention.multi_head import multi_head_attention
from pyg_outerconv.nn.attention_conv import AttentionConv

NODES, P, Q = 5, 4, 8


def conv_of(**options):
    return AttentionConv(P, Q, 2, **{"support": "complete", **options})


def x_of(*shape, **options):
    return torch.randn(*shape, NODES, P, **options)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: AttentionConv(P, "8", 2), TypeError, "out_channels must be a number"),
        (
            lambda: AttentionConv(34, 15, heads=4),
            ValueError,
            "heads side by side share out_channels evenly: .*a multiple of 4, .*got 15",
        ),
        (lambda: conv_of(edge_dim="3"), TypeError, "edge_dim has a type"),
        (lambda: conv_of(dropout="a"), TypeError, "dropout has a type: expected number"),
        (lambda: conv_of(score=KeyQuery(4, 2)), ValueError, "the heads of its layer.*2, got 4"),
        (
            lambda: conv_of(normalise="softmax(dropout=0.1)", dropout=0.2),
            ValueError,
            "a normaliser has a dropout of its own",
        ),
        (lambda: multi_head_attention("8", 2), TypeError, "embed_dim has a type"),
        (
            lambda: linear_attention(P, Q, heads="2"),
            TypeError,
            "heads has a type",
        ),
        (lambda: FeedForward("8"), TypeError, "channels has a type"),
        (lambda: FeedForward(8, 0), ValueError, "needs its hidden"),
        (lambda: FeedForward(8, dropout=3), ValueError, "dropout must be a share"),
        (lambda: Skip(8, dropout="a"), TypeError, "dropout must be a share"),
        (
            lambda: windowed_block(8, 2, window="a"),
            TypeError,
            "window has a type",
        ),
        (lambda: nn.factor_output(conv_of(), "3"), TypeError, "rank has a type"),
    ],
)
def test_options_that_do_not_fit_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("score", ["key-query", "bilinear", "additive", "dot-product"])
def test_features_of_another_type_are_refused(score):
    with pytest.raises(
        TypeError, match=r"x must have the dtype of theta: .*float32, got .*float64"
    ):
        conv_of(score=score)(x_of(dtype=torch.float64))


def test_linear_attention_refuses_features_of_another_type():
    with pytest.raises(TypeError, match="x must have the dtype of theta"):
        linear_attention(P, Q, 2)(x_of(dtype=torch.float64), None)


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True] * NODES, TypeError),
        (torch.tensor(True), ValueError),
        (torch.ones(NODES), ValueError),
        (torch.ones(NODES - 1).bool(), ValueError),
        (torch.ones(3, NODES).bool(), ValueError),
        (torch.ones(NODES, device="meta").bool(), ValueError),
    ],
    ids=["list", "no dimensions", "numbers", "too few", "another batch", "elsewhere"],
)
def test_masks_that_do_not_fit_are_refused(mask, error):
    with pytest.raises(
        error, match="source_mask is where x is|which sources there are|there or not"
    ):
        conv_of()(x_of(2), source_mask=mask)


def test_a_block_takes_one_x_and_gives_features_alone():
    block = EncoderBlock(P, 2)
    with pytest.raises(TypeError, match="from the features of nodes to their features"):
        block((x_of(), x_of()))
    with pytest.raises(TypeError, match=r"block\.attention for the basis"):
        block(x_of(), return_attention_weights=True)


@pytest.mark.parametrize(
    "score", ["key-query", "bilinear", "additive", "gatv2", "feature-map", "gatv2(own=True)"]
)
def test_queries_of_another_width_are_told_the_pair_that_takes_them(score):
    queries, x = LearnedQueries(3, P + 2), x_of()
    with pytest.raises(ValueError, match=rf"expected {P}, or in_channels=\({P}, {P + 2}\), got"):
        conv_of(score=score, align=queries)(x)
    fits = AttentionConv((P, P + 2), Q, 2, "complete", queries, score)
    assert fits(x).shape == (3, Q)


def test_nodes_of_another_width_are_no_matter_of_pairs():
    with pytest.raises(ValueError, match=rf"expected {P} to \d, got {P + 1} to"):
        conv_of()(torch.randn(NODES, P + 1))
