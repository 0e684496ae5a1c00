"""Products of a sparse and a dense matrix, reduced by sum, mean, max or min."""

from __future__ import annotations

from torch import Tensor

from ..errors import RefusedValue, refusal, unknown
from .backend import REDUCTIONS
from .call import one_value_an_entry, pick, same_dtype, views
from .extreme import extreme
from .products import product
from .sparsity import Sparsity


def spmm(
    sparsity: Sparsity,
    value: Tensor | None,
    x: Tensor,
    *,
    transpose: bool = False,
    aggr: str = "sum",
) -> Tensor:
    """Multiply a sparse matrix S (R × C), or its transpose, with a dense one.

    ``out[r, :] = reduce_c S[r, c] x[c, :]`` over the entries of row r; differentiable in ``value``
    and ``x``, any number of times. Rows without entries give zeros.

    Args:
        sparsity: the places of the E entries of S.
        value: the values in row order, (E,), or (E, H) for H matrices with these entries; None for
            ones.
        x: (C, channels), shared by all H matrices, or (C, H, channels); R rows with ``transpose``.
        transpose: multiply with Sᵀ.
        aggr: 'sum'; 'mean', the sum divided by the number of entries of the row; 'max' or 'min',
            whose gradient goes to the first of equal products.

    Returns:
        (R, channels), or (R, H, channels) if ``value`` or ``x`` has heads; C rows with
        ``transpose``.

    Raises:
        ValueError: the shapes do not fit, the reduction is unknown, or no backend can serve the
            call.
        TypeError: ``value`` and ``x`` have different dtypes.
    """
    view, transposed_view = views(sparsity, transpose)
    rows, cols = sparsity.shape[::-1] if transpose else sparsity.shape
    if aggr not in REDUCTIONS:
        raise RefusedValue(unknown("reduction", aggr, REDUCTIONS))
    if x.dim() not in (2, 3) or x.size(0) != cols:
        raise RefusedValue(
            refusal(
                "spmm needs x that fits the matrix",
                f"({cols}, channels) or ({cols}, H, channels)",
                tuple(x.shape),
            )
        )
    plain = x.dim() == 2 and (value is None or value.dim() == 1)
    x = x.unsqueeze(1) if x.dim() == 2 else x
    if value is not None:
        value = one_value_an_entry("spmm", value, sparsity.num_entries)
        if x.size(1) > 1 and value.size(1) not in (1, x.size(1)):
            raise RefusedValue(
                refusal("spmm needs as many heads of values as of x", x.size(1), value.size(1))
            )
        value, x = same_dtype("spmm", value, x)  # type: ignore[assignment]
    backend = pick("spmm", view, cols, x, aggr)
    if aggr in ("max", "min"):
        out = extreme(view, value, x, backend.name, largest=aggr == "max")
    else:
        out = product(view, transposed_view, value, x, backend.name)
    if aggr == "mean":
        count = view[0].diff().clamp(min=1).to(out.dtype)
        out = out / count.view(rows, 1, 1)
    return out.squeeze(1) if plain else out
