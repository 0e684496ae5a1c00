"""x"""

import random
import warnings
from dataclasses import dataclass

import pytest
import torch
from oracle import assert_same
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.pyg import outer_conv
from pyg_outerconv.testing import assert_near

COUNT = 800
# Weights' gradients sum over all cells; see DESIGN: five times the tolerance of values.
VALUES = {torch.float64: 1e-10, torch.float32: 1e-5}
ORDERS = ("propagate_first", "transform_first", "label_by_label", "propagate_first_compact")


@dataclass
class Drawn:
    """A layer of torch, its images, and an order that knows no grids."""

    module: nn.Module
    x: torch.Tensor
    order: str

    def __str__(self):
        return f"{self.module} on {tuple(self.x.shape)}, {self.x.dtype}, {self.order}"


def draw(seed):
    """One configuration; of those that torch refuses, and so do we, the next that it takes."""
    pick = random.Random(seed)
    torch.manual_seed(seed)
    while True:
        module, x = _draw(pick)
        try:
            out = module(x)
        except (RuntimeError, ValueError):
            # torch bounds the padding of these by the size of the grid.
            if module.padding_mode not in ("circular", "reflect"):
                with pytest.raises(ValueError):
                    from_torch(module)(x)
            continue
        if 0 not in out.shape[-len(module.kernel_size) :]:
            return Drawn(module, x, pick.choice(ORDERS))


def _draw(pick):
    dim = pick.choice((1, 1, 2, 2, 2, 3))

    def each(*choices):
        same = pick.choice(choices)
        return same if pick.random() < 0.5 else tuple(pick.choice(choices) for _ in range(dim))

    groups = pick.choice((1, 1, 2, 3))
    depthwise = pick.random() < 0.15
    channels = (groups * pick.choice((1, 2)), groups * pick.choice((1, 2, 3)))
    if depthwise:
        groups = pick.choice((2, 3))
        channels = (groups, groups * pick.choice((1, 2)))
    dtype = pick.choice((torch.float32, torch.float64))
    options = {"groups": groups, "bias": pick.random() < 0.7, "dtype": dtype}
    transposed = pick.random() < 0.3
    stride, dilation = each(1, 1, 2, 3), each(1, 1, 2)
    if transposed:
        options |= {"stride": stride, "padding": each(0, 1, 2), "dilation": dilation}
        # torch bounds it so, though not with every kernel.
        bound = min(map(max, _spread(stride, dim), _spread(dilation, dim)))
        options["output_padding"] = each(*range(bound))
        kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dim - 1]
    else:
        named = pick.random() < 0.2
        options["padding"] = pick.choice(("same", "valid")) if named else each(0, 1, 2)
        options["stride"] = 1 if options["padding"] == "same" else stride
        options["dilation"] = dilation
        options["padding_mode"] = pick.choice(
            ("zeros", "zeros", "circular", "reflect", "replicate")
        )
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dim - 1]
    module = kind(*channels, each(1, 2, 3, 3), **options)
    shape = [pick.randint(1, 7 if dim < 3 else 5) for _ in range(dim)]
    batch = pick.choice(((), (1,), (2,), (3,), (0,)))
    x = _images(pick, (*batch, channels[0], *shape), dtype)
    return module, x


def _spread(value, dim):
    return value if isinstance(value, tuple) else (value,) * dim


def _images(pick, shape, dtype):
    """Images, some of which do not lie in memory as torch makes them."""
    layout = pick.choice(("contiguous", "contiguous", "transposed", "strided", "channels last"))
    if layout == "transposed":
        return torch.randn(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])
    if layout == "strided":
        return torch.randn(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
    x = torch.randn(shape, dtype=dtype)
    return x.movedim(-1, 0).contiguous().movedim(0, -1) if layout == "channels last" else x


def outcome(layer, x, direction):
    """The result, and the gradients of the images and of every parameter as torch has them."""
    x = x.detach().requires_grad_()
    out = layer(x)
    gradients = torch.autograd.grad(out, [x, *layer.parameters()], direction)
    return out, gradients


@pytest.mark.slow(cases=2)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("start", range(0, COUNT, 40))
def test_equals_torch_over_every_option(start):
    for seed in range(start, start + 40):
        drawn = draw(seed)
        module, x = drawn.module, drawn.x
        direction = torch.randn_like(module(x))
        expected, gradients = outcome(module, x, direction)
        named = dict(zip(("x", *dict(module.named_parameters())), gradients, strict=True))
        tolerance = VALUES[x.dtype]
        for order in ("convolution", drawn.order):
            layer = from_torch(module)
            layer.order = order
            chosen = layer.contraction_path(x).chosen
            assert chosen == [order], f"{drawn}: {chosen}"
            out, layer_gradients = outcome(layer, x, direction)
            assert_near(out, expected, tolerance)
            ours = dict(zip(("x", *dict(layer.named_parameters())), layer_gradients, strict=True))
            assert_near(ours["x"], named["x"], tolerance, at_least=0.1)
            kernel = in_torchs_layout(layer, ours["theta.weight"], module)
            assert_near(kernel, named["weight"], 5 * tolerance, at_least=0.1)
            if module.bias is not None:
                assert_near(ours["bias"], named["bias"], 5 * tolerance, at_least=0.1)


def in_torchs_layout(layer, gradient, module):
    """The gradient of Θ in the shape of torch's weight."""
    order = (1, 2, 3, 0) if layer.family.transposed else (1, 3, 2, 0)
    return gradient.permute(order).reshape(module.weight.shape)


def test_most_of_the_sweep_is_lowered_when_left_alone():
    chosen = []
    for seed in range(0, COUNT, 8):
        drawn = draw(seed)
        if drawn.x.numel():
            chosen += from_torch(drawn.module).contraction_path(drawn.x).chosen
    assert chosen.count("convolution") > 0.9 * len(chosen)


POOLINGS = [
    nn.MaxPool1d(3, 2, 1),
    nn.MaxPool2d((2, 3), padding=(1, 0), dilation=(1, 2)),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    nn.MaxPool3d(2),
    nn.AvgPool1d(3, 2, 1, count_include_pad=False),
    nn.AvgPool1d(2, ceil_mode=True),
    nn.AvgPool2d(3),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d((3, 2), (2, 1), (1, 0), ceil_mode=True, count_include_pad=False),
    nn.AvgPool3d(2, 1, 1),
    nn.LPPool1d(1, 3, 2),
    nn.LPPool2d(1, (2, 3)),
    nn.LPPool3d(1, 2),
]


@pytest.mark.parametrize("order", [None, "propagate_first"])
@pytest.mark.parametrize("module", POOLINGS, ids=str)
def test_poolings_are_equal_with_their_gradients(module, order):
    layer = from_torch(module)
    if layer.aggr != "max":
        layer.order = order
    for batch in ((), (2,), (0,)):
        dim = layer.family.num_axes
        x = torch.randn(*batch, 3, *range(7, 7 + dim), dtype=torch.float64, requires_grad=True)
        if isinstance(module, nn.LPPool3d) and not batch:
            continue  # torch takes these with a batch alone
        assert_same(layer(x), module(x), [x])


def test_a_copy_learns_on_its_own():
    module = nn.Conv1d(2, 3, 3)
    layer = from_torch(module)
    with torch.no_grad():
        layer.theta.weight.zero_()
    assert module.weight.abs().sum() > 0


def test_frozen_weights_stay_frozen():
    module = nn.Conv1d(2, 3, 3)
    module.weight.requires_grad_(False)
    layer = from_torch(module)
    assert [p.requires_grad for p in (layer.theta.weight, layer.bias)] == [False, True]


def test_types_are_kept():
    layer = from_torch(nn.Conv1d(2, 3, 3, dtype=torch.float64, bias=False))
    assert layer.theta.weight.dtype == torch.float64
    assert layer.bias is None


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
