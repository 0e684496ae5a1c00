"""Forward-mode derivatives of layers: right, in inputs and parameters, or refused by name."""

import pytest
import torch
from cases import ALL_PAIRS, over, structure_for
from nn.layers import assert_is_adjoint
from scores import TRIED
from torch.func import functional_call, grad, hessian, jacrev, vmap
from torch.nn import Module

from pyg_outerconv import AttentionConv, OuterConv, clear_caches
from pyg_outerconv.attention import make_score
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.contract import ORDERS
from pyg_outerconv.families import GCN
from pyg_outerconv.nn import SparseFeatures
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0], [1, 2, 3, 0, 2, 1, 1, 2]])
TRIED_ON = ("multi-edge", "zero edges", "rectangular", "shape", "holes", "clusters")


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64)


def pure(module: Module, *fixed, **options):
    """The module as a function of its parameters and inputs, and its parameters, drawn."""
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    return lambda parameter_dict, *x: functional_call(
        module, parameter_dict, (*x, *fixed), options
    ), parameters


# Convolutions -------------------------------------------------------------------------------------


@over([(family, name) for family, name in ALL_PAIRS if name in TRIED_ON])
def test_layers_over_every_family(family, name):
    structure = structure_for(family, name)
    run, parameters = pure(OuterConv(3, 4, family), structure)
    is_pair = structure.bipartite and family.keeps_nodes
    points = parameters, drawn(structure.size[0], 3)
    assert_is_adjoint(
        lambda parameter_dict, x: run(parameter_dict, (x, None) if is_pair else x), *points
    )


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc], ids=str)
def test_parameters_beside_sparse_features(layout):
    x = drawn(5, 3) * (torch.rand(5, 3) < 0.5)
    run, parameters = pure(OuterConv(3, 4, GCN()), EDGES)
    sparse = x.to_sparse(layout=layout)
    assert_is_adjoint(lambda parameter_dict: run(parameter_dict, sparse), parameters)
    assert_near(run(parameters, sparse), run(parameters, x))


def test_values_of_sparse_features():
    places = SparseFeatures.of((drawn(5, 3) * (torch.rand(5, 3) < 0.5)).to_sparse())
    run, parameters = pure(OuterConv(3, 4, GCN()), EDGES)
    assert_is_adjoint(lambda v: run(parameters, places.with_values(v)), drawn(places.num_entries))


# Attention ----------------------------------------------------------------------------------------


def attention(score="key-query", support=None, **options):
    score = make_score(score, 2, 3, 4) if isinstance(score, str) else score
    return AttentionConv(4, 6, 2, support, score=score, **options)


@pytest.mark.parametrize("score", [text for text in TRIED if "edge" not in text])
@pytest.mark.parametrize("support", [None, "complete", "causal", "sliding_window(1)"])
def test_every_score_on_edges_and_on_sequences(score, support):
    run, parameters = pure(attention(score, support), EDGES if support is None else None)
    assert_is_adjoint(run, parameters, drawn(5, 4))


SUPPORTS = [None, "complete", "causal", "sliding_window(1)", "blocks(2)", "random_links(2)"]
SUPPORTS += ["union(sliding_window(1), global_tokens(1))"]


@pytest.mark.parametrize(
    "order",
    [
        None,
        *(
            name
            for name, one in ORDERS.items()
            if AttentionBasis in one.solves and "attend" in name
        ),
    ],
)
@pytest.mark.parametrize("support", SUPPORTS)
def test_hessians_of_attention_are_those_of_reverse_mode(support, order):
    clear_caches()
    fixed = EDGES.clone() if support is None else None  # which nothing has sorted
    run, parameters = pure(attention(support=support, order=order), fixed)
    x = drawn(5, 4)

    def loss(x):
        return run(parameters, x).sin().sum()

    actual = hessian(loss)(x)
    assert_near(actual, jacrev(jacrev(loss))(x), at_least=0.1)
    assert_near(vmap(grad(loss))(x[None])[0], grad(loss)(x), at_least=0.1)
    assert_near(actual, torch.autograd.functional.hessian(loss, x), at_least=0.1)
