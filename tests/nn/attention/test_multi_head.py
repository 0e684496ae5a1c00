"""Multi-head attention is torch's MultiheadAttention, weights copied both ways."""

import math
import random

import oracle
import pytest
import torch
from against_torch import assert_same, drawn, drawn_mask, drawn_padding
from contractions import normal
from torch.nn.functional import scaled_dot_product_attention

from pyg_outerconv.nn.attention.multi_head import multi_head_attention
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.testing import assert_near

EMBED, HEADS, LENGTH = 12, 3, 7
both_types = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])


def peer(dtype=torch.float64, **options):
    options = {"batch_first": True, **options}
    return drawn(torch.nn.MultiheadAttention(EMBED, HEADS, dtype=dtype, **options))


def hidden(seen):
    """torch's mask, True where there is no edge, of what targets see (M, N)."""
    return ~seen.t()


CAUSAL = torch.ones(LENGTH, LENGTH).triu().bool()  # [m, n] with m <= n


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("start", range(0, 160, 10))
def test_every_option_and_mask_is_torchs(start):
    for seed in range(start, start + 10):
        torch.manual_seed(seed)
        pick = random.Random(seed)
        options = {name: pick.random() < 0.5 for name in ("add_bias_kv", "add_zero_attn", "bias")}
        dims = {"kdim": pick.choice((None, 5)), "vdim": pick.choice((None, 5, 4))}
        batch_first, dropout = pick.random() < 0.5, pick.choice((0.0, 0.5))
        theirs = peer(**options, **dims, batch_first=batch_first, dropout=dropout)
        theirs.train(dropout == 0.0)
        batch, sources = pick.choice(((), (3,))), pick.choice((LENGTH, 5))
        mask = drawn_mask(pick, sources, LENGTH, HEADS)
        there, padding = drawn_padding(pick, mask.theirs, *batch, sources)
        ours = from_torch(theirs, **mask.options)
        ours.fuse = pick.random() < 0.8
        beside = {"source_mask": there, "edge_attr": mask.attr}
        arguments = {"attn_mask": mask.theirs, "key_padding_mask": padding, "need_weights": False}
        # With this hint torch's fast path hides the sources that it has added itself.
        added = options["add_bias_kv"] or options["add_zero_attn"]
        arguments["is_causal"] = mask.is_causal and not added
        place = -2 if batch_first or not batch else 0

        def run(query, key, value, ours=ours, mask=mask, beside=beside):
            return ours((value, query), mask.edges, keys=key, **beside)

        def run_theirs(*x, theirs=theirs, arguments=arguments, place=place):
            return theirs(*(one.movedim(-2, place) for one in x), **arguments)[0].movedim(place, -2)

        widths = dims["kdim"] or EMBED, dims["vdim"] or EMBED
        inputs = [
            normal(*batch, LENGTH, EMBED),
            *(normal(*batch, sources, width) for width in widths),
        ]
        assert_same(ours, theirs, run, run_theirs, inputs)


def test_average_weights_are_the_mean_of_heads():
    theirs = peer()
    ours, x = from_torch(theirs, support="causal"), normal(LENGTH, EMBED)
    _, weights = theirs(x, x, x, attn_mask=hidden(CAUSAL))
    _, basis = ours(x, return_attention_weights=True)
    assert_near(basis.to_dense().mean(0).t(), weights)


def test_a_place_that_sees_nothing_gets_the_bias_where_torch_gives_nan():
    theirs = peer()
    ours, x = from_torch(theirs), normal(2, LENGTH, EMBED)
    there = torch.ones(2, LENGTH, dtype=torch.bool)
    there[1] = False
    expected = theirs(x, x, x, key_padding_mask=~there)[0]
    out = ours(x, source_mask=there)
    assert expected[1].isnan().all()
    assert_near(out[0], expected[0])
    assert_near(out[1], ours.bias.expand(LENGTH, EMBED))
    gradients = torch.autograd.grad(out.sum(), [x, *ours.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
def test_training_drops_what_torch_drops_on_average(options):
    theirs = torch.nn.MultiheadAttention(EMBED, HEADS, 0.5, batch_first=True, **options)
    ours, x = from_torch(theirs), torch.randn(1, 4, EMBED)
    often = x.expand(4000, -1, -1)  # each item of a batch is dropped on its own
    assert ours.training
    assert ours.family.normalise.dropout == 0.5
    with torch.no_grad():
        mean = ours(often).mean(0, keepdim=True)
        assert_near(mean, ours.eval()(x), 0.05)


@pytest.mark.parametrize("kdim", [None, 20])
def test_parameters_begin_as_torchs(kdim):
    """Uniform up to the same bounds, biases at zero."""
    ours = multi_head_attention(64, 4, kdim=kdim)
    theirs = torch.nn.MultiheadAttention(64, 4, kdim=kdim, vdim=kdim)
    converted = dict(from_torch(theirs).named_parameters())
    for name, parameter in ours.named_parameters():
        drawn, expected = parameter.detach(), converted[name].detach()
        assert drawn.shape == expected.shape
        assert math.isclose(drawn.abs().max(), expected.abs().max(), rel_tol=0.02, abs_tol=1e-9)
        assert math.isclose(drawn.std(), expected.std(), rel_tol=0.05, abs_tol=1e-9)
    weight = ours.family.score.key.weight
    before = weight.detach().clone()
    ours.reset_parameters()
    assert not torch.equal(weight, before)
    assert math.isclose(weight.detach().abs().max(), before.abs().max(), rel_tol=0.02)


@both_types
@pytest.mark.parametrize("causal", [True, False])
def test_the_bare_layer_is_torchs_scaled_dot_product_attention(dtype, causal):
    """No parameters: queries, keys and values are the features themselves."""
    support = "causal" if causal else "complete"
    options = {"score": "dot-product(scale=None)", "theta": "identity", "bias": False}
    layer = AttentionConv(EMBED, -1, 1, support, **options)
    assert not list(layer.parameters())
    x = normal(3, LENGTH, EMBED, dtype=dtype)
    oracle.assert_same(layer(x), scaled_dot_product_attention(x, x, x, is_causal=causal), [x])
