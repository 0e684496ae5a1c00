"""Where PyG's own code runs by itself: what is put onto a layer, wrappers of torch, inputs."""

import contextlib
import copy
import inspect
import types
from itertools import cycle, product

import pytest
import torch
from pyg.cases import CASES, GRAPH, arguments, pair
from pyg.parity import (
    REFUSALS,
    TOLERANCE,
    assert_close,
    compare,
    contracted,
    graphs,
    reseed,
    tensors,
)
from torch import nn
from torch.nn.utils import parametrize
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs
from torch_geometric.nn import models

from pyg_outerconv import pyg as ours
from pyg_outerconv.pyg import accelerate, restore

OTHER = graphs()["multi-edge"]
X, EDGES, TYPES = torch.randn(9, 6), GRAPH.edge_index, torch.arange(GRAPH.num_edges) % 3


class Doubled(nn.Module):
    """Another module around a part, as adapters put in."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, *args, **kwargs):
        return 2 * self.part(*args, **kwargs)


def put_forward(layer, path):
    part = layer.get_submodule(path)
    part.forward = lambda *args, **kwargs: 2 * type(part).forward(part, *args, **kwargs)


def put_module(layer, path):
    parent, _, name = path.rpartition(".")
    setattr(layer.get_submodule(parent), name, Doubled(layer.get_submodule(path)))


def twice(module, inputs, output):
    return 2 * output


def twice_before(module, inputs):
    return 2 * inputs[0], *inputs[1:]


def twice_back(module, *gradients):
    return tuple(None if one is None else 2 * one for one in gradients[0])


def put_hook(kind, hook):
    return lambda layer, path: getattr(layer.get_submodule(path), f"register_{kind}_hook")(hook)


PUT_ON_PARTS = {
    "forward": put_forward,
    "module": put_module,
    "hook": put_hook("forward", twice),
    "pre_hook": put_hook("forward_pre", twice_before),
    "backward_hook": put_hook("full_backward", twice_back),
    "backward_pre_hook": put_hook("full_backward_pre", twice_back),
}


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", PUT_ON_PARTS)
def test_what_is_put_onto_a_part_after_a_call_is_obeyed(what, name):
    layers = pair(name)
    for path, part in layers[0].named_modules():
        if not path or isinstance(part, nn.ModuleList):
            continue
        its, mine = map(copy.deepcopy, layers)  # PyG's layers share a default activation
        mine(*arguments(name))
        for layer in (its, mine):
            PUT_ON_PARTS[what](layer, path)
        compare(its, mine, arguments(name), CASES[name].compared_in(torch.float64))


def doubled(method):
    """A method that gives twice what another gives."""
    return lambda self, *args, **kwargs: 2 * method(*args, **kwargs)


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("name", [name for name in CASES if name != "DirGNNConv"])
@pytest.mark.parametrize("step", ["message", "aggregate", "update"])
def test_methods_that_are_put_onto_a_layer_are_obeyed(step, name):
    its, mine = pair(name)
    mine(*arguments(name))
    for layer in (its, mine):
        setattr(layer, step, types.MethodType(doubled(getattr(layer, step)), layer))
    assert mine.why_not() == [f"has a {step} of its own"]
    compare(its, mine, arguments(name), CASES[name].compared_in(torch.float64))
    delattr(mine, step)
    assert not mine.why_not()


TAKEN_AWAY = {
    "module": lambda layer, _: setattr(layer.lins, "1", layer.lins[1].part),
    "hook": lambda layer, handle: handle.remove(),
    "forward": lambda layer, _: delattr(layer.lins[1], "forward"),
}


@pytest.mark.parametrize("what", TAKEN_AWAY)
def test_what_is_taken_away_again_is_forgotten(what):
    layer = ours.ChebConv(6, 4, 3)
    layer(X, EDGES)
    put = PUT_ON_PARTS[what](layer, "aggr_module" if what == "hook" else "lins.1")
    assert layer.why_not()
    TAKEN_AWAY[what](layer, put)
    assert not layer.why_not()


REPLACED = {
    "by torch's": lambda layer: setattr(layer, "lin", nn.Linear(6, 4)),
    "with a bias": lambda layer: setattr(layer, "lin", theirs.Linear(6, 4, bias=True)),
    "a bias put in": lambda layer: setattr(layer.lin, "bias", nn.Parameter(torch.ones(4))),
    "by none": lambda layer: setattr(layer, "lin", nn.Identity()),
}


@pytest.mark.parametrize("replaced", REPLACED)
@pytest.mark.parametrize("called", [True, False])
def test_another_linear_map_is_called(replaced, called):
    outputs = []
    for library in (theirs, ours):
        reseed(0)
        layer = library.GCNConv(6, 4, bias=False)
        if called:
            layer(X, EDGES)
        REPLACED[replaced](layer)
        outputs.append(layer(X, EDGES))
    assert_close(outputs[1], outputs[0], 1e-6, "values")


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_bias_that_is_taken_out_is_not_added(name, called):
    layers = pair(name)
    for path in [path for path, _ in layers[0].named_parameters() if path.endswith("bias")]:
        its, mine = map(copy.deepcopy, layers)
        if called:
            mine(*arguments(name))
        part, _, bias = path.rpartition(".")
        for layer in (its, mine):
            setattr(layer.get_submodule(part), bias, None)
        compare(its, mine, arguments(name), CASES[name].compared_in(torch.float64))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrong", ["none", "unknown", "twice", "too many"])
def test_wrong_arguments_are_refused_in_the_words_of_pyg(wrong, name):
    said = []
    for layer in pair(name):
        args, named = tuple(arguments(name)), {}
        if wrong == "none":
            args = ()
        elif wrong == "unknown":
            named = {"unknown": 1}
        elif wrong == "twice":
            named = {"x": args[0]}
        else:
            args += (None,) * 7
        with pytest.raises(TypeError) as refused:
            layer(*args, **named)
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "forward() " in said[1]


def test_a_subclass_made_after_a_layer_is_contracted():
    ours.GCNConv(6, 4)
    mine = type("Mine", (type("Mixin", (), {}), ours.GCNConv), {})(6, 4)
    mine.least = 0
    assert not mine.why_not(X, EDGES)


# Wrappers of torch --------------------------------------------------------------------------------

PLAIN = (
    *("GCNConv", "SAGEConv", "GraphConv", "ChebConv", "GATConv", "GATv2Conv", "TransformerConv"),
    *("GINConv", "SimpleConv", "TAGConv"),
)
WRAPPED = {name: {} for name in PLAIN} | {"ARMAConv": {"num_layers": 2}}
wrapped = pytest.mark.parametrize("name", WRAPPED)


@pytest.fixture
def alone():
    """A process group of this process."""
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield distributed.init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@contracted
@pytest.mark.parametrize("first", ["shard", "accelerate"])
@wrapped
def test_sharded_layers_are_layers(name, first, alone):
    from torch.distributed.fsdp import FSDPModule, fully_shard

    layer = pair(name, torch.float32, **WRAPPED[name])[0]
    expected = layer(X, EDGES)
    if first == "accelerate":
        accelerate(layer)
    fully_shard(layer, mesh=alone)
    if first == "shard":
        assert accelerate(layer).replaced == [""]
    assert not layer.why_not(X, EDGES)
    out = layer(X, EDGES)
    assert_close(out, expected, 1e-5, "values")
    if out.requires_grad:
        out.sum().backward()
        assert all(one.grad is not None for one in layer.parameters())
    tied = layer._tied()
    assert_close(layer(X, EDGES), expected, 1e-5, "values")
    assert layer._tied() is tied
    restore(layer)
    assert isinstance(layer, FSDPModule)
    assert not isinstance(layer, ours.DropIn)
    assert_close(layer(X, EDGES), expected, 1e-5, "values")


@wrapped
def test_copies_are_called_with_other_parameters_under_grad(name):
    if name == "SimpleConv":
        pytest.skip("has no parameters")
    layer = pair(name, torch.float32, **WRAPPED[name])[0]
    accelerate(layer)
    copied = copy.deepcopy(layer)
    parameters = dict(copied.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(copied, parameters, (X, EDGES)).square().sum()

    gradients = torch.func.grad(loss)(parameters)
    layer(X, EDGES).square().sum().backward()
    for key, parameter in layer.named_parameters():
        assert_close(gradients[key], parameter.grad, 5e-5, key)


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


@pytest.mark.parametrize("path", ["bias", "lin.weight"])
def test_a_parametrised_layer_is_restored(path):
    layer = theirs.GCNConv(6, 4)
    nn.init.ones_(layer.bias)
    accelerate(layer)
    part, _, name = path.rpartition(".")
    part = layer.get_submodule(part)
    parametrize.register_parametrization(part, name, Halved())
    out = layer(X, EDGES)
    assert restore(layer) == [""]
    assert not isinstance(layer, ours.DropIn)
    assert_close(layer(X, EDGES), out, 1e-6, "values")
    parametrize.remove_parametrizations(part, name)
    assert_close(layer(X, EDGES), out, 1e-6, "values")
    assert type(layer) is theirs.GCNConv


# PyG's own do not script, or only where a module around them says what they are called with.
UNSCRIPTED = (
    *("GATConv", "GATv2Conv", "TransformerConv", "SuperGATConv", "FAConv", "RGATConv"),
    "HypergraphConv",
)


@pytest.mark.slow(cases=4)
@contracted
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("name", [name for name in CASES if name not in UNSCRIPTED])
def test_torch_script_compiles_pygs_code(name, called, monkeypatch):
    _, mine = pair(name)
    args, parts = arguments(name), list(mine.modules())
    if called:
        mine(*args)
    elif name != "DirGNNConv":  # as where no layer of PyG's own class was made before
        monkeypatch.setattr(getattr(theirs, name), "propagate", theirs.MessagePassing.propagate)
    scripted = torch.jit.script(mine)
    tolerance = TOLERANCE[CASES[name].compared_in(torch.float64)]
    assert_close(scripted(*args), mine(*args), tolerance, "values")
    assert list(mine.modules()) == parts
    assert type(mine) is getattr(ours, name)
    assert dict(scripted.named_parameters()).keys() == dict(mine.named_parameters()).keys()


class TwoSteps(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.then = ours.GCNConv(6, 5), nn.ModuleList([ours.SAGEConv(5, 4)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.first(x, edge_index)
        for layer in self.then:
            x = layer(x, edge_index)
        return x


def test_torch_script_compiles_a_model_of_our_layers():
    model = TwoSteps()
    parameters, expected = list(model.parameters()), model(X, EDGES)
    scripted = torch.jit.script(model)
    for layer in (scripted, model):  # torch leaves PyG's layers in the model
        assert_close(layer(X, EDGES), expected, 1e-5, "values")
    assert [id(one) for one in model.parameters()] == [id(one) for one in parameters]


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("called", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_traced_layer_reads_other_graphs(name, called):
    mine = copy.deepcopy(pair(name)[1]).eval()  # a copy has no contraction yet
    args, other = arguments(name), arguments(name, graph=OTHER)
    if called:
        mine(*args)
    checks = name != "SimpleConv"  # of PyG's own class two records differ
    traced = torch.jit.trace(mine, args, check_trace=checks)
    tolerance = TOLERANCE[CASES[name].compared_in(torch.float64)]
    assert_close(traced(*other), mine(*other), tolerance, "values")


def test_a_graph_is_written_for_tensorboard(tmp_path):
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(tmp_path)
    model = models.GCN(6, 8, 2, 3)
    accelerate(model)
    writer.add_graph(model, (X, EDGES))
    writer.close()
    assert list(tmp_path.iterdir())


# Inputs -------------------------------------------------------------------------------------------


def changed(arguments):
    """The arguments with numbers, types or sizes that are not what a contraction takes."""
    for place, value in enumerate(arguments):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        before, after = arguments[:place], arguments[place + 1 :]
        if value.dtype == torch.int64 and value.shape == EDGES.shape:
            few = EdgeIndex(value.as_subclass(torch.Tensor), sparse_size=(8, 8))
            yield "sparse_size", (*before, few, *after)
        if value.is_floating_point() and place and value.numel():
            for number in (float("nan"), float("inf"), -0.3):
                other = value.detach().clone()
                other.view(-1)[0] = number
                yield f"{number} in {place}", (*before, other.requires_grad_(), *after)
            for dtype in (torch.float32, torch.float64, torch.int64):
                yield f"{dtype} in {place}", (*before, value.detach().to(dtype), *after)
            if value.dim() == 1:
                for one in (value.detach()[:1], value.detach().mean()):
                    yield f"shape {one.shape} in {place}", (*before, one, *after)


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_pyg_computes_is_computed(name, dtype):
    its, mine = pair(name, dtype)
    for call in CASES[name].calls:
        for what, args in changed(arguments(name, dtype, call)):
            try:
                its(*args)
            except REFUSALS:
                continue
            try:
                compare(its, mine, args, CASES[name].compared_in(torch.float32))
            except REFUSALS as error:
                raise AssertionError(f"{call}, {what}") from error


@pytest.mark.parametrize("name", CASES)
def test_edges_that_pyg_refuses_are_refused(name):
    args, (its, mine) = arguments(name), pair(name)
    for place, value in enumerate(args):
        if not isinstance(value, torch.Tensor) or value.shape != EDGES.shape:
            continue
        if value.dtype == torch.int64:
            three, far = torch.cat([value, value[:1]]), value + X.size(0)
            for bad in (three, value.double(), far, -1 - value, value[0]):
                changed = (*args[:place], bad, *args[place + 1 :])
                compare(its, mine, changed, CASES[name].compared_in(torch.float64))


FEW = torch.tensor([[0, 5, 3, 3], [1, 0, 1, 0]])
WITHOUT_TARGETS = (
    *("SAGEConv", "GraphConv", "GATConv", "GINConv", "SimpleConv", "MFConv", "GINEConv"),
    *("GMMConv", "NNConv"),
)


@pytest.mark.parametrize("name", WITHOUT_TARGETS)
def test_an_edge_index_tells_the_number_of_targets_without_features(name):
    its, mine = pair(name, torch.float32, **({"aggr": "max"} if name == "SimpleConv" else {}))
    width = {"GINEConv": 6, "GMMConv": 3, "NNConv": 3}.get(name)
    beside = [] if width is None else [torch.rand(4, width)]
    edges = EdgeIndex(FEW, sparse_size=(9, 3))
    if name == "MFConv":  # PyG's fails
        mine.least = 0
        expected = mine((X, None), FEW, size=(9, 3))
    else:
        expected = its((X, None), edges, *beside)
    assert_close(mine((X, None), edges, *beside), expected, 1e-6, "values")
    assert len(expected) == (9 if name == "GATConv" else 3)  # PyG adds a self-loop to each source


def in_type(args, dtype):
    """Arguments with floating point numbers in another type."""
    if isinstance(args, tuple):
        return tuple(in_type(one, dtype) for one in args)
    return args.detach().to(dtype) if tensors(args) else args


TYPES_OF_NUMBERS = torch.float32, torch.bfloat16, torch.float16


@pytest.mark.slow(cases=16)
@pytest.mark.parametrize("to", TYPES_OF_NUMBERS[1:], ids=lambda to: f"to {to}")
@pytest.mark.parametrize("weights", TYPES_OF_NUMBERS, ids=lambda of: f"of {of}")
@pytest.mark.parametrize("name", CASES)
def test_whatever_types_meet_under_autocast_the_result_is_pygs(name, weights, to):
    """Each call of the class in turn."""
    biases, calls = CASES[name].options.get("bias", (None,)), cycle(CASES[name].calls)
    every = product(TYPES_OF_NUMBERS, TYPES_OF_NUMBERS[1:], biases, TYPES_OF_NUMBERS)
    for (one, other, bias, features), call in zip(every, calls, strict=False):
        if (one, other) != (weights, to):
            continue
        options = {} if bias is None else {"bias": bias}
        its, mine = (layer.to(weights) for layer in pair(name, torch.float32, **options))
        args = in_type(arguments(name, torch.float32, call), features)
        outputs = []
        for layer in (its, mine):
            reseed(13)
            with torch.autocast("cpu", to):
                try:
                    outputs.append(tensors(layer(*args)))
                except REFUSALS:
                    if layer is its:
                        break  # torch has no such product
                    raise
        if outputs:
            least = min((weights, features, to), key=lambda one: -torch.finfo(one).eps)
            for out, expected in zip(outputs[1], outputs[0], strict=True):
                assert out.dtype == expected.dtype, (bias, weights, features, to)
                assert_close(out, expected, 12 * torch.finfo(least).eps, "values")


@pytest.mark.parametrize("switch", [0, 1])
@pytest.mark.parametrize("name", ["GATConv", "GCNConv", "SAGEConv", "SGConv", "TransformerConv"])
def test_switches_may_be_numbers_as_pygs_may(name, switch):
    kinds = getattr(theirs, name), getattr(ours, name)
    for option, parameter in inspect.signature(kinds[0].__init__).parameters.items():
        if isinstance(parameter.default, bool) and (option, switch) != ("cached", 1):
            outputs = []
            for kind in kinds:
                reseed(0)
                outputs.append(kind(6, 4, **{option: switch})(X, EDGES))
            assert_close(outputs[1], outputs[0], 1e-6, option)


def read_by_pyg(layer, args):
    """The names of the options that a call of PyG's layer reads."""
    kind, names = type(layer), set()

    class Recorded(kind):
        def __getattribute__(self, name):
            if name in object.__getattribute__(self, "__dict__"):
                names.add(name)
            return super().__getattribute__(name)

    layer.__class__ = Recorded
    with contextlib.suppress(*REFUSALS):
        layer(*args)
    layer.__class__ = kind
    values = {name: vars(layer)[name] for name in sorted(names) if not name.startswith("_")}
    option_types = bool | int | float | str | None
    apart = ("training", "cached", "dropout")  # what is cached is of before; draws differ
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, option_types) and name not in apart
    }


def others(value, case_values):
    """Other values of an option: those of the case, and such as PyG may take or refuse."""
    if isinstance(value, bool):
        candidates = [not value, None]
    elif isinstance(value, int):
        candidates = [value - 1, value + 1, 2 * value, 0]
    elif isinstance(value, float):
        candidates = [value / 2 + 0.25, 0.0, 1.0, 2]
    else:
        candidates = [True, False, 1, 0.5] if value is None else []
    case_values = [one for one in case_values if isinstance(one, bool | int | float | str | None)]
    return [
        one for one in [*candidates, *case_values] if type(one) is not type(value) or one != value
    ]


@pytest.mark.slow(cases=12)
@contracted
@pytest.mark.parametrize("name", CASES)
def test_whatever_pyg_reads_at_a_call_may_be_changed_before_it(name):
    case, tried = CASES[name], set()
    call = "csr" if name in ("GCNConv", "GraphConv") else next(iter(case.calls))
    for options in case.one_by_one():
        if options.get("cached") or options.get("dropout"):
            continue
        layers = pair(name, **options)
        read = read_by_pyg(copy.deepcopy(layers[0]), arguments(name, call=call))
        for option, value in read.items():
            for other in others(value, case.options.get(option, ())):
                key = option, repr(value), repr(other)
                if key in tried:
                    continue
                tried.add(key)
                its, mine = map(copy.deepcopy, layers)
                with contextlib.suppress(*REFUSALS):
                    mine(*arguments(name, call=call))
                for layer in (its, mine):
                    setattr(layer, option, other)
                try:
                    compare(its, mine, arguments(name, call=call), torch.float32)
                except (*REFUSALS, pytest.fail.Exception) as error:
                    raise AssertionError(f"{options}: {option}={value} became {other}") from error


def test_a_count_that_is_changed_back_is_forgotten():
    layer = ours.RGCNConv(6, 4, 3)
    layer.num_relations = 5
    assert layer.why_not() == ["num_relations=5 was 3 when parameters were made"]
    layer.num_relations = 3
    assert not layer.why_not()


def test_an_option_that_no_recipe_takes_is_the_reason():
    layer = theirs.RGCNConv(6, 4, 3, num_blocks=2)
    layer.num_blocks = 4
    accelerated = nn.Sequential(layer)
    accelerate(accelerated)
    assert "num_blocks must divide" in layer.why_not()[0]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "static" in case.calls])
def test_a_batch_of_features_can_be_viewed(name):
    _, mine = pair(name)
    out = mine(*arguments(name, call="static"))
    assert out.view(-1).numel() == out.numel()


@pytest.mark.parametrize("name", CASES)
def test_results_for_strided_features_can_be_viewed(name):
    args = [
        one.detach().mT.contiguous().mT if tensors(one) and one.dim() == 2 else one
        for one in arguments(name)
    ]
    its, mine = pair(name)
    assert tensors(mine(*args))[0].is_contiguous() == tensors(its(*args))[0].is_contiguous()


def changed_in_place(layer, args):
    """Gradients of inputs after a result was changed in place."""
    reseed(13)
    out = tensors(layer(*args))[0]
    out[0] = 0
    out.mul_(2)
    inputs = [one for one in tensors(args) if one.requires_grad]
    return torch.autograd.grad(out.square().sum(), inputs, allow_unused=True)


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize("name", CASES)
def test_results_may_be_changed_in_place_as_pygs_may(name):
    for options in CASES[name].one_by_one():
        its, mine = pair(name, **options)
        try:
            expected = changed_in_place(its, arguments(name))
        except REFUSALS:
            continue
        for gradient, one in zip(changed_in_place(mine, arguments(name)), expected, strict=True):
            assert (gradient is None) is (one is None)
            if one is not None:
                assert_close(gradient, one, 1e-4, str(options))


@pytest.mark.parametrize(
    ("layer", "call", "reason"),
    [
        (ours.RGCNConv(6, 4, 3), {"edge_type": None}, "no edge types"),
        (ours.RGCNConv(6, 4, 3), {"edge_type": TYPES}, None),
        (ours.FiLMConv(6, 4, 3), {"edge_type": TYPES}, None),
        (ours.GATConv(6, 4, edge_dim=2), {"edge_attr": torch.ones(len(TYPES), 2)}, None),
        (ours.GATConv(6, 4, edge_dim=2), {}, "no edge attributes for lin_edge"),
        (ours.GATConv(6, 4), {"return_attention_weights": True}, "attention weights are asked for"),
        (ours.GMMConv(6, 4, 2, 3), {"edge_attr": torch.ones(len(TYPES), 2)}, None),
    ],
)
@contracted
def test_why_not_takes_the_arguments_of_a_call(layer, call, reason):
    assert layer.why_not(X, EDGES, **call) == ([] if reason is None else [reason])
    with pytest.raises(TypeError, match="unexpected keyword"):
        layer.why_not(X, EDGES, colour=1)


@pytest.mark.parametrize("name", CASES)
def test_pygs_tables_of_what_layers_take_read_ours(name, monkeypatch):
    from torch_geometric.nn import conv
    from torch_geometric.nn.conv import utils

    asked = [one for one in utils.__all__ if one.startswith(("supports", "processes"))]
    expected = [getattr(utils, one)(name) for one in asked]
    monkeypatch.setitem(vars(conv), name, getattr(ours, name))
    assert [getattr(utils, one)(name) for one in asked] == expected
