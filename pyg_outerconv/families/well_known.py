"""Well-known layers: the family or the layer of this package that each of them is."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import refusal

_ATTENTION = "{} of pyg_outerconv.nn.attention"
_RECIPE = "{} of pyg_outerconv.nn.recipes"
_KERNEL = "Kernel({0}(...)) in Python, with {0} of pyg_outerconv.nn"

WELL_KNOWN = {
    "agnn": _ATTENTION.format("agnn_conv"),
    "appnp": "diffusion('ppr', alpha=0.1), or " + _RECIPE.format("appnp"),
    "cheb": "chebyshev(num_terms)",
    "dcrnn": "walk(length, norm='target', direction='both')",
    "dir": "directed(gcn)",
    "dirgnn": "directed(gcn)",
    "ecc": _KERNEL.format("EdgeNetwork"),
    "gat": _ATTENTION.format("gat_conv"),
    "gatv2": _ATTENTION.format("gatv2_conv"),
    "gdc": "diffusion, or " + _RECIPE.format("gdc_conv"),
    "gmm": _KERNEL.format("GaussianMixture"),
    "graph": "relation(1, norm=None) with root_weight=True",
    "graphsage": "relation(1, norm='mean') with root_weight=True",
    "linear": "identity",
    "mixhop": _RECIPE.format("mix_hop"),
    "nn": _KERNEL.format("EdgeNetwork"),
    "rgcn": "relation(num_relations)",
    "sage": "relation(1, norm='mean') with root_weight=True",
    "sg": _RECIPE.format("sg_conv"),
    "sgc": _RECIPE.format("sg_conv"),
    "spline": _KERNEL.format("BSpline"),
    "ssg": _RECIPE.format("ssg_conv"),
    "supergat": _ATTENTION.format("super_gat_conv"),
    "tag": "walk(length, norm='sym')",
    "tagcn": "walk(length, norm='sym')",
    "transformer": _ATTENTION.format("transformer_conv"),
}
"""What to write for each layer, by its name in lower case without ``conv``."""


def well_known(name: str, families: Collection[str]) -> str | None:
    """One line for the name of a layer, such as ``'gat'`` or ``'SAGEConv'``; None for others."""
    layer = name.lower().replace("_", "").removesuffix("conv")
    meant = layer if layer in families else WELL_KNOWN.get(layer)
    if meant is None:
        return None
    return refusal(f"unknown family {name!r}, a well-known layer", meant, repr(name))
