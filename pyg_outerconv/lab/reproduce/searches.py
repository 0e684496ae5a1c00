"""A table of searches: ``outerconv reproduce basis_search``, set by set, beside papers."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue
from ...files import STOPPED, as_path
from ..data import DataUnavailable, entry, load
from ..fields import read_toml, read_values, setting
from ..pages import render_page
from ..search.plan import SHARED, Plan
from ..settings import Settings
from ..train.experiment import Interrupted
from ..train.folder import CONFIG, alone_in, write_files
from ..train.splits import check_protocol
from .table import Published, chosen_names, read_results

if TYPE_CHECKING:
    from ..cli.commands import Reproduction
    from ..cli.options import Place
    from ..search.report import Report
    from ..search.search import Search

KIND, FORMAT = "pyg_outerconv.searches", 1
SKIPPED = "its files could not be read"  # the reason, with its paths, is printed


@dataclass(frozen=True)
class Searched:
    """A data set on a split, searched and tested on so many seeds; ``plan`` has values of its own,
    which take the place of those of the table's plan.
    """

    data: str = setting()
    split: str = setting()
    test_seeds: int = setting(10, at_least=2, at_most=1000)
    plan: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_protocol(entry(self.data), self.split)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.data}-{self.split}".lower()


@dataclass(frozen=True, kw_only=True)
class PublishedResult(Published):
    """A figure of a paper with its protocol in words."""

    data: str = setting()
    model: str = setting()
    protocol: str = setting()


@dataclass(frozen=True)
class SearchTable:
    """A table of searches, as a TOML file describes it: ``about`` has the protocol, ``plan`` what
    :class:`Plan` has besides the base, ``settings`` those that all trials share.
    """

    path: Path
    title: str
    about: str
    plan: dict[str, Any]
    settings: dict[str, Any]
    searches: tuple[Searched, ...]
    published: tuple[PublishedResult, ...]

    @property
    def name(self) -> str:
        """The name of the file, without its extension."""
        return self.path.stem


def read_search_table(path: Path) -> SearchTable:
    """The table of searches in a TOML file."""
    content = read_toml(path)
    keys = {"title", "about", "plan", "search", "published"}
    if odd := sorted(set(content) - keys):
        raise RefusedValue(f"{path} is a table of searches", sorted(keys), odd)
    of_plan = {one.name: one for one in fields(Plan) if one.name not in ("base", "terms")}
    of_settings = {one.name: one for one in fields(Settings) if one.name in SHARED}
    asked = read_values({**of_plan, **of_settings}, content.get("plan", {}), f"{path}, plan")
    of_result = {one.name: one for one in fields(PublishedResult)}
    needed = [one.name for one in fields(PublishedResult) if one.default is MISSING]
    published = [
        PublishedResult(**read_values(of_result, one, f"{path}, published {number}", needed))
        for number, one in enumerate(content.get("published", ()), 1)
    ]
    searches = [
        _searched(one, of_plan, f"{path}, search {number}")
        for number, one in enumerate(content.get("search", ()), 1)
    ]
    return SearchTable(
        path,
        content.get("title", path.stem),
        " ".join(content.get("about", "").split()),
        {name: value for name, value in asked.items() if name in of_plan},
        {name: value for name, value in asked.items() if name in of_settings},
        tuple(searches),
        tuple(published),
    )


def _searched(values: Any, of_plan: dict[str, Field[Any]], where: str) -> Searched:
    """An entry of ``[[search]]``: data, split, and what of the plan is its own."""
    own = {one.name: one for one in fields(Searched) if one.name != "plan"}
    read_values({**of_plan, **own}, values, where, ("data", "split"))
    plan = {name: value for name, value in values.items() if name not in own}
    return Searched(**{name: values[name] for name in own if name in values}, plan=plan)


def reproduce_searches(
    path: Path, asked: Reproduction, settings: dict[str, Any], place: Place, go_on: str
) -> int:
    """Run ``outerconv reproduce`` on a table of searches, and return the exit code.

    Each set is the folder of a search. Finished ones are read, others go on, and those whose files
    are absent are skipped, by name; JSON and page are written after each. ``go_on`` is the command
    that goes on where it was interrupted.
    """
    table = read_search_table(path)
    if asked.rows or asked.seeds:
        rule = "a table of searches has the rows and seeds of its protocol"
        raise RefusedValue(rule, "--data alone", "--row" if asked.rows else "--seeds")
    wanted = chosen_names("data set", asked.data, [one.data for one in table.searches])
    folder = as_path(asked.out, "--out") if asked.out else Path("runs") / "tables" / table.name
    command = shlex.join(["outerconv", "reproduce", str(asked.table)])
    with alone_in(folder, begin=lambda: write_files(folder, {})):
        kept = folder / f"{table.name}.json"
        records = read_results(kept, KIND, FORMAT) if kept.is_file() else {}
        for one in (one for one in table.searches if one.data in wanted):
            print(f"\n{one.data}, split {one.split}", flush=True)
            try:
                with closing(
                    _search(one, table, folder / one.folder, settings, place, asked)
                ) as search_run:
                    records[one.folder] = record(one, search_run.run())
            except DataUnavailable as error:
                print(f"  skipped: {error}", file=sys.stderr)
                records.setdefault(one.folder, {"skipped": SKIPPED})
            except Interrupted as stopped:
                print(f"outerconv reproduce: {stopped}; go on by: {go_on}", file=sys.stderr)
                return STOPPED + stopped.number
            _write(folder, table, records, command)
    print(f"\n{folder / table.name}.md")
    return 0


def _search(
    one: Searched,
    table: SearchTable,
    home: Path,
    settings: dict[str, Any],
    place: Place,
    asked: Reproduction,
) -> Search:
    """The search of a set, new or begun."""
    from ..search.command import plan_of, require_extras
    from ..search.search import Search

    require_extras()
    of_set = {**table.settings, "split": one.split, **settings}
    asked_plan = {**table.plan, **one.plan, "test_seeds": one.test_seeds}
    plan = plan_of(entry(one.data), asked_plan, of_set)
    if not (home / CONFIG).exists():
        graph = load(plan.base.dataset, place.root, one.split)
        return Search(plan, home, place.root, dataset=graph, jobs=asked.jobs)
    search_run = Search(None, home, place.root, jobs=asked.jobs)
    if search_run.plan != plan:
        search_run.close()
        rule = f"{home} holds this set with another plan (give another --out, or remove it)"
        raise RefusedValue(rule, plan.as_dict(), search_run.plan.as_dict())
    return search_run


def record(one: Searched, report: Report) -> dict[str, Any]:
    """What the table says of a set, as plain values; differences in points."""
    differences = [
        {"kind": title, "winner_minus_it": 100 * apart, "half_interval": 100 * half}
        for title, apart, half in report.differences()
    ]
    over = "seeds and test nodes" if report.has_fixed_test else "seeds"
    return {
        **vars(one),
        "winner": report.titles[report.first[0]],
        "settings": report.winner_settings(),
        "facts": f"{report.facts} {report.software}. Intervals of the test are over {over}.",
        "verdict": report.verdict(),
        "rows": [list(row) for row in report.result_rows()],
        "differences": differences,
    }


def _write(folder: Path, table: SearchTable, records: dict[str, Any], command: str) -> None:
    content = {"kind": KIND, "format": FORMAT, "title": table.title, "records": records}
    text = page(table, records, command)
    write_files(folder, {f"{table.name}.json": content, f"{table.name}.md": text.encode()})


def page(table: SearchTable, records: dict[str, Any], command: str) -> str:
    """The table as Markdown: who won where, and for each set all kinds, beside papers' figures."""
    heads = [("data", "split", "winner", "family", "test %", "kinds that are better")]
    parts, skipped = [], []
    for one in table.searches:
        summary = records.get(one.folder)
        if summary is None or "skipped" in summary:
            skipped.append(
                f"{one.data}, {one.split}: {summary['skipped'] if summary else 'not run yet'}"
            )
            continue
        better = [
            row["kind"]
            for row in summary["differences"]
            if row["winner_minus_it"] + row["half_interval"] < 0
        ]
        row = (one.data, one.split, summary["winner"], summary["settings"]["family"])
        heads.append((*row, summary["rows"][1][2], ", ".join(better) or "none"))
        parts.append((f"{one.data}, {one.split}", summary))
    papers = [("data", "model", "test %", "protocol", "source")]
    for figure in table.published:
        said = f"{figure.value:.1f}" + ("" if figure.std is None else f" ± {figure.std:.1f}")
        papers.append((figure.data, figure.model, said, figure.protocol, figure.source))
    values: dict[str, Any] = {"heads": heads, "parts": parts, "skipped": skipped, "papers": papers}
    template = Path(__file__).with_suffix(".jinja")
    return render_page(template, of=table, command=command, **values)
