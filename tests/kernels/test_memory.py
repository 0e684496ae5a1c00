"""No backend but the reference holds entries × channels; tiles of entries; where indices end."""

import pytest
import torch
from matrices import backends_on, calls_of, random_inputs
from probes import Largest, Watched

from pyg_outerconv.basis import Pattern
from pyg_outerconv.basis.pattern import SHORT
from pyg_outerconv.kernels import BACKENDS, grouped_matmul, spmm, use_backend
from pyg_outerconv.kernels.tiles import rows_of, tiles
from pyg_outerconv.testing import assert_near, primitive_calls

ROWS, ENTRIES, HEADS, CHANNELS = 256, 4_000, 2, 16


def csr_of_many():
    index = torch.randint(ROWS, (2, ENTRIES))
    return Pattern.build(index, size=(ROWS, ROWS)).by_target


def largest_nbytes(backend, function, inputs, monkeypatch):
    """Bytes of the largest tensor in forward, backward, and backward of that."""
    watched = Watched(BACKENDS[backend])
    monkeypatch.setitem(BACKENDS, backend, watched)
    with use_backend(backend), Largest() as outside:
        function(*inputs).sum().backward()
        first = torch.autograd.grad(
            function(*inputs).float().sin().sum(), inputs, create_graph=True
        )
        torch.autograd.grad(sum(gradient.float().sin().sum() for gradient in first), inputs)
    monkeypatch.undo()
    return max(watched.nbytes, outside.nbytes)


def gathered_groups():
    """One product for each entry, with operands of the size of the rows only."""
    place = torch.cat([torch.randperm(ROWS) for _ in range(ENTRIES // ROWS + 1)])[:ENTRIES]
    ptr = torch.arange(0, ENTRIES + ROWS, ROWS).clamp_(max=ENTRIES)

    def function(x, theta):
        return grouped_matmul(x, ptr, theta, gather=place, scatter=place, num_rows=ROWS)

    channels = HEADS * CHANNELS
    return function, {"x": (ROWS, channels), "theta": (ptr.numel() - 1, channels, channels)}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("backend", backends_on("cpu"))
def test_never_holds_entries_times_channels(backend, dtype, monkeypatch):
    csr = csr_of_many()
    calls = [
        call
        for call in calls_of(backend, csr, CHANNELS, HEADS)
        if not call[0].startswith("grouped_matmul")  # whose operands are of that size
    ]
    if "grouped_matmul" in BACKENDS[backend].primitives:
        calls.append(("grouped_matmul of rows", *gathered_groups()))
    product = ENTRIES * HEADS * CHANNELS * dtype.itemsize
    for name, function, shapes in calls:
        inputs = random_inputs(shapes, dtype)
        monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", 4096)
        largest = largest_nbytes(backend, function, inputs, monkeypatch)
        assert largest < product / 2, f"{name} holds {largest} bytes, of {product}"


@pytest.mark.parametrize("name", ["spmm sum", "spmm max", "sddmm dot", "attend", "grouped_matmul"])
def test_the_probe_sees_what_the_reference_holds(name, monkeypatch):
    function, shapes = (
        gathered_groups()
        if name == "grouped_matmul"
        else primitive_calls(csr_of_many(), CHANNELS, HEADS)[name]
    )
    largest = largest_nbytes(
        "reference", function, random_inputs(shapes, torch.float32), monkeypatch
    )
    assert largest >= ENTRIES * HEADS * CHANNELS * 4


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("elements", [1, 7, 64, 10_000])
@pytest.mark.parametrize("backend", backends_on("cpu"))
def test_where_tiles_cut_a_row_changes_nothing(backend, elements, monkeypatch):
    # Row 0 is longer than most tiles, rows 1 to 4 are empty, and many entries are equal.
    source = torch.randint(6, (60,))
    target = torch.where(torch.arange(60) < 40, 0, 5 + torch.arange(60) % 4)
    csr = Pattern.build(torch.stack([source, target]), size=(6, 10)).by_target
    for dtype in (torch.float64, torch.bfloat16):
        for _, function, shapes in calls_of(backend, csr, 3, 2):
            inputs = [torch.randint(-2, 3, shape).to(dtype) for shape in shapes.values()]
            inputs = [x.requires_grad_() for x in inputs]
            results = []
            for which in (backend, "reference"):
                monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", elements)
                with use_backend(which):
                    out = function(*inputs)
                    results.append((out, *torch.autograd.grad(out.sum(), inputs)))
            for actual, expected in zip(*results, strict=True):
                assert_near(actual, expected, at_least=1.0)


@pytest.mark.parametrize("width", [1, 3, 64])
def test_tiles_cover_every_entry_once_and_know_its_row(width, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", 12)
    ptr = torch.tensor([0, 0, 5, 5, 5, 6, 20, 20])
    entries, rows = [], []
    for tile in tiles(ptr, 20, width):
        count = tile.entries.stop - tile.entries.start
        assert count * width <= 12 or count == 1
        assert tile.ptr[0] == 0
        assert tile.ptr[-1] == count
        assert tile.ptr.numel() - 1 == tile.rows.stop - tile.rows.start
        entries += range(tile.entries.start, tile.entries.stop)
        rows += (rows_of(tile.ptr) + tile.rows.start).tolist()
    assert entries == list(range(20))
    assert rows == rows_of(ptr).tolist()
    assert list(tiles(torch.zeros(4, dtype=torch.long), 0, width)) == []


@pytest.mark.parametrize("backend", backends_on("cpu"))
def test_a_place_beyond_two_to_the_31_of_the_dense_matrix_is_a_place_like_others(backend):
    # 70 000 rows times 70 000 columns: int32 indices hold each, but not their product.
    size = 70_000
    index = torch.tensor([[0, size - 1, size - 1, 5], [0, size - 1, size - 1, 2]])
    csr = Pattern.build(index, size=(size, size)).by_target
    assert csr.index.dtype == SHORT
    x = torch.randn(size, 2)
    with use_backend(backend):
        out = spmm(csr, None, x)
        assert_near(out[[0, 2, size - 1]], x[[0, 5, size - 1]] * torch.tensor([[1.0], [1], [2]]))
        for _, function, shapes in calls_of(backend, csr, 2, 1):
            inputs = random_inputs(shapes, torch.float32)
            actual = function(*inputs)
            with use_backend("reference"):
                assert_near(actual, function(*inputs))
