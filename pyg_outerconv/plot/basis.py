"""A picture of a basis, by the name of its kind. Imports matplotlib."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from ..errors import RefusedValue, unknown
from .canvas import check_format, save
from .graph import graph
from .grids import receptive_field, shift
from .matrices import flattenings, matrices

if TYPE_CHECKING:
    from ..basis.base import Basis

KINDS: dict[str, Callable[..., Figure]] = {
    "matrices": matrices,
    "shift": shift,
    "flattenings": flattenings,
    "receptive-field": receptive_field,
    "graph": graph,
}


def draw(basis: Basis, kind: str, path: str | Path | None, options: dict[str, Any]) -> Figure:
    """Check the options of :meth:`.Basis.plot`, draw the picture, and write it to ``path``."""
    if kind not in KINDS:
        raise RefusedValue(unknown("kind of picture", kind, KINDS))
    option_names = list(inspect.signature(KINDS[kind]).parameters)[1:]
    for option in options:
        if option not in option_names:
            raise RefusedValue(unknown(f"option of a picture of {kind}", option, option_names))
    if path is not None:
        check_format(path)
    if 0 in basis.size:
        raise RefusedValue("a picture needs nodes", "M >= 1 and N >= 1", basis.size)
    figure = KINDS[kind](basis, **options)
    if path is not None:
        save(figure, path)
    return figure
