"""Check a built site: nothing loads from outside, links inside lead somewhere, pictures have texts.

python site/check.py build/site
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
STYLES = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}


class Page(HTMLParser):
    """What a page loads, links to and names, and its pictures without a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.without_text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag in LOADS and given.get(LOADS[tag]):
            self.loads.append(given[LOADS[tag]])
        if tag == "link" and STYLES & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        if tag == "object":
            self.loads.append(given.get("data", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "img" and not given.get("alt", "").strip():
            self.without_text.append(given.get("src", "?"))


def faults(site: Path) -> Iterator[str]:
    """What is wrong with a site, a line for each."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        here = path.relative_to(site)
        yield from (f"{here}: loads {one}" for one in page.loads if _outside(one))
        yield from (f"{here}: a picture without a text, {one}" for one in page.without_text)
        for link in page.links:
            if not _outside(link) and not _leads_somewhere(link, path, pages):
                yield f"{here}: a link to nothing, {link}"
    for path in sorted(site.rglob("*.css")):
        for one in re.findall(
            r"(?:url\(|@import\s)\s*['\"]?([^'\")\s;]+)", path.read_text("utf-8")
        ):
            if _outside(one) and not one.startswith("data:"):
                yield f"{path.relative_to(site)}: loads {one}"
    if not (site / "searchindex.js").exists():
        yield "there is no index to search in"


def _outside(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def _leads_somewhere(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target not in pages:
        return target.is_file()
    return not parts.fragment or unquote(parts.fragment) in pages[target].names


def main(arguments: list[str]) -> int:
    """Print the faults of a site; 1 if there are any."""
    found = list(faults(Path(arguments[0]).resolve()))
    print("\n".join(found) or "nothing loads from outside, links and pictures are whole")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
