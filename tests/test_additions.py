"""What an addition touches: a loss or a penalty is named in its own room, elsewhere it is asked what it can do."""

import ast
import functools
from pathlib import Path

import pytest

from distls.workers.losses.loss_registry import LOSSES
from distls.workers.penalties.penalty_registry import PENALTIES

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "losses": {*LOSSES, *(alias for loss in LOSSES.values() for alias in loss.aliases)},
    "penalties": set(PENALTIES),
}
# Literals of these names outside their rooms, and the files they are in. Lower them where you can; they never rise.
MOST = {"losses": (14, 4), "penalties": (4, 3)}
# the same words for another thing: functions of a basis, the scale of an axis
OTHERS = {"distls/workers/prediction/basis_functions.py", "distls/reporting/plots.py"}


@functools.cache
def _files():
    """Return the texts in the code of each file, and the names of its classes and of what it imports."""
    found = {}
    for path in sorted((ROOT / "distls").rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        names = {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.alias)}
        found[path.relative_to(ROOT).as_posix()] = texts, names
    return found


def literal_names(room):
    """Return the literals outside a room that are names of what is in it, by file; docstrings are longer."""
    found = {
        path: [text for text in texts if text in NAMES[room]]
        for path, (texts, _) in _files().items()
        if not path.startswith(f"distls/workers/{room}/") and path not in OTHERS
    }
    return {path: names for path, names in found.items() if names}


def files_that_name(name, class_name):
    """Return the files in which a name or its class occurs."""
    return {path for path, (texts, names) in _files().items() if name in texts or class_name in names}


@pytest.mark.parametrize("room", NAMES)
def test_literal_names_outside_their_room_only_become_fewer(room):
    found, (literals, files) = literal_names(room), MOST[room]
    assert sum(map(len, found.values())) <= literals, found
    assert len(found) <= files, found


@pytest.mark.parametrize(
    ("name", "class_name", "file", "registry"),
    [
        ("perceptron", "Perceptron", "losses/crammer_singer", "losses/loss_registry"),
        ("multitask_squared_hinge", "MultitaskSquaredHinge", "losses/ovr_hinges", "losses/loss_registry"),
        ("l1linf", "L1Linf", "penalties/penalties", "penalties/penalties"),
        ("sparse-group", "SparseGroup", "penalties/penalties", "penalties/penalties"),
    ],
)  # fmt: skip
def test_one_that_is_no_default_is_in_its_file_and_its_registry_alone(name, class_name, file, registry):
    assert files_that_name(name, class_name) == {f"distls/workers/{each}.py" for each in (file, registry)}
