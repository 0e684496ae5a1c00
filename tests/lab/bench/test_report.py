"""JSON there and back, tables, comparisons, and a page that needs nothing from outside."""

import html
import json
import re
import shutil
import subprocess
from collections import Counter

import pytest
from lab.bench.fakes import CONTEXT, ROOFLINE, contender, fake_case, record, timing

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import report as reports
from pyg_outerconv.lab.bench.case import (
    DENSE,
    FLOOR,
    FORWARD,
    KRONECKER,
    OURS,
    PREPARATION,
    PYG,
    SPARSE,
    TORCH,
    TRAINING,
)
from pyg_outerconv.lab.bench.run import run_cases
from pyg_outerconv.lab.bench.targets import (
    ahead_up_to,
    crossover,
    faster,
    good_choice,
    say_crossover,
    smaller,
    under,
    within,
)

MACHINE = {
    "processor": "a <fast> one",
    "cores": 2,
    "threads": 2,
    "memory_gib": 8.0,
    "versions": {"torch": "2"},
}
SETTINGS = {
    "quick": False,
    "scale": 1.0,
    "share": 1.0,
    "repeats": 5,
    "threads": 2,
    "dtype": "float32",
    "seed": 0,
    "version": "0",
}


@pytest.mark.skipif(not shutil.which("git"), reason="git says the commit")
def test_a_commit_is_that_of_the_folder_and_its_changes(tmp_path):
    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        line = ["git", *names, *words]
        return subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    package, beside = tmp_path / "package", tmp_path / "beside.py"
    package.mkdir()
    (package / "code.py").write_text("1")
    assert reports.commit_of(package) is None  # no clone
    git("init")
    assert reports.commit_of(package) is None  # not tracked, as a package in an environment
    git("add", "package")
    git("commit", "-m", "first")
    first = git("log", "-1", "--format=%h").strip()
    beside.write_text("2")
    git("add", "beside.py")
    git("commit", "-m", "second")
    assert (
        reports.commit_of(package)
        == reports.commit_of(package / "code.py")
        == first
        != reports.commit_of(beside)
    )
    (package / "code.py").write_text("3")
    assert reports.commit_of(package) == f"{first}-dirty"
    assert reports.commit_of(beside) == git("log", "-1", "--format=%h").strip()


def report_of(*records, cases=()):
    return reports.make_report(MACHINE, SETTINGS, ROOFLINE, records, cases, 1.0)


def whole_report():
    """Every kind of record that a page shows."""
    densities = [
        record(
            case="density",
            group="density",
            axis="density",
            at=at,
            modes={FORWARD: {OURS: timing(at), SPARSE: timing(at, 0.1), DENSE: timing(0.1)}},
        )
        for at in (0.01, 0.1, 1.0)
    ]
    orders = record(
        case="orders",
        group="orders",
        axis="problem",
        at="gcn <64>",
        sizes={"chosen, forward + backward": "a"},
        modes={TRAINING: {"a": timing(1.1), "b": timing(1.0)}},
    )
    memory = {OURS: {"step": 1 << 20, "process": 1 << 30, "method": "samples"}}
    plain = record(
        bounds={FORWARD: {"bytes": 1.0, "flops": 1.0, "seconds": 0.5, "limit": "traffic"}},
        fractions={FORWARD: {OURS: 0.5}},
        memory=memory,
        absent={"DGL": "not <installed>"},
        errors={"other": "differs"},
        notes=["a note"],
    )
    bench_case = fake_case(
        contender(OURS), targets=(faster(PYG, 3), faster(PYG, 5), faster("x", 2))
    )
    return report_of(plain, *densities, orders, cases=[bench_case])


def test_json_there_and_back(tmp_path):
    measured = run_cases([fake_case(contender(OURS), contender(PYG))], CONTEXT, ROOFLINE)
    for report in (whole_report(), report_of(*measured)):
        (tmp_path / "bench.json").write_bytes(reports.as_json(report))
        assert reports.read_json(tmp_path / "bench.json") == json.loads(json.dumps(report))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "expected a file"),
        ("not JSON", "expected JSON"),
        ("[]", "of kind 'pyg_outerconv.bench', got something else"),
        ('{"kind": "other"}', "of kind 'pyg_outerconv.bench', got something else"),
        ('{"kind": "pyg_outerconv.bench", "format": 99}', "expected format 1, got 99"),
        ('{"kind": "pyg_outerconv.bench", "format": 1, "records": [{}], "machine": {}}', "whole"),
        ('{"kind": "pyg_outerconv.bench", "format": 1, "records": []}', "expected a machine"),
    ],
)
def test_other_files_are_refused(tmp_path, content, words):
    path = tmp_path / "old.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(RefusedValue, match="must be written by outerconv bench") as refused:
        reports.read_json(path)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (timing(1.0, 0.1), timing(2.0, 0.1), "faster"),
        (timing(2.0, 0.1), timing(1.0, 0.1), "slower"),
        (timing(1.2, 0.3), timing(1.0, 0.3), "same"),  # the quartiles overlap
        (timing(1.04), timing(1.0), "same"),  # apart, but by little
        (timing(1.06), timing(1.0), "slower"),
        (timing(0.96), timing(1.0), "same"),
        (timing(0.94), timing(1.0), "faster"),
    ],
)
def test_a_timing_is_compared_with_regard_to_its_spread(now, before, verdict):
    assert reports.compare_timings(now, before) == verdict


def test_reports_are_compared_where_both_have_measured_the_same():
    modes = {FORWARD: {OURS: timing(2.0), PYG: timing(4.0)}}
    old = report_of(record(), record(case="gone"), record(case="grown"))
    new = report_of(
        record(modes=modes), record(case="new"), record(case="grown", sizes={"nodes": 5})
    )
    new["machine"] = {**MACHINE, "threads": 1}
    comparison = reports.compare_reports(new, old)
    assert [(row["case"], row["contender"], row["verdict"]) for row in comparison["rows"]] == [
        ("fake", OURS, "slower"),
        ("fake", PYG, "same"),
    ]
    assert comparison["notes"] == [
        "another threads: 2 before, 1 now",
        "not compared, as sizes differ: grown",
    ]
    said = reports.say_end({**new, "compared": comparison})
    assert "2.00" in said
    assert "slower" in said
    nothing = reports.compare_reports(report_of(record(case="a")), old)
    assert "nothing that both runs have measured alike" in reports.say_end(
        {**new, "compared": nothing}
    )


def test_the_terminal_sees_times_reasons_and_a_summary():
    report = whole_report()
    said = reports.say_record(report["records"][0])
    for words in ("fake: numbers", "4.00", "50 %", "1 MiB", "not run: DGL", "ERROR: other"):
        assert words in said, words
    assert [row[2] for row in reports.summary_rows(report)[1:]] == [
        "4.00×",
        "4.00×",
    ]  # x is not measured
    table = reports.say_end(report).splitlines()
    assert table[0] == "Summary"
    assert [line.split()[-1] for line in table[3:5]] == ["4.00×", "4.00×"]
    assert reports.say_end(report_of(record())) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (2.0, "2 s"),
        (1234.0, "1234 s"),
        (0.0123, "12.3 ms"),
        (4.56e-5, "45.6 µs"),
        (1e-9, "0.001 µs"),
    ],
)
def test_seconds_in_a_unit_that_suits(seconds, said):
    assert reports.say_seconds(seconds) == said


def test_the_page_needs_nothing_from_outside():
    page = reports.make_page(whole_report())
    opened = Counter(re.findall(r"<([a-z]\w*)(?:[^>]*[^/>])?>", page))
    assert not {"script", "link", "img", "iframe", "image"} & set(opened)
    closed = Counter(re.findall(r"</(\w+)>", page))
    assert {tag: count for tag, count in opened.items() if tag != "meta"} == closed
    assert not re.search(r"https?:|//[a-z]", page)
    targets = re.findall(r"""(?:\s(?:href|src)=["']?|url\()([^"'\s>)]+)""", page)
    ids = set(re.findall(r"""\sid=["']([^"']+)""", page))
    assert targets
    assert all(target.startswith("#") and target[1:] in ids for target in targets)


def test_the_page_shows_tables_figures_and_reasons():
    report = whole_report()
    report["compared"] = reports.compare_reports(report, report)
    page = reports.make_page(report)
    text = html.unescape(re.sub("<[^>]+>", " ", page))
    assert page.count("<svg") == 3  # bars; a curve over density; bars of orders
    for words in (
        "a <fast> one",
        "not <installed>",
        "gcn <64>",
        "Summary",
        "forward + backward, time of PyG",
        "dense is faster from density 0.1 on",
        "Against the earlier run",
        "a note",
        "fake: other: differs",
    ):
        assert words in text, words
    assert "currentColor" in page
    assert "#010203" not in page


# Verdicts on records that are written by hand; where two curves meet -----------------------------


DENSITIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def times(mode=TRAINING, **seconds):
    """A point where ours, PyG and others take some seconds in a mode."""
    names = {"ours": OURS, "pyg": PYG, "floor": FLOOR}
    return {mode: {names.get(name, name): timing(one) for name, one in seconds.items()}}


def used(**mebibytes):
    names = {"ours": OURS, "pyg": PYG}
    return {
        names[name]: {"step": size << 20, "process": size << 30, "method": ""}
        for name, size in mebibytes.items()
    }


def sweep(*points):
    """A record of each (density, seconds, PyG's)."""
    return [
        record(axis="density", at=at, modes=times(ours=ours, pyg=theirs))
        for at, ours, theirs in points
    ]


def chosen(*points):
    return [
        record(at=name, sizes={f"chosen, {TRAINING}": pick}, modes=times(a=1.0, b=other))
        for name, pick, other in points
    ]


PICKS = chosen(("1", "a", 2.0), ("2", "b", 1.1), ("3", "b", 1.2))
AHEAD = sweep((0.01, 0.5, 2.0), (0.1, 1.0, 2.0), (0.5, 4.0, 2.0))
EDGES = [record(modes=times(PREPARATION, ours=0.05), memory=used(ours=80))]
PROCESSES = [record(ratios={FORWARD: {PYG: [2.0, 5.0, 3.0]}})]
FLOORED = [record(modes=times(ours=2.0, pyg=3.0, floor=1.6))]
ABSENT = [record(modes=times(ours=1.0), absent={PYG: "not installed"})]
BROKEN = [record(modes=times(ours=1.0), errors={PYG: "differs"})]
MEMORY = [record(memory=used(ours=100, pyg=400))]


@pytest.mark.parametrize(
    ("target", "points", "measured", "reached", "note"),
    [
        (faster(PYG, 3.5), [record()], "4.00×", True, ""),
        (faster(PYG, 4.0), [record()], "4.00×", True, ""),
        (faster(PYG, 4.5), [record()], "4.00×", False, ""),
        (faster(PYG, 2.5, FORWARD), PROCESSES, "3.00× (2.00–5.00)", True, ""),
        (
            faster(PYG, 2, floor=FLOOR),
            FLOORED,
            "1.50×",
            False,
            "matrix products alone allow 1.88×, ours takes 1.25 of it",
        ),
        (faster(PYG, 2), ABSENT, None, None, "PyG: not installed"),
        (faster(PYG, 2), BROKEN, None, None, "PyG: differs"),
        (smaller(PYG, 3.0), MEMORY, "4.00×", True, "100 MiB against 400 MiB"),
        (smaller(PYG, 5.0), MEMORY, "4.00×", False, "100 MiB against 400 MiB"),
        (smaller(PYG, 3.0), [record()], None, None, "not measured"),
        (under(101), MEMORY, "100.00 GiB", True, ""),
        (under(100), MEMORY, "100.00 GiB", False, ""),
        (under(3), [record()], None, None, "not measured"),
        (good_choice(0.6, 0.15), PICKS, "67 % (2 of 3)", True, "3: b takes 1.20 of a"),
        (good_choice(0.9, 0.15), PICKS, "67 % (2 of 3)", False, "3: b takes 1.20 of a"),
        (good_choice(0.9, 0.15), [record()], None, None, "not measured"),
        (ahead_up_to(PYG, 0.1), AHEAD, "2.00×", True, "least at 0.1"),
        (ahead_up_to(PYG, 0.5), AHEAD, "0.50×", False, "least at 0.5"),
        (ahead_up_to(PYG, 0.001), AHEAD, None, None, "no such point"),
        (within(0.1), EDGES, "50 ms", True, ""),
        (within(0.01), EDGES, "50 ms", False, ""),
        (within(0.1, mebibytes=100), EDGES, "50 ms and 80 MiB", True, ""),
        (within(0.1, mebibytes=50), EDGES, "50 ms and 80 MiB", False, ""),
        (within(0.01, mebibytes=100), EDGES, "50 ms and 80 MiB", False, ""),
        (within(1, FORWARD, mebibytes=1), [record()], None, None, "not measured"),
    ],
    ids=lambda value: getattr(value, "what", None),
)
def test_a_target_is_judged(target, points, measured, reached, note):
    judgement = target.judge(points)
    assert (judgement["measured"], judgement["reached"], judgement["note"]) == (
        measured,
        reached,
        note,
    )
    assert judgement["what"] == target.what
    assert judgement["asked"] == target.asked


@pytest.mark.parametrize("where", [2e-4, 1e-3, 0.03, 0.9])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_power_laws_meet_where_they_do(where, power):
    sparse = [(density / where) ** power for density in DENSITIES]
    assert crossover(DENSITIES, sparse, [1.0] * 5) == pytest.approx(where, rel=1e-9)


def test_no_crossover_and_one_below_the_lowest_density():
    assert crossover(DENSITIES, [1.0] * 5, [2.0] * 5) is None
    assert crossover(DENSITIES, [2.0] * 5, [1.0] * 5) == 1e-4
    assert crossover((0.1,), [2.0], [1.0]) == 0.1


@pytest.mark.parametrize(
    "curves",
    [
        # The best dense form counts; ours by its own choice does not where it is kept sparse too.
        lambda density: {OURS: 0.1, SPARSE: density / 0.05, DENSE: 1.0, KRONECKER: 5.0},
        lambda density: {OURS: density / 0.05, TORCH: 1.0},
    ],
)
def test_crossovers_are_of_the_best_dense_form_and_points_need_no_order(curves):
    points = [
        record(axis="density", at=density, modes=times(FORWARD, **curves(density)))
        for density in reversed(DENSITIES)
    ]
    (crossover_record,) = reports.find_crossovers([record(), *points])
    assert crossover_record["density"] == pytest.approx(0.05)
    assert (crossover_record["lowest"], crossover_record["highest"]) == (1e-4, 1.0)
    assert say_crossover(crossover_record) == "fake, forward: dense is faster from density 0.05 on"


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (None, "sparse is faster up to density 1"),
        (1e-4, "dense is faster from density 0.0001 on"),
        (0.0123, "dense is faster from density 0.012 on"),
    ],
)
def test_what_is_said_of_a_crossover(density, words):
    crossover_record = {
        "case": "a",
        "mode": "b",
        "density": density,
        "lowest": 1e-4,
        "highest": 1.0,
    }
    assert say_crossover(crossover_record) == f"a, b: {words}"
