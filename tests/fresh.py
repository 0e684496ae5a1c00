"""Processes that have imported torch and PyG, and nothing of ours: forks of one that waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[1]

# Reads orders line by line, and answers each by a number: the process begun, or how one ended.
PARENT = """
import json, os, sys, traceback
import torch_geometric.nn
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    for number, name in (1, "out"), (2, "err"):
        os.dup2(os.open(order[name], os.O_WRONLY), number)
    code = 1
    try:
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv[1:] = order["arguments"]
        exec(compile(order["code"], "<code>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else left.code is not None
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
"""


class Fresh:
    """Begins processes that run some code; a call waits for the end of one."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.process = None
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process is not None:
            self.process.communicate()
        self.folder.cleanup()

    def begin(self, code, *arguments, **environment):
        """The process that runs the code, in the root of the project."""
        self.number += 1
        out, err = (Path(self.folder.name, f"{self.number}.{name}") for name in ("out", "err"))
        for path in (out, err):
            path.touch()
        order = {
            "code": code,
            "arguments": arguments,
            "environment": {**os.environ, **environment},
            "out": str(out),
            "err": str(err),
        }
        return SimpleNamespace(process=self._ask(order), out=out, err=err)

    def end(self, begun):
        """How a process ended, and what it said."""
        code = self._ask({"wait": begun.process})
        return SimpleNamespace(
            returncode=code, stdout=begun.out.read_text(), stderr=begun.err.read_text()
        )

    def __call__(self, code, *arguments, **environment):
        """Begin a process and wait for its end."""
        return self.end(self.begin(code, *arguments, **environment))

    def _ask(self, order):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PARENT],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                # Triton, which torch imports, is to compile: whoever wants its interpreter says so.
                env={**os.environ, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"},
            )
            assert self.process.stdout.readline() == "ready\n"
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())
