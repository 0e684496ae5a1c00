"""Embedded Gaussian: unscaled products of projected queries and keys."""

from __future__ import annotations

from .key_query import KeyQuery


class EmbeddedGaussian(KeyQuery):
    r"""score[m, n] = ⟨Q_n W_q, X_m W_k⟩, whose exponential a softmax normalises.

    Equation 3 of `"Non-local Neural Networks" <https://arxiv.org/abs/1711.07971>`_, with θ = W_q
    and φ = W_k.

    Args:
        heads: H.
        channels: D of each head.
        in_channels: P of the sources, or a pair (P, P_q), -1 to learn it from the first input.
        bias: whether keys and queries have a bias.
    """

    name = "embedded-gaussian"
    equation = "s[m, n] = <Q_n W_q, X_m W_k>"
    page = ("⟨Q_n W_q, X_m W_k⟩", "1711.07971, equation 3")

    def __init__(
        self,
        heads: int,
        channels: int,
        in_channels: int | tuple[int, int] = -1,
        bias: bool = False,
    ) -> None:
        super().__init__(heads, channels, in_channels, bias, scale=1.0)
