"""Take pictures of a page: ``python tests/site_pictures.py docs/_build/html/PAGE.html docs/images/NAME``."""

import io
import sys
import tempfile
from pathlib import Path

from browser_helpers import browser
from helpers import wait_until
from PIL import Image


def main(page: Path, out: Path) -> None:
    """Save NAME-1280.png and NAME-400.png, and say what is wider than the screen or in the console."""
    with browser() as tab:
        for width, height in ((1280, 2560), (400, 2640)):
            tab.said.clear()
            scheme = [{"name": "prefers-color-scheme", "value": "light"}]
            tab.send("Emulation.setEmulatedMedia", media="screen", features=scheme)
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
            tab.send("Emulation.setDeviceMetricsOverride", **size)
            tab.send("Page.navigate", url=page.resolve().as_uri())
            wait_until(lambda: tab.value("document.readyState") == "complete")
            tab.value("new Promise(done => setTimeout(done, 1000))")
            with tempfile.NamedTemporaryFile(suffix=".png") as file:
                tab.picture(Path(file.name), most=height)
                picture = Image.open(file.name).convert("RGB").quantize(64, dither=Image.Dither.NONE)
            packed = io.BytesIO()
            picture.save(packed, "png", optimize=True)
            Path(f"{out}-{width}.png").write_bytes(packed.getvalue())
            wide = tab.value("document.documentElement.scrollWidth")
            print(f"{out}-{width}.png: {packed.tell():,} bytes, page {wide} wide, console {tab.said}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
