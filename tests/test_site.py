"""Every page of docs/ is in the site's tree, links between pages lead somewhere, the build is the documented one."""

import ast
import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import distls

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BUILD = "sphinx-build -W docs docs/_build/html"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path
    for suffix in ("md", "rst")
    for path in DOCS.rglob(f"*.{suffix}")
    if not {"_build", "generated", "_templates", "examples"} & set(path.relative_to(DOCS).parts)
}


def _children(page):
    """Return the pages that the tables of contents of a page name."""
    folder = (DOCS / page).parent
    found = set()
    for options, entries in re.findall(
        r"^```\{toctree\}\n((?::.*\n)*)\n?((?:.+\n)+?)```", PAGES[page].read_text("utf-8"), re.MULTILINE
    ):
        for entry in entries.split():
            paths = sorted(folder.glob(f"{entry}.md")) if ":glob:" in options else [folder / entry]
            found |= {path.relative_to(DOCS).as_posix().removesuffix(".md") for path in paths}
    return found


def test_every_page_is_in_the_tree():
    reached, left = set(), ["index"]
    while left:
        page = left.pop()
        if page not in reached and page in PAGES:
            reached.add(page)
            left += _children(page)
    assert set(PAGES) - reached == set()
    assert _children("index") - set(PAGES) == {"generated/gallery/index"}


def test_links_to_made_pages_lead_somewhere():
    made = {"generated/gallery/index", *(f"generated/gallery/{path.stem}" for path in EXAMPLES)}
    for page, text in PAGES.items():
        for target in re.findall(r"\{doc\}`[^<`]*<([^>]+)>`", text.read_text("utf-8")):
            path = (DOCS / page).parent.joinpath(target).resolve().relative_to(DOCS).as_posix()
            assert path in made | set(PAGES), f"{page}: {target}"


def test_every_picture_is_shown():
    text = "".join(path.read_text("utf-8") for path in [*PAGES.values(), ROOT / "README.md"])
    assert [path.name for path in (DOCS / "images").iterdir() if f"images/{path.name}" not in text] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_have_a_title_a_plot_and_use_public_names(example):
    text = example.read_text("utf-8")
    assert re.match(r'"""\n(.+)\n=+\n\n', text)
    assert "plt.show()" in text
    used = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "distls"
    }
    assert used
    assert used <= set(distls.__all__)


def test_the_api_page_has_every_public_name():
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.rst").read_text("utf-8"), re.MULTILINE))
    assert set(distls.__all__) - {"__version__"} <= listed
    for name in listed - set(distls.__all__):
        module, _, attribute = f"distls.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_the_build_is_the_documented_one():
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run", "docs/conf.py", "docs/decisions/0026-the-site.md"):
        assert BUILD in (ROOT / name).read_text("utf-8"), name
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert {"/docs/_build/", "/docs/generated/"} <= set(ignored)


def test_drawings_are_those_of_their_script(tmp_path):
    spec = importlib.util.spec_from_file_location("drawings", DOCS / "drawings.py")
    drawings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawings)
    drawings.main(tmp_path)
    made = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text("utf-8") for path in (DOCS / "images").glob("how-*.svg")}
    for name, text in made.items():
        assert ET.fromstring(text).tag.endswith("svg"), name
        assert "prefers-color-scheme: dark" in text
