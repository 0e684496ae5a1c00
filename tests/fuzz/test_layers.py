"""OuterConv over drawn options equals the formulas of :mod:`formulas`, in values and gradients.

A draw is a family of families on a random graph, with reductions, a form of Θ, a layout of x, an
order, a flow, a pair or one set of nodes, and the way the layer is called. Its number is its seed:
``pytest tests/fuzz -k layer-137``. ``--draws`` says how many there are.
"""

import random
from dataclasses import dataclass

import formulas
import pytest
import torch
from formulas import Graph

from pyg_outerconv import OuterConv, families
from pyg_outerconv.contract import ORDERS
from pyg_outerconv.errors import RefusedType, RefusedValue
from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Compose,
    Diffusion,
    Directed,
    Explicit,
    Identity,
    Mean,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.nn import SparseFeatures
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.theta import full

NUM_KINDS = 3
READ_WEIGHTS = ["GCN", "Relation", "Walk", "Chebyshev", "Diffusion"]
READ_WEIGHTS += formulas.POLYNOMIALS
LEAVES = ["identity", "gcn", "relation", "walk", "chebyshev", "diffusion", "polynomials"]


@dataclass
class Drawn:
    """A family, and the formula for it: from a Graph to Matrices."""

    family: object
    formula: object


def draw_leaf(rng, is_pair):
    """A family of edges without families in it."""

    def loops():
        return False if is_pair else rng.random() < 0.5

    norm = rng.choice(["source", "target", "sym", "both", None])
    kind = rng.choice(LEAVES)
    if is_pair and kind in ("chebyshev", "diffusion", "polynomials"):
        kind = "gcn"
    if kind == "identity":
        return Drawn(Identity(), formulas.identity)
    if kind == "gcn":
        options = {
            "norm": rng.choice(["sym", "source", "target", "both", None]),
            "add_self_loops": loops(),
            "improved": rng.random() < 0.3,
        }
        return Drawn(GCN(**options), lambda g: formulas.gcn(g, **options))
    if kind == "relation":
        options = {"num_relations": NUM_KINDS, "norm": rng.choice(["mean", None])}
        return Drawn(Relation(**options), lambda g: formulas.relation(g, **options))
    if kind == "walk":
        length = rng.randrange(4)
        kept = [p for p in range(length + 1) if rng.random() < 0.7] or [length]
        if is_pair:  # walks of no step and of one
            length, kept = rng.choice([(0, [0]), (1, [0, 1]), (1, [1]), (2, [1, 0])])
        options = {
            "length": length,
            "norm": norm,
            "direction": "forward" if is_pair else rng.choice(["forward", "backward", "both"]),
            "powers": tuple(kept) if is_pair or rng.random() < 0.5 else None,
            "add_self_loops": loops(),
        }
        return Drawn(Walk(**options), lambda g: formulas.walk(g, **options))
    if kind == "chebyshev":
        options = {
            "num_terms": rng.randrange(1, 5),
            "lambda_max": rng.choice(["bound", 1.7, 5.0]),
            "norm": rng.choice(["sym", "source", "target", None]),
        }
        return Drawn(Chebyshev(**options), lambda g: formulas.chebyshev(g, **options))
    if kind == "polynomials":
        of_kind = rng.choice(list(formulas.POLYNOMIALS))
        p, choices = formulas.POLYNOMIALS[of_kind]
        options = {
            "num_terms": rng.randrange(1, 5),
            "of": rng.choice(["adjacency", "laplacian"]),
            "norm": norm,
            "add_self_loops": loops(),
            **{name: rng.choice(values) for name, values in choices.items()},
        }
        return Drawn(
            getattr(families, of_kind)(**options), lambda g: formulas.polynomials(g, p, **options)
        )
    options = {
        "kind": rng.choice(["ppr", "heat"]),
        "alpha": rng.choice([0.1, 0.5]),
        "t": rng.choice([0.5, 3.0]),
        "length": rng.randrange(4),
        "norm": norm,
        "add_self_loops": loops(),
    }
    return Drawn(Diffusion(**options), lambda g: formulas.diffusion(g, **options))


def draw_family(rng, is_pair, depth=2):
    """A leaf, or families in a family."""
    if depth == 0 or rng.random() < 0.4:
        return draw_leaf(rng, is_pair)
    kind = rng.choice(["stack", "mean", "explicit"] + ([] if is_pair else ["directed", "compose"]))
    first = draw_family(rng, is_pair, depth - 1)
    if kind == "mean":
        shows = draw_leaf(rng, True)
        while isinstance(shows.family, Walk):  # powers hide their edges
            shows = draw_leaf(rng, True)
        return Drawn(Mean(shows.family), lambda g: formulas.mean(shows.formula(g)))
    if kind == "explicit":
        return Drawn(Explicit(first.family), lambda g: first.formula(g))
    if kind == "directed":
        return Drawn(Directed(first.family), lambda g: formulas.directed(g, first.formula))
    second = draw_family(rng, is_pair, depth - 1)
    if kind == "stack":
        return Drawn(
            Stack(first.family, second.family),
            lambda g: formulas.stack(first.formula(g), second.formula(g)),
        )
    return Drawn(
        Compose(first.family, second.family),
        lambda g: formulas.compose(first.formula(g), second.formula(g)),
    )


def draw_graph(rng, is_pair):
    """Few nodes and up to twenty edges, parallel ones and loops among them, or none."""
    m = rng.randrange(1, 8)
    n = m if not is_pair or rng.random() < 0.5 else rng.randrange(1, 8)
    count = rng.choice([0, 1, rng.randrange(20), rng.randrange(20)])
    weight = None
    if rng.random() < 0.7:
        weight = torch.rand(count, dtype=torch.float64).add(0.1)
        if rng.random() < 0.2:  # some of them 0, which is an edge all the same
            weight = weight * (torch.rand(count) < 0.7)
        weight.requires_grad_()
    source, target = torch.randint(m, (count,)), torch.randint(n, (count,))
    return Graph(source, target, weight, torch.randint(NUM_KINDS, (count,)), (m, n), is_pair)


def draw_features(rng, nodes, channels):
    """(what the layer takes, the dense tensor that it stands for, what has gradients)."""
    layout = rng.choice(["dense", "dense", "batch", "csr", "sparse", "indices", "none"])
    if layout == "none":
        return layout, None, torch.eye(nodes, dtype=torch.float64), []
    if layout == "indices":
        index = torch.randint(channels, (nodes,))
        return layout, index, torch.eye(channels, dtype=torch.float64)[index], []
    if layout in ("csr", "sparse"):
        mask = torch.rand(nodes, channels) < 0.5
        x = torch.randn(nodes, channels, dtype=torch.float64) * mask
        if layout == "csr":
            return layout, x.to_sparse_csr(), x, []
        sparse = SparseFeatures.of(x.to_sparse_csr())
        value = sparse.value.detach().clone().requires_grad_()
        dense = torch.zeros_like(x).index_put(mask.nonzero(as_tuple=True), value)
        return layout, sparse.with_values(value), dense, [value]
    batch = (rng.randrange(3),) if layout == "batch" else ()
    x = torch.randn(*batch, nodes, channels, dtype=torch.float64, requires_grad=True)
    return layout, x, x.movedim(-2, 0), [x]


def draw_theta(rng, rows, columns, has_features):
    """The text of a form of Θ, and the out_channels that it takes."""
    if not has_features:  # rows of Θ are an embedding
        forms = ["full", "shared", "basis-decomposed(num_bases=2)", "channelwise"]
        return rng.choice(forms), columns
    form = rng.choice(
        ["full"] * 3
        + ["shared", "basis-decomposed(num_bases=2)", "channelwise", "low-rank(rank=1)"]
        + ["grouped(groups=2)", "depthwise", "identity"]
    )
    if form == "identity":
        return form, rows
    if form == "depthwise":
        return form, 2 * rows
    if form.startswith("grouped") and (rows % 2 or columns % 2):
        return "full", columns
    return form, columns


def draw_reductions(rng, family, matrices):
    """(aggr, label_aggr); now and then such as rules that hide their edges must refuse."""
    every = ["sum", "sum", "mean", "max", "min"]
    if matrices.edges is not None:
        return rng.choice(every), rng.choice(every)
    if rng.random() < 0.05 and "Explicit" not in repr(family):
        return rng.choice(["mean", "max"]), "sum"
    return "sum", rng.choice(["sum", "mean"])


def hides_what_it_needs(matrices, aggr):
    """Whether inputs of a label are to be told apart where products hide their edges."""
    return matrices.edges is None and aggr != "sum"


def arguments(graph, family, x, own, flow):
    """What the layer is called with: pairs and edges the other way round for the other flow."""
    transposed = flow == "target_to_source"
    ends, size = (graph.source, graph.target), graph.size
    pair = (x, own) if graph.is_pair else x
    if transposed:
        ends, size = ends[::-1], size[::-1]
        pair = pair[::-1] if graph.is_pair else pair
    text = repr(family)
    reads_weights = any(name in text for name in READ_WEIGHTS)
    return {
        "x": pair,
        "edge_index": torch.stack(ends),
        "edge_weight": graph.weight if reads_weights else None,
        "edge_type": graph.kind if "Relation" in text else None,
        "size": size,
    }


def assert_nan_is_seen_alone(rng, conv, call, x, seen, compares):
    """NaN of one node reaches the targets that see it and no other, a gradient its sources."""
    features, (sources, targets) = call["x"], seen.shape

    def rows(x):
        """The numbers that are not finite, row by row."""
        return ~x.isfinite().movedim(-2, 0).flatten(1).all(1)

    def run(x):
        pair = isinstance(features, tuple)
        return conv(**{**call, "x": replace_source(features, x, conv.flow) if pair else x})

    node, reached = rng.randrange(sources), rng.randrange(targets)
    spoilt = x.detach().index_fill(-2, torch.tensor(node), torch.nan)
    actual = rows(run(spoilt))
    assert torch.equal(actual, seen[node]), f"NaN of {node} at {actual}, not {seen[node]}"
    fresh = x.detach().clone().requires_grad_()
    out = run(fresh)
    above = torch.ones_like(out).index_fill(-2, torch.tensor(reached), torch.nan)
    actual = rows(torch.autograd.grad(out, fresh, above)[0])
    wanted = actual & seen[:, reached] if compares else seen[:, reached]
    assert torch.equal(actual, wanted), f"gradient of {reached} at {actual}, not {seen[:, reached]}"


def replace_source(pair, x, flow):
    """A pair with x as the features of its sources."""
    return (x, pair[1]) if flow == "source_to_target" else (pair[0], x)


def draw_and_compare(seed):
    """One draw: the layer equals the formula, or refuses what has no meaning."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    is_pair = rng.random() < 0.3
    graph, drawn = draw_graph(rng, is_pair), draw_family(rng, is_pair)
    matrices = drawn.formula(graph)
    channels = rng.choice([1, 2, 4]), rng.choice([1, 2, 4])
    layout, x, dense, inputs = draw_features(rng, graph.size[0], channels[0])
    has_features = layout not in ("none", "indices")
    form, columns = draw_theta(rng, dense.size(-1), channels[1], has_features)
    aggr, label_aggr = draw_reductions(rng, drawn.family, matrices)
    own = is_pair and rng.random() < 0.5
    target = torch.randn(graph.size[1], 2, dtype=torch.float64, requires_grad=True)
    options = {
        "theta": form,
        "aggr": aggr,
        "label_aggr": label_aggr,
        "bias": rng.random() < 0.5,
        "root_weight": layout == "dense" and (own or not is_pair) and rng.random() < 0.4,
        "cached": rng.random() < 0.3,
        "order": rng.choice([None, None, None, *ORDERS]),
        "flow": rng.choice(["source_to_target"] * 3 + ["target_to_source"]),
    }
    conv = OuterConv(
        (dense.size(-1), 2) if own else dense.size(-1), columns, drawn.family, **options
    )
    conv = conv.double()
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter)
    conv.fuse = rng.random() < 0.75
    call = arguments(graph, drawn.family, x, target if own else None, conv.flow)
    told = f"{drawn.family} {graph.size} pair={is_pair} x={layout} fuse={conv.fuse} {options}"
    try:
        for _ in range(2 if conv.cached else 1):
            out = conv(**call)
    except (RefusedValue, RefusedType) as error:
        if hides_what_it_needs(matrices, aggr):
            return
        if {"max", "min"} & {aggr, label_aggr} and layout not in ("dense", "batch"):
            return
        if options["order"] is not None and conv.fuse and "order" in str(error):
            return
        raise AssertionError(f"refused without need: {told}") from error
    assert not hides_what_it_needs(matrices, aggr), f"should be refused: {told}"
    theta = torch.stack([torch.block_diag(*blocks) for blocks in full(conv.theta.parameter(dense))])
    expected = formulas.convolution(matrices, dense, theta, aggr, label_aggr)
    if conv.root is not None:
        expected = expected + (target if own else dense) @ conv.root()[0, 0]
    if conv.bias is not None:
        expected = expected + conv.bias
    wanted = [*inputs, *conv.parameters(), *([target] if own else [])]
    wanted += [] if graph.weight is None else [graph.weight]
    compares = bool({"max", "min"} & {aggr, label_aggr})
    has_ties = compares and graph.weight is not None and not graph.weight.all()
    try:
        assert_near(out, expected.movedim(0, -2), at_least=1.0)
        learns = any(one.requires_grad for one in wanted)
        if learns and not has_ties:  # of which the formula takes a mean
            assert_same_gradients(out, expected.movedim(0, -2), wanted, 1e-9)
        if matrices.edges is not None and layout in ("dense", "batch") and x.numel():
            seen = torch.zeros(graph.size, dtype=torch.bool)
            seen[matrices.edges[1], matrices.edges[2]] = True
            if conv.root is not None and not own:
                seen |= torch.eye(*graph.size).bool()
            assert_nan_is_seen_alone(rng, conv, call, x, seen, compares)
    except AssertionError as error:
        raise AssertionError(f"{told}: {error}") from error


@pytest.mark.slow(cases=100)
def test_layer(draw):
    """One of the draws."""
    draw_and_compare(draw)
