"""``python -m pyg_outerconv.bench.probe REQUEST``: the peak memory of one contender's step."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch

from .case import CASES
from .cases import register_all
from .context import Context
from .memory import peak_of_step


def context_of(request: dict[str, Any]) -> Context:
    """The context that :func:`request_for` wrote."""
    fields = dict(request["context"])
    return Context(**{**fields, "dtype": getattr(torch, fields["dtype"])})


def request_for(
    context: Context, threads: int, case: str, at: Any, mode: str, contender: str
) -> dict[str, Any]:
    """The request to a probe, as plain values."""
    fields = {**vars(context), "dtype": str(context.dtype).removeprefix("torch.")}
    return {
        "context": fields,
        "threads": threads,
        "case": case,
        "at": at,
        "mode": mode,
        "contender": contender,
    }


def answer(request: dict[str, Any]) -> dict[str, int | str]:
    """Set the case up, and measure one step of one contender."""
    register_all()
    torch.set_num_threads(request["threads"])
    context = context_of(request)
    torch.manual_seed(context.seed)
    setup = CASES[request["case"]].make(context, request["at"])
    (step,) = (
        contender.steps[request["mode"]]
        for contender in setup.contenders
        if contender.name == request["contender"]
    )
    return peak_of_step(step, context.device).as_dict()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(answer(json.loads(sys.argv[1]))))
