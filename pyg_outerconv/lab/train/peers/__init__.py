"""PyG's own layer for the same family, so that both are trained under one protocol."""

from .contender import PeerLayer, peer

__all__ = ["PeerLayer", "peer"]
