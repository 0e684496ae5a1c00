"""Put a built site beside those of other versions, and list them all.

python site/versions.py build/site published v0.1

``published`` is what a server shows: a folder for each version, ``latest`` for the main branch. The
page ``versions.html`` of each has a list of all, and the page at the top leads to the newest.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

LATEST = "latest"
LIST = re.compile(r'(<ul id="versions">).*?(</ul>)', re.DOTALL)
TOP = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<title>pyg_outerconv</title>
<a href="{newest}/index.html">pyg_outerconv</a>
"""


def publish(built: Path, published: Path, version: str) -> list[str]:
    """Put a built site into its folder, and return all versions, the newest release first."""
    if not re.fullmatch(rf"{LATEST}|v\d+\.\d+", version):
        raise SystemExit(f"a version is {LATEST} or like v0.1, got {version!r}")
    place = published / version
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(built, place)
    folders = [path.name for path in published.iterdir() if (path / "versions.html").is_file()]
    versions = sorted(folders, key=_order, reverse=True)
    for here in versions:
        page = published / here / "versions.html"
        lines = "".join(f"<li>{_link(one, here)}</li>" for one in versions)
        text, lists = LIST.subn(rf"\g<1>{lines}\g<2>", page.read_text("utf-8"))
        assert lists == 1, f"{page} has no list of versions"
        page.write_text(text, "utf-8")
    (published / "index.html").write_text(TOP.format(newest=versions[0]), "utf-8")
    (published / ".nojekyll").touch()  # else GitHub leaves out folders such as _static
    return versions


def _order(version: str) -> list[int]:
    """Releases by their numbers; ``latest`` comes after all of them."""
    return [] if version == LATEST else [int(number) for number in version[1:].split(".")]


def _link(version: str, here: str) -> str:
    said = f"{version}, the main branch" if version == LATEST else version
    shown = f"<strong>{said}</strong>" if version == here else said
    return f'<a href="../{version}/index.html">{shown}</a>'


if __name__ == "__main__":
    print(*publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]), sep="\n")
