"""Families as text: strings without quotes, and what the names of well-known layers mean."""

import copy
import inspect
import pickle
from dataclasses import fields

import pytest

from pyg_outerconv import nn, parse_family
from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Diffusion,
    Grid,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.families.registry import WELL_KNOWN
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


def test_old_names_are_refused_in_pickles():
    old = Walk(2)
    vars(old)["aggregate"] = vars(old).pop("aggr")
    with pytest.raises(TypeError, match="expected aggr, got aggregate"):
        pickle.loads(pickle.dumps(old))
    assert copy.deepcopy(Walk(2)) == Walk(2) == pickle.loads(pickle.dumps(Walk(2)))


def test_a_family_has_the_signature_of_its_options():
    assert list(inspect.signature(Walk).parameters) == [field.name for field in fields(Walk)]
    assert list(inspect.signature(Stack).parameters) == ["families"]
