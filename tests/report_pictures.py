"""Take the pictures of docs/images: ``python tests/report_pictures.py REPORT.html COMPARISON.html docs/images``."""

import io
import sys
import tempfile
from pathlib import Path

from browser_helpers import Tab, browser
from PIL import Image

_MOST_BYTES = 200_000


def save(tab: Tab, page: Path, out: Path, *, width: int, dark: bool, first: int, height: int) -> None:
    """Save a part of a page, from `first` pixels below its top, in as few colours as the size allows."""
    tab.show(page, width=width, dark=dark)
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        tab.picture(Path(file.name))
        whole = Image.open(file.name).convert("RGB")
    part = whole.crop((0, first, width, min(first + height, whole.height)))
    for colours in (256, 128, 64, 32):
        packed = io.BytesIO()
        part.quantize(colours, dither=Image.Dither.NONE).save(packed, "png", optimize=True)
        if packed.tell() < _MOST_BYTES:
            break
    out.write_bytes(packed.getvalue())
    print(f"{out}: {part.width} x {part.height}, {colours} colours, {packed.tell():,} bytes")


def main(report: Path, comparison: Path, out: Path) -> None:
    with browser() as tab:
        for dark, name in ((False, "light"), (True, "dark")):
            save(tab, report, out / f"report-1280-{name}.png", width=1280, dark=dark, first=0, height=1500)
            save(tab, report, out / f"report-400-{name}.png", width=400, dark=dark, first=0, height=1600)
        where = "Math.round(document.querySelectorAll('section')[2].getBoundingClientRect().top + scrollY - 16)"
        tab.show(report, width=1280)
        first = int(tab.value(where))
        save(tab, report, out / "report-classes.png", width=1280, dark=False, first=first, height=1500)
        save(tab, comparison, out / "comparison.png", width=1280, dark=False, first=0, height=1300)
        save(tab, comparison, out / "comparison-400.png", width=400, dark=False, first=0, height=1600)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
