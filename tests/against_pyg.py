"""A graph for layers beside PyG's of the same form, and PyG's weights in ours."""

import torch

from pyg_outerconv.pyg import outer_conv

NODES, P, Q, D = 9, 5, 4, 3
# Loops at 2 and 6, parallel edges 3 → 4, nothing into 8, nothing out of 7.
EDGES = torch.tensor([[0, 1, 2, 2, 3, 3, 4, 5, 6, 0, 6, 8], [1, 2, 3, 2, 4, 4, 5, 0, 6, 7, 3, 0]])


def copy_weights(ours, theirs):
    """Give our layer the weights of PyG's, none of which stays as it began."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    ours.load_state_dict(outer_conv(theirs).state_dict())


def pair_of(ours, theirs):
    """Both layers, with equal weights."""
    copy_weights(ours, theirs)
    return ours, theirs
