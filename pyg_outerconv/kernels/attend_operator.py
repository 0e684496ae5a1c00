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

_RESULTS = "Tensor out, Tensor kept, Tensor number, Tensor grad"


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
    sums = _Operators(passes, suffix, schema, room, entries_of).sums
    return lambda *arguments: sums(*arguments)[0]


class _Operators:
    """The operators of two passes; arguments are those of :func:`as_operator`.

    Attributes:
        sums: from operands, factor and edges the result, what is kept, and the number by which
            entries are found again.
        gradient: from operands, these three, the gradient, factor and edges, that in each operand.
    """

    def __init__(
        self,
        passes: Passes,
        suffix: str,
        schema: str,
        room: Callable[..., int],
        entries_of: Callable[..., tuple[HeadCopies, int]],
    ) -> None:
        self.passes, self.room, self.entries_of = passes, room, entries_of
        self.count, name = len(passes.operands), f"{passes.name}_{suffix}"
        tensors = ", ".join(f"Tensor {one}" for one in passes.operands)
        rest = f"float factor, {schema}"
        of_sums, of_gradient = f"({tensors}, {rest})", f"({tensors}, {_RESULTS}, {rest})"
        self.sums = define(name, of_sums, 3, self._forward, self._like_forward)
        self.gradient = define(
            f"{name}_gradient", of_gradient, self.count, self._backward, self._like_backward
        )
        torch.library.register_autograd(
            self.sums, self._differentiate, setup_context=self._setup, lib=_LIBRARY
        )

    def _forward(self, *arguments: Any) -> tuple[Tensor, ...]:
        operands, (factor, *edges) = arguments[: self.count], arguments[self.count :]
        heads = operands[0].size(1)
        entries, number = self.entries_of(heads, None, *edges)
        kept = operands[0].new_empty(self.passes.kept, heads * self.room(*edges))
        operands = tuple([x.contiguous() for x in operands])
        out = self.passes.forward(entries, operands, factor, kept[:, : entries.num_values])
        return out, kept, torch.tensor(number)

    def _backward(self, *arguments: Any) -> tuple[Tensor, ...]:
        operands, rest = arguments[: self.count], arguments[self.count :]
        out, kept, number, grad, factor, *edges = rest
        entries, _ = self.entries_of(operands[0].size(1), int(number), *edges)
        operands = tuple([x.contiguous() for x in operands])
        read = out, kept[:, : entries.num_values], grad.contiguous()
        return self.passes.backward(entries, operands, *read, factor)

    def _like_forward(self, *arguments: Any) -> tuple[Tensor, ...]:
        operands, (_, *edges) = arguments[: self.count], arguments[self.count :]
        first, heads = operands[0], operands[0].size(1)
        out = first.new_empty(self.passes.shape(*operands))
        kept = first.new_empty(self.passes.kept, heads * self.room(*edges))
        number = first.new_empty((), dtype=torch.int64)
        return out, kept, number

    def _like_backward(self, *arguments: Any) -> tuple[Tensor, ...]:
        return tuple([x.new_empty(x.shape) for x in arguments[: self.count]])

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.factor, *edges = inputs[self.count :]
        places = [place for place, part in enumerate(edges) if isinstance(part, Tensor)]
        ctx.edges = {place: part for place, part in enumerate(edges) if place not in places}
        ctx.places = places
        ctx.mark_non_differentiable(*output[1:])
        tensors = [edges[place] for place in places]
        ctx.save_for_backward(*inputs[: self.count], *output, *tensors)

    def _differentiate(self, ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        saved, edges_start = ctx.saved_tensors, self.count + 3
        edges = ctx.edges | dict(zip(ctx.places, saved[edges_start:], strict=True))
        edges = [edges[place] for place in sorted(edges)]
        gradients = self.gradient(*saved[:edges_start], grad, ctx.factor, *edges)
        gradients = gradients if self.count > 1 else (gradients,)
        return *gradients, *(None,) * (1 + len(edges))


def define(
    name: str, arguments: str, results: int, run: Callable[..., Any], like: Callable[..., Any]
) -> Any:
    """An operator of torch, of these arguments and so many tensors as results.

    Its batches under ``vmap`` are run item by item; it has no derivative of its own.
    """
    returned = f"({', '.join(['Tensor'] * results)})" if results > 1 else "Tensor"

    def called(*inputs: Any) -> Any:
        outputs = run(*inputs)
        return outputs if results > 1 else outputs[0]

    def sized(*inputs: Any) -> Any:
        outputs = like(*inputs)
        return outputs if results > 1 else outputs[0]

    _LIBRARY.define(f"{name}{arguments} -> {returned}")
    _LIBRARY.impl(name, called, "CompositeExplicitAutograd")
    overload: Any = getattr(torch.ops.pyg_outerconv, name).default
    torch.library.register_fake(overload, sized, lib=_LIBRARY)
    torch.library.register_vmap(
        overload,
        lambda *vmap_arguments: item_by_item(
            overload, vmap_arguments[0], vmap_arguments[1], vmap_arguments[2:]
        ),
    )
    return overload


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
