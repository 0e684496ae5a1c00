"""Our parameters by name, made of those of PyG's layers, so that both results have one gradient."""

import torch
from torch_geometric import nn as pyg

from pyg_outerconv.pyg import outer_conv

P, Q, K, R, D, H = 4, 6, 3, 3, 2, 2


def of_lins(*lins):
    return torch.stack([lin.weight.t() for lin in lins])


def of_edge_network(peer):
    first, second = peer.nn[0], peer.nn[2]
    theta = torch.cat([second.weight.t(), second.bias[None]]).view(-1, P, Q)
    return {
        "theta.weight": theta,
        "functions.0.layers.0.weight": first.weight,
        "functions.0.layers.0.bias": first.bias,
        "root.weight": of_lins(peer.lin),
        "bias": peer.bias,
    }


def of_directed(peer):
    there, back = peer.conv_in, peer.conv_out
    return {
        "theta.weight": of_lins(there.lin, back.lin) / 2,
        "root.weight": of_lins(peer.lin),
        "bias": (there.bias + back.bias) / 2 + peer.lin.bias,
    }


def of_relations(peer):
    found = {"theta.weight": peer.weight, "root.weight": peer.root[None], "bias": peer.bias}
    return found if peer.num_bases is None else {**found, "theta.comp": peer.comp}


def of_neighbours(rel, root):
    return {"theta.weight": of_lins(rel), "root.weight": of_lins(root), "bias": rel.bias}


def of_gaussians(peer):
    return {
        "theta.weight": peer.g.view(P, K, Q).transpose(0, 1),
        "functions.0.mu": peer.mu,
        "functions.0.sigma": peer.sigma,
        "root.weight": of_lins(peer.root),
        "bias": peer.bias,
    }


def one_lin(peer):
    return {"theta.weight": of_lins(peer.lin), "bias": getattr(peer, "bias", peer.lin.bias)}


def of_attention(peer):
    return dict(outer_conv(peer).named_parameters())


OURS_OF = {
    "GCNConv": one_lin,
    "ChebConv": lambda peer: {"theta.weight": of_lins(*peer.lins), "bias": peer.bias},
    "TAGConv": lambda peer: {"theta.weight": of_lins(*peer.lins), "bias": peer.bias},
    "SGConv": lambda peer: {"theta.weight": of_lins(peer.lin), "bias": peer.lin.bias},
    "MixHopConv": lambda peer: {
        "theta.weight": of_lins(*(lin for lin in peer.lins if isinstance(lin, pyg.Linear))),
        "bias": peer.bias,
    },
    "APPNP": lambda peer: {},
    "GraphConv": lambda peer: of_neighbours(peer.lin_rel, peer.lin_root),
    "SAGEConv": lambda peer: of_neighbours(peer.lin_l, peer.lin_r),
    "RGCNConv": of_relations,
    "DirGNNConv": of_directed,
    "NNConv": of_edge_network,
    "GMMConv": of_gaussians,
    "GATConv": of_attention,
    "GATv2Conv": of_attention,
    "TransformerConv": of_attention,
    "global_max_pool": lambda peer: {},
}
