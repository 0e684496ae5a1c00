"""``python tests/try_wheel.py [DIST]``: whether the wheel works where it is installed.

It is installed into two new environments, where all else is what it declares, linked from here: one
of its dependencies alone, one with the extra ``train``. ``smoke.py`` then runs there, in an empty
folder. Without DIST, the wheel and the sdist are built into a temporary folder first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("", "train")
LONGEST = 30
"""Seconds that ``pip install`` of the wheel may take beside an installed torch."""


def run(*line: str | Path, **options: Any) -> str:
    """What a command prints, which is also what is said if it fails."""
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(line, **both, **options)
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def build(into: Path) -> Path:
    """The wheel that ``python -m build`` makes from the sdist that it makes first."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", into, ROOT)
    return wheel_in(into)


def wheel_in(folder: Path) -> Path:
    """The one wheel of a folder, which has one sdist too."""
    (wheel,), (_,) = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    return wheel


def contents(wheel: Path) -> set[str]:
    """The files that a wheel installs, but for its metadata."""
    names = ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def metadata(wheel: Path) -> Distribution:
    """What a wheel says of itself."""
    folder = next(one for one in ZipPath(wheel).iterdir() if one.name.endswith(".dist-info"))
    return PathDistribution(folder)


def needed(wheel: Path, extra: str) -> dict[str, Distribution]:
    """The installed distributions that a wheel asks for, and those that they ask for, by name."""
    distributions: dict[str, Distribution] = {}
    waiting = [(metadata(wheel), {extra})]
    while waiting:
        asking, extras = waiting.pop()
        for line in asking.requires or ():
            one = Requirement(line)
            wanted = one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
            if wanted and one.name not in distributions:
                distributions[one.name] = distribution(one.name)
                waiting.append((distributions[one.name], one.extras or {""}))
    return distributions


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The Python of a new environment that holds what a wheel needs, but not the wheel."""
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", where).strip())
    for one in needed(wheel, extra).values():
        for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(one.locate_file(top))
    return python


def install(python: Path, wheel: Path, extra: str) -> float:
    """Seconds that pip takes; it finds all that the wheel asks for, for it may load nothing."""
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    start = time.perf_counter()
    run(*pip, "install", "-q", "--no-index", asked)
    return time.perf_counter() - start


def smoke(python: Path, folder: Path) -> str:
    """What ``smoke.py`` prints in an environment; it sees no other packages, and no checkout."""
    folder.mkdir()
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return run(python, "-I", ROOT / "tests" / "smoke.py", cwd=folder, env=own)


def main(arguments: list[str]) -> int:
    """Build if nothing is given, install and try."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = wheel_in(Path(arguments[0])) if arguments else build(folder)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {len(contents(wheel))} files")
        for extra in EXTRAS:
            python = environment(folder / f"environment-{extra}", wheel, extra)
            took = install(python, wheel, extra)
            print(f"\npip install {wheel.name}{f'[{extra}]' if extra else ''}: {took:.1f} s")
            if took > LONGEST:
                print(f"that is longer than {LONGEST} s")
                return 1
            print(smoke(python, folder / f"run-{extra}"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
