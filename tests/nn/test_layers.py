"""What holds of every layer: as a module, under torch's machinery, and where PyG puts its own."""

import copy
import faulthandler
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from nn.layers import (
    LAYERS,
    NODES,
    SCORED,
    P,
    Q,
    assert_is_adjoint,
    assert_same,
    compiled,
    learning,
    module_and_inputs,
    of_each_layer,
    results,
    to,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint
from torch_geometric.testing import assert_module

from pyg_outerconv import AttentionConv, OuterConv, clear_caches
from pyg_outerconv.contract.plan import PLANS

SIZES = [(7, 20), (9, 31), (12, 17), (6, 40)]
both_ways = pytest.mark.parametrize("fuse", [True, False])
traces = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
counts = pytest.mark.parametrize("count", [150, 2500], ids=["few edges", "many edges"])


# As a module -------------------------------------------------------------------------------------


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@of_each_layer()
def test_copies_compute_the_same_and_share_nothing(name, copied, used):
    module, inputs = module_and_inputs(name)
    if used:
        module(**inputs)
    other, expected = copied(module), results(module, inputs)
    assert_same(results(other, inputs), expected)
    for part in other.modules():
        if isinstance(part, OuterConv):
            part.fuse = False
    assert_same(results(other, inputs), expected)
    names = dict(other.named_parameters())
    assert names.keys() == dict(module.named_parameters()).keys()
    with torch.no_grad():
        for parameter in names.values():
            parameter.zero_()
    assert_same(results(module, inputs), expected)


@of_each_layer("channels", "parameters")
def test_channels_come_from_the_first_input(name):
    lazy, inputs = module_and_inputs(name, -1)
    twins = copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy)).double()  # torch forgets it
    empty = copy.deepcopy(lazy.state_dict())
    torch.manual_seed(1)
    expected = lazy(**inputs)
    for twin in twins:
        assert any(map(is_lazy, twin.parameters()))
        torch.manual_seed(1)
        assert_same(twin(**inputs), expected)
    module, _ = module_and_inputs(name)
    shapes = {key: value.shape for key, value in module.state_dict().items()}
    assert {key: value.shape for key, value in lazy.state_dict().items()} == shapes
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    for other in (lazy, module_and_inputs(name, -1)[0]):
        other.load_state_dict(state)
        assert_same(other(**inputs), module(**inputs))
    module.float().load_state_dict(empty)  # as PyG's Linear: it is lazy again, of torch's type
    assert any(map(is_lazy, module.parameters()))
    module(**to(inputs, torch.float32))
    assert not any(map(is_lazy, module.parameters()))


@of_each_layer("parameters")
def test_a_reset_draws_anew(name):
    module, inputs = module_and_inputs(name)
    before, out = copy.deepcopy(module.state_dict()), module(**inputs)
    begun, other = (LAYERS[name].make(P).double().state_dict() for _ in range(2))
    module.reset_parameters()
    assert {key: value.shape for key, value in module.state_dict().items()} == {
        key: value.shape for key, value in before.items()
    }
    for key, value in module.state_dict().items():
        is_drawn = not torch.equal(begun[key], other[key])
        assert not torch.equal(value, before[key]), key
        assert is_drawn != torch.allclose(value, begun[key]), key  # of numbers in float32
    module.load_state_dict(before)
    assert_same(module(**inputs), out)


@of_each_layer("edges")
def test_no_nodes_and_no_edges_give_no_nan(name):
    module, full_inputs = module_and_inputs(name)
    for nodes in (0, 1, 3):
        inputs = {
            key: part[:nodes]
            if key in ("x", "state")
            else part[..., :0]
            if key == "edge_index"
            else part[:0]
            for key, part in full_inputs.items()
        }
        assert all(bool(one.isfinite().all()) for one in results(module, inputs))


@of_each_layer()
def test_a_call_that_is_as_one_before_has_its_plan(name):
    module, inputs = module_and_inputs(name)[0], LAYERS[name].inputs(40, 400)
    clear_caches()
    counts = [(module(**inputs), len(PLANS))[1] for _ in range(3)]
    assert counts[1] == counts[2]


# Types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@of_each_layer()
def test_every_floating_point_type(name, dtype):
    module, inputs = module_and_inputs(name)
    short, short_inputs = copy.deepcopy(module).to(dtype), to(inputs, dtype)
    wide = copy.deepcopy(short).double()
    actual, expected = results(short, short_inputs), results(wide, to(short_inputs, torch.float64))
    assert {one.dtype for one in actual} == {dtype}
    assert_same(actual, expected, at_least=1.0)


@of_each_layer()
def test_autocast_is_near_float32(name):
    module, inputs = module_and_inputs(name)
    module, inputs = module.float(), to(inputs, torch.float32)
    expected = results(module, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        actual = results(module, inputs)
    assert_same([one.float() for one in actual], expected, 6e-2, at_least=1.0)


# torch.func --------------------------------------------------------------------------------------


def pure(name):
    """A layer as a function of its parameters and of the numbers in its input, and these."""
    module, inputs = module_and_inputs(name)
    parameters = {key: value.detach() for key, value in module.named_parameters()}
    numbers = {key: one for key, one in inputs.items() if one.is_floating_point()}

    def run(parameters, numbers):
        return functional_call(module, parameters, (), {**inputs, **numbers})

    return run, parameters, numbers


def total(run):
    """A sum of squares of what a function gives."""
    return lambda *inputs: sum(out.square().sum() for out in tree_leaves(run(*inputs)))


@of_each_layer(scores=True)
def test_gradients_of_torch_func_are_autograds(name):
    run, *points = pure(name)
    gradients = grad(total(run), argnums=(0, 1))(*points)
    leaves = tree_map(lambda x: x.clone().requires_grad_(), points)
    out = total(run)(*leaves)
    assert_same(gradients, torch.autograd.grad(out, tree_leaves(leaves), materialize_grads=True))


@of_each_layer("parameters", scores=True)
def test_vmap_over_inputs_and_parameters_is_a_loop(name):
    run, *points = pure(name)
    factors = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    for dims in ((0, 0),) if name in SCORED else ((None, 0), (0, None), (0, 0)):
        many = [
            point
            if dim is None
            else tree_map(lambda x: torch.stack([f * x for f in factors]), point)
            for point, dim in zip(points, dims, strict=True)
        ]
        for function in (run, grad(total(run), 1)):
            actual = vmap(function, in_dims=dims)(*many)
            for i in range(3):
                one = [
                    point if dim is None else tree_map(lambda x, i=i: x[i], point)
                    for point, dim in zip(many, dims, strict=True)
                ]
                assert_same(tree_map(lambda x, i=i: x[i], actual), function(*one), at_least=0.1)


@of_each_layer(scores=True)
def test_forward_mode_is_the_adjoint_of_reverse_mode(name):
    run, *points = pure(name)
    assert_is_adjoint(run, *points)


@of_each_layer(scores=True)
def test_second_derivatives_by_forward_mode_are_autograds(name):
    run, parameters, numbers = pure(name)

    def loss(numbers):
        return sum(out.sin().sum() for out in tree_leaves(run(parameters, numbers)))

    along = tree_map(torch.randn_like, numbers)
    actual = jvp(grad(loss), (numbers,), (along,))[1]
    leaves = tree_map(lambda x: x.clone().requires_grad_(), numbers)
    first = torch.autograd.grad(loss(leaves), list(leaves.values()), create_graph=True)
    total = sum((g * v).sum() for g, v in zip(first, along.values(), strict=True))
    expected = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    assert_same(list(actual.values()), expected)


@pytest.mark.parametrize("use_reentrant", [False, True])
@of_each_layer()
def test_a_checkpoint_changes_nothing(name, use_reentrant):
    module, inputs = module_and_inputs(name)

    def again(**inputs):
        names = list(inputs)
        run = lambda *parts: module(**dict(zip(names, parts, strict=True)))  # noqa: E731
        return checkpoint(run, *inputs.values(), use_reentrant=use_reentrant)

    expected = results(module, inputs)
    if use_reentrant:
        inputs, numbers = learning(inputs)
        out = tree_leaves(again(**inputs))
        ahead = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y) for y in out]
        torch.autograd.backward(out, ahead)
        wanted = [*numbers, *module.parameters()]
        actual = [*out, *(torch.zeros_like(x) if x.grad is None else x.grad for x in wanted)]
    else:
        actual = results(module, inputs, again)
    assert_same(actual, expected)


# Compilers and traces ----------------------------------------------------------------------------


@of_each_layer("compile", slow=2)
def test_compiled_it_is_one_graph_for_all_sizes_and_what_is_eager(name):
    module, _ = module_and_inputs(name)
    call, times = compiled(module)
    for nodes, edges in SIZES:
        inputs = LAYERS[name].inputs(nodes, edges)
        assert_same(results(module, inputs, call), results(module, inputs))
    assert len(times) == 2, "one for the first size, one for all others"


@of_each_layer("export", slow=3)
def test_exported_it_takes_graphs_of_any_size(name):
    module, inputs = module_and_inputs(name)
    nodes, edges = Dim("N"), Dim("E")
    sizes = {key: {0: edges} for key in inputs} | {"x": {0: nodes}, "state": {0: nodes}}
    sizes["edge_index"] = {1: edges}
    traced = export(module, (), inputs, dynamic_shapes={key: sizes[key] for key in inputs}).module()
    for size in SIZES[1:]:
        inputs = LAYERS[name].inputs(*size)
        assert_same(traced(**inputs), module(**inputs))


@of_each_layer("fake")
def test_fake_tensors_give_shapes(name):
    module, inputs = module_and_inputs(name)
    expected = tree_map(lambda y: y.shape, module(**inputs))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        actual = module(**{key: mode.from_tensor(part) for key, part in inputs.items()})
    assert tree_map(lambda y: y.shape, actual) == expected


class Call(torch.nn.Module):
    """A layer that takes parts of its input by their places; the others are fixed."""

    def __init__(self, module, keys, **fixed):
        super().__init__()
        self.module, self.keys, self.fixed = module, keys, fixed

    def forward(self, *parts):
        return self.module(**dict(zip(self.keys, parts, strict=True)), **self.fixed)


def kept(call, parts):
    """What torch traces, saved and loaded."""
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(call, parts, check_trace=False), file)
    file.seek(0)
    return torch.jit.load(file)


@traces
@counts
@both_ways
@of_each_layer("edges", "trace")
def test_a_trace_is_right_on_another_graph_of_its_shape(name, fuse, count):
    call = Call(module_and_inputs(name, fuse=fuse)[0], list(LAYERS[name].inputs()))

    def graph(loops):
        inputs = LAYERS[name].inputs(40, count)
        source, target = inputs["edge_index"]
        target.copy_(torch.where(source == target, (target + 1) % 40, target))
        target[:loops] = source[:loops]
        return tuple(inputs.values())

    traced = kept(call, graph(0))
    for loops in (0, 5):
        inputs = graph(loops)
        assert_same(traced(*inputs), call(*inputs))


@traces
@counts
@both_ways
@of_each_layer("edges")
def test_a_trace_on_one_graph_is_right_for_other_features(name, fuse, count):
    inputs = LAYERS[name].inputs(40, count)
    fixed = {key: inputs.pop(key) for key in [*inputs] if key.startswith("edge_")}
    call, arguments = (
        Call(module_and_inputs(name, fuse=fuse)[0], list(inputs), **fixed),
        tuple(inputs.values()),
    )
    traced, other = kept(call, arguments), [2 * part + 1 for part in arguments]
    assert_same(traced(*other), call(*other))


@traces
@counts
def test_gradients_of_a_trace_are_right_or_refused(count):
    conv = OuterConv(P, Q, "gcn").double()
    x, index = LAYERS["gcn"].inputs(40, count)["x"], torch.randint(40, (2, count))
    other = torch.jit.trace(conv, (x, index), check_trace=False)
    index, x = torch.randint(40, (2, count)), (2 * x + 1).requires_grad_()
    loss = other(x, index).square().sum()
    wanted = torch.autograd.grad(conv(x, index).square().sum(), x)[0]
    try:
        ours, refused = torch.autograd.grad(loss, x)[0], ""
    except RuntimeError as error:
        ours, refused = wanted, str(error)
    assert_same(ours, wanted)
    assert not refused or "backward through pyg_outerconv" in refused


@traces
def test_maxima_over_labels_are_traced_for_a_constant_graph_alone():
    conv = module_and_inputs("mean")[0].requires_grad_(False)
    x, index = torch.randn(8, P).double(), torch.randint(8, (2, 30))
    with pytest.raises(ValueError, match=r"torch\.jit\.trace keeps how many pairs this graph has"):
        torch.jit.trace(lambda x, index: conv(x, index), (x, index), check_trace=False)
    basis = conv.basis(x, index)
    traced = kept(Call(conv, ["x"], edge_index=basis), (x,))
    assert_same(traced(-x), conv(-x, basis))


# Where it is called ------------------------------------------------------------------------------


@of_each_layer("parameters", slow=3)
def test_it_learns_in_parallel(name):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch was built without gloo")
    module, inputs = module_and_inputs(name)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        parallel = DistributedDataParallel(module)
        sum(y.square().sum() for y in tree_leaves(parallel(**inputs))).backward()
        del parallel  # before the group, which it would wait for while it holds Python's lock
    finally:
        torch.distributed.destroy_process_group()
    gradients = [parameter.grad for parameter in module.parameters()]
    total = sum(y.square().sum() for y in tree_leaves(module(**inputs)))
    expected = torch.autograd.grad(total, list(module.parameters()), allow_unused=True)
    assert_same(
        [one for one in gradients if one is not None], [one for one in expected if one is not None]
    )


def state_of(module):
    """What the parts of a module hold: the very objects, and what is in containers of hooks."""
    attributes = {}
    for name, part in module.named_modules():
        for key, value in vars(part).items():
            attributes[name, key] = value
            if isinstance(value, dict):
                attributes[name, key, "keys"] = tuple(value)
    return attributes


def assert_alike(before, after):
    assert before.keys() == after.keys()
    changed = [
        key for key, value in before.items() if after[key] is not value and after[key] != value
    ]
    assert not changed


@both_ways
@of_each_layer("ours")
def test_threads_share_a_layer_and_nothing_is_left_behind(name, fuse):
    flow = {} if "flow" in LAYERS[name].but else {"flow": "target_to_source"}
    module, _ = module_and_inputs(name, fuse=fuse, **flow)
    inputs = [LAYERS[name].inputs(nodes, 3 * nodes) for nodes in (12, 7, 20, 9, 15, 5, 10, 14)]

    def call(arguments):
        if not isinstance(module, AttentionConv):
            return module(**arguments)
        out, basis = module(**arguments, return_attention_weights=True)
        return out, basis.to_dense()

    expected = [call(arguments) for arguments in inputs]
    before = state_of(module)
    faulthandler.dump_traceback_later(300, exit=True)  # threads that wait for each other
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(call, inputs * 3))
    faulthandler.cancel_dump_traceback_later()
    assert_alike(before, state_of(module))
    assert_same(actual, expected * 3)


@both_ways
@of_each_layer("messages", "ours")
def test_a_call_that_fails_leaves_nothing_behind(name, fuse):
    module, inputs = module_and_inputs(name, fuse=fuse)
    module(**inputs)

    def fail(*_):
        raise RuntimeError("stop")

    module.register_message_forward_hook(fail)
    before = state_of(module)
    with pytest.raises(RuntimeError, match="stop"):
        module(**inputs)
    assert_alike(before, state_of(module))


PLACE = r"where its parameters are|where the features are|one place|meta has none"


@both_ways
@of_each_layer("ours", "parameters", "elsewhere")
def test_parameters_elsewhere_are_refused_one_by_one(name, fuse):
    module, inputs = module_and_inputs(name, fuse=fuse)
    for key in [key for key, _ in module.named_parameters()]:
        broken = copy.deepcopy(module)
        owner, _, own = key.rpartition(".")
        far = torch.nn.Parameter(broken.get_parameter(key).to("meta"))
        setattr(broken.get_submodule(owner), own, far)
        with pytest.raises(ValueError, match=r"where its parameters are.*got meta"):
            broken(**inputs)
    with pytest.raises(ValueError, match="to_empty"):
        copy.deepcopy(module).to("meta")(**inputs)


@of_each_layer("ours", "elsewhere")
def test_inputs_elsewhere_are_refused(name):
    assert_refused_elsewhere(*module_and_inputs(name))


@of_each_layer("ours", "elsewhere", "channels", "first")
def test_inputs_elsewhere_are_refused_by_a_layer_that_never_ran(name):
    assert_refused_elsewhere(*module_and_inputs(name, -1))


def assert_refused_elsewhere(module, inputs):
    """Any part of the input on another device, or all of it; and nothing has changed."""
    before = {key: repr(value) for key, value in module.state_dict().items()}
    for far in (*([key] for key in inputs), list(inputs)):
        moved_inputs = {
            key: part.to("meta") if key in far else part for key, part in inputs.items()
        }
        with pytest.raises(ValueError, match=PLACE):
            module(**moved_inputs)
    assert {key: repr(value) for key, value in module.state_dict().items()} == before


@of_each_layer("flow")
def test_the_other_flow_is_flipped_edges(name):
    module, inputs = module_and_inputs(name)
    other, _ = module_and_inputs(name, flow="target_to_source")
    other.load_state_dict(module.state_dict())
    expected = module(**{**inputs, "edge_index": inputs["edge_index"].flip(0)})
    assert_same(other(**inputs), expected)
    for part in other.modules():
        if isinstance(part, OuterConv):
            part.fuse = False
            assert part.flow == "target_to_source"
    assert_same(other(**inputs), expected)


@of_each_layer("pygs", "ours")
def test_pyg_asserts_permutation_and_layouts(name):
    module, inputs = module_and_inputs(name)
    inputs["edge_index"] = inputs["edge_index"].unique(dim=1)
    count = inputs["edge_index"].size(1)
    beside = {key: part[:count] for key, part in inputs.items() if key.startswith("edge_t")}
    beside |= {"test_sparse_layouts": []} if beside else {}
    size = (NODES, LAYERS[name].inputs()["x"].size(1)) if name == "agnn" else (NODES, 6)
    assert_module(
        module, inputs["x"], inputs["edge_index"], expected_size=size, atol=1e-5, **beside
    )


def through(module, inputs, mode):
    """Call a layer with its numbers in a mode of torch."""
    numbers = {key: one for key, one in inputs.items() if one.is_floating_point()}

    def loss(numbers):
        return sum(out.sin().sum() for out in tree_leaves(module(**{**inputs, **numbers})))

    if mode in (torch.inference_mode, torch.no_grad):
        with mode():
            module(**inputs)
    elif mode is jvp:
        jvp(loss, (numbers,), (numbers,))
    elif mode is vmap:
        vmap(grad(loss))(tree_map(lambda x: x.unsqueeze(0), numbers))
    else:
        mode(loss)(numbers)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, grad, jvp, vmap])
@of_each_layer()
def test_what_other_modes_made_serves_training(name, mode):
    module, inputs = module_and_inputs(name)
    expected = results(module, inputs)
    clear_caches()
    through(module, inputs, mode)
    assert_same(results(module, inputs), expected)
