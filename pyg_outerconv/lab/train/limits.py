"""The values that the settings of a run may have."""

from __future__ import annotations

from .metrics import METRICS

WORDS = {
    "layer_norm": ("none", "batch", "layer"),
    "skip": ("none", "residual", "concat"),
    "decay": ("all", "first"),
    "features": ("auto", "sparse", "dense"),
    "metric": tuple(METRICS),
    "class_weights": ("none", "balanced"),
    "select": ("loss", "metric"),
    "activation": ("relu", "elu", "gelu", "leaky_relu", "none"),
    "architecture": ("layers", "blocks"),
    "batches": ("none", "random-nodes", "clusters", "blocks", "neighbor"),
    "precision": ("float32", "bfloat16"),
    "update": ("none", "mlp"),
    "pool": ("none", "sum", "mean", "max"),
}
"""The values of settings that are words."""

SAMPLES_WITH = {
    "parts": ("random-nodes", "clusters", "blocks"),
    "parts_per_batch": ("clusters", "blocks"),
    "fan_outs": ("neighbor",),
}
"""The kinds of samples that a setting of samples is for."""

LEAST = {
    **dict.fromkeys(("depth", "hidden", "epochs", "evaluate_every", "seeds"), 1),
    **dict.fromkeys(("parts", "parts_per_batch", "batch_size"), 1),
    **dict.fromkeys(("patience", "out_heads", "peer_seeds", "accumulate"), 0),
}
"""Minima of the settings that are integers."""

MOST = {
    "depth": 256,
    "hidden": 16_384,
    "epochs": 1_000_000,
    "evaluate_every": 1_000_000,
    "patience": 1_000_000,
    "seeds": 10_000,
    "out_heads": 16_384,
    "batch_size": 1_000_000,
    "lr": 1e30,
    "weight_decay": 1e30,
}
"""Maxima of the settings; within them a run ends, and numbers stay within float32."""

MOST_PARAMETERS = 2**30
"""The most parameters between hidden layers."""
