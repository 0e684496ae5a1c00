"""Softmax attention over few edges in any order, as a compiler sees whole: it fuses every step."""

from __future__ import annotations

import torch
from torch import Tensor

from .attend_operator import define
from .edge_sums import Listed, is_safe


def attend_few(
    entries: Listed,
    score: Tensor,
    value: Tensor,
    of_loops: Tensor | None = None,
    sent: Tensor | None = None,
) -> Tensor:
    """Sums of values (M, H, V) by the softmax of scores (E, H), (N, H, V); zeros without edges.

    ``of_loops``: (N, H), the scores of a self-loop at each node, in the place of those among the
    edges; None to add none. ``sent``: (E, H, V), the value of the source of each edge, if scores
    are made of it: its gradients are then added up before they are scattered.
    """
    loops = None if of_loops is None else of_loops.detach()
    highest = _highest(score.detach(), entries.row, entries.shape[0], loops)
    if of_loops is not None:  # sums over nodes alone: no edge is added, and none is taken out
        score = score.masked_fill((entries.row == entries.col).unsqueeze(-1), -torch.inf)
    raised = (score - highest.index_select(0, entries.row)).exp()
    sent = value.index_select(0, entries.col) if sent is None else sent
    sums = value.new_zeros(entries.shape[0], *value.shape[1:])
    sums = sums.index_add(0, entries.row, sent * raised.unsqueeze(-1))
    total = torch.zeros_like(highest)
    if of_loops is not None:
        total = (of_loops - highest).exp()
        sums = sums + total.unsqueeze(-1) * value
    total = total.index_add(0, entries.row, raised)
    # Divided at nodes, not at edges; without edges there is a total of 0.
    return sums / total.clamp(min=torch.finfo(total.dtype).tiny).unsqueeze(-1)


def _look(score: Tensor, row: Tensor, num_rows: int, of_loops: Tensor | None) -> Tensor:
    """The largest score of each row, (N, H); zeros if no score is so large that it matters."""
    if all(one is None or not one.numel() or is_safe(one) for one in (score, of_loops)):
        return score.new_zeros(num_rows, score.size(1))
    highest = Listed(row, row, (num_rows, num_rows)).highest(score)
    highest = highest if of_loops is None else torch.maximum(highest, of_loops)
    return highest.masked_fill_(highest == -torch.inf, 0.0)


# Only where the graph runs can scores be looked at, and seldom are they large.
_highest = define(
    "highest_of_rows",
    "(Tensor score, Tensor row, SymInt num_rows, Tensor? of_loops)",
    1,
    lambda *arguments: [_look(*arguments)],
    lambda score, row, num_rows, of_loops: [score.new_empty(num_rows, score.size(1))],
)
