"""Reports in a real browser: no errors, no requests, marks in every plot, nothing wider than the page."""

import numpy as np
import pytest
from browser_helpers import browser
from helpers import wait_until

from distls import compare, fit, ingest
from distls.reporting.comparison_page import render_comparison
from distls.reporting.run_report import report as report_of

EVIL, EVIL_COLUMN = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"

# How many pixels of each plot have a colour: axes and texts are grey.
COLOURED = """
[...document.querySelectorAll('.plot')].map(plot => {
  const canvases = [];
  const walk = node => {
    if (node.tagName === 'CANVAS') canvases.push(node);
    for (const child of [...(node.shadowRoot?.children ?? []), ...node.children]) walk(child);
  };
  walk(plot);
  return Math.max(0, ...canvases.filter(c => c.width && c.height).map(c => {
    const {data} = c.getContext('2d').getImageData(0, 0, c.width, c.height);
    let coloured = 0;
    for (let i = 0; i < data.length; i += 4) {
      const [red, green, blue, alpha] = data.slice(i, i + 4);
      if (alpha > 60 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) coloured++;
    }
    return coloured;
  }));
})
"""
# How far plots, sections and the page reach to the right; what scrolls in itself may be wider.
REACH = """
Math.max(document.documentElement.scrollWidth,
  ...[...document.querySelectorAll('section, figure, .plot, .wide, pre, .facts')].map(
    each => Math.ceil(each.getBoundingClientRect().right)))
"""
CONTRAST = """
(() => {
  const of = (each, name) => getComputedStyle(each)[name].match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = rgb => rgb.reduce((sum, v) => sum + v, 0) / 3;
  return [light(of(document.querySelector('section'), 'backgroundColor')), light(of(document.body, 'color'))];
})()
"""


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory, tab):
    """A report with all kinds of plots, of data with names that would like to be more than names."""
    root = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    rows = [
        f"{x:.3f},{rng.normal():.3f},{'a' if x > 0 else EVIL_COLUMN},"
        f"{EVIL if x > 0.3 else 'a long name of a class that goes on' if x > -0.3 else 'b'}"
        for x in rng.normal(size=900)
    ]
    (root / "t.csv").write_text("\n".join([f"x,z,{EVIL_COLUMN},y", *rows]))
    options = {"label_column": "y", "partition_size": 2048, "split": {"held": 0.2}}
    ingest(root / "t.csv", root / "train", **options)
    params = {"loss": "log", "lanes": 2, "alpha": [1e-4, 1e-2, 1.0]}
    held = root / "train-held"
    fit(
        "sgd", root / "train", root / "run", params=params, passes=4, eval_data=held, select=held, eval_every=1,
    )  # fmt: skip
    report_of(root / "run", html=root / "run.html", own_data=True)
    return root / "run.html"


@pytest.mark.slow_cases("(1280-|400-light)")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_a_report_is_drawn_without_errors_at_every_width(tab, report, width, dark):
    tab.show(report, width=width, dark=dark)
    assert tab.said == []
    assert tab.requested == [report.resolve().as_uri()]
    coloured = tab.value(COLOURED)
    assert len(coloured) == 10
    assert min(coloured) > 30, coloured
    assert tab.value(REACH) <= width
    ground, text = tab.value(CONTRAST)
    assert (ground < text) == dark
    assert abs(ground - text) > 150
    assert tab.value("document.images.length + document.querySelectorAll('main script').length") == 0


@pytest.mark.slow
def test_a_printed_page_is_light_and_not_wider_than_paper(tab, report):
    tab.show(report, width=740, dark=True)
    tab.print_as()
    assert tab.value(REACH) <= 740
    ground, text = tab.value(CONTRAST)
    assert (ground, text) == (255, 0)
    assert min(tab.value(COLOURED)) > 30


@pytest.mark.slow
def test_a_click_on_a_heading_sorts(tab, report):
    tab.show(report, width=1280)
    tables = "[...document.querySelectorAll('table')].find(t => t.textContent.includes('recall'))"
    column = f"[...{tables}.tBodies[0].rows].map(row => Number(row.cells[1].dataset.v))"
    click = f"{tables}.tHead.rows[0].cells[1].querySelector('button').click()"
    tab.value(click)
    rising = tab.value(column)
    tab.value(click)
    assert tab.value(column) == rising[::-1] == sorted(rising, reverse=True)


@pytest.mark.slow
def test_a_report_is_read_and_sorted_by_the_keys(tab, report):
    tab.show(report, width=1280)
    tab.press("Tab")
    first = tab.focused()
    assert first == {"text": "Skip to the first section", "name": "a", "seen": True, "ringed": True}
    tab.press("Enter")
    sections = "document.querySelector('main').contains(document.activeElement)"
    tab.press("Tab")
    assert tab.value(sections)  # the links of the contents are skipped
    for _ in range(40):
        if tab.focused()["text"] == "recall %":
            break
        wait_until(lambda: tab.focused()["seen"])  # the page scrolls there smoothly
        assert tab.focused()["ringed"], tab.focused()
        tab.press("Tab")
    tab.press("Enter")
    column = "[...document.activeElement.closest('table').tBodies[0].rows].map(r => Number(r.cells[4].dataset.v))"
    rising = tab.value(column)
    assert rising == sorted(rising)
    tab.press("Enter")
    assert tab.value(column) == rising[::-1]
    assert tab.value("document.activeElement.closest('th').getAttribute('aria-sort')") == "descending"
    assert tab.focused()["ringed"]


def test_a_script_that_is_not_ours_does_not_run(tab, report, tmp_path):
    # as if a name had not been escaped: the policy of the page is a second wall
    text = report.read_text(encoding="utf-8")
    changed = tmp_path / "changed.html"
    changed.write_text(text.replace("<main>", "<main><script>document.title = 'gone'</script>"), encoding="utf-8")
    tab.show(changed, width=1280)
    assert tab.value("document.title") == "run: distls report"
    assert any("Content Security Policy" in line for line in tab.said)


def test_tables_of_a_comparison_need_no_scrolling_on_a_phone(tab, report, tmp_path):
    runs = [report.parent / "run", tmp_path / "other"]
    fit("sgd", report.parent / "train", runs[1], params={"loss": "hinge", "lanes": 1}, passes=2)
    page = tmp_path / "comparison.html"
    page.write_text(render_comparison(compare(runs, report.parent / "train-held")), encoding="utf-8")
    tab.show(page, width=400)
    assert tab.said == []
    assert tab.value("[...document.querySelectorAll('.wide')].map(e => e.scrollWidth - e.clientWidth)") == [0] * 5
    # each value has its heading beside it
    cells = "[...document.querySelectorAll('section:first-of-type td')]"
    heads = tab.value(f"{cells}.map(e => getComputedStyle(e, '::before').content)")
    assert heads[:3] == ['"run"', '"status"', '"passes"']
