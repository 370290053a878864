"""The site in a real browser: no error, nothing wider than the screen, no table cut off or without a heading."""

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


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_at_every_width(site: Path, tab: Tab, page: str, width: int) -> None:
    tab.said.clear()
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.send("Emulation.setDeviceMetricsOverride", **size)
    address = (site / f"{page}.html").as_uri()
    tab.send("Page.navigate", url=address)
    wait_until(lambda: tab.value(f"document.URL == '{address}' && document.readyState == 'complete'"))
    assert tab.said == []
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(CUT_OFF) == 0
    assert tab.value(EMPTY_HEADS) == 0
