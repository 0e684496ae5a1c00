"""The registry of families, and what the names of well-known layers mean here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import RefusedType, RefusedValue, refusal, unknown
from ..registry import Registry
from .options import refuse_unknown

if TYPE_CHECKING:
    from .family import Family

_ATTENTION = "{} of pyg_outerconv.nn.attention"
_RECIPE = "{} of pyg_outerconv.nn.recipes"
_KERNEL = "Kernel({0}(...)) in Python, with {0} of pyg_outerconv.nn"

WELL_KNOWN = {
    "agnn": _ATTENTION.format("agnn_conv"),
    "appnp": "diffusion('ppr', alpha=0.1), or " + _RECIPE.format("appnp"),
    "bern": "bernstein(num_terms) with theta='basis-decomposed(num_bases=1)'",
    "bernnet": "bernstein(num_terms) with theta='basis-decomposed(num_bases=1)'",
    "cheb": "chebyshev(num_terms)",
    "chebnetii": "chebyshev_nodes(num_terms) with theta='basis-decomposed(num_bases=1)'",
    "dcrnn": "walk(length, norm='target', direction='both')",
    "dir": "directed(gcn)",
    "dirgnn": "directed(gcn)",
    "ecc": _KERNEL.format("EdgeNetwork"),
    "favardgnn": "favard(num_terms)",
    "gdc": "diffusion, or " + _RECIPE.format("gdc_conv"),
    "gmm": _KERNEL.format("GaussianMixture"),
    "gprgnn": "monomial(num_terms, add_self_loops=True), theta='basis-decomposed(num_bases=1)'",
    "graph": "relation(1, norm=None) with root_weight=True",
    "graphsage": "relation(1, norm='mean') with root_weight=True",
    "linear": "identity",
    "mixhop": _RECIPE.format("mix_hop"),
    "nn": _KERNEL.format("EdgeNetwork"),
    "optbasisgnn": "opt_basis(num_terms)",
    "rgcn": "relation(num_relations)",
    "sage": "relation(1, norm='mean') with root_weight=True",
    "sg": _RECIPE.format("sg_conv"),
    "sgc": _RECIPE.format("sg_conv"),
    "spline": _KERNEL.format("BSpline"),
    "ssg": _RECIPE.format("ssg_conv"),
    "supergat": _ATTENTION.format("super_gat_conv"),
    "tag": "walk(length, norm='sym')",
    "tagcn": "walk(length, norm='sym')",
}
"""What to write for each layer, by its name in lower case without ``conv``."""


def well_known(name: str, families: Collection[str]) -> str | None:
    """One line for the name of a layer, such as ``'gat'`` or ``'SAGEConv'``; None for others."""
    layer = name.lower().replace("_", "").removesuffix("conv")
    meant = layer if layer in families else WELL_KNOWN.get(layer)
    if meant is None:
        return None
    return refusal(f"unknown family {name!r}, a well-known layer", meant, repr(name))


class Families(Registry["type[Family]"]):
    """The families, by their names in lower case without underscores."""

    def name_of(self, kind: Any) -> str:
        """The name of a family in text: ``'high_pass'`` for ``HighPass``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()

    def add(self, kind: type[Any]) -> None:
        """Register a family."""
        self[kind.__name__.lower()] = kind

    def find(self, name: str) -> type[Family] | None:
        """The family of a name in any case, with or without underscores; None if there is none."""
        return self.get(name.strip().lower().replace("_", ""))

    def unknown(self, name: Any) -> str:
        """The message for the name of no family: the nearest, or what a well-known layer is."""
        names = [self.name_of(family) for family in self.values()]
        return well_known(name, names) or unknown(self.what, name, names)

    def check_options(self, kind: Any, names: Iterable[str]) -> None:
        """Refuse options that a family does not have."""
        try:
            refuse_unknown(kind, names)
        except RefusedType as error:
            raise RefusedValue(str(error)) from error


FAMILIES = Families("family", "walk(length=2)", in_order=True, mark="equation")
"""All families by name."""


def parse_family(text: Family | str) -> Family:
    """The family that a line of text describes, as ``repr`` prints it or in lower case.

    ``"gcn"``, ``"walk(2)"``, ``"Walk(length=2, norm='target')"``, ``"stack(gcn, identity)"``.
    A string among the options needs no quotes: ``"walk(2, norm=target)"``. A family is returned as
    it is.

    Raises:
        TypeError: it is neither text nor a family.
        ValueError: the text is no such expression, the name of a family is unknown, or the family
            refuses its options.
    """
    return FAMILIES.make(text)  # type: ignore[no-any-return]
