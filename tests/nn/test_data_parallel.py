"""Layers in DistributedDataParallel: gradients are means over ranks, and no rank waits for ever."""

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch without distributed"
)

RANK = """
import copy
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import models

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv.families import GCN, Walk
from pyg_outerconv.pyg import accelerate
from pyg_outerconv.testing import assert_near

rank, file = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{file}", rank=rank, world_size=2, timeout=timedelta(seconds=200)
)


class Net(torch.nn.Module):
    def __init__(self, conv, *of_all, **options):
        super().__init__()
        self.first = conv(4, 6, *of_all, **options)
        self.second = conv(6, 4, *of_all, **options)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def graph(rank, step):
    draw = torch.Generator().manual_seed(10 * step + rank)
    nodes, edges = 9 + 4 * rank, 0 if rank and step == 1 else 30 + step
    return (
        torch.randn(nodes, 4, generator=draw),
        torch.randint(0, nodes, (2, edges), generator=draw),
    )


def compare(alone, parallel):
    # Gradients of the wrapped model are the means of those that both graphs give alone.
    for step in range(2):
        parallel.zero_grad()
        parallel(*graph(rank, step)).square().mean().backward()
        losses = [alone(*graph(other, step)).square().mean() for other in range(2)]
        expected = torch.autograd.grad(sum(losses) / 2, list(alone.parameters()))
        for parameter, gradient in zip(parallel.parameters(), expected, strict=True):
            assert_near(parameter.grad, gradient, 5e-5, at_least=1e-3)


families = [Walk(2), Walk(3, direction="both"), Walk(2, powers=(2,)), GCN()]
layers = [{}, {"cached": True}, {"root_weight": True}, {"theta": "low-rank(rank=2)"}, {}]
ways = [{}, {"static_graph": True}, {"bucket_cap_mb": 1e-4}]
nets = [(OuterConv, families[n % 4], layers[n % 5]) for n in range(7)] + [
    (AttentionConv, 2, {}),
    (AttentionConv, 2, {"score": "additive", "support": "hops(add_self_loops=True)"}),
    (AttentionConv, 2, {"score": "gatv2", "combine": "mean", "root_weight": True}),
]
for number, (conv, of_all, layer) in enumerate(nets):
    way = ways[number % 3]
    torch.manual_seed(number)
    alone = Net(conv, of_all, **layer)
    parallel = DistributedDataParallel(Net(conv, of_all, **layer), **way)
    parallel.module.load_state_dict(alone.state_dict())
    compare(alone, parallel)

for kind in (models.GCN, models.GAT):  # of PyG, accelerated before and after it is wrapped
    for before in (True, False):
        torch.manual_seed(7)
        alone = kind(4, 6, 2, 4)
        module = copy.deepcopy(alone)
        if before:
            accelerate(module)
        parallel = DistributedDataParallel(module)
        if not before:
            assert accelerate(parallel).replaced == ["module.convs.0", "module.convs.1"]
        for conv in module.convs:
            conv.least = 0
        compare(alone, parallel)
dist.barrier()
del parallel  # before the group, which it would wait for while it holds Python's lock
dist.destroy_process_group()
print("done")
"""


@pytest.mark.slow
def test_ranks_agree_and_none_hangs(tmp_path, fresh):
    store = str(tmp_path / "store")
    ranks = [fresh.begin(RANK, str(rank), store, OMP_NUM_THREADS="1") for rank in range(2)]
    for done in [fresh.end(rank) for rank in ranks]:
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("done\n")
