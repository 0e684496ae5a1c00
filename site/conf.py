"""The site: the guides, pages made from code, the gallery and the notebooks. `make docs` builds it.

The source folder is the whole repository, so that guides keep their links; the pages are those of
``include_patterns``. ``made/`` is written by ``pages.py`` before Sphinx reads.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "tests")]

import pyg_outerconv  # noqa: E402

project = "pyg_outerconv"
author = "The pyg_outerconv developers"
copyright = author
version = release = pyg_outerconv.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "formulas",
    "pages",
]
root_doc = "site/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "site/*.md",
    "site/made/**",
    "examples/*.md",
    "examples/**/*.md",
    "examples/notebooks/*.ipynb",
    "datasets/README.md",
]
exclude_patterns = [".*", "build", "runs", "data", "README.md", "pyg_outerconv", "tests"]

# Markdown is GitHub's; links to sections have GitHub's names.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence"]

# Notebooks run whenever they are read, and an error in one is an error of the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
nb_code_prompt_show, nb_code_prompt_hide = "Solution", "Hide the solution"  # of cells that fold
# Kernels say errors alone: they warn of connections that are not encrypted, within this machine.
profile = ROOT / "build" / "ipython" / "profile_default"
profile.mkdir(parents=True, exist_ok=True)
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n")
os.environ["IPYTHONDIR"] = str(profile.parent)
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of tqdm, which PyG imports

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
napoleon_custom_sections = [("Shapes", "params_style")]
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "pyg_outerconv"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html", "versions": "versions.html"}
html_sidebars = {
    "**": [
        *("sidebar/brand.html", "version.html", "sidebar/search.html"),
        *("sidebar/scroll-start.html", "sidebar/navigation.html", "sidebar/scroll-end.html"),
    ]
}
html_show_sphinx = False
html_copy_source = False
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}
pygments_style = "tango"
pygments_dark_style = "monokai"

# `make links` asks every page outside that is linked to. What a page has below its address is not
# asked for, as many are written by scripts.
linkcheck_anchors = False
linkcheck_timeout, linkcheck_retries, linkcheck_workers = 30, 3, 4
linkcheck_report_timeouts_as_broken = True
