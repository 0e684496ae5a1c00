"""The processes of a run: one alone, or those that torchrun started; and when one has to end."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ..errors import RefusedValue

Value = TypeVar("Value")

LONGEST_WAIT = timedelta(hours=2)
"""How long a process waits for another that is alive, such as the first while it evaluates."""


class WorkerLost(Exception):  # noqa: N818 - it happened to another process
    """Another process of the run is gone, so that nothing more can be added up with it."""


class Processes:
    """One process, for which all that processes do together is nothing.

    Attributes:
        rank: the number of this process; process 0 alone writes files and prints.
        size: number of processes.
    """

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    @property
    def orphaned(self) -> bool:
        """Whether what started the processes is gone, so that nothing else would end them."""
        return False

    def wrap(self, module: Module) -> Module:
        """The module, whose gradients become means over all processes."""
        return module

    def without_sums(self, module: Module) -> AbstractContextManager[Any]:
        """A block in which gradients stay those of this process."""
        return nullcontext()

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """The sum over all processes of each number."""
        return list(numbers)

    def shared(self, value: Value) -> Value:
        """What process 0 has."""
        return value

    def end(self) -> None:
        """Leave the others."""


ALONE = Processes()


class Torchrun(Processes):
    """Processes that ``torchrun`` started, over gloo on a CPU and NCCL on CUDA.

    Args:
        device: of the model, as torch names it.

    Raises:
        ValueError: there are fewer CUDA devices than processes on this machine.
    """

    def __init__(self, device: str) -> None:
        self._parent = os.getppid()
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        local, cuda = int(os.environ["LOCAL_RANK"]), device.startswith("cuda")
        if cuda and torch.cuda.device_count() <= local:
            raise RefusedValue(
                "each process has a CUDA device of its own",
                f"--nproc-per-node {torch.cuda.device_count()}, or --device cpu",
                f"process {local}",
            )
        if cuda:
            torch.cuda.set_device(local)
        # gloo beside NCCL: numbers of Python's are shared on the CPU.
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=LONGEST_WAIT)
        self._wrapped: list[weakref.ref[DistributedDataParallel]] = []

    @property
    def orphaned(self) -> bool:
        return os.getppid() != self._parent

    def wrap(self, module: Module) -> Module:
        parallel = DistributedDataParallel(module)
        self._wrapped.append(weakref.ref(parallel))
        return parallel

    def without_sums(self, module: Module) -> AbstractContextManager[Any]:
        assert isinstance(module, DistributedDataParallel)
        return module.no_sync()

    def sums(self, numbers: Sequence[float]) -> list[float]:
        sums = torch.tensor(numbers, dtype=torch.float64)
        with noticing_loss():
            dist.all_reduce(sums)
        return sums.tolist()

    def shared(self, value: Value) -> Value:
        object_list = [value]
        with noticing_loss():
            dist.broadcast_object_list(object_list)
        return object_list[0]

    def end(self) -> None:
        # A wrapper that outlives the group frees the group when it goes itself: with Python's lock
        # held, it then waits for gloo's thread, which may wait for the lock to free its last sum.
        for reference in self._wrapped:
            if (parallel := reference()) is not None:
                del parallel.reducer, parallel.logger
        dist.destroy_process_group()


class noticing_loss(AbstractContextManager[None]):  # noqa: N801 - used as a function
    """A block of collective operations; raises WorkerLost where another process is gone."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and _lost(error)):
            raise WorkerLost(" ".join(str(error).splitlines()[0].split())) from error


def _lost(error: RuntimeError) -> bool:
    """Whether an error is of gloo's connections, which have no type of their own."""
    text = str(error)
    return any(word in text for word in ("gloo", "Connection", "Broken pipe", "NCCL"))


def processes(device: str) -> Processes:
    """The processes that ``torchrun`` started, or this one alone."""
    return Torchrun(device) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ALONE
