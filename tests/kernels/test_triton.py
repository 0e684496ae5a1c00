"""The Triton backend against the reference: interpreted on a CPU, compiled where a GPU is.

On a CPU they run with ``TRITON_INTERPRET=1`` alone, in a process of their own (``make test`` starts
it): Triton reads it when it is imported, and no layer compiles in one graph where it is set.
"""

import importlib.util
import random
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton")

import triton
import triton.language as tl

from pyg_outerconv import AttentionConv, OuterConv, testing, use_backend
from pyg_outerconv.families import Relation
from pyg_outerconv.kernels import backends
from pyg_outerconv.kernels.activation import Activation
from pyg_outerconv.kernels.backend import Attention, Groups, Neurons, Request
from pyg_outerconv.kernels.backends.reference import Reference
from pyg_outerconv.kernels.backends.triton import INTERPRETED, addressing, balance, occupancy
from pyg_outerconv.kernels.backends.triton_backend import Triton
from pyg_outerconv.kernels.csr import CSR
from pyg_outerconv.kernels.tiles import rows_of
from pyg_outerconv.lab.gpu import Timed
from pyg_outerconv.testing import assert_near, primitive_calls
from pyg_outerconv.testing.backend_laws import derivatives_by, has_call, tangent_by

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
FOLDER = Path(__file__).resolve().parent
if not (CUDA or INTERPRETED):
    pytest.skip("on a CPU: run with TRITON_INTERPRET=1", allow_module_level=True)
needs_cuda = pytest.mark.skipif(not CUDA, reason="there is no CUDA device here")
needs_interpreter = pytest.mark.skipif(not INTERPRETED, reason="the kernels are compiled here")
# numpy, of which the interpreter is made, warns of what masks throw away.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEGREES = (0, 1, 17, 40, 0, 5)
SKEWED = (0, 1, 17, 300, 0, 5)
COLUMNS = 11
GROUPS = (0, 7, 0, 2, 13)
LABELS = 4
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 5e-3,
    torch.bfloat16: 4e-2,
}


class Inputs:
    """Random operands of every primitive, for one matrix."""

    def __init__(self, degrees, heads, channels, dtype, index_dtype):
        self.dtype, self.index_dtype = dtype, index_dtype
        self.generator = torch.Generator().manual_seed(0)
        rows = len(degrees)
        row = torch.arange(rows).repeat_interleave(torch.tensor(degrees, dtype=torch.int64))
        self.entries = row.numel()
        index = self.integers(COLUMNS, self.entries)
        perm = index.sort(stable=True).indices
        self.ptr, self.index = self.pointer(degrees), self.positions(index)
        columns = index.bincount(minlength=COLUMNS).tolist()
        self.far = (self.pointer(columns), self.positions(row[perm]), self.positions(perm))
        label = self.integers(LABELS, self.entries)
        # By row, and within a row by label.
        self.label = self.positions((row * LABELS + label).sort().values % LABELS)

        self.value = self.dense(self.entries, heads)
        self.x, self.shared = self.dense(COLUMNS, heads, channels), self.dense(COLUMNS, 1, channels)
        self.rows, self.shared_rows = (
            self.dense(rows, heads, channels),
            self.dense(rows, 1, channels),
        )
        self.bias = self.dense(self.entries, heads)
        self.bias[: min(self.entries, 3)] = -torch.inf  # all of a row, and two of the next
        self.sent = self.dense(COLUMNS, heads, 5)
        self.grad = self.dense(rows, heads, 5)
        self.label_theta = self.dense(LABELS, channels, 7)

        self.groups = self.pointer(GROUPS)
        self.gather = self.distinct(COLUMNS + 2)
        self.scatter = self.distinct(COLUMNS + 3)
        self.theta = self.dense(len(GROUPS), channels, 6)
        self.plain = self.dense(sum(GROUPS), channels)
        self.gathered = self.dense(COLUMNS + 2, channels)
        self.scattered = self.dense(COLUMNS + 3, 6)
        self.plain_out = self.dense(sum(GROUPS), 6)
        self.weight = self.dense(1, heads, channels)
        self.ends = self.dense(rows, heads), self.dense(COLUMNS, heads), self.sent

    def dense(self, *shape):
        return torch.randn(shape, generator=self.generator).to(DEVICE, self.dtype)

    def integers(self, high, number):
        return torch.randint(high, (number,), generator=self.generator)

    def positions(self, tensor):
        return tensor.to(DEVICE, self.index_dtype)

    def pointer(self, degrees):
        return self.positions(torch.tensor([0, *degrees], dtype=torch.int64).cumsum(0))

    def distinct(self, high):
        """Rows for each group, none twice within a group."""
        picks = [torch.randperm(high, generator=self.generator)[:size] for size in GROUPS]
        return self.positions(torch.cat(picks))


def theta_of(backend, i, value):
    return backend.spmm_theta(
        i.ptr, i.index, i.label, value, i.shared.squeeze(1).contiguous(), i.label_theta
    )


def neurons_of(backend, i, left, right, *phi):
    neurons = Neurons(i.rows, i.x, left, right, Activation(*phi))
    return backend.additive(i.ptr, i.index, neurons)


def rows_of_neurons(backend, i, right, *phi, count):
    neurons = Neurons(i.rows, i.x, None, right, Activation(*phi))
    return backend.additive_rows(i.ptr, i.index, neurons, i.value, count)


def attended(backend, i, *operands):
    """The sums, and the logarithm of the sum of exponentials of scores in each row."""
    out, total = backend.attend(i.ptr, i.index, Attention(*operands))
    if isinstance(backend, Reference):  # which has no need of them
        score, _ = backend._scores(i.ptr, i.index, Attention(*operands))
        of_row = score.new_full((len(total), *score.shape), -torch.inf)
        of_row[rows_of(i.ptr), torch.arange(len(score), device=DEVICE)] = score
        total = of_row.logsumexp(1)
    return out, total


def backward(backend, i):
    bias = i.bias
    attention = Attention(i.rows, i.x, i.sent, bias, 0.3, False)
    out, total = backend.attend(i.ptr, i.index, attention)
    return backend.attend_backward(i.ptr, i.index, *i.far, attention, out, total, i.grad)


def backward_of_ends(backend, i):
    attention = Attention(*i.ends, None, 0.2, True)
    out, total = backend.attend(i.ptr, i.index, attention)
    *gradients, none = backend.attend_backward(
        i.ptr, i.index, *i.far, attention, out, total, i.grad
    )
    assert none.numel() == 0
    # Those of the ends are small sums of large terms.
    return torch.cat([x.flatten() for x in gradients])


CALLS = {
    "spmm": lambda b, i: b.spmm(i.ptr, i.index, i.value, i.x),
    "spmm, one x for all heads": lambda b, i: b.spmm(i.ptr, i.index, i.value, i.shared),
    "spmm of ones": lambda b, i: b.spmm(i.ptr, i.index, None, i.x),
    "argmax": lambda b, i: b.spmm_arg(i.ptr, i.index, i.value, i.x, True),
    "argmin, one x for all heads": lambda b, i: b.spmm_arg(
        i.ptr, i.index, i.value, i.shared, False
    ),
    "argmin of ones": lambda b, i: b.spmm_arg(i.ptr, i.index, None, i.x, False),
    "spmm_theta": lambda b, i: theta_of(b, i, i.value[:, 0].contiguous()),
    "spmm_theta of ones": lambda b, i: theta_of(b, i, None),
    "sddmm": lambda b, i: b.sddmm(i.ptr, i.index, i.rows, i.x),
    "sddmm, one a for all heads": lambda b, i: b.sddmm(i.ptr, i.index, i.shared_rows, i.x),
    "sddmm, one b for all heads": lambda b, i: b.sddmm(i.ptr, i.index, i.rows, i.shared),
    "segment_sum": lambda b, i: b.segment_sum(i.ptr, i.value),
    "segment_softmax": lambda b, i: b.segment_softmax(i.ptr, i.bias),
    "attend": lambda b, i: attended(b, i, i.rows, i.x, i.sent, i.bias, 0.3, False),
    "attend without bias": lambda b, i: attended(b, i, i.rows, i.x, i.x, None, 0.3, False),
    "attend_backward": backward,
    "attend ends": lambda b, i: attended(b, i, *i.ends, None, 0.2, True),
    "attend_backward of ends": backward_of_ends,
    "additive": lambda b, i: neurons_of(b, i, i.weight, None, "leaky_relu", 0.2, 0),
    "additive tanh": lambda b, i: neurons_of(b, i, i.rows, i.x, "tanh", 0.0, 2),
    "additive exp": lambda b, i: neurons_of(b, i, None, i.weight, "exp", 0.0, 1),
    "additive_rows": lambda b, i: rows_of_neurons(b, i, None, "leaky_relu", 0.2, 0, count=2),
    "additive_rows tanh": lambda b, i: rows_of_neurons(b, i, i.x, "tanh", 0.0, 1, count=3),
    "additive_rows square": lambda b, i: rows_of_neurons(b, i, i.x, "square", 0.0, 1, count=1),
    "grouped_matmul": lambda b, i: b.grouped_matmul(
        i.gathered, i.theta, Groups(i.groups, i.gather, i.scatter, COLUMNS + 3)
    ),
    "grouped_matmul in place": lambda b, i: b.grouped_matmul(
        i.plain, i.theta, Groups(i.groups, None, None, sum(GROUPS) + 2)
    ),
    "grouped_outer": lambda b, i: b.grouped_outer(
        i.gathered, i.scattered, Groups(i.groups, i.gather, i.scatter, len(i.scattered))
    ),
    "grouped_outer in place": lambda b, i: b.grouped_outer(
        i.plain, i.plain_out, Groups(i.groups, None, None, len(i.plain_out))
    ),
}
SIZES = {
    "1 head, 1 channel": (1, 1, torch.float32, torch.int64),
    "3 heads, 3 channels": (3, 3, torch.float32, torch.int32),
    "1 head, 16 channels": (1, 16, torch.float32, torch.int32),
    "3 heads, 33 channels": (3, 33, torch.float32, torch.int64),
    "2 heads, 130 channels": (2, 130, torch.float32, torch.int32),
    "float16, 65 channels": (1, 65, torch.float16, torch.int64),
    "float64": (3, 3, torch.float64, torch.int32),
}


def outputs(call, backend, inputs):
    out = CALLS[call](backend, inputs)
    return out if isinstance(out, tuple) else (out,)


def assert_equals_reference(call, inputs):
    actual, expected = (outputs(call, backend, inputs) for backend in (Triton(), Reference()))
    for out, wanted in zip(actual, expected, strict=True):
        assert out.dtype == wanted.dtype
        assert out.shape == wanted.shape
        if not out.is_floating_point():
            assert torch.equal(out, wanted)
            continue
        finite = wanted.isfinite()
        assert torch.equal(out[~finite], wanted[~finite])  # -inf, never NaN
        testing.assert_near(out[finite], wanted[finite], TOLERANCE[inputs.dtype])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("call", CALLS)
def test_equals_reference(call, size):
    assert_equals_reference(call, Inputs(DEGREES, *SIZES[size]))


@pytest.mark.slow(cases=10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_long_rows_are_shared_by_several_programs(call, dtype, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", 8)
    assert_equals_reference(call, Inputs(DEGREES, 3, 5, dtype, torch.int32))


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("call", CALLS)
def test_equal_input_gives_equal_bits(call, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", 8)  # of whole rows and of pieces
    first, second = (
        outputs(call, Triton(), Inputs((0, 19, 4), 2, 5, torch.float32, torch.int32))
        for _ in range(2)
    )
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("call", CALLS)
def test_addresses_in_64_bits(call, monkeypatch):
    monkeypatch.setattr(addressing, "INT32_MAX", 0)
    assert_equals_reference(call, Inputs((0, 19, 4), 2, 3, torch.float32, torch.int32))


NOTHING = {
    "no rows": ((), 2, 3),
    "no entries": ((0, 0, 0), 2, 3),
    "no heads": (DEGREES, 0, 3),
    "no channels": (DEGREES, 2, 0),
}


@pytest.mark.parametrize(
    ("call", "nothing"),
    [
        (call, nothing)
        for call in CALLS
        for nothing in NOTHING
        if not (call.startswith("spmm_theta") and nothing == "no heads")  # it has none ever
    ],
)
def test_nothing_to_do(call, nothing):
    assert_equals_reference(call, Inputs(*NOTHING[nothing], torch.float32, torch.int32))


def test_no_values_at_all_in_attention():
    inputs = Inputs(DEGREES, 2, 3, torch.float32, torch.int32)
    nothing = inputs.sent[:, :, :0].contiguous()
    out, total = attended(Triton(), inputs, inputs.rows, inputs.x, nothing, None, 1.0, False)
    _, wanted = attended(Reference(), inputs, inputs.rows, inputs.x, inputs.x, None, 1.0, False)
    assert out.shape == (len(DEGREES), 2, 0)
    assert torch.equal(total.isinf(), wanted.isinf())
    testing.assert_near(total[total.isfinite()], wanted[wanted.isfinite()], 1e-5)


@pytest.mark.parametrize("limit", [8, balance.LIMIT])
def test_rows_that_attend_to_nothing_are_zeros_with_zero_gradients(limit, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", limit)
    i = Inputs((20, 3), 2, 3, torch.float32, torch.int32)
    bias = i.bias.clone()
    bias[:20] = -torch.inf
    attention = Attention(i.rows, i.x, i.sent, bias, 1.0, False)
    out, total = Triton().attend(i.ptr, i.index, attention)
    assert torch.equal(out[0], torch.zeros_like(out[0]))
    assert torch.equal(total[0], torch.full_like(total[0], -torch.inf))
    query, key, value, score = Triton().attend_backward(
        i.ptr, i.index, *i.far, attention, out, total, i.grad
    )
    assert torch.equal(query[0], torch.zeros_like(query[0]))
    assert torch.equal(score[:20], torch.zeros_like(score[:20]))
    assert key.isfinite().all()
    assert value.isfinite().all()
    assert torch.equal(Triton().segment_softmax(i.ptr, bias)[:20], torch.zeros_like(bias[:20]))


@pytest.mark.parametrize("limit", [8, balance.LIMIT])
def test_nan_is_largest_and_least_and_stays_nan_in_sums(limit, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", limit)
    i = Inputs((30, 5), 1, 3, torch.float32, torch.int32)
    value = i.value.clone()
    value[25] = torch.nan
    for largest in (True, False):
        arg = Triton().spmm_arg(i.ptr, i.index, value, i.x, largest)
        assert (arg[0] == 25).all()
        assert torch.equal(arg, Reference().spmm_arg(i.ptr, i.index, value, i.x, largest))
    for out in (
        Triton().spmm(i.ptr, i.index, value, i.x),
        Triton().segment_sum(i.ptr, value),
        attended(Triton(), i, i.rows, i.x, i.x, value, 1.0, False)[0],
    ):
        assert out[0].isnan().all()
        assert out[1].isfinite().all()
    assert Triton().segment_softmax(i.ptr, value)[25].isnan().all()


@pytest.mark.parametrize("limit", [8, balance.LIMIT])
def test_of_equal_products_the_first_is_taken(limit, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", limit)
    ptr = torch.tensor([0, 40], device=DEVICE)
    index = torch.zeros(40, dtype=torch.int64, device=DEVICE)
    x = torch.tensor([[[2.0, -torch.inf, torch.inf]]], device=DEVICE)
    for largest in (True, False):
        assert torch.equal(
            Triton().spmm_arg(ptr, index, None, x, largest), torch.zeros_like(x, dtype=torch.int64)
        )


def drawn_matrix(draw):
    """A matrix of some size, of either type of index, with long, short and empty rows."""
    rows, columns = draw.randint(1, 5), draw.randint(1, 5)
    degrees = torch.tensor(draw.choices((0, 1, 2, 19, 40), k=rows))
    dtype = draw.choice((torch.int32, torch.int64))
    ptr = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]).to(DEVICE, dtype)
    return CSR(ptr, torch.randint(columns, (int(degrees.sum()),)).to(DEVICE, dtype), columns)


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("number", range(60))
def test_values_and_derivatives_of_drawn_sizes_equal_those_of_the_reference(number, monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", 32)
    torch.manual_seed(number)
    draw = random.Random(number)
    csr, heads = drawn_matrix(draw), draw.choice((1, 2, 3, 8, 16))
    channels = draw.choice((1, 2, 7, 16, 33, 130, 300) if heads < 4 else (1, 3, 8))
    calls = primitive_calls(csr, channels, heads)
    function, shapes = calls[draw.choice([name for name in calls if has_call("triton", name)])]
    # Operands that do not lie one number after another.
    wide = {key: torch.randn(*shape, 2, dtype=torch.float64) for key, shape in shapes.items()}
    inputs = {key: x.to(DEVICE)[..., 1] for key, x in wide.items()}
    actual, wanted = (
        derivatives_by(one, function, inputs) | {"along": tangent_by(one, function, inputs)}
        for one in ("triton", "reference")
    )
    for what, expected in wanted.items():
        assert_near(actual[what].detach(), expected.detach(), at_least=1.0)


INDICES = pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)


@pytest.mark.slow(cases=4)
@INDICES
@pytest.mark.parametrize("call", CALLS)
def test_rows_about_the_length_of_a_piece(call, index_dtype):
    limit = balance.LIMIT
    degrees = (0, 1, limit - 1, limit, limit + 1, 0, 2 * limit)
    assert_equals_reference(call, Inputs(degrees, 1, 2, torch.float32, index_dtype))


@pytest.mark.slow(cases=1)
@INDICES
@pytest.mark.parametrize("call", ["segment_sum", "attend ends"])
def test_a_row_of_100_000_entries(call, index_dtype):
    # In float64, for sums of so many numbers of float32 are rounded by more, in the reference too.
    i = Inputs((3, 100_000, 0), 1, 2, torch.float64, index_dtype)
    assert_equals_reference(call, i)


class Unread(TorchDispatchMode):
    """Operations that would wait for a GPU, which must tell the size of a result or a number."""

    WAIT = (
        "_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "nonzero_numpy",
        "masked_select", "repeat_interleave", "_unique2", "unique_consecutive", "bincount",
    )  # fmt: skip

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        name = function.overloadpacket.__name__
        assert name not in self.WAIT or (options or {}).get("output_size"), name
        return function(*arguments, **options or {})


@pytest.mark.parametrize("call", CALLS)
def test_nothing_waits_for_a_gpu_between_a_call_and_its_launches(call, monkeypatch):
    """Of a graph that no call has seen, with long rows; what runs on a GPU is torch's or ours."""
    started = []
    i = Inputs(SKEWED, 2, 3, torch.float32, torch.int32)
    monkeypatch.setattr(balance.Plan, "start", lambda plan, *_: started.append(plan))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda _: pytest.fail("tolist waits"))
    # Which reads an answer that is here, without waiting for it.
    monkeypatch.setattr(balance.Pieces, "hear", lambda _: None)
    with Unread():
        CALLS[call](Triton(), i)
    assert started


# Where things lie ---------------------------------------------------------------------------


def test_64_bits_are_needed_beyond_the_largest_32_bit_integer():
    def sized(*shape):
        return torch.empty(shape, device="meta", dtype=torch.float16)

    assert not addressing.needs_int64(sized(2**31 - 1), None)
    assert addressing.needs_int64(sized(3), sized(2**31))
    assert addressing.needs_int64(sized(2**20, 32, 64))  # the product is what counts
    assert not addressing.needs_int64(sized(2**20, 31, 64))


@triton.jit
def offset_kernel(position, out, stride, WIDE: tl.constexpr):
    place = addressing.offset(tl.load(position), stride, WIDE)
    tl.store(out, place.to(tl.int64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_offsets_are_right_beyond_2_to_the_31_if_wide(dtype):
    position = torch.tensor([70_000], dtype=dtype, device=DEVICE)
    out = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    offset_kernel[(1,)](position, out, 70_000, WIDE=True)
    assert out.item() == 70_000 * 70_000
    offset_kernel[(1,)](position, out, 30_000, WIDE=False)
    assert out.item() == 70_000 * 30_000


@pytest.mark.parametrize("scale", [0.3, 1.0, -1e-3, 12345.678])
def test_a_scale_reaches_the_kernel_in_two_halves(scale):
    high, low = addressing.halves(scale)
    assert high == torch.tensor(scale, dtype=torch.float32).item()
    assert high + low == scale


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shared", [True, False])
def test_tiles_cover_heads_and_channels_and_stay_small(dtype, shared):
    for heads in (1, 3, 8, 100):
        for channels in (0, 1, 16, 33, 1000):
            tile = addressing.tile(heads, channels, dtype, shared)
            assert tile.heads * tile.head_blocks >= heads
            assert tile.channels * tile.channel_blocks >= channels
            assert tile.entries * tile.heads * tile.channels <= 4096
            for size in tile[:3]:
                assert size == addressing.power_of_two(size)


def test_pieces_cover_long_rows_once_and_in_order():
    ptr = torch.tensor([0, 3, 3, 24, 32, 41])
    pieces = balance.cut(ptr, 41, limit=8, above=8)
    assert pieces.number == balance.TOGETHER  # no matrix of 41 entries has more; the rest is empty
    assert pieces.long.tolist() == [2, 4, -1, -1]
    assert pieces.ptr.tolist() == [0, 3, 5, 5, 5]
    assert pieces.row.tolist() == [2, 2, 2] + [4] * 29
    assert pieces.owner.tolist() == [0, 0, 0, 1, 1] + [3] * 27
    assert pieces.begin.tolist() == [3, 11, 19, 32, 40] + [41] * 27
    none = balance.cut(ptr, 41, limit=21, above=21)
    assert (none.long.tolist(), set(none.begin.tolist())) == ([-1], {41})
    every = balance.cut(ptr, 41, limit=8, above=0)
    assert every.row.tolist() == [0, 2, 2, 2, 3] + [4] * 27


def test_pieces_are_remembered_until_the_pointer_changes():
    ptr = torch.tensor([0, 20, 24])
    first = balance.pieces_of(ptr, 24, 8)
    assert balance.pieces_of(ptr, 24, 8) is first
    assert balance.pieces_of(ptr, 24, 16) is not first
    ptr[1] = 4
    assert balance.pieces_of(ptr, 24, 8).begin.tolist()[:4] == [4, 12, 20, 24]
    with torch.inference_mode():
        uncounted = torch.tensor([0, 20, 24])
        first = balance.pieces_of(uncounted, 24, 8)
        assert balance.pieces_of(uncounted, 24, 8) is not first


def test_once_a_gpu_has_told_how_many_pieces_there_are_no_more_are_started(monkeypatch):
    monkeypatch.setattr(balance, "LIMIT", 8)
    monkeypatch.setattr(balance.Pieces, "ask", lambda *_: None)  # whose answers come below
    i = Inputs((0, 1, 17, 5, *(1,) * 300, 40), 2, 3, torch.float32, torch.int32)
    programs, start = [], balance.Plan.start

    def counted(plan, jobs, *arguments):
        programs.append(jobs)
        start(plan, jobs, *arguments)

    monkeypatch.setattr(balance.Plan, "start", counted)
    before = attended(Triton(), i, i.rows, i.x, i.x, None, 1.0, False)
    pieces = balance.pieces_of(i.ptr, i.entries)
    most, rows = pieces.number, i.ptr.numel() - 1
    arrived = SimpleNamespace(query=lambda: False)
    pieces._answer = torch.tensor([8, 2]), arrived
    attended(Triton(), i, i.rows, i.x, i.x, None, 1.0, False)
    arrived.query = lambda: True
    after = attended(Triton(), i, i.rows, i.x, i.x, None, 1.0, False)
    bound = [most + rows, i.entries // 9]
    assert programs == [*bound, *bound, balance.TOGETHER + rows, 2]
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one, other)
    pieces._answer = torch.tensor([0, 0]), arrived  # as of a matrix without long rows
    balance.pieces_of(i.ptr, i.entries)
    programs.clear()
    Triton().segment_sum(i.ptr, i.value)
    assert programs == [rows]


def test_short_matrices_are_not_looked_at():
    class Untouchable:
        pass

    assert balance.pieces_of(Untouchable(), 256, 256) is None


def test_a_kernel_runs_on_the_device_of_its_tensors(monkeypatch):
    events = []

    @contextmanager
    def guard(device):
        events.append(f"enter {device}")
        yield
        events.append("leave")

    class Kernel:
        __name__ = "kernel"

        def __getitem__(self, grid):
            return lambda *arguments, **constants: events.append((grid, arguments, constants))

    class OnSecond:
        def get_device(self):
            return 1

    monkeypatch.setattr(torch.cuda, "device", guard)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    plan = balance.Plan(Kernel(), 2, 3, (5,), {"num_warps": 2})
    plan.start(4, OnSecond(), ("a",))
    started = ((6,), ("a", 5), {"num_warps": 2})
    assert events == ["enter 1", started, "leave"]
    plan.start(0, OnSecond(), ("a",))
    assert len(events) == 3
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    plan.start(3, OnSecond(), ("a",))
    assert events[3:] == [started]


def test_a_model_tells_what_fits_on_a_processor():
    i = Inputs(DEGREES, 1, 64, torch.float32, torch.int32)
    with occupancy.launched() as launches:
        Triton().spmm(i.ptr, i.index, None, i.x)
    Triton().spmm(i.ptr, i.index, None, i.x)
    (one,) = launches
    assert one.name == "spmm_kernel"
    few, many = (
        SimpleNamespace(n_regs=registers, metadata=SimpleNamespace(num_warps=1, shared=0))
        for registers in (64, 255)
    )
    both = [one._replace(code=code) for code in (few, many)]
    lines = [Timed(one, [1e-3, 2e-3, 9e-3]).line(1e12) for one in both]
    assert " 64 registers, 32 of 64 warps, 100% of the bandwidth" in lines[0]
    assert lines[0].endswith("; measured 107% in 2.000 ms")  # of 2^31 bytes that are read
    assert "255 registers, 8 of 64 warps, 50% of" in lines[1]
    assert Timed(both[0], []).line(1e12).endswith("not measured: the profiler saw no run of it")


LAYERS = {
    "fused": lambda: OuterConv(3, 4, "relation(2, None)"),
    "sums": lambda: OuterConv(3, 4, "chebyshev(3)"),
    "maximum": lambda: OuterConv(3, 4, "gcn", aggr="max"),
    "grouped": lambda: OuterConv(3, 4, "relation(2, None)", order="transform_first_compact"),
    "attention": lambda: AttentionConv(3, 4, heads=2),
    "additive scores": lambda: AttentionConv(3, 4, heads=2, score="additive"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_jvp_runs_the_kernels_whatever_wraps_the_indices(name):
    layer = LAYERS[name]().to(DEVICE)
    edges = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 3, 2, 3]], device=DEVICE)
    x, along = torch.randn(2, 4, 3, device=DEVICE)
    kinds = torch.tensor([0, 1, 1, 0, 0], device=DEVICE)
    options = {"edge_type": kinds} if isinstance(layer.family, Relation) else {}

    def derivatives(backend):
        with use_backend(backend):
            # A copy of the edges that the transform wraps, and the edges as they are.
            copied = torch.func.jvp(lambda x: layer(x, edges.clone(), **options), (x,), (along,))
            shared = torch.func.jvp(lambda x: layer(x, edges, **options), (x,), (along,))
        return [*copied, *shared]

    for actual, expected in zip(derivatives("triton"), derivatives("reference"), strict=True):
        testing.assert_near(actual, expected, 1e-5)


# Facts and refusals -------------------------------------------------------------------------


def request(dtype, device):
    return Request("spmm", device, dtype, torch.int32, (3, 3), 4, 2)


@needs_interpreter
def test_interpreted_it_refuses_to_tune(monkeypatch):
    monkeypatch.setattr(backends.triton, "TUNED", True)
    (reason,) = Triton().why_not(request(torch.float32, "cpu"))
    assert reason == "Triton's interpreter cannot tune (PYG_OUTERCONV_TRITON_TUNE=1)"


@needs_interpreter
def test_interpreted_it_is_only_picked_by_name_and_refuses_bfloat16():
    backend = Triton()
    assert backend.priority == 0
    assert backend.why_not(request(torch.float32, "cpu")) == []
    (reason,) = backend.why_not(request(torch.bfloat16, "cpu"))
    assert reason == "bfloat16 arithmetic is wrong under Triton's interpreter"


def test_it_says_that_triton_is_missing(monkeypatch):
    assert Triton().missing() == []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (reason,) = Triton().missing()
    assert reason == "triton is not installed (pip install 'pyg_outerconv[triton]')"


# What a device alone can show -----------------------------------------------------------------


@needs_cuda
@pytest.mark.parametrize("call", CALLS)
def test_bfloat16(call):
    assert_equals_reference(call, Inputs(SKEWED, 3, 33, torch.bfloat16, torch.int32))


@needs_cuda
@pytest.mark.parametrize("call", CALLS)
def test_autotune(call, monkeypatch):
    monkeypatch.setattr(backends.triton, "TUNED", True)
    assert_equals_reference(call, Inputs(SKEWED, 3, 33, torch.float32, torch.int32))


@needs_cuda
def test_largest_sizes():
    rows = 2**25 + 3  # times 64 channels, past 2^31
    x = torch.zeros(rows, 1, 64, dtype=torch.float16, device=DEVICE)
    x[-1] = 1
    ptr = torch.tensor([0, 1], dtype=torch.int32, device=DEVICE)
    index = torch.tensor([rows - 1], dtype=torch.int32, device=DEVICE)
    assert Triton().spmm(ptr, index, None, x).eq(1).all()
    assert Triton().sddmm(ptr, index, x[-1:], x).eq(64).all()
    assert Triton().spmm_arg(ptr, index, None, x, True).eq(0).all()
    out, _ = Triton().attend(ptr, index, Attention(x[-1:], x, x, None, 1.0, False))
    assert out.eq(1).all()
    theta = torch.ones(1, 64, 2, dtype=torch.float16, device=DEVICE)
    groups = Groups(torch.tensor([0, 1], device=DEVICE), index, None, 1)
    assert Triton().grouped_matmul(x.squeeze(1), theta, groups).eq(64).all()
