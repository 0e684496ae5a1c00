"""The report as one HTML page that needs nothing from outside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from . import plots
from .crossover import say_crossover
from .names import FORWARD, OURS, TRAINING
from .report import failures, say_place, say_seconds, say_size

_CSS = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; font-weight: 600; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .18rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th { font-weight: 600; } th:first-child, td:first-child, .text { text-align: left; }
.yes { color: #2e8b57; } .no { color: #c8442f; font-weight: 600; } .dim { opacity: .7; }
figure { margin: .5rem 0; display: inline-block; } svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; } code { font-size: .92em; }
""".strip()

_READING = (
    "Times are medians of samples that contenders take in turn, their spread beside them: "
    "quartiles, or the range over several processes. “Forward” runs without gradients; “forward + "
    "backward” gives the gradients of the features and of all parameters. Structure is prepared, "
    "or cached, for everyone, unless a case brings new edges. The bound is the least time that "
    "this machine needs: the traffic of operands and results at the bandwidth of a copy, or the "
    "flops at the rate of a matrix product, whichever is more; dashed in the figures. Peak memory "
    "is that of one step beyond what was there before it, in a process of its own."
)


def make_page(report: dict[str, Any]) -> str:
    """The whole page."""
    records = report["records"]
    parts = [
        "<h1>outerconv bench</h1>",
        _machine(report),
        f"<p class=dim>{escape(_READING)}</p>",
        _errors(report),
        _targets(report),
    ]
    for group in dict.fromkeys(record["group"] for record in records):
        parts.append(f"<h2>{escape(group)}</h2>")
        mine = [record for record in records if record["group"] == group]
        if group == "scaling":
            parts.append(_scaling(mine))
        elif group == "complexity":
            parts.append(_growth(mine))
        for name in dict.fromkeys(record["case"] for record in mine):
            parts.append(_case([r for r in mine if r["case"] == name], report))
    if "compared" in report:
        parts.append(_compared(report["compared"]))
    body = "\n".join(part for part in parts if part)
    return (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n"
        "<meta name=viewport content='width=device-width'>\n<title>outerconv bench</title>\n"
        f"<style>\n{_CSS}\n</style>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], raw: Sequence[int] = ()) -> str:
    """An HTML table; columns in ``raw`` hold HTML already."""

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}>{cell if tag == 'td' and place in raw else escape(cell)}</{tag}>"
            for place, cell in enumerate(row)
        )

    lines = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<div class=wide><table>\n<tr>{cells(head, 'th')}</tr>\n{lines}\n</table></div>"


def _machine(report: dict[str, Any]) -> str:
    machine, settings, roofline = report["machine"], report["settings"], report["roofline"]
    names = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    gpu = f", {machine['gpu']}" if "gpu" in machine else ""
    quick = "quick, " if settings["quick"] else ""
    text = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"{machine['memory_gib']} GiB{gpu}; {names}. Copies {roofline['bandwidth'] / 1e9:.1f} GB/s,"
        f" multiplies matrices at {roofline['flop_rate'] / 1e9:.0f} Gflop/s. {quick}"
        f"{settings['dtype']}, {settings['repeats']} samples in {settings.get('processes', 1)} "
        f"process(es), sizes × {settings['share']:g}, seed "
        f"{settings['seed']}; {report['seconds']:.0f} s."
    )
    return f"<p>{escape(text)}</p>"


def _errors(report: dict[str, Any]) -> str:
    lines = failures(report)
    items = "".join(f"<li class=no>{escape(line)}</li>" for line in lines)
    return f"<h2>Errors</h2><ul>{items}</ul>" if lines else ""


def _targets(report: dict[str, Any]) -> str:
    if not report["targets"]:
        return ""
    words = {
        True: "<span class=yes>reached</span>",
        False: "<span class=no>missed</span>",
        None: "<span class=dim>not measured</span>",
    }
    rows = [
        (
            row["case"],
            row["what"],
            row["asked"],
            row["measured"] or "–",
            words[row["reached"]],
            row["note"],
        )
        for row in report["targets"]
    ]
    share = report["settings"]["share"]
    small = f"<p>Asked of full sizes; these are {share:g} of them.</p>" if share < 1 else ""
    head = ("case", "against", "asked", "measured", "", "")
    return f"<h2>What was asked</h2>{small}{table(head, rows, raw=(4,))}"


def _case(points: list[dict[str, Any]], report: dict[str, Any]) -> str:
    first = points[0]
    parts = [f"<h3>{escape(first['case'])}</h3>", f"<p>{escape(first['description'])}</p>"]
    modes = dict.fromkeys(mode for record in points for mode in record["modes"])
    if first["axis"] is None:
        parts.append(f"<p class=dim>{escape(_sizes(first['sizes']))}</p>")
        if modes:
            parts.append(f"<figure>{plots.bars(first)}</figure>")
        parts.append(_timings(first))
    else:
        if first["axis"] == "density":
            parts += _density(points, modes, report)
        elif first["axis"] == "problem" and TRAINING in modes:
            parts.append(f"<figure>{plots.order_ratios(points, TRAINING)}</figure>")
        parts.append(_sweep(points))
    for kind in ("notes", "absent"):
        parts.append(_reasons(points, kind))
    return "\n".join(parts)


def _density(
    points: list[dict[str, Any]], modes: dict[str, None], report: dict[str, Any]
) -> list[str]:
    parts = [f"<p class=dim>{escape(_sizes(points[0]['sizes'], ('edges',)))}</p>"]
    for mode in modes:
        found = [
            crossing
            for crossing in report["crossovers"]
            if (crossing["case"], crossing["mode"]) == (points[0]["case"], mode)
        ]
        at = found[0]["density"] if found else None
        parts.append(f"<figure>{plots.curves(points, mode, at)}</figure>")
        parts += [f"<p>{escape(say_crossover(crossing))}</p>" for crossing in found]
    return parts


def _scaling(records: list[dict[str, Any]]) -> str:
    names = dict.fromkeys(r["case"] for r in records if r["modes"].get(FORWARD, {}).get(OURS))
    if not names:
        return ""
    sweeps = {name: [r for r in records if r["case"] == name] for name in names}
    return f"<figure>{plots.cost_per_edge(sweeps, FORWARD)}</figure>"


def _growth(records: list[dict[str, Any]]) -> str:
    """A figure for each axis along which layers of several kinds were timed."""
    parts = []
    for axis in dict.fromkeys(r["axis"] for r in records):
        mine = [r for r in records if r["axis"] == axis and r["modes"].get(TRAINING)]
        names = dict.fromkeys(r["case"] for r in mine)
        sweeps = {name: [r for r in mine if r["case"] == name] for name in names}
        sweeps = {name: found for name, found in sweeps.items() if len(found) > 1}
        if sweeps:
            parts.append(f"<figure>{plots.growth(sweeps, TRAINING)}</figure>")
    return "".join(parts)


def _timings(record: dict[str, Any]) -> str:
    rows = []
    for mode, timings in record["modes"].items():
        ours = timings.get(OURS) or next(iter(timings.values()))
        bound = record["bounds"].get(mode)
        for name, timing in timings.items():
            fraction = record["fractions"].get(mode, {}).get(name)
            rows.append((name, mode, *_cells(timing, ours, fraction)))
        if bound is not None:
            rows.append(("bound", mode, say_seconds(bound["seconds"]), "", "", bound["limit"]))
    if not rows:
        return ""
    head = ("contender", "mode", "median", "spread", "× ours", "of the bound")
    return table(head, rows) + _memory(record)


def _memory(record: dict[str, Any]) -> str:
    rows = [
        (
            name,
            f"{peak['step'] / 2**20:.0f} MiB",
            f"{peak['process'] / 2**20:.0f} MiB",
            peak["method"],
        )
        for name, peak in record["memory"].items()
    ]
    head = ("contender", "peak of a step", "peak of the process", "by")
    return table(head, rows) if rows else ""


def _sweep(points: list[dict[str, Any]]) -> str:
    rows = []
    for record in points:
        for mode, timings in record["modes"].items():
            ours = timings.get(OURS) or next(iter(timings.values()))
            for name, timing in timings.items():
                fraction = record["fractions"].get(mode, {}).get(name)
                at = say_size(record["at"])
                rows.append((at, name, mode, *_cells(timing, ours, fraction)))
    head = (points[0]["axis"], "contender", "mode", "median", "spread", "× ours", "of the bound")
    if points[0]["axis"] == "problem":
        head = (*head[:5], "× chosen", head[6])
    summary = f"<summary>{len(rows)} rows</summary>"
    memory = "".join(_memory(record) for record in points)
    return f"<details>{summary}{table(head, rows)}{memory}</details>" if rows else ""


def _cells(timing: dict[str, Any], ours: dict[str, Any], fraction: float | None) -> list[str]:
    return [
        say_seconds(timing["median"]),
        f"{say_seconds(timing['low'])} – {say_seconds(timing['high'])}",
        f"{timing['median'] / ours['median']:.2f}",
        "" if fraction is None else f"{100 * fraction:.0f} %",
    ]


def _reasons(points: list[dict[str, Any]], kind: str) -> str:
    if kind == "notes":
        lines = dict.fromkeys(note for record in points for note in record["notes"])
        return "".join(f"<p>{escape(note)}</p>" for note in lines)
    reasons: dict[tuple[str, str], None] = dict.fromkeys(
        item for record in points for item in record["absent"].items()
    )
    items = "; ".join(f"{escape(name)}: {escape(reason)}" for name, reason in reasons)
    return f"<p class=dim>Not run. {items}.</p>" if items else ""


def _sizes(sizes: dict[str, Any], without: Sequence[str] = ()) -> str:
    return ", ".join(f"{name} {say_size(s)}" for name, s in sizes.items() if name not in without)


def _compared(compared: dict[str, Any]) -> str:
    colours = {"faster": "yes", "slower": "no", "same": "dim"}
    rows = [
        (
            say_place(row),
            row["contender"],
            row["mode"],
            say_seconds(row["before"]),
            say_seconds(row["now"]),
            f"{row['ratio']:.2f}",
            f"<span class={colours[row['verdict']]}>{row['verdict']}</span>",
        )
        for row in compared["rows"]
    ]
    notes = "".join(f"<p>{escape(note)}</p>" for note in compared["notes"])
    head = ("case", "contender", "mode", "before", "now", "ratio", "")
    return f"<h2>Against the earlier run</h2>{notes}{table(head, rows, raw=(6,))}"
