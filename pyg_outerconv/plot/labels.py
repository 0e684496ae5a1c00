"""The labels of a basis that a picture has panels for, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..basis.grid_shift import GridShift
from ..errors import RefusedValue
from ..graph.checks import Labels, chosen_labels

if TYPE_CHECKING:
    from ..basis.base import Basis

MAX_PANELS = 16
PARTS = "labels= for fewer, or a part of the basis (restrict, or a smaller structure)"


def labels_of(
    basis: Basis, labels: Labels | None, titles: Sequence[str] | None, max_panels: int
) -> tuple[list[int], list[str], str]:
    """The labels to draw, their titles, and how many are left out in words; '' for none."""
    count = basis.num_bases
    if titles is not None and len(titles) != count:
        raise RefusedValue("a basis has a title for each label", count, len(titles))
    if max_panels < 1:
        raise RefusedValue("a picture needs a panel", "max_panels >= 1", max_panels)
    chosen = chosen_labels(slice(max_panels) if labels is None else labels, count)
    if not chosen:
        raise RefusedValue("a picture needs a label", "at least one", "none")
    names = _names(basis) if titles is None else titles
    left_out = count - len(chosen) if labels is None else 0
    told = f"{len(chosen)} of {count} labels; {left_out} left out" if left_out else ""
    return chosen, [names[k] for k in chosen], told


def _names(basis: Basis) -> list[str]:
    """The name of each label: the shift of a grid, else its number."""
    if not isinstance(basis, GridShift):
        return [f"k = {k}" for k in range(basis.num_bases)]
    turned = ", transposed" if basis.is_transposed else ""
    return [f"shift ({', '.join(map(str, shift))}){turned}" for shift in basis.shifts]
