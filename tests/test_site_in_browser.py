"""The site in a real browser: no error, nothing wider than the screen, no table cut off or without a heading."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_helpers import Tab, browser
from helpers import wait_until

ROOT = Path(__file__).resolve().parents[1]
# Tables that reach beyond the screen, and those with more than they show that do not scroll.
CUT_OFF = """
[...document.querySelectorAll('.bd-content table')].filter(table =>
  table.getBoundingClientRect().right > innerWidth
  || (table.scrollWidth > table.clientWidth && getComputedStyle(table).overflowX != 'auto')).length
"""
EMPTY_HEADS = (
    "[...document.querySelectorAll('.bd-content thead tr')].filter(r => !r.textContent.trim()).length"
)
# How light the page and its text are.
CONTRAST = """
['backgroundColor', 'color'].map(name => {
  const rgb = getComputedStyle(document.body)[name].match(/[0-9.]+/g).slice(0, 3).map(Number);
  return rgb.reduce((sum, v) => sum + v, 0) / 3;
})
"""
PAGES = (
    "index",
    "start",
    "papers",
    "papers/coverage",
    "guides/index",
    "guides/recipes",
    "serving",
    "cli",
    "measured",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; examples are not run."""
    pytest.importorskip("sphinx", reason="pip install '.[docs]' to build the site")
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-D",
        "plot_gallery=0",
        str(ROOT / "docs"),
        str(out),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


def _open(tab: Tab, page: Path) -> None:
    address = page.as_uri()
    tab.send("Page.navigate", url=address)
    wait_until(lambda: tab.value(f"document.URL == '{address}' && document.readyState == 'complete'"))


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_is_read_by_the_keys_in_either_light(site: Path, tab: Tab, dark: bool) -> None:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    tab.send("Emulation.setEmulatedMedia", media="screen", features=scheme)
    tab.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    _open(tab, site / "measured.html")
    ground, text = tab.value(CONTRAST)
    assert (ground < text) == dark
    assert abs(ground - text) > 150
    tab.press("Tab")
    first = tab.focused()
    assert (first["text"], first["seen"], first["ringed"]) == ("Skip to main content", True, True)
    tab.press("Enter")
    tab.press("Tab")
    assert tab.value("document.querySelector('#main-content').contains(document.activeElement)")
    for _ in range(5):
        wait_until(lambda: tab.focused()["seen"])
        assert tab.focused()["ringed"], tab.focused()
        tab.press("Tab")


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_at_every_width(site: Path, tab: Tab, page: str, width: int) -> None:
    tab.said.clear()
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.send("Emulation.setDeviceMetricsOverride", **size)
    _open(tab, site / f"{page}.html")
    assert tab.said == []
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(CUT_OFF) == 0
    assert tab.value(EMPTY_HEADS) == 0
