"""Pages and parts of pages that are made from code, written to ``made/`` before Sphinx reads.

``reference/`` has a page for each room of public names, ``pyg.part`` and ``torch.part`` are the two
halves of the Rosetta stone, ``gallery.part`` has what the scripts of the gallery draw, and
``benchmarks.part`` lists the kept runs.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import json
import re
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from docutils import nodes
from public_calls import CALLS
from public_names import ROOMS, public_names, why_apart
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from torch import Tensor, nn

from pyg_outerconv.nn import OuterConv
from pyg_outerconv.nn.convert import CONVERSIONS, from_torch
from pyg_outerconv.pyg import DropIn, explain
from pyg_outerconv.pyg.table import NONE, entries, example

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MADE = HERE / "made"


# The Rosetta stone ---------------------------------------------------------------------------


def of_pyg() -> Iterator[str]:
    """Each layer of PyG that is here, with the matrices and parameters of one example."""
    for entry in entries():
        if entry.kind != NONE:
            said = str(explain(example(entry.name)))
            lines, paper = re.fullmatch(
                r"(.*?)(?:\n  ([^\n]* \([\w.]+/[^\n ]*\)))?", said, re.S
            ).groups()
            yield f"### {entry.name}\n\n{entry.text}\n\n```text\n{lines}\n```\n\n"
            yield re.sub(r"^(.*) \((.*)\)$", r"[\1](https://\2)\n\n", paper) if paper else ""
    yield "### Layers without an equal form\n\n| class | because |\n|---|---|\n"
    for entry in entries():
        if entry.kind == NONE:
            yield f"| `{entry.name}` | {_cell(entry.text)} |\n"


_TORCH: dict[str, Any] = {
    "in_channels": 3, "out_channels": 8, "kernel_size": 3, "norm_type": 1, "embed_dim": 8,
    "num_heads": 2, "d_model": 8, "nhead": 2, "num_layers": 1,
}  # fmt: skip


def of_torch() -> Iterator[str]:
    """Each layer of torch that converts, with the convolutions that it becomes."""
    for kind in CONVERSIONS:
        layer = torch_example(kind)
        converted = from_torch(layer)
        call = ", ".join(f"{name}={_TORCH[name]}" for name in _needed(kind) if name in _TORCH)
        yield f"### torch.nn.{kind.__name__}\n\n"
        yield f"`{kind.__name__}({call})` becomes `{type(converted).__name__}`"
        own = [(name, one) for name, one in converted.named_modules() if is_convolution(one)]
        if own == [("", converted)]:
            yield ":\n\n" + "".join(convolution(converted))
        else:
            yield ", whose other parts are those of torch's:\n\n"
            for name, one in own:
                yield f"- `{name}`: {''.join(convolution(one))}"
        yield "\n"


def is_convolution(module: nn.Module) -> bool:
    """Whether a module is a sum Σ_k A_kᵀ X Θ_k."""
    return hasattr(module, "family") and (
        isinstance(module, OuterConv) or not list(module.children())
    )


def convolution(layer: Any) -> Iterator[str]:
    """One sentence on A_k, on how many there are, and on Θ_k."""
    family = layer.family
    yield f"{len(family.labels)} matrices, `{family.equation}`"
    yield f", from {_listed(family.labels)}; "
    theta = getattr(layer, "theta", None)
    form = "Θ_k = I" if theta is None else f"Θ is `{theta}`"
    reduced = getattr(layer, "label_aggr", "sum")
    aggr = getattr(layer, "aggr", None)
    how = next((one for one in (reduced, aggr) if isinstance(one, str) and one != "sum"), "sum")
    yield f"{form}; the reduction is the {how}.\n"


def torch_example(kind: type[nn.Module]) -> nn.Module:
    """A layer of torch with small numbers for the arguments that it needs."""
    given = {name: _TORCH[name] for name in _needed(kind) if name in _TORCH}
    layers = {
        "encoder_layer": nn.TransformerEncoderLayer,
        "decoder_layer": nn.TransformerDecoderLayer,
    }
    inner = {name: layers[name](8, 2, 16) for name in _needed(kind) if name in layers}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor", UserWarning)
        return nn.Transformer(8, 2, 1, 1, 16) if kind is nn.Transformer else kind(**inner, **given)


def _needed(kind: type[nn.Module]) -> list[str]:
    parameters = inspect.signature(kind).parameters.values()
    return [one.name for one in parameters if one.default is one.empty]


def _listed(labels: tuple[str, ...]) -> str:
    return " to ".join(dict.fromkeys(f"“{label}”" for label in (labels[0], labels[-1])))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


# The reference -------------------------------------------------------------------------------


def reference() -> Iterator[tuple[str, str]]:
    """The name and the text of a page for each room of public names."""
    firsts = {id(one): name for name, one in public_names().items()}
    for room in ROOMS:
        module = import_module(room)
        here = room.removeprefix("pyg_outerconv").removeprefix(".")
        own = [(name, f"{here}.{name}".strip(".")) for name in module.__all__]
        names = [
            name
            for name, full in own
            if firsts.get(id(getattr(module, name)), full) == full and not name.startswith("__")
        ]
        lines = [room, "=" * len(room), "", *_intro(module), f".. py:currentmodule:: {room}", ""]
        lines += _summary(module, names)
        for name in names:
            lines += _entry(room, here, name, getattr(module, name))
        yield room, "\n".join(lines) + "\n"


def _intro(module: Any) -> list[str]:
    text = (inspect.getdoc(module) or "").split("\n\n")[0]
    return [*text.splitlines(), ""]


def _summary(module: Any, names: list[str]) -> list[str]:
    rows = [".. list-table::", "   :widths: 30 70", "   :class: names", ""]
    for name in names:
        thing = getattr(module, name)
        kind = "class" if inspect.isclass(thing) else "func" if inspect.isroutine(thing) else "data"
        below = "\n".join(_said_below(module.__name__, name))
        doc = (inspect.getdoc(thing) or "") if kind != "data" else below
        first = re.split(r"\n\s*\n|(?<=[.])\s|::", doc.strip(), maxsplit=1)[0].replace("\n", " ")
        first = _without_markup(re.sub(r"\s+", " ", first))
        rows += [f"   * - :py:{kind}:`{name}`", f"     - {first}" if first else "     -"]
    return [*rows, ""]


def _entry(room: str, here: str, name: str, thing: Any) -> list[str]:
    if inspect.isclass(thing):
        shown = [] if issubclass(thing, DropIn) and thing is not DropIn else ["   :members:"]
        lines = [f".. autoclass:: {room}.{name}", *shown, "   :show-inheritance:", ""]
    elif inspect.isroutine(thing):
        lines = [f".. autofunction:: {room}.{name}", ""]
    else:
        return [f".. py:data:: {name}", "", *(f"   {line}" for line in _said_below(room, name)), ""]
    shown = _example(f"{here}.{name}".strip("."), thing)
    return lines + [f"   {line}".rstrip() for line in shown] + [""]


def _said_below(room: str, name: str) -> list[str]:
    """The text that stands below the line that defines a name, in a file of a room."""
    folder = ROOT.joinpath(*room.split("."))
    for file in (
        [folder.with_suffix(".py")] if folder.with_suffix(".py").exists() else folder.glob("*.py")
    ):
        body = ast.parse(file.read_text("utf-8")).body
        for line, below in pairwise(body):
            targets = getattr(line, "targets", [getattr(line, "target", None)])
            is_it = any(isinstance(one, ast.Name) and one.id == name for one in targets)
            if is_it and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return [*inspect.cleandoc(below.value.value).splitlines(), ""]
    return []


def _example(name: str, thing: Any) -> list[str]:
    """A call that the tests run, where the docstring shows none, and pages that use the name."""
    lines = []
    if ">>>" not in (inspect.getdoc(thing) or ""):
        call = _call(name)
        if here := _explained(thing):
            lines += ["What an example of it computes:", "", ".. code-block:: text", ""]
            lines += [*(f"   {line}" for line in here.splitlines()), ""]
        elif call:
            lines += ["A call that the tests run:", "", ".. code-block:: text", ""]
            lines += [f"   {call}", ""]
    used = used_by(name.rpartition(".")[2])
    if used:
        lines += [f"Used in {', '.join(f':doc:`/{page}`' for page in used)}.", ""]
    elif not lines and ">>>" not in (inspect.getdoc(thing) or ""):
        lines += [f"It has no example of its own: {why_apart(thing)}.", ""]
    return lines


@cache
def _explained(thing: Any) -> str:
    """What ``explain`` says of an example, for a layer of PyG's."""
    if not (inspect.isclass(thing) and issubclass(thing, DropIn)) or thing is DropIn:
        return ""
    return str(explain(example(thing.__name__)))


def _call(name: str) -> str:
    if name not in CALLS:
        return ""
    call = CALLS[name]()
    given = [_shown(one) for one in call.several]
    given += [f"{option}={_shown(one)}" for option, one in call.arguments.items()]
    return f"{name}({', '.join(given)})"


def _shown(value: Any) -> str:
    """A value as it may be written; tensors and objects by what they are."""
    if isinstance(value, Tensor):
        return (
            f"<{'×'.join(map(str, value.shape)) or 'number'}>"
            if value.numel() > 8
            else _tensor(value)
        )
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(one)}" for key, one in value.items()) + "}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (torch.device, torch.dtype)):
        return repr(str(value).removeprefix("torch."))
    if inspect.isclass(value) or inspect.isroutine(value):
        return value.__name__
    plain = dataclasses.is_dataclass(value) and len(repr(value)) < 60 and "\n" not in repr(value)
    return repr(value) if plain and "<" not in repr(value) else f"<{type(value).__name__}>"


def _tensor(value: Tensor) -> str:
    return f"tensor({value.tolist()})"


_BLOCKS: dict[str, set[str]] = {}


def used_by(name: str) -> list[str]:
    """The pages whose blocks of code, which are run, have the name: guides and notebooks."""
    if not _BLOCKS:
        for page in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("site/*.md")]):
            code = "".join(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
            where = str(page.relative_to(ROOT).with_suffix(""))
            _BLOCKS[where] = set(re.findall(r"\w+", code))
        for page in sorted(ROOT.glob("examples/notebooks/*.ipynb")):
            cells = json.loads(page.read_text("utf-8"))["cells"]
            code = " ".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
            where = str(page.relative_to(ROOT).with_suffix(""))
            _BLOCKS[where] = set(re.findall(r"\w+", code))
    return [page for page, words in _BLOCKS.items() if name in words]


def examples() -> dict[str, str]:
    """What example each public name has: in its docstring, on a page, as a call, or why none."""
    return {name: _kind_of_example(name, thing) for name, thing in public_names().items()}


def _kind_of_example(name: str, thing: Any) -> str:
    if ">>>" in (inspect.getdoc(thing) or ""):
        return "docstring"
    if used_by(name.rpartition(".")[2]):
        return "page"
    if name in CALLS:
        return "call"
    return why_apart(thing) or "none"


# Benchmarks ----------------------------------------------------------------------------------


def benchmarks() -> Iterator[str]:
    """A section for each kept run: the machine, the settings, the commit, what was asked."""
    for path in sorted((ROOT / "examples" / "bench").glob("*.json")):
        run = json.loads(path.read_text("utf-8"))
        machine, settings = run["machine"], run["settings"]
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        groups = dict.fromkeys(record["group"] for record in run["records"])
        words = ["outerconv bench", *(f"--only {group}" for group in groups if len(groups) < 6)]
        told = {"processes": 1, **settings}
        words += [f"--{option} {told[option]}" for option in ("repeats", "processes", "threads")]
        yield f"## {path.stem}\n\n"
        yield f"- **Command** of its time, from its settings: `{' '.join(words)}`, in "
        yield f"{settings['dtype']}; it took {run['seconds'] / 60:.0f} minutes.\n"
        yield f"- **Machine**: {machine['processor']}, {machine['cores']} cores, "
        yield f"{machine['memory_gib']:.0f} GiB, {machine['system']}, {machine['device']}; "
        yield f"Python {machine['python']}, {versions}.\n"
        if settings.get("commit"):
            yield f"- **Code**: version {settings['version']}, commit {settings['commit']}.\n"
        yield f"- **Kept** as [`{path.name}`](../examples/bench/{path.name}){commit(path)}.\n\n"
        measured = [one for one in run["targets"] if one["measured"]]
        if measured:
            yield "| case | what | asked | measured |\n|---|---|---|---|\n"
        for one in measured:
            bold = one["measured"] if one["reached"] else f"**{one['measured']}**"
            yield f"| {one['case']} | {_cell(one['what'])} | {one['asked']} | {bold} |\n"
        yield "\n"


def commit(path: Path) -> str:
    """The commit that a file is of, where this is a clone with its history."""
    line = ["git", "log", "-1", "--format=%h of %as", "--", str(path)]
    try:
        said = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f", commit {said.strip()}" if said.strip() else ""


# The gallery ---------------------------------------------------------------------------------


def gallery() -> Iterator[str]:
    """A section for each script: what it says, its pictures with their alt texts, its code.

    The pictures are drawn anew, into ``build/gallery``.
    """
    for name in GALLERY:
        script = ROOT / "examples" / "gallery" / f"{name}.py"
        found = importlib.util.spec_from_file_location(f"gallery_{name}", script)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        folder = ROOT / "build" / "gallery" / name
        folder.mkdir(parents=True, exist_ok=True)
        module.draw(folder)
        title, _, text = inspect.getdoc(module).partition("\n\n")
        yield f"({name})=\n## {title.rstrip('.')}\n\n{text}\n\n"
        for picture, alt in module.PICTURES.items():
            image = f"```{{image}} ../build/gallery/{name}/{picture}\n:alt: {alt}\n```\n"
            is_wide = _width(folder / picture) > WIDE
            yield f"::::{{container}} wide\n{image}::::\n\n" if is_wide else f"{image}\n"
        yield f"<details><summary><code>examples/gallery/{name}.py</code></summary>\n\n"
        yield f"```{{literalinclude}} ../examples/gallery/{name}.py\n```\n\n</details>\n\n"


WIDE = 450  # points; a phone has some 300


def _width(picture: Path) -> float:
    """The width of an SVG in points."""
    return float(re.search(r'<svg[^>]*? width="([\d.]+)pt"', picture.read_text("utf-8"))[1])


GALLERY = ("paper", "families", "attention", "filter_search", "crossover", "receptive_field")


# Writing -------------------------------------------------------------------------------------


def write() -> None:
    """Write all of them; what is the same stays, so that Sphinx does not read it again."""
    made = {
        MADE / "pyg.part": "".join(of_pyg()),
        MADE / "torch.part": "".join(of_torch()),
        MADE / "gallery.part": "".join(gallery()),
        MADE / "benchmarks.part": "".join(benchmarks()),
    }
    made |= {MADE / "reference" / f"{room}.rst": text for room, text in reference()}
    for path in MADE.rglob("*.*"):
        if path not in made and path.is_file():
            path.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def resolve(app: Sphinx, env: Any, node: pending_xref, text: nodes.Node) -> nodes.Node | None:
    """A link to a class by its last name alone, where one thing has it."""
    last = node.get("reftarget", "").rpartition(".")[2]
    found = [one for name, one in env.get_domain("py").objects.items() if name.endswith(f".{last}")]
    if node.get("refdomain") != "py" or len(found) != 1:
        return None
    uri = app.builder.get_relative_uri(node["refdoc"], found[0].docname)
    return nodes.reference("", "", text, internal=True, refuri=f"{uri}#{found[0].node_id}")


def without_links_to_folders(app: Sphinx, page: str, text: list[str]) -> None:
    """A folder is no page: its name stays as text."""
    here = ROOT / Path(page).parent

    def plain(link: re.Match[str]) -> str:
        return link[1] if (here / link[2]).is_dir() else link[0]

    text[0] = re.sub(r"\[([^\]]*)\]\((?!http)([^)#\s]+)\)", plain, text[0])


def escape(app: Sphinx, kind: str, name: str, thing: Any, options: Any, text: list[str]) -> None:
    """Stars of shapes such as (*, M, P) and of ``**options`` are no emphasis, bars no names."""
    for place, line in enumerate(text):
        arguments = re.match(r"\s+[\w, *]+:(?=\s)", line)
        begin = arguments[0].replace("*", r"\*") if arguments else ""
        text[place] = begin + _without_markup(line[arguments.end() if arguments else 0 :])


def _without_markup(line: str) -> str:
    parts = line.split("``")
    parts[::2] = [_STAR.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "``".join(parts)


_STAR = re.compile(r"(?<![\w*\\])\*+(?=[,)]|batch\b|shape\b|index\b)|\|(?=\S)")


def without_ways_back(app: Sphinx, page: str, template: str, context: Any, tree: Any) -> None:
    """Pages of source have no links to the reference, which has some of their names alone."""
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages now, and find what Sphinx does not."""
    write()
    app.connect("missing-reference", resolve)
    app.connect("html-page-context", without_ways_back)
    app.connect("source-read", without_links_to_folders)
    app.connect("autodoc-process-docstring", escape, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
