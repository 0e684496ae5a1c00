"""One process at a time trains in a run folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from pyg_outerconv.train import lock

HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders have no locks")


def test_another_process_is_named_and_a_killed_one_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "SECONDS", 0.3)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        said: list[str] = []
        refused = pytest.raises(ValueError, match="one process at a time")
        with refused, lock.alone_in(tmp_path, said.append):
            pass
        assert said == [f"{tmp_path}: another process trains there; it has 0 s to stop"]
        holder.kill()
        holder.wait()
        with lock.alone_in(tmp_path):
            pass
    with lock.alone_in(tmp_path):
        pass


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a run has a folder"), lock.alone_in(tmp_path / "none"):
        pass
