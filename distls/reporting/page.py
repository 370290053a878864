"""One self-contained HTML page: styles, scripts and plots inside, and a policy that forbids everything else."""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from distls.reporting.markup import Markup, joined, plain, tag
from distls.reporting.plots import Drawn, check_bokeh
from distls.storage.errors import MismatchError, StorageError
from distls.storage.filesystem.atomic import os_errors_described, text_file
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.filesystem.safe_read import first_bytes

_MARK = "<!-- a report of distls; it may be overwritten by another -->"


class Page:
    """A page that is put together section by section."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._links: list[Markup] = []
        self._sections: list[Markup] = []
        self._plots: list[dict[str, object]] = []

    def add_section(self, title: str, *parts: object) -> None:
        """Add a section with a heading, and its link to the contents."""
        name = f"section-{len(self._sections)}"
        self._links.append(tag("a", title, href=f"#{name}"))
        self._sections.append(tag("section", tag("h2", title), *parts, id=name))

    def plots(self, drawn: Sequence[Drawn | None]) -> Markup:
        """Return a grid of plots, those that there is nothing to draw in left out."""
        shown = [self._plot(each) for each in drawn if each is not None]
        return tag("div", *shown, class_="plots") if shown else Markup("")

    def _plot(self, drawn: Drawn) -> Markup:
        from bokeh.embed import json_item

        name = f"plot-{len(self._plots)}"
        self._plots.append({"name": name, "item": json_item(drawn.figure, name)})
        legend = [
            tag("li", tag("span", style=f"background:{colour}", class_="dot"), text) for colour, text in drawn.legend
        ]
        return tag(
            "figure",
            tag("figcaption", tag("strong", drawn.title), *([tag("p", drawn.caption)] if drawn.caption else [])),
            tag("ul", *legend, class_="legend") if legend else "",
            tag("div", id=name, class_="plot", role="img", aria_label=drawn.title),
        )

    def render(self, head: Markup, *, refresh: int | None = None) -> str:
        """Return the page; with `refresh` it reloads itself after this many seconds."""
        scripts = [_bokeh_script(), _own("page.js")] if self._plots else [_own("page.js")]
        # a literal "</script>" in a string would end the element
        data = Markup(json.dumps(self._plots, allow_nan=True).replace("<", "\\u003c"))
        body = joined(
            [
                tag("a", "Skip to the first section", href="#section-0", class_="skip"),
                tag("header", head, tag("nav", *self._links)),
                tag("main", *self._sections),
                tag(
                    "footer",
                    f"distls {metadata.version('distls')}. This file is complete: it loads nothing from a network.",
                ),
                tag("script", data, type="application/json", id="plots"),
                *(tag("script", script) for script in scripts),
            ]
        )
        return "\n".join(
            [
                "<!DOCTYPE html>",
                _MARK,
                '<html lang="en"><head><meta charset="utf-8">',
                _policy(scripts),
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f'<meta http-equiv="refresh" content="{refresh}">' if refresh else "",
                f"<title>{plain(self._title)}</title>",
                tag("style", _own("page.css")),
                "</head>",
                tag("body", body),
                "</html>",
                "",
            ]
        )


def _own(name: str) -> Markup:
    return Markup(files("distls.reporting").joinpath(name).read_text(encoding="utf-8"))


def _bokeh_script() -> Markup:
    from bokeh.resources import Resources

    (script, *_) = Resources(mode="inline", components=["bokeh"]).js_raw
    return Markup(script)


def _policy(scripts: Sequence[str]) -> Markup:
    """Return the content security policy: only these very scripts run, and nothing is loaded from anywhere."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; script-src {allowed}"
    return Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">')


def checked_page(out: str | Place) -> Place:
    """Return where a page is to be; raise unless it can be drawn, and written there."""
    check_bokeh()
    check_target(place_of(out))
    return place_of(out)


def check_target(out: Place) -> None:
    """Raise MismatchError or StorageError unless a page can be written there: as a new file, or over an older page."""
    if isinstance(out, Path) and not out.parent.is_dir():
        raise StorageError(f"{out}: there is no folder {out.parent}; make it first")
    if not out.exists() or _MARK.encode() in first_bytes(out, 200):
        return
    raise MismatchError(f"{out} exists and is no report of distls; choose another name")


def write_page(out: Place, text: str) -> None:
    """Write a page, whole or not at all."""
    check_target(out)
    with os_errors_described(f"cannot write {out}", "choose a writable place"), text_file(out) as file:
        file.write(text)
