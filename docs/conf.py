"""The site: `pip install -e '.[docs]' && sphinx-build -W docs docs/_build/html`."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import distls

project = "distls"
author = "the distls authors"
version = release = distls.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_gallery.gen_gallery"]
root_doc = "index"
exclude_patterns = ["_build", "examples", "generated/**/*.ipynb"]
templates_path = ["_templates"]
default_role = "literal"  # single backticks of the docstrings are code

# links to headings as code hosts make them, which the tests of the documents assume too
myst_heading_anchors = 4
# the file format and the transcripts of shells are no language
suppress_warnings = ["misc.highlighting_failure"]

autosummary_generate = True
numpydoc_show_class_members = False  # the template of classes lists them
autodoc_typehints = "none"  # numpydoc has the types in words

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "generated/gallery",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = f"distls {version}"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "logo": {"text": html_title},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"start": [], "how-it-works": [], "api": []}
copyright = f"{author}. Version {version}, licence Apache-2.0"

# Files that are pages of the site under another name.
_DOCS = Path(__file__).parent
_PAGES = {
    _DOCS.parent / "README.md": "index.md",
    _DOCS.parent / "deploy/README.md": "deployment.md",
    _DOCS.parent / "CONTRIBUTING.md": "contributing.md",
    _DOCS.parent / "CHANGELOG.md": "changelog.md",
    _DOCS.parent / "benchmarks/measurements.md": "measurements.md",
    _DOCS / "decisions": "decisions/README.md",
}
_LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]+)")


def _link_pages(text: str, read: Path, shown: Path) -> str:
    """Return the text of a file with its links as they must be on a page of another folder."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(read / found[1]))
        target = _DOCS / _PAGES[target] if target in _PAGES else target
        return f"]({os.path.relpath(target, shown)}"

    return _LINK.sub(link, text)


def _link_source(app: Any, docname: str, source: list[str]) -> None:
    folder = (_DOCS / docname).parent
    if _DOCS.joinpath(f"{docname}.md").exists():
        source[0] = _link_pages(source[0], folder, folder)


def _link_included(app: Any, path: Path, docname: str, source: list[str]) -> None:
    source[0] = _link_pages(source[0], (_DOCS / path).resolve().parent, (_DOCS / docname).parent)


def _skip_foreign(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what a class inherits from scikit-learn or from Python."""
    function = member.fget if isinstance(member, property) else inspect.unwrap(member) if callable(member) else None
    module = getattr(function, "__module__", None) or ""
    return None if module.startswith("distls") or function is None else True


def setup(app: Any) -> None:
    """Connect the links and the choice of members."""
    app.connect("source-read", _link_source)
    app.connect("include-read", _link_included)
    app.connect("autodoc-skip-member", _skip_foreign)
