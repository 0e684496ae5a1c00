"""Nested families, and the modules among their options."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .family import Family


def nested(family: Family) -> list[Family]:
    """A family, its parts, and their parts, in depth-first order."""
    found = [family]  # no generator, which torch.compile cannot trace
    for part in family.parts:
        found += nested(part)
    return found


def functions_of(family: Family) -> list[torch.nn.Module]:
    """The modules among the options of a family and its parts, each once."""
    held = [option for part in nested(family) for option in _options(part)]
    found = [option for option in held if isinstance(option, torch.nn.Module)]
    return list(dict.fromkeys(found))


def _options(family: Family) -> list[Any]:
    known = fields(family)  # type: ignore[arg-type]  # every family is a dataclass
    given = [getattr(family, option.name) for option in known]
    return [
        part for option in given for part in (option if isinstance(option, tuple) else [option])
    ]
