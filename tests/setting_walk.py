"""The walk of a setting from the command line to the kernel: ``python tests/setting_walk.py``.

A fit is run, and the calls of functions that are handed the setting are noted in their order, up to the one that makes
the kernel's own settings. What an object does with what it holds itself is no stay.
"""

import functools
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

# beside this file lies tests/distls, which would be taken for the package
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from click.testing import CliRunner
from helpers import labelled_rows, write_dataset
from test_layers import ROOMS, room_of

from distls.cli import cli

VALUE = 0.0123456  # an alpha that nothing else is equal to
_DEEP = 5  # a request holds settings, which hold parameters, which hold the value
_END = "workers/stochastic/sgd.SgdLearner.of"


def _holds(value: Any, deep: int = _DEEP) -> bool:
    if isinstance(value, (float, str)):
        return str(VALUE) in str(value)
    if isinstance(value, functools.partial):
        return _holds([*value.args, *value.keywords.values()], deep)
    if isinstance(value, dict):
        inside: list[Any] = list(value.values())
    elif isinstance(value, (list, tuple)):
        inside = list(value)
    elif type(value).__module__.startswith("distls"):
        names = [*getattr(value, "__dict__", ()), *getattr(value, "__struct_fields__", ())]
        inside = [getattr(value, name) for name in names]
    else:
        return False
    return deep > 0 and any(_holds(each, deep - 1) for each in inside)


class Walk:
    """The calls that are handed the setting, until the kernel has it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        _, inside, module = code.co_filename.rpartition("/distls/")
        if event != "call" or not inside or code.co_name.startswith("<"):
            return
        handed = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        handed += tuple(name for name in ("asked", "options") if name in frame.f_locals)  # taken by **
        if any(_holds(frame.f_locals.get(name)) for name in handed if name != "self"):
            self.calls.append(f"{module.removesuffix('.py')}.{code.co_qualname}")
        if self.calls and self.calls[-1] == _END:
            sys.setprofile(None)

    @property
    def stays(self) -> list[str]:
        """The functions, each once."""
        return list(dict.fromkeys(self.calls))

    @property
    def climbs(self) -> list[tuple[str, str]]:
        """The calls that follow one in a lower room."""
        floors = [ROOMS.index(room_of(f"distls/{call.partition('.')[0]}.py")) for call in self.calls]
        steps = zip(self.calls, self.calls[1:], floors, floors[1:], strict=False)
        return [(one, other) for one, other, low, high in steps if high > low]


def walk(folder: Path) -> Walk:
    """Return the walk of the alpha of `mcid`, fitted in this process."""
    write_dataset(folder / "train", *labelled_rows(300, 20, 3))
    words = ["fit", "mcid", str(folder / "train"), str(folder / "run"), "-p", f"alpha={VALUE}", "--passes", "1"]
    found = Walk()
    sys.setprofile(found)
    try:
        ended = CliRunner().invoke(cli, [*words, "--executor", "serial", "--quiet"])
    finally:
        sys.setprofile(None)
    assert ended.exit_code == 0, ended.output
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = walk(Path(place))
        print("\n".join(made.stays))
        print(f"{len(made.stays)} stays, {len(made.climbs)} climbs")
