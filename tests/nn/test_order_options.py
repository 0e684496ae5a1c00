"""``order=`` and ``max_memory=`` of a layer, and its bias."""

import pytest
import torch

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Identity, Relation, Walk
from pyg_outerconv.testing import assert_near

EDGES, TYPES = torch.randint(9, (2, 40)), torch.randint(3, (40,))


@pytest.mark.parametrize(
    "order", ["transform_first", "propagate_first_compact", "label_by_label", "dense"]
)
def test_an_order_changes_nothing_but_the_path(order):
    torch.manual_seed(0)
    free = OuterConv(4, 3, Relation(3))
    forced = OuterConv(4, 3, Relation(3), order=order)
    forced.load_state_dict(free.state_dict())
    x = torch.randn(9, 4)
    assert forced.contraction_path(x, EDGES, edge_type=TYPES).chosen == [order]
    assert_near(forced(x, EDGES, edge_type=TYPES), free(x, EDGES, edge_type=TYPES))


def test_a_path_tells_the_cost_of_every_order_or_why_there_is_none():
    conv = OuterConv(4, 3, Relation(3, None))
    path = conv.contraction_path(
        torch.randn(9, 4), EDGES, torch.rand(40), edge_type=TYPES, verbose=True
    )
    lines = {line.strip("→ ").split()[0]: line for line in str(path).splitlines() if line.strip()}
    for one in path.steps[0].candidates:
        assert ("  no: " in lines[one.order.name]) == bool(one.reasons)
    assert lines["label_by_label"]


def test_memory_is_a_bound_on_orders():
    x = torch.randn(9, 4)
    conv = OuterConv(4, 3, Relation(3), max_memory=10**9)
    allowed = conv.contraction_path(x, EDGES, edge_type=TYPES)
    assert not any("max_memory" in str(c.reasons) for c in allowed.steps[0].candidates)
    conv = OuterConv(4, 3, Relation(3), max_memory=1)
    with pytest.raises(ValueError, match="more than max_memory=1"):
        conv(x, EDGES, edge_type=TYPES)


@pytest.mark.parametrize("family", [GCN(), Walk(2), Identity(), Relation(3)], ids=str)
@pytest.mark.parametrize("featureless", [False, True])
def test_a_bias_is_added_once_and_parameters_stay_as_they_are(family, featureless):
    conv = OuterConv(9 if featureless else 4, 3, family)
    torch.nn.init.ones_(conv.bias)
    before = {name: value.clone() for name, value in conv.state_dict().items()}
    x = None if featureless else torch.randn(9, 4)
    kinds = TYPES if family.makes_use_of("edge_type") else None
    basis = family.basis(EDGES, edge_type=kinds, size=(9, 9))
    with torch.no_grad():
        outs = [conv(x, basis) for _ in range(2)]
        conv.bias.zero_()
        plain = conv(x, basis)
    assert_near(outs[0], plain + 1)
    assert_near(outs[1], plain + 1)
    conv.bias.data.fill_(1)
    for name, value in conv.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_hook_keeps_what_it_was_given():
    conv, seen = OuterConv(4, 3, GCN()), []
    torch.nn.init.ones_(conv.bias)
    conv.register_message_and_aggregate_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.no_grad():
        out = conv(torch.randn(9, 4), EDGES)
    assert_near(out, seen[0] + 1)
