"""Out-of-core, distributed training of linear, generalised-linear and multi-class models.

The public names are those of `__init__.pyi`. They are loaded on first use (PEP 562), so that a worker process that
imports `distls.workers` never imports the driver, the estimators or scikit-learn.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from distls import facts as _facts

__version__ = "0.1.0"


@cache
def _homes() -> dict[str, str]:
    """Return the module of each public name."""
    import ast

    declared = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = (node for node in declared if isinstance(node, ast.ImportFrom))
    return {each.name: str(node.module) for node in imports for each in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return ["__version__", *_homes()]
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_homes()[name]), name)


def _as_card(title: str, facts: Any) -> str:
    from distls.reporting.markup import card

    return card(title, facts)


_facts.as_card = _as_card


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
