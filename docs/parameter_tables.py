"""Write the tables of parameters and options from what declares them: ``python docs/parameter_tables.py``.

In notation.md the table of each method, from the registry; in cli.md the rows of what `distls.request` declares. A
section with "The parameters of [other](#other), except" gets what differs from the other method.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from distls.methods.method import Method, Parameter
from distls.methods.method_registry import METHODS
from distls.request import ALONE, OPTIONS, Option

HERE = Path(__file__).parent
_TABLE = re.compile(r"^\| parameter \| default \| meaning \|\n(?:\|.*\n)*", re.MULTILINE)
_EXCEPT = re.compile(r"parameters\s+of\s+\[([\w-]+)\]\(#[\w-]+\),\s+except\n")


def notation(text: str) -> str:
    """Return notation.md with the tables of all methods as they are now."""
    parts = re.split(r"^(### .+\n)", text, flags=re.MULTILINE)
    for place in range(1, len(parts), 2):
        method = METHODS.get(parts[place].removeprefix("### ").strip())
        if method is not None:
            base = _EXCEPT.search(parts[place + 1])
            table = _table(method, METHODS[base[1]] if base else None)
            parts[place + 1] = _TABLE.sub(lambda _, table=table: table, parts[place + 1], count=1)  # type: ignore[misc]
    return "".join(parts)


def _table(method: Method, base: Method | None) -> str:
    known = {} if base is None else {p.name: (p.default, p.description) for p in base.parameters}
    rows = [_row(p) for p in method.parameters if known.get(p.name) != (p.default, p.description)]
    return "".join(["| parameter | default | meaning |\n| --- | --- | --- |\n", *rows])


def _row(parameter: Parameter) -> str:
    default = parameter.default
    shown = default if isinstance(default, str) else json.dumps(default)
    cell = "" if default is None else f"`{shown}`"
    return f"| `{parameter.name}` | {cell} | {_escaped(parameter.description)} |\n"


def options(text: str) -> str:
    """Return cli.md with the rows of the options of a request as they are now."""
    for command, names in (("fit", [option.name for option in OPTIONS]), ("train", ALONE)):
        rows = "".join(_option_row(option) for option in OPTIONS if option.name in names)
        section = rf"(^### distls {command} .*?\n)((?:\| `--passes).*?\n\| `--seed [^\n]*\n)"
        text = re.sub(section, lambda m, rows=rows: m[1] + rows, text, flags=re.MULTILINE | re.DOTALL)  # type: ignore[misc]
    return text


def _option_row(option: Option) -> str:
    unit = f" {option.unit}" if option.unit else ""
    default = "" if option.default is None else "off" if option.default is False else f"`{option.default}`"
    choices = f" One of {', '.join(f'`{c}`' for c in option.choices)}." if option.choices else ""
    return f"| `{option.flag}{unit}` | {default} | {_escaped(option.help)}{choices} |\n"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")


def papers(text: str) -> str:
    """Return papers.md with what `--as-published` sets, of each method of a paper."""
    rows = "".join(
        f"| `{method.name}` | {', '.join(f'`{n}={_shown(v)}`' for n, v in method.published.items())} |\n"
        for method in METHODS.values()
        if method.published
    )
    table = re.compile(r"(^\| method \| parameters \|\n\| --- \| --- \|\n)(?:\|.*\n)*", re.MULTILINE)
    return table.sub(lambda found: found[1] + rows, text)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


WRITERS = {"notation.md": notation, "cli.md": options, "papers.md": papers}

if __name__ == "__main__":
    for name, written in WRITERS.items():
        path = HERE / name
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
