"""The arrows between folders and files, and what an import needs, are checked by a machine.

So are names: words that are everywhere in prose cannot be searched for.
"""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "pyg_outerconv"

CORE = {
    "errors": set(),
    "equations": set(),
    "signatures": {"errors"},
    "registry": {"errors", "signatures"},
    "kernels": {"errors", "registry", "signatures"},
    "memo": {"kernels"},
    "theta": {"errors"},
    "graph": {"errors", "registry", "signatures", "memo", "kernels", "theta"},
    "basis": {"errors", "registry", "signatures", "memo", "kernels", "theta", "graph"},
    "contract": {
        "errors",
        "signatures",
        "registry",
        "memo",
        "kernels",
        "theta",
        "graph",
        "basis",
    },
}
CORE["attention"] = set(CORE) - {"attention"}
CORE["families"] = set(CORE) - {"families"}
CORE["nn"] = set(CORE) - {"nn"}

TOOLS = {"files", "plot", "scale"}  # beside the core: for the lab, and for users
LAB = {"lab.fields", "lab.settings", "lab.source", "lab.own_code", "lab.family_options"}
LAB |= {"lab.spawned", "lab.pages", "lab.data", "lab.train"}

# Each folder may import these others. Nothing may import what stands above it.
ALLOWED = {
    **CORE,
    "transforms": set(CORE) - {"nn"},
    "pyg": set(CORE),
    "graphgym": {"nn"},
    "testing": set(CORE),
    "files": {"errors"},
    "plot": {"errors", "files", "memo", "graph", "basis"},
    "scale": {"files", *CORE},
    "lab.spawned": set(),
    "lab.pages": {"plot"},
    "lab.fields": {"errors", "files"},
    "lab.settings": {"errors", "lab.data", "lab.fields", "lab.own_code"},
    "lab.family_options": set(CORE) - {"attention", "nn"},
    "lab.source": {"errors", "files", "lab.fields"},
    "lab.own_code": {"errors", "attention", "families"},
    "lab.data": {"errors", "files", "scale", "lab.fields", "lab.source"},
    "lab.train": {"pyg", *LAB, *TOOLS, *CORE},
    "lab.bench": {"pyg", *TOOLS, *LAB, *CORE},
    "lab.search": {*TOOLS, *LAB, *CORE},
    "lab.reproduce": {"lab.search", *TOOLS, *LAB, *CORE},
    "lab.report": {*TOOLS, *LAB, *CORE},
    "lab.show": {*TOOLS, *LAB, *CORE},
    "lab.gpu": {"testing", *CORE},
    "lab.check": {"testing", "lab.gpu", *CORE},
}
ALLOWED["lab.cli"] = set(ALLOWED) - {"transforms", "graphgym"}


def name_of(path):
    """The dotted name of a file, that of a package for its ``__init__``."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def tree(path):
    """What a file says."""
    return ast.parse(path.read_text())


def statements(node, types, calls):
    """All below a node, but for what stands there for types alone, or is done in a call."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not types:
            continue
        if isinstance(child, ast.FunctionDef) and not calls:
            continue
        yield child
        yield from statements(child, types, calls)


@cache
def imports(path, types=True, calls=True):
    """The files of the package that one imports: for types too, and in a call too."""
    package, imported = path.relative_to(PACKAGE.parent).parent.parts, []
    for node in statements(tree(path), types, calls):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            names = [f"{module}.{alias.name}" for alias in node.names]
            names = [name if name in FILES else module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        imported += [name for name in names if name in FILES]
    return imported


def folder_of(name):
    """The first name below the package, or the first two of the lab."""
    parts = name.split(".")[1:]
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def rooms(folder):
    """Files and folders of a folder, but for what every package has."""
    return {
        path.stem
        for path in folder.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists())
    } - {"__init__", "__main__"}


@pytest.mark.parametrize("folder", ALLOWED)
def test_arrows_point_one_way(folder):
    place = PACKAGE.joinpath(*folder.split("."))
    files = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
    for path in files:
        folders = {folder_of(name) for name in imports(path) if name != PACKAGE.name}
        forbidden = folders - ALLOWED[folder] - {folder}
        if folder in CORE and "plot" in forbidden:  # `plot` methods draw by what they import then
            at_once = imports(path, calls=False)
            forbidden -= {"plot"} - {folder_of(name) for name in at_once if name != PACKAGE.name}
        if folder.startswith("lab.") and "lab.cli" in forbidden:  # a function of a command names
            runs = imports(path, types=False)  # the types of what the command declares
            forbidden -= {"lab.cli"} - {folder_of(name) for name in runs if name != PACKAGE.name}
        assert not forbidden, f"{path.name} imports {sorted(forbidden)}"


def test_no_file_imports_one_that_imports_it():
    graph = {name: set(imports(path, types=False)) - {name} for name, path in FILES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" imported by ".join(circle.args[1]))


def test_every_folder_is_in_the_picture():
    in_lab = {f"lab.{name}" for name in rooms(PACKAGE / "lab")}
    assert rooms(PACKAGE) - {"lab"} | in_lab == set(ALLOWED)


def test_the_core_is_imported_without_the_lab(fresh):
    done = fresh(
        "import sys\n"
        "sys.modules['pyg_outerconv.lab'] = None  # the import system refuses it\n"
        "import pyg_outerconv, pyg_outerconv.testing, pyg_outerconv.pyg, pyg_outerconv.plot\n"
        "import pyg_outerconv.scale, pyg_outerconv.graphgym\n"
        "[getattr(pyg_outerconv, name) for name in pyg_outerconv.__all__]\n"
    )
    assert done.returncode == 0, done.stderr


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )


def test_the_package_works_without_any_extra():
    extras = ("torch_scatter", "triton", "matplotlib", "pandas", "rdflib", "pytest")
    done = run(
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({extras!r}))  # None: the import system refuses them\n"
        "import torch, pyg_outerconv, pyg_outerconv.testing, pyg_outerconv.lab.cli\n"
        "conv = pyg_outerconv.OuterConv(3, 2, 'gcn')\n"
        "print(conv(torch.ones(2, 3), torch.tensor([[0], [1]])).shape)\n"
        "print(pyg_outerconv.backends())\n"
        "assert pyg_outerconv.lab.cli.main(['families']) == 0\n"
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 2])" in done.stdout
    assert "native" in done.stdout


def test_a_public_method_is_documented_where_it_is_declared():
    """An overriding method may leave its docstring to the class that declares it."""
    classes = {}
    for path in FILES.values():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def documented(node, name):
        """Whether a class of this package, or one above it, documents the method."""
        declared = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        if any(part.name == name and ast.get_docstring(part) for part in declared):
            return True
        # Declared for types alone: the class lists them as attributes.
        typed = [part for block in node.body if isinstance(block, ast.If) for part in block.body]
        if any(isinstance(part, ast.FunctionDef) and part.name == name for part in typed):
            return True
        names = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        ours = [base for one in names for base in classes.get(one, []) if base is not node]
        of_library = any(one not in classes for one in names)
        return (of_library and name in LIBRARY) or any(documented(base, name) for base in ours)

    missing = [
        f"{node.name}.{method.name}"
        for nodes in classes.values()
        for node in nodes
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and not (node.name.startswith("_") or method.name.startswith("_"))
        and not documented(node, method.name)
    ]
    assert missing == []


LIBRARY = {"forward", "reset_parameters", "extra_repr", "backward", "setup_context", "jvp", "vmap"}


VAGUE = {"found", "known", "given", "made", "held"}


def test_names_can_be_searched_for():
    fields = {ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr"}
    places = [
        f"{name}, line {node.lineno}"
        for name, path in FILES.items()
        for node in ast.walk(tree(path))
        if type(node) in fields and getattr(node, fields[type(node)]).strip("_") in VAGUE
    ]
    assert places == []
