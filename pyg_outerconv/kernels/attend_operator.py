"""Attention over sorted entries in two passes, which a compiler sees as one operator each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .csr import CSR
from .edge_lists import remembered
from .head_copies import HeadCopies, Passes, copies_for
from .primitive import item_by_item

# Not by `torch.library.custom_op`, whose checks of what is returned take as long as a small sum.
_LIBRARY = torch.library.Library("pyg_outerconv", "FRAGMENT")


def as_operator(
    passes: Passes,
    suffix: str,
    schema: str,
    room: Callable[..., int],
    entries_of: Callable[..., tuple[HeadCopies, int]],
) -> Callable[..., Tensor]:
    """The two passes as operators.

    Args:
        passes: what they compute.
        suffix: the end of the operators' names.
        schema: the arguments that tell the edges.
        room: the number of edges for which numbers are kept, at least as many as there are, from
            these arguments; a compiler must know it.
        entries_of: the entries, from H, a number or None, and these arguments; and a number by
            which the backward pass, which gets other tensors, finds them again.

    Returns:
        A function of the operands, the factor and the edges. It is differentiable once; forward
        mode goes through primitives.
    """
    count, name = len(passes.operands), f"{passes.name}_{suffix}"

    def forward(*given: Any) -> tuple[Tensor, ...]:
        operands, (factor, *edges) = given[:count], given[count:]
        heads = operands[0].size(1)
        entries, number = entries_of(heads, None, *edges)
        kept = operands[0].new_empty(passes.kept, heads * room(*edges))
        operands = tuple([x.contiguous() for x in operands])
        out = passes.forward(entries, operands, factor, kept[:, : entries.num_values])
        return out, kept, torch.tensor(number)

    def backward(*given: Any) -> tuple[Tensor, ...]:
        operands, (out, kept, number, grad, factor, *edges) = given[:count], given[count:]
        entries, _ = entries_of(operands[0].size(1), int(number), *edges)
        operands = tuple([x.contiguous() for x in operands])
        read = out, kept[:, : entries.num_values], grad.contiguous()
        return passes.backward(entries, operands, *read, factor)

    def like_forward(*given: Any) -> tuple[Tensor, ...]:
        operands, (_, *edges) = given[:count], given[count:]
        first, heads = operands[0], operands[0].size(1)
        out = first.new_empty(passes.shape(*operands))
        kept = first.new_empty(passes.kept, heads * room(*edges))
        number = first.new_empty((), dtype=torch.int64)
        return out, kept, number

    def like_backward(*given: Any) -> tuple[Tensor, ...]:
        return tuple([x.new_empty(x.shape) for x in given[:count]])

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.factor, *edges = inputs[count:]
        places = [place for place, part in enumerate(edges) if isinstance(part, Tensor)]
        ctx.edges = {place: part for place, part in enumerate(edges) if place not in places}
        ctx.places = places
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:count], *output, *[edges[place] for place in places])

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        saved, held = ctx.saved_tensors, count + 3
        edges = ctx.edges | dict(zip(ctx.places, saved[held:], strict=True))
        edges = [edges[place] for place in sorted(edges)]
        found = gradient(*saved[:held], grad, ctx.factor, *edges)
        found = found if count > 1 else (found,)
        return *found, *(None,) * (1 + len(edges))

    tensors = ", ".join(f"Tensor {one}" for one in passes.operands)
    results = "Tensor out, Tensor kept, Tensor number, Tensor grad"
    sums = define(name, f"({tensors}, float factor, {schema})", 3, forward, like_forward)
    gradient = define(
        f"{name}_gradient",
        f"({tensors}, {results}, float factor, {schema})",
        count,
        backward,
        like_backward,
    )
    torch.library.register_autograd(sums, differentiate, setup_context=setup, lib=_LIBRARY)
    return lambda *given: sums(*given)[0]


def define(
    name: str, arguments: str, results: int, run: Callable[..., Any], like: Callable[..., Any]
) -> Any:
    """An operator of torch, of these arguments and so many tensors as results.

    Its batches under ``vmap`` are run item by item; it has no derivative of its own.
    """
    returned = f"({', '.join(['Tensor'] * results)})" if results > 1 else "Tensor"

    def called(*given: Any) -> Any:
        found = run(*given)
        return found if results > 1 else found[0]

    def sized(*given: Any) -> Any:
        found = like(*given)
        return found if results > 1 else found[0]

    _LIBRARY.define(f"{name}{arguments} -> {returned}")
    _LIBRARY.impl(name, called, "CompositeExplicitAutograd")
    made: Any = getattr(torch.ops.pyg_outerconv, name).default
    torch.library.register_fake(made, sized, lib=_LIBRARY)
    torch.library.register_vmap(
        made, lambda *given: item_by_item(made, given[0], given[1], given[2:])
    )
    return made


def copies_of(rowptr: Tensor, col: Tensor, num_columns: int, heads: int) -> HeadCopies:
    """The entries (E,) of a matrix, sorted by row, for all heads; the last for equal entries."""
    return remembered(_copies, rowptr, col, num_columns, heads)  # type: ignore[no-any-return]


def _copies(rowptr: Tensor, col: Tensor, num_columns: int, heads: int) -> HeadCopies:
    return copies_for(CSR.of(rowptr, col, num_columns), heads, at_once=True)


def sorted_operator(passes: Passes) -> Callable[..., Tensor]:
    """:func:`as_operator` for entries that come as pointers, columns and their number C."""

    def entries_of(
        heads: int, number: int | None, ptr: Tensor, index: Tensor, num_columns: int
    ) -> tuple[HeadCopies, int]:
        return copies_of(ptr, index, num_columns, heads), 0

    def room(ptr: Tensor, index: Tensor, num_columns: int) -> int:
        return index.size(0)

    schema = "Tensor ptr, Tensor index, SymInt num_columns"
    return as_operator(passes, "of_sorted", schema, room, entries_of)
