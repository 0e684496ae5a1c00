"""Families as text: strings without quotes, and what the names of well-known layers mean."""

import pytest

from pyg_outerconv import nn, parse_family
from pyg_outerconv.families import FAMILIES, GCN, Diffusion, Grid, Relation, Stack, Walk
from pyg_outerconv.families.well_known import WELL_KNOWN
from pyg_outerconv.nn import attention, recipes


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("relation(2, norm=given)", Relation(2, norm="given")),
        ("relation(2, given)", Relation(2, norm="given")),
        ("walk(2, norm=None)", Walk(2, norm=None)),
        ("stack(gcn, walk(2, norm=sym))", Stack(GCN(), Walk(2, norm="sym"))),
        ("diffusion(heat, t=2.0)", Diffusion("heat", t=2.0)),
        ("grid((3, 3), padding=same)", Grid((3, 3), padding="same")),
    ],
)
def test_a_string_needs_no_quotes(text, family):
    assert parse_family(text) == family
    assert parse_family(repr(family)) == family


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gat", r"'gat', a well-known layer: expected gat_conv of pyg_outerconv.nn.attention"),
        ("GATv2Conv", "expected gatv2_conv of"),
        ("sage", r"expected relation\(1, norm='mean'\) with root_weight=True, got 'sage'"),
        ("stack(gcn, rgcn)", r"expected relation\(num_relations\)"),
        ("tag(3)", r"expected walk\(length, norm='sym'\)"),
        ("appnp", "appnp of pyg_outerconv.nn.recipes"),
        ("GCNConv", "expected gcn, got 'GCNConv'"),
        ("gra", "unknown family 'gra': expected one of"),
        ("relation(2, norm=meen)", "unknown norm 'meen'"),
        ("relation(2, norm=sum)", "None divides by nothing"),
    ],
)
def test_an_unknown_name_says_what_to_write(text, message):
    with pytest.raises(ValueError, match=message):
        parse_family(text)


@pytest.mark.parametrize("layer", WELL_KNOWN)
def test_what_a_well_known_layer_is_exists(layer):
    meant = WELL_KNOWN[layer]
    assert layer not in FAMILIES
    for where, module in (("nn.attention", attention), ("nn.recipes", recipes), ("nn", nn)):
        if meant.endswith(f" of pyg_outerconv.{where}"):
            assert hasattr(module, meant.split()[-3]), meant
            break
    else:
        assert meant.split("(")[0].split(",")[0] in FAMILIES
