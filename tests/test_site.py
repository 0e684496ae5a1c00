"""The site's own parts: notebooks, pictures of the gallery, the reference, the check of its pages.

`make docs` builds the site, warnings being errors, and checks what came out.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

pytestmark = pytest.mark.pages
ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
GALLERY = sorted((ROOT / "examples" / "gallery").glob("*.py"))
CLAIMS = sorted((ROOT / "examples" / "claims").glob("*.py"))


@cache
def load(path):
    spec = importlib.util.spec_from_file_location(f"of_site_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages():
    """The module that makes pages of code."""
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(SITE))
    yield load(SITE / "pages.py")
    sys.path.remove(str(SITE))


def cells(path, kind):
    notebook_cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(one["source"]) for one in notebook_cells if one["cell_type"] == kind]


@pytest.mark.pages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, registries, capsys):
    namespace = {"__name__": path.stem}
    for number, code in enumerate(cells(path, "code")):
        exec(compile(code, f"{path.name}, cell {number}", "exec"), namespace)


def test_exercises_are_blank_and_tell_a_right_answer_from_a_wrong_one(capsys):
    """Below each blank is a solution, folded, and a cell that checks; the answer is the blank's."""
    path = ROOT / "examples" / "notebooks" / "outer_product.ipynb"
    notebook_cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    asked = re.findall(
        r"\*\*Exercise \d+\.\*\*(?! \(To think about\.\) Why)", "".join(cells(path, "markdown"))
    )
    checks = 0
    namespace = {}
    for place, cell in enumerate(notebook_cells):
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        if code.startswith("yours = None"):
            folded = notebook_cells[place + 1]["metadata"]
            assert folded == {"jupyter": {"source_hidden": True}, "tags": ["hide-cell"]}
            checks += 1
        exec(code, namespace)
        if check := re.fullmatch(r"check\(yours, (.*)\)", code):
            assert capsys.readouterr().out.splitlines()[-1].startswith("Not tried yet")
            solution = eval(check[1], namespace)
            parts = solution if isinstance(solution, tuple) else (solution,)
            namespace["check"](solution, solution)
            assert capsys.readouterr().out == "Right.\n"
            for wrong in (tuple(one + 1 for one in parts), tuple(one[:1] for one in parts)):
                with pytest.raises(AssertionError, match="not yet"):
                    namespace["check"](wrong if len(parts) > 1 else wrong[0], solution)
    assert checks == len(asked) == 9


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_what_it_printed(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(path):
    links = re.findall(r"\]\((?!http)([^)\s#]+)[^)\s]*\)", "\n".join(cells(path, "markdown")))
    assert links
    for link in links:
        assert (path.parent / link).exists(), link


def test_the_page_of_notebooks_names_each():
    page = (SITE / "notebooks.md").read_text(encoding="utf-8")
    assert re.findall(r"notebooks/(\w+)\.ipynb", page) == re.findall(r"^/.*/(\w+)$", page, re.M)
    assert {path.stem for path in NOTEBOOKS} == {*re.findall(r"notebooks/(\w+)\.ipynb", page)}


@pytest.mark.pages
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_a_script_of_the_gallery_draws_each_picture(path, tmp_path):
    script = load(path)
    script.draw(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == set(script.PICTURES)
    for name, text in script.PICTURES.items():
        assert (tmp_path / name).stat().st_size > 5_000
        assert len(text) > 50
        assert text.endswith(".")


def test_the_search_of_the_gallery_finds_the_filters_that_made_the_classes():
    script = load(ROOT / "examples" / "gallery" / "filter_search.py")
    (low, shared), (high, apart) = script.QUESTIONS.items()
    for question, own, other in ((low, shared, apart), (high, apart, shared)):
        for seen in script.winning_filters(question).values():
            frequency, gains = script.response(seen)
            alike = np.corrcoef([gains, own(frequency), other(frequency)])[0]
            assert alike[1] > 0.75 > 0 > alike[2]
            assert all(one["loss_change"] > 0 for one in seen["labels"])


@pytest.mark.parametrize("path", CLAIMS, ids=lambda path: path.stem)
def test_a_claim_of_the_paper_holds(path, capsys):
    load(path).main()
    assert capsys.readouterr().out


def test_claims_are_listed():
    page = (ROOT / "examples" / "claims" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| .* \[`\w+\.py`\]\(([\w./]+)\) \|", page, re.MULTILINE)
    assert sorted(one for one in listed if "/" not in one) == [path.name for path in CLAIMS]
    for path in CLAIMS:
        assert f"python examples/claims/{path.name}" in path.read_text(encoding="utf-8")


def test_the_gallery_shows_every_script(pages):
    assert set(pages.GALLERY) == {path.stem for path in GALLERY}


def test_every_public_name_is_in_the_reference_with_an_example(pages):
    text = "".join(text for _, text in pages.reference())
    documented = re.findall(r"\.\. auto(?:class|function):: pyg_outerconv\.(\S+)", text)
    assert sorted(documented) == sorted(pages.public_names())
    kinds = pages.examples()
    assert [name for name, kind in kinds.items() if kind == "none"] == []


def test_a_call_is_shown_where_there_is_no_other_example(pages):
    assert pages._call("families.Causal") == "families.Causal()"
    assert "A call that the tests run" in "\n".join(pages._example("families.Causal", object))
    assert pages._call("nothing") == ""


def test_a_name_without_an_example_says_why(pages):
    shown = {"docstring", "page", "call"}
    names = pages.public_names()
    without = [name for name, kind in pages.examples().items() if kind not in shown]
    layers = [name for name in without if pages._explained(names[name])]
    others = [name for name in without if name not in layers]
    for name in layers:
        assert "What an example of it computes:" in pages._example(name, names[name])
    for name in others:
        assert "no example of its own: a " in pages._example(name, names[name])[0]
    assert set(others) == {
        *("attention.Dot", "attention.EdgeContext", "attention.PerHead"),
        *("contract.Cost", "contract.Problem", "pyg.DropIn"),
    }


def test_the_rosetta_stone_has_every_layer_of_pyg_and_of_torch(pages):
    ours = "".join(pages.of_pyg())
    for entry in pages.entries():
        heading = f"### {entry.name}\n" if entry.kind != pages.NONE else f"| `{entry.name}` |"
        assert heading in ours
    assert "A_0 = D^-1/2 (W + I) D^-1/2, D the in-degrees of W + I" in ours
    theirs = "".join(pages.of_torch())
    for kind in pages.CONVERSIONS:
        assert f"### torch.nn.{kind.__name__}\n" in theirs
    assert "9 matrices, `A_d[m, n] = 1 where m = s n - d" in theirs


def test_benchmarks_are_the_kept_runs(pages):
    text = "".join(pages.benchmarks())
    for path in (ROOT / "examples" / "bench").glob("*.json"):
        assert f"## {path.stem}\n" in text
    assert "AMD EPYC, 2 cores" in text
    assert "| gcn-100k | forward + backward, time of PyG | 6× | 10.91× |" in text


def test_stars_and_bars_of_docstrings_are_no_markup(pages):
    text = ["X (*, M, P) and |s|, not ``(*, |x|)``", "    x, **options: see *Title*"]
    pages.escape(None, "", "", None, None, text)
    assert text == [r"X (\*, M, P) and \|s\|, not ``(*, |x|)``", r"    x, \*\*options: see *Title*"]


def write(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>")
    (folder / "searchindex.js").write_text("")


def test_a_whole_site_has_no_faults(tmp_path):
    check = load(SITE / "check.py")
    write(
        tmp_path,
        one='<p id="here"><a href="two.html#there">2</a><a href="https://a.b">out</a></p>',
        two='<h1 id="there"></h1><a href="#there"></a><img src="x.svg" alt="a line">',
    )
    assert list(check.faults(tmp_path)) == []
    assert check.main([str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<script src="https://a.b/c.js"></script>', "loads https://a.b/c.js"),
        ('<link rel="stylesheet" href="//a.b/c.css">', "loads //a.b/c.css"),
        ('<img src="https://a.b/c.png" alt="c">', "loads https://a.b/c.png"),
        ('<img src="c.png">', "a picture without a text, c.png"),
        ('<a href="three.html"></a>', "a link to nothing, three.html"),
        ('<a href="#there"></a>', "a link to nothing, #there"),
    ],
)
def test_what_is_wrong_with_a_page_is_found(tmp_path, body, fault, capsys):
    check = load(SITE / "check.py")
    write(tmp_path, one=body)
    assert list(check.faults(tmp_path)) == [f"one.html: {fault}"]
    assert check.main([str(tmp_path)]) == 1


def test_what_a_style_loads_is_found(tmp_path):
    check = load(SITE / "check.py")
    write(tmp_path, one="")
    (tmp_path / "a.css").write_text("a { src: url('https://a.b/f.woff') } b { src: url(data:x) }")
    assert list(check.faults(tmp_path)) == ["a.css: loads https://a.b/f.woff"]
    (tmp_path / "searchindex.js").unlink()
    assert "there is no index to search in" in list(check.faults(tmp_path))


def publish(folder, version, page):
    """A site whose page of versions is that of the template, put beside others."""
    built, published = folder / "build", folder / "published"
    for place in (built, published):
        place.mkdir(exist_ok=True)
    body = (SITE / "_templates" / "versions.html").read_text(encoding="utf-8")
    write(built, index=page, versions=body)
    return load(SITE / "versions.py").publish(built, published, version)


def test_versions_of_the_site_stand_beside_each_other(tmp_path):
    assert publish(tmp_path, "latest", "main") == ["latest"]
    assert "latest/index.html" in (tmp_path / "published" / "index.html").read_text()
    for version in ("v0.9", "v0.10"):
        publish(tmp_path, version, f"first {version}")
    (tmp_path / "build" / "gone.html").write_text("")
    assert publish(tmp_path, "v0.9", "second") == ["v0.10", "v0.9", "latest"]
    (tmp_path / "build" / "gone.html").unlink()
    assert publish(tmp_path, "v0.9", "third") == ["v0.10", "v0.9", "latest"]
    published = tmp_path / "published"
    assert "v0.10/index.html" in (published / "index.html").read_text()
    assert (published / ".nojekyll").exists()
    assert not (published / "v0.9" / "gone.html").exists()
    for version, page in (("latest", "main"), ("v0.10", "first v0.10"), ("v0.9", "third")):
        assert page in (published / version / "index.html").read_text()
        links = re.findall(
            r'href="(\.\./[^"]*)"', (published / version / "versions.html").read_text()
        )
        assert links == [f"../{one}/index.html" for one in ("v0.10", "v0.9", "latest")]
        assert all((published / version / link).is_file() for link in links)


@pytest.mark.parametrize("version", ["v0.1.2", "main", "../v0.1"])
def test_a_folder_of_a_version_has_its_name_alone(tmp_path, version):
    with pytest.raises(SystemExit, match="a version is latest or like v0.1"):
        publish(tmp_path, version, "")


def test_a_site_has_a_page_of_versions():
    settings = (SITE / "conf.py").read_text(encoding="utf-8")
    assert '"versions": "versions.html"' in settings
    assert "pathto('versions')" in (SITE / "_templates" / "version.html").read_text()


@pytest.mark.skipif(not (shutil.which("git") and shutil.which("bash")), reason="runs a workflow")
def test_the_step_that_publishes_keeps_the_folders_of_other_versions(tmp_path):
    workflow = ROOT / ".github" / "workflows" / "docs.yml"
    steps = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]["publish"]["steps"]
    server, stub = tmp_path / "server", tmp_path / "bin"
    stub.mkdir()
    (stub / "gh").write_text("#!/bin/sh\n")  # hands a token to git, which needs none here
    (stub / "gh").chmod(0o755)
    git = ["git", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "--bare", "-q", str(server / "owner" / "repo")], check=True)
    for number, (kind, name) in enumerate(
        [("branch", "main"), ("tag", "v0.1.2"), ("tag", "v0.1.3")]
    ):
        work = tmp_path / str(number)
        (work / "site").mkdir(parents=True)
        (work / "build").mkdir()
        shutil.copy(SITE / "versions.py", work / "site")
        (work / "build" / "site").mkdir()
        body = (SITE / "_templates" / "versions.html").read_text(encoding="utf-8")
        write(work / "build" / "site", index=f"of {name}", versions=body)
        env = {**os.environ, "PATH": f"{stub}{os.pathsep}{os.environ['PATH']}"}
        env |= {"GITHUB_SERVER_URL": str(server), "GITHUB_REPOSITORY": "owner/repo"}
        env |= {"GITHUB_REF_TYPE": kind, "GITHUB_REF_NAME": name, "GITHUB_SHA": "0" * 40}
        subprocess.run(["bash", "-e", "-c", steps[-1]["run"]], cwd=work, env=env, check=True)
    out = tmp_path / "out"
    line = [*git, "clone", "-q", "--branch", "gh-pages", str(server / "owner" / "repo"), str(out)]
    subprocess.run(line, check=True)
    assert "of main" in (out / "latest" / "index.html").read_text()
    assert "of v0.1.3" in (out / "v0.1" / "index.html").read_text()
    assert "v0.1/index.html" in (out / "index.html").read_text()
    assert not (out / "v0.1.2").exists()
