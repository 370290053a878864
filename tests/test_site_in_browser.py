"""The site in a real browser: no error, nothing wider than the screen, no table cut off or without a heading."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser_helpers import browser
from helpers import wait_until

ROOT = Path(__file__).resolve().parents[1]
# Tables that reach beyond the screen, and those with more than they show that do not scroll.
CUT_OFF = """
[...document.querySelectorAll('.bd-content table')].filter(table =>
  table.getBoundingClientRect().right > innerWidth
  || (table.scrollWidth > table.clientWidth && getComputedStyle(table).overflowX != 'auto')).length
"""
EMPTY_HEADS = "[...document.querySelectorAll('.bd-content thead tr')].filter(r => !r.textContent.trim()).length"
# of what stands there: colours of the ground and of words
LIGHTNESS = """
name => {
  const style = getComputedStyle(document.querySelector(name));
  const [r, g, b] = (name == 'body' ? style.backgroundColor : style.color).match(/[0-9.]+/g).map(Number);
  return (r + g + b) / 3;
}
"""
PAGES = (
    "index", "start", "papers", "papers/coverage", "guides/index", "guides/recipes", "serving", "cli", "measured",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; examples are not run."""
    pytest.importorskip("sphinx", reason="pip install '.[docs]' to build the site")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-D", "plot_gallery=0", str(ROOT / "docs"), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


def _open(tab, page, width, *, dark=False):
    """Show a page of the site, and find nothing said in the console."""
    tab.said.clear()
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    tab.send("Emulation.setEmulatedMedia", media="screen", features=scheme)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.send("Emulation.setDeviceMetricsOverride", **size)
    tab.send("Page.navigate", url=page.as_uri())
    wait_until(lambda: tab.value(f"document.URL == '{page.as_uri()}' && document.readyState == 'complete'"))
    assert tab.said == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_at_every_width(site, tab, page, width):
    _open(tab, site / f"{page}.html", width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(CUT_OFF) == 0
    assert tab.value(EMPTY_HEADS) == 0


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_dark_where_the_reader_asks_for_it(site, tab, page):
    _open(tab, site / f"{page}.html", 400, dark=True)
    assert tab.value("document.documentElement.dataset.theme") == "dark"
    ground, words = tab.value(f"['body', 'article p'].map({LIGHTNESS})")
    assert ground < 60
    assert words > 150


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", ["index", "measured", "guides/recipes"])
def test_a_page_is_read_by_the_keys(site, tab, page, width):
    _open(tab, site / f"{page}.html", width)
    tab.press("Tab")
    assert "main content" in tab.focused()["text"]
    tab.press("Enter")
    for place in range(20):
        tab.press("Tab")
        if place > 3 and tab.focused()["name"] == "body":  # behind the last link
            break
        wait_until(lambda: tab.focused()["seen"])  # the page scrolls there smoothly
        assert tab.focused()["ringed"], tab.focused()
