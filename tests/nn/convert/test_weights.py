"""Only what computes as its class does is converted; scales are compared as numbers are."""

import random
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.pyg import outer_conv
from pyg_outerconv.testing import assert_near

# A way in, what makes a layer for it, and the name of a part that holds weights ("" is itself).
LAYERS = {
    "conv": (from_torch, lambda: nn.Conv2d(2, 4, 3), ""),
    "transposed": (from_torch, lambda: nn.ConvTranspose1d(2, 4, 3), ""),
    "attention": (from_torch, lambda: nn.MultiheadAttention(8, 2), "out_proj"),
    "encoder": (from_torch, lambda: nn.TransformerEncoderLayer(8, 2, 16), "linear1"),
    "encoder-attention": (
        from_torch,
        lambda: nn.TransformerEncoderLayer(8, 2, 16),
        "self_attn.out_proj",
    ),
    "decoder": (from_torch, lambda: nn.TransformerDecoderLayer(8, 2, 16), "linear2"),
    "added sources": (from_torch, lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), ""),
    "whole": (from_torch, lambda: nn.Transformer(8, 2, 1, 1, 16), "decoder.layers.0.linear1"),
    "gat": (outer_conv, lambda: GATConv(4, 3, heads=2), "lin"),
    "gatv2": (outer_conv, lambda: GATv2Conv(4, 3, heads=2), "lin_r"),
    "transformer": (outer_conv, lambda: TransformerConv(4, 3, heads=2), "lin_key"),
}
PARAMETRISED = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "pruned": prune.identity,
}
HOOKS = {
    "forward": lambda part: part.register_forward_hook(lambda _, __, out: 2 * out),
    "forward pre": lambda part: part.register_forward_pre_hook(lambda _, args: args),
    "backward": lambda part: part.register_full_backward_hook(lambda *_: None),
    "backward pre": lambda part: part.register_full_backward_pre_hook(lambda *_: None),
    "own forward": lambda part: setattr(part, "forward", lambda *args: args[0]),
}


def weight_of(part):
    """The name of a matrix among the weights."""
    return next(name for name, p in part.named_parameters(recurse=False) if p.dim() > 1)


@pytest.mark.parametrize("how", [*PARAMETRISED, *HOOKS])
@pytest.mark.parametrize("name", LAYERS)
def test_parametrised_and_hooked_layers_are_refused(name, how):
    convert, make, where = LAYERS[name]
    layer = make().eval()  # in training a spectral norm changes whenever it is looked at
    convert(layer)
    part = layer.get_submodule(where)
    if how in HOOKS:
        HOOKS[how](part)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            PARAMETRISED[how](part, weight_of(part))
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    with pytest.raises(ValueError, match=r"weights are converted as they are|what its class does"):
        convert(layer)
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())


def test_hooks_of_messages_are_refused_too():
    layer = GATConv(4, 3)
    handle = layer.register_message_forward_hook(lambda _, __, out: 2 * out)
    with pytest.raises(ValueError, match="no hooks"):
        outer_conv(layer)
    handle.remove()
    outer_conv(layer)


def test_what_was_made_permanent_is_converted():
    conv = prune.l1_unstructured(nn.Conv1d(2, 3, 3), "weight", amount=0.5)
    prune.remove(conv, "weight")
    conv = parametrizations.weight_norm(conv)
    nn.utils.parametrize.remove_parametrizations(conv, "weight")
    x = torch.randn(2, 2, 7)
    assert_near(from_torch(conv)(x), conv(x))


def test_a_users_activation_is_passed_on():
    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * x.relu().square()

    block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, Squared(), batch_first=True)
    x = torch.randn(2, 5, 8)
    assert_near(from_torch(block)(x), block(x))


@pytest.mark.parametrize("first", range(1, 33))
def test_every_head_size_is_converted(first):
    for channels in range(first, 513, 32):
        heads = random.choice([1, 2])
        theirs = nn.MultiheadAttention(heads * channels, heads, bias=False, batch_first=True)
        layer = from_torch(theirs)
        assert layer.family.score.key.channels == channels
    x = torch.randn(2, 3, heads * channels)
    assert_near(theirs(x, x, x)[0], layer(x), 1e-5)
