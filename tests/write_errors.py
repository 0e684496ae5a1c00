"""``python tests/write_errors.py`` runs tests of equal layers, writes examples/attention_errors.md.

Each of these tests copies weights and compares with a layer of torch or PyG; what is written is the
worst of their comparisons, of values and gradients alike.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import pyg_outerconv.testing

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "examples" / "attention_errors.md"
FOLDER = ROOT / "tests" / "nn" / "attention"

# The layer that is equal, and the beginnings of the names of the tests that say so.
ROWS = {
    "torch `MultiheadAttention`, self": ("test_multi_head.py", "test_self_attention"),
    "torch `MultiheadAttention`, causal and windows": ("test_multi_head.py", "test_a_mask"),
    "torch `MultiheadAttention`, any mask": ("test_multi_head.py", "test_any_mask"),
    "torch `MultiheadAttention`, key padding": ("test_multi_head.py", "test_key_padding"),
    "torch `MultiheadAttention`, cross": ("test_multi_head.py", "test_cross_attention"),
    "torch `scaled_dot_product_attention`": ("test_multi_head.py", "test_the_bare_layer"),
    "torch `TransformerEncoderLayer`": ("test_blocks.py", "test_encoder_block"),
    "torch `TransformerDecoderLayer`": ("test_blocks.py", "test_decoder_block"),
    "PyG `GATConv`": ("test_graph_layers.py", "test_gat[", "test_gat_of_a_pair["),
    "PyG `GATConv`, edge features": ("test_graph_layers.py", "test_gat_with_edge"),
    "PyG `GATv2Conv`": ("test_graph_layers.py", "test_gatv2[", "test_gatv2_without"),
    "PyG `GATv2Conv`, edge features": ("test_graph_layers.py", "test_gatv2_with_edge"),
    "PyG `TransformerConv`, root, beta, edges": ("test_graph_layers.py", "test_transformer_conv"),
    "PyG `SuperGATConv`, SD": ("test_graph_layers.py", "test_super_gat["),
    "PyG `AGNNConv`": ("test_graph_layers.py", "test_agnn["),
}


class Recorder:
    """The largest relative difference that each test has seen, by type."""

    def __init__(self) -> None:
        self.test = ""
        self.worst: dict[tuple[str, torch.dtype], float] = {}
        self._assert_near = pyg_outerconv.testing.assert_near

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Which test is running."""
        self.test = f"{item.path.name}::{item.name}"

    def assert_near(
        self,
        actual: torch.Tensor,
        reference: torch.Tensor,
        tolerance: float | None = None,
        at_least: float = 0.0,
    ) -> None:
        """The assertion, and what it saw."""
        self._assert_near(actual, reference, tolerance, at_least)
        if actual.numel() == 0:
            return
        largest = max(at_least, float(reference.detach().abs().max()))
        gap = float((actual.detach().double() - reference.detach().double()).abs().max())
        key = self.test, actual.dtype
        self.worst[key] = max(self.worst.get(key, 0.0), gap / max(largest, 1e-30))

    def row(self, file: str, *names: str) -> list[str]:
        """The worst of some tests, in float32 and float64."""
        cells = []
        for dtype in (torch.float32, torch.float64):
            gaps = [
                gap
                for (test, kind), gap in self.worst.items()
                if kind == dtype and test.startswith(tuple(f"{file}::{name}" for name in names))
            ]
            cells.append(f"{max(gaps):.1e}" if gaps else "–")
        return cells


def page(recorder: Recorder) -> str:
    """The whole page."""
    rows = [f"| {what} | {' | '.join(recorder.row(*tests))} |" for what, tests in ROWS.items()]
    return "\n".join(
        [
            "# How equal attention is",
            "",
            "Weights copied, the largest difference of values and of all gradients, relative to "
            "the largest entry of the reference (gradients smaller than a tenth are compared with "
            "that tenth). Written by `python tests/write_errors.py`, which runs the tests of it.",
            "",
            f"torch {torch.__version__}.",
            "",
            "| equal to | float32 | float64 |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    """Run the tests and write the page, unless one fails."""
    recorder = Recorder()
    pyg_outerconv.testing.assert_near = recorder.assert_near  # before any test imports it
    files = sorted({str(FOLDER / file) for file, *_ in ROWS.values()})
    code = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[recorder])
    if code == 0:
        PAGE.write_text(page(recorder))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
