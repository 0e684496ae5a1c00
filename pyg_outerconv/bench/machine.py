"""The machine and the software that numbers were measured on; no host name, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil
import torch

SOFTWARE = ("torch", "torch-geometric", "torch-scatter", "dgl", "triton", "numpy", "scipy")


def describe_machine(device: str) -> dict[str, Any]:
    """Processor, cores, threads, memory, device and versions."""
    described: dict[str, Any] = {
        "processor": processor(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "logical_cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mkl": torch.backends.mkl.is_available(),
        "versions": {name: version for name in SOFTWARE if (version := installed(name))},
        "device": device,
    }
    if torch.device(device).type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        described["gpu"] = properties.name
        described["gpu_memory_gib"] = round(properties.total_memory / 2**30, 1)
        described["cuda"] = torch.version.cuda
    return described


def processor() -> str:
    """The model of the processor, as the system names it."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def installed(name: str) -> str | None:
    """The version of a distribution, None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def free_memory(device: str) -> int:
    """Bytes that can still be had on a device."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
