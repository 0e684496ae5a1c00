"""The backend of torch-scatter's segment kernels, on gathered tiles of bounded size."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from ..backend import Backend, Request
from ..tiles import Tile, accumulator, tiles
from . import tiled_additive


def _sums(tile: Tile, y: Tensor) -> Tensor:
    """Sum within the rows of a tile."""
    from torch_scatter import segment_sum_csr

    out: Tensor = segment_sum_csr(y, tile.ptr.long())
    return out


class Scatter(Backend):
    """Gathers a tile of entries, reduces its rows by ``segment_csr``, and adds them to the result.

    torch-scatter has no matrix product, so this backend has no ``grouped_matmul``.
    """

    name = "scatter"
    priority = 5
    devices = frozenset({"cpu", "cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = frozenset({"spmm", "sddmm", "segment_softmax", "attend", "additive"})
    deterministic = devices
    tolerance = 1e-5

    def missing(self) -> list[str]:
        if importlib.util.find_spec("torch_scatter") is None:
            return [
                "torch-scatter is not installed (pip install 'pyg_outerconv[scatter]' after torch, "
                "with --no-build-isolation)"
            ]
        return []

    def why_not(self, request: Request) -> list[str]:
        """Reasons why this backend cannot serve a request; torch-scatter may lack CUDA."""
        reasons = super().why_not(request)
        if request.device == "cuda" and not self.missing() and not _has_cuda():
            reasons.append("this torch-scatter was built without CUDA")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        from torch_scatter import segment_sum_csr

        heads, wide = x.size(1) if value is None else value.size(1), accumulator(x.dtype)
        out = x.new_zeros((ptr.numel() - 1, heads, x.size(2)), dtype=wide)
        for tile in tiles(ptr, index.numel(), heads * x.size(2)):
            out[tile.rows] += segment_sum_csr(_messages(tile, index, value, x), tile.ptr.long())
        return out.to(x.dtype)

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        from torch_scatter import segment_max_csr

        heads, wide = x.size(1) if value is None else value.size(1), accumulator(x.dtype)
        shape, limit = (ptr.numel() - 1, heads, x.size(2)), torch.finfo(wide)
        # segment_max_csr starts from the least number of the dtype and takes entries that exceed
        # it, so scores are clamped to the next number. It ignores NaN, which becomes infinity.
        least = -float(
            torch.nextafter(torch.tensor(limit.max, dtype=wide), torch.zeros((), dtype=wide))
        )
        best = x.new_full(shape, -torch.inf, dtype=wide)
        arg = torch.full(shape, -1, dtype=torch.int64, device=x.device)
        for tile in tiles(ptr, index.numel(), heads * x.size(2)):
            score = _messages(tile, index, value, x)
            score = score if largest else -score
            score = score.nan_to_num_(nan=torch.inf, posinf=limit.max).clamp_(min=least)
            tile_best, entry = segment_max_csr(score, tile.ptr.long())
            # Rows that begin in this tile have -inf. Only a larger score replaces an earlier one,
            # so that the first of equal scores is taken.
            better = (tile_best > best[tile.rows]) & (tile.ptr.diff() > 0).view(-1, 1, 1)
            best[tile.rows] = torch.where(better, tile_best, best[tile.rows])
            arg[tile.rows] = torch.where(better, entry + tile.entries.start, arg[tile.rows])
        return arg

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        from torch_scatter import gather_csr

        heads, wide = max(a.size(1), b.size(1)), accumulator(a.dtype)
        if a.numel() == 0:  # gather_csr forgets the other sizes of a tensor without elements
            return a.new_zeros((index.numel(), heads))
        out = a.new_empty((index.numel(), heads))
        for tile in tiles(ptr, index.numel(), heads * a.size(2)):
            left = gather_csr(a[tile.rows].to(wide), tile.ptr.long())
            right = b.index_select(0, index[tile.entries]).to(wide)
            out[tile.entries] = (left * right).sum(-1)
        return out

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        from torch_scatter import segment_sum_csr

        return segment_sum_csr(value.to(accumulator(value.dtype)), ptr.long()).to(value.dtype)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        from torch_scatter import gather_csr, segment_max_csr, segment_sum_csr

        wide, long = score.to(accumulator(score.dtype)), ptr.long()
        # In rows whose scores are all -inf, segment_max_csr returns the least finite number, so
        # that exp gives 0. It ignores NaN, which the sum then contains.
        highest, _ = segment_max_csr(wide, long)
        weight = (wide - gather_csr(highest, long)).exp_()
        total = segment_sum_csr(weight, long)
        total.masked_fill_(total == 0, 1.0)
        return weight.div_(gather_csr(total, long)).to(score.dtype)

    additive = staticmethod(tiled_additive.score)
    additive_rows = staticmethod(tiled_additive.rows_by(_sums))
    additive_backward = staticmethod(tiled_additive.backward)


def _has_cuda() -> bool:
    """Whether torch-scatter was built with CUDA."""
    import torch_scatter  # noqa: F401  (loads the operators)

    return bool(torch.ops.torch_scatter.cuda_version() != -1)


def _messages(tile: Tile, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    """The messages ``value[e, h] x[index[e], h, :]`` of a tile, in the accumulating dtype."""
    gathered = x.index_select(0, index[tile.entries]).to(accumulator(x.dtype))
    return gathered if value is None else gathered * value[tile.entries].unsqueeze(-1)
