"""What holds of every layer whatever stands for edges, and for features."""

from functools import partial

import pytest
import torch
from nn.layers import (
    COUNT,
    LAYERS,
    NODES,
    P,
    Q,
    assert_same,
    compiled,
    module_and_inputs,
    of_each_layer,
    over_a_basis,
    results,
    to,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor

from pyg_outerconv import AttentionConv, Cells, Grid, OuterConv, Pool, record
from pyg_outerconv.basis.edge_sets import with_edges
from pyg_outerconv.families import Blocks, Full, Relation, SlidingWindow
from pyg_outerconv.graph import Graph
from pyg_outerconv.testing import assert_near


def run_over(module, inputs):
    """A call of x and what is beside it alone, and these."""
    fixed = {
        key: inputs[key] for key in ("edge_index", "edge_weight", "edge_type") if key in inputs
    }
    return partial(module, **fixed), {key: inputs[key] for key in inputs if key not in fixed}


@pytest.mark.parametrize("fuse", [True, False])
@of_each_layer("basis")
def test_a_basis_stands_for_edges(name, fuse):
    module, inputs = module_and_inputs(name, fuse=fuse)
    call, numbers = run_over(module, inputs)
    expected, basis_inputs = results(module, numbers, call), over_a_basis(module, inputs)
    with torch.inference_mode():  # what it makes serves training
        module(**basis_inputs)
    assert_same(results(module, *run_over(module, basis_inputs)[::-1]), expected)
    if isinstance(module, AttentionConv) and "edge_attr" not in inputs:
        _, learned = module(**basis_inputs, return_attention_weights=True)
        assert_same(module(inputs["x"], learned), expected[0])


@pytest.mark.parametrize("fuse", [True, False])
@of_each_layer("batch")
def test_leading_dimensions_of_x_are_a_batch(name, fuse):
    module, inputs = module_and_inputs(name, fuse=fuse)
    numbers = {key: inputs[key] for key in ("x", "state") if key in inputs}
    items = [{key: factor * one for key, one in numbers.items()} for factor in (1.0, -0.5, 2.0)]
    many = {key: torch.stack([item[key] for item in items]).unsqueeze(1) for key in numbers}
    actual = module(**{**inputs, **many})
    for place, item in enumerate(items):
        assert_same(
            tree_map(lambda out, place=place: out[place, 0], actual), module(**{**inputs, **item})
        )


@of_each_layer("ours", "used", slow=2)
def test_compiled_over_what_was_used_it_is_one_graph(name):
    module, inputs = module_and_inputs(name)
    inputs = inputs if "basis" in LAYERS[name].but else over_a_basis(module, inputs)
    _, numbers = run_over(module, inputs)
    expected = results(module, numbers, run_over(module, inputs)[0])
    call, times = compiled(module)
    assert_same(results(module, numbers, run_over(call, inputs)[0]), expected)
    assert len(times) == 1


def masked_basis(module, inputs, scale):
    """A basis whose values are times the number of the edge that each stems from."""
    basis_inputs = over_a_basis(module, inputs)
    if isinstance(module, AttentionConv):
        _, basis = module(**inputs, return_attention_weights=True)
        return type(basis)(basis.pattern, basis.value * scale[basis.pattern.origin][:, None])
    return with_edges(
        basis_inputs["edge_index"],
        lambda one: one.with_values(one.values(scale.dtype) * scale[one.pattern.origin]),
    )


@pytest.mark.parametrize("apply_sigmoid", [False, True])
@of_each_layer("messages", "edges", "ours", "basis", "masks")
def test_a_mask_of_explainers_multiplies_the_values_of_given_edges(name, apply_sigmoid):
    module, inputs = module_and_inputs(name)
    mask = torch.rand(inputs["edge_index"].size(1)).double()
    mask[[0, 4]] = 0.0
    mask.requires_grad_()
    scale = torch.cat([mask.sigmoid() if apply_sigmoid else mask, mask.new_ones(1)])  # of loops
    expected = module(inputs["x"], masked_basis(module, inputs, scale))
    set_masks(module, mask, inputs["edge_index"], apply_sigmoid=apply_sigmoid)
    actual = module(**inputs)
    assert_same(actual, expected)
    above = torch.randn_like(actual)
    assert_same(*(torch.autograd.grad(out, mask, above) for out in (actual, expected)))
    clear_masks(module)
    with record() as calls:
        module(**inputs)
    assert calls, "the fused path is taken again"


class StandIn:
    """What is used of torch_sparse's ``SparseTensor``: entries by row, sizes and device."""

    def __init__(self, row, column, value, sizes):
        self._coo, self._sizes = (row, column, value), sizes

    def coo(self):
        return self._coo

    def sparse_sizes(self):
        return self._sizes

    def device(self):
        return self._coo[0].device


def matrix(layout, index, weight):
    """The transposed matrix of edges, with values where there are weights."""
    ones = torch.ones(index.size(1)) if weight is None else weight
    adj_t = torch.sparse_coo_tensor(index.flip(0), ones, (NODES, NODES))
    if layout == "torch_sparse":
        return StandIn(*index.flip(0), weight, (NODES, NODES))
    if layout == "SparseTensor":
        row, column = index.flip(0)
        return SparseTensor(row=row, col=column, value=weight, sparse_sizes=(NODES, NODES))
    if layout == "ToSparseTensor":
        data = Data(edge_index=index, edge_weight=weight, num_nodes=NODES)
        return ToSparseTensor()(data).adj_t
    adj_t = adj_t if layout == "uncoalesced" else adj_t.coalesce()
    return {"csr": adj_t.to_sparse_csr, "csc": adj_t.to_sparse_csc}.get(layout, lambda: adj_t)()


NEEDED = pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch-sparse is not installed")
LAYOUTS = ["coo", "uncoalesced", "csr", "csc", "ToSparseTensor", "torch_sparse"]
LAYOUTS += [pytest.param("SparseTensor", marks=NEEDED)]


@pytest.mark.parametrize("layout", [*LAYOUTS, "EdgeIndex", "EdgeIndex by row", "EdgeIndex by col"])
@of_each_layer("edges", "ours", "basis")
def test_edges_are_given_in_every_layout_of_torch_and_pyg(name, layout):
    module, inputs = module_and_inputs(name)
    index = inputs["edge_index"].unique(dim=1)
    row, column = index.flip(0)
    by_row, by_column = (row * NODES + column).argsort(), (column * NODES + row).argsort()
    order = by_column if layout in ("csc", "EdgeIndex by col") else by_row
    index = index[:, order]  # as it comes out of a matrix
    for key in inputs.keys() & {"edge_weight", "edge_type", "edge_attr"}:
        inputs[key] = inputs[key][: index.size(1)]
    inputs["edge_index"], fixed = index, {}
    if layout == "uncoalesced" and "edge_weight" in inputs:  # where torch gives no gradients
        fixed = {"edge_weight": inputs.pop("edge_weight")}
    expected = results(module, inputs, partial(module, **fixed))

    def call(edge_index, edge_weight=None, **beside):
        edge_weight = fixed.get("edge_weight", edge_weight)
        if layout.startswith("EdgeIndex"):
            by = layout.rpartition("by ")[2] if "by" in layout else None
            pyg_edge_index = EdgeIndex(index, sparse_size=(NODES, NODES), sort_order=by)
            return module(edge_index=pyg_edge_index, edge_weight=edge_weight, **beside)
        return module(edge_index=matrix(layout, index, edge_weight), **beside)

    assert_same(results(module, inputs, call), expected)


def test_a_matrix_says_its_size_and_fits_x():
    matrix = StandIn(torch.tensor([0, 2]), torch.tensor([1, 4]), torch.tensor([1.0, 2.0]), (3, 5))
    assert Graph.read(matrix).size == (5, 3)
    assert Graph.read(matrix).edge_weight.tolist() == [1.0, 2.0]
    conv = OuterConv(P, Q, Relation(1, None))
    assert conv((torch.ones(5, P), None), matrix).shape == (3, Q)


WEIGHTED = [name for name, layer in LAYERS.items() if "edge_weight" in layer.inputs()]
TYPES = [torch.int64, torch.int32, torch.uint8, torch.float64, torch.float32, torch.float16]


@pytest.mark.parametrize("column", [False, True], ids=["(E,)", "(E, 1)"])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_any_type_are_numbers_in_the_type_of_x(name, dtype, x_dtype, column):
    module, inputs = module_and_inputs(name)
    module, inputs = module.to(x_dtype), to(inputs, x_dtype)
    del inputs["edge_weight"]
    weight = (1.0 + 4.0 * torch.rand(COUNT)).to(dtype)

    def of(weight):
        if dtype.is_floating_point:  # which has gradients
            return results(module, {**inputs, "edge_weight": weight})
        return results(module, inputs, partial(module, edge_weight=weight))

    actual, wanted = of(weight.unsqueeze(1) if column else weight), of(weight.to(x_dtype))
    assert actual[0].dtype == x_dtype
    for one, its in zip(actual, wanted, strict=True):
        assert_near(one.view_as(its), its.to(one.dtype), at_least=0.1)


def test_integers_without_x_are_numbers_of_torchs_default_type():
    index, weight = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, -3])
    value = Relation(1, None).basis(index, weight).value
    assert value.dtype == torch.float32
    assert sorted(value.tolist()) == [-3.0, 2.0]


@of_each_layer("basis", "fake")
def test_shapes_are_found_over_a_real_basis(name):
    module, inputs = module_and_inputs(name)
    basis_inputs = over_a_basis(module, inputs)
    expected = tree_map(lambda y: y.shape, module(**basis_inputs))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        actual = module(**{**basis_inputs, "x": mode.from_tensor(basis_inputs["x"])})
    assert tree_map(lambda y: y.shape, actual) == expected


def test_folders_of_the_package_need_no_import_of_their_own(fresh):
    code = (
        "import pyg_outerconv as p; p.graph.from_scipy; p.attention.SCORES; p.attention.ALiBi;"
        "p.families.GCN; p.nn.GridConv; p.testing.assert_near; assert 'testing' in dir(p)\n"
        "try: p.other\n"
        "except AttributeError as error: assert 'other' in str(error)\n"
        "else: raise SystemExit('p.other is there')"
    )
    done = fresh(code)
    assert done.returncode == 0, done.stderr


RING = torch.tensor([[0, 1, 2], [1, 2, 0]])
MASK = torch.tensor([[True, True, False], [False, True, True]])
GRID = Grid((3, 3), padding=1)


def layer(family, **options):
    torch.manual_seed(3)
    return OuterConv(4, 2, family, **options).double()


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_a_shape_a_mask_and_cells_stand_for_edges():
    conv, x = layer(GRID), normal(6, 4)
    whole = conv(x, (2, 3))
    assert_near(conv(x, torch.Size((2, 3))), whole)
    assert_near(conv(x, torch.ones(2, 3, dtype=torch.bool)), whole)
    assert_near(conv(x, Cells.of_shape((2, 3)).listed()), whole)
    assert_near(conv(x, GRID.basis((2, 3))), whole)
    active = x[MASK.flatten()]
    assert_near(conv(active, MASK), conv(active, Cells.of_mask(MASK)))


def test_targets_are_as_many_as_the_family_makes():
    pool, x = layer(Pool((2, 2))), normal(24, 4)
    assert pool(x, (4, 6)).shape == (6, 2)
    assert pool((x, None), (4, 6)).shape == (6, 2)
    assert pool((x, normal(6, 4)), (4, 6)).shape == (6, 2)
    assert pool(x, Pool((2, 2)).basis((4, 6))).shape == (6, 2)
    assert pool(x, (4, 6), size=(24, 6)).shape == (6, 2)


def test_a_root_weight_adds_features_of_targets():
    conv, x = layer(GRID, root_weight=True), normal(6, 4)
    without = layer(GRID, root_weight=True)
    without.load_state_dict(conv.state_dict())
    without.root_weight = False
    assert_near(conv(x, (2, 3)), without(x, (2, 3)) + x @ conv.root()[0, 0])
    strided = layer(Pool((2, 3)), root_weight=True)
    assert strided((x, normal(1, 4)), (2, 3)).shape == (1, 2)
    with pytest.raises(ValueError, match=r"a pair \(x_source, x_target\) .* M = 6, N = 1"):
        strided(x, (2, 3))


def test_what_comes_beside_cells_is_never_served_from_what_was_kept():
    conv, x = layer(GRID, cached=True), normal(6, 4)
    conv(x, (2, 3))
    with pytest.raises(ValueError, match="no further arguments: expected none, got edge_weight"):
        conv(x, (2, 3), torch.ones(3).double())


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("family", [GRID, Full((6, 6)), SlidingWindow((1, 1)), Blocks(2)], ids=str)
def test_compile_of_a_rule_that_was_used_is_one_graph(family, cached):
    conv, x = layer(family, cached=cached), normal(6, 4)
    where = (2, 3) if cached else family.basis((2, 3))
    expected = conv(x, where)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    assert_near(compiled(x, where), expected)
