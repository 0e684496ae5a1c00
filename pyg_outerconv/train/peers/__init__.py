"""PyG's own layer for the same family, so that both are trained under one protocol."""

from .contender import peer

__all__ = ["peer"]
