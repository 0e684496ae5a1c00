"""The options of ``outerconv bench``, checked."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RefusedValue, refusal, unknown

TYPES = ("float32", "float64", "float16", "bfloat16")
QUICK_REPEATS, REPEATS = 3, 9


@dataclass(frozen=True)
class Options:
    """The options of ``outerconv bench``; see ``outerconv bench --help``.

    Raises:
        ValueError: a value is out of range.
    """

    quick: bool = False
    only: tuple[str, ...] = ()
    out: str | None = None
    compare: str | None = None
    repeats: int | None = None
    processes: int = 1
    scale: float = 1.0
    threads: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    no_memory: bool = False
    root: str | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "processes", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RefusedValue(refusal(f"--{name} must be positive", ">= 1", value))
        if not 0 < self.scale <= 1:
            raise RefusedValue(refusal("--scale must be a share", "(0, 1]", self.scale))
        if self.dtype not in TYPES:
            raise RefusedValue(unknown("dtype", self.dtype, TYPES))
        if not 0 <= self.seed < 2**63:
            raise RefusedValue(refusal("--seed must be a seed", "[0, 2^63)", self.seed))
