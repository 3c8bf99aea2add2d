"""The site: ``make docs`` builds it, from these pages and from the docstrings."""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ["CUDADRV_DRIVER"] = "software"

import links  # noqa: E402
import reference  # noqa: E402

import cudadrv  # noqa: E402

NAMED_AS_FILE = re.compile(r"\[((?:[\w-]+/)*[\w-]+\.md)\]\((?=\1)")
STUBS = ROOT / "build" / "docs" / "stubs"
reference.write(STUBS)

project = "cudadrv"
version = release = cudadrv.__version__
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
smartquotes = False  # they would also change "" in docstrings
default_role = "py:obj"  # what single backticks mean in docstrings
# A name in single backticks that is misspelt is an error. Parameters and Python's own are known to
# have no page; types are what annotations say.
nitpicky = True
nitpick_ignore_regex = [
    ("py:(class|exc|data)", ".*"),
    ("py:obj", r"with|(numpy|pathlib|uuid)\.\w+|path|cooperative|cluster|shared_bytes"),
]
myst_heading_anchors = 4  # named as on GitHub, where the pages can be read, too

napoleon_google_docstring = False
autoapi_dirs = [str(STUBS / "cudadrv")]
autoapi_generate_api_docs = False  # docs/api/ says what is shown where
autoapi_add_toctree_entry = False
autodoc_default_options = {
    "members": True,
    "undoc-members": True,  # fields, which their class describes
    "special-members": True,
    "exclude-members": "__init__",
    "show-inheritance": True,
    "member-order": "bysource",
}
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "cudadrv"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": [],
    "navbar_end": ["search-button", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
}
html_sidebars = {page: [] for page in ("index", "ten-minutes", "errors")}


def with_links(app: Sphinx, name: str, content: list[str]) -> None:
    """What is not in docs/ is in the repository, if pyproject.toml says where that is.

    Links that are called as a file get the title of the page.
    """
    page = links.rewritten(Path(app.env.doc2path(name)), DOCS, links.repository())
    content[0] = NAMED_AS_FILE.sub("[](", page)


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_links)
