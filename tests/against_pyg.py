"""Weights of PyG's graph attention in our layers."""

from dataclasses import dataclass, field

import torch

NODES, P, Q, D = 9, 5, 4, 3
# Loops at 2 and 6, parallel edges 3 → 4, nothing into 8, nothing out of 7.
EDGES = torch.tensor([[0, 1, 2, 2, 3, 3, 4, 5, 6, 0, 6, 8], [1, 2, 3, 2, 4, 4, 5, 0, 6, 7, 3, 0]])


@dataclass
class Copied:
    """Pairs of parameters, ours and PyG's, with what turns PyG's into ours."""

    pairs: list = field(default_factory=list)

    def add(self, ours, theirs, turn=lambda x: x):
        if theirs is None:
            assert ours is None
            return
        with torch.no_grad():
            theirs.add_(0.2 * torch.randn_like(theirs))  # biases begin at zero, numbers at one
            ours.copy_(turn(theirs))
        self.pairs.append((ours, theirs, turn))

    def linear(self, weight, bias, linear, heads):
        """A linear map (H·D, P) as weights (H, P, D) and biases (H, D)."""
        self.add(weight, linear.weight, lambda w: w.t().unflatten(1, (heads, -1)).transpose(0, 1))
        self.add(bias, linear.bias, lambda b: b.unflatten(0, (heads, -1)))


def copy_gat(ours, theirs):
    copied, heads, score = Copied(), theirs.heads, ours.family.score
    copied.linear(ours.theta.weight, None, theirs.lin or theirs.lin_src, heads)
    if theirs.lin_dst is not None:
        copied.linear(score.ends.target.weight, None, theirs.lin_dst, heads)
    copied.add(score.att_source, theirs.att_src, lambda a: a[0])
    copied.add(score.att_target, theirs.att_dst, lambda a: a[0])
    if theirs.lin_edge is not None:
        copied.linear(score.edge.projection.weight, None, theirs.lin_edge, heads)
        copied.add(score.edge.att, theirs.att_edge, lambda a: a[0])
    if theirs.res is not None:
        copied.linear(ours.root.weight, None, theirs.res, 1)
    copied.add(ours.bias, theirs.bias)
    return copied


def copy_gatv2(ours, theirs):
    copied, heads, score = Copied(), theirs.heads, ours.family.score
    copied.linear(ours.theta.weight, ours.value_bias, theirs.lin_l, heads)
    if not theirs.share_weights:
        copied.linear(score.ends.target.weight, score.ends.target.bias, theirs.lin_r, heads)
    copied.add(score.att, theirs.att, lambda a: a[0])
    if theirs.lin_edge is not None:
        copied.linear(score.edge.weight, None, theirs.lin_edge, heads)
    if theirs.res is not None:
        copied.linear(ours.root.weight, None, theirs.res, 1)
    copied.add(ours.bias, theirs.bias)
    return copied


def copy_transformer(ours, theirs):
    copied, heads, score = Copied(), theirs.heads, ours.family.score
    copied.linear(ours.theta.weight, ours.value_bias, theirs.lin_value, heads)
    copied.linear(score.key.weight, score.key.bias, theirs.lin_key, heads)
    copied.linear(score.query.weight, score.query.bias, theirs.lin_query, heads)
    if theirs.lin_edge is not None:
        copied.linear(score.edge.weight, None, theirs.lin_edge, heads)
    if theirs.root_weight:
        copied.add(ours.skip.weight, theirs.lin_skip.weight)
        copied.add(ours.skip.bias, theirs.lin_skip.bias)
    if theirs.lin_beta is not None:
        copied.add(ours.gate.weight, theirs.lin_beta.weight)
    return copied
