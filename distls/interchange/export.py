"""`export`: a model in the format of another program."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distls.interchange.linear_form import check_plain
from distls.model_check import check_model
from distls.serving.fitted_model import FittedModel, fitted_model, load_model
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.filesystem.atomic import os_errors_described, write_bytes
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel
from distls.workers.losses.loss_registry import link_names

# name -> function of the model, which returns the bytes of the file and the rows that it expects
TARGETS = {
    "onnx": "distls.interchange.onnx_graph:to_onnx",
    "sklearn": "distls.interchange.sklearn_pipeline:to_skops",
    "liblinear": "distls.interchange.plain_files:to_liblinear",
    "vw": "distls.interchange.vw_model:to_vw",
    "npz": "distls.interchange.plain_files:to_npz",
    "csv": "distls.interchange.plain_files:to_csv",
}


@dataclass(frozen=True)
class Exported:
    """A file that was written: its path, its format, the rows that the exported model takes, its size."""

    path: Place
    to: str
    expects: str
    n_bytes: int


def export(model: str | Place | LinearModel, out: str | Place, *, to: str) -> Exported:
    """Write a model in the format of another program, with the same predictions.

    Parameters
    ----------
    model : run path, model path or LinearModel
    out : path
        Must not exist.
    to : {"onnx", "sklearn", "liblinear", "vw", "npz", "csv"}
        ``sklearn`` is a pipeline in the format of skops, ``liblinear`` and ``vw`` model files of LIBLINEAR and Vowpal
        Wabbit; see docs/serving.md.

    Returns
    -------
    Exported

    Raises
    ------
    ParameterError
        The format cannot express the model, or a package that writes it is not installed.
    MismatchError, StorageError
        `out` exists, or cannot be written.
    """
    if to not in TARGETS:
        raise ParameterError(f"--to must be one of {', '.join(TARGETS)}, not {to!r}")
    fitted = _fitted(model)
    target = place_of(out)
    if target.exists():
        raise MismatchError(f"{target} exists already; remove it or choose another name")
    if isinstance(target, Path) and not target.parent.is_dir():
        raise StorageError(f"{target}: there is no folder {target.parent}; make it first")
    check_plain(fitted, to)
    if fitted.loss in link_names() and to not in ("npz", "csv"):
        raise ParameterError(
            f"--to {to}: {fitted.name} predicts through link={fitted.loss}, which has no counterpart there; "
            "npz and csv have its weights"
        )
    module, _, name = TARGETS[to].partition(":")
    # each format has packages of its own
    made: Callable[[FittedModel], tuple[bytes, str]] = getattr(importlib.import_module(module), name)
    content, expects = made(fitted)
    with os_errors_described(f"cannot write {target}", "make room and export again"):
        write_bytes(target, content)
    return Exported(target, to, expects, len(content))


def _fitted(model: str | Place | LinearModel) -> FittedModel:
    if isinstance(model, FittedModel):
        return model
    loaded = fitted_model(model) if isinstance(model, LinearModel) else load_model(model)
    check_model(loaded, loaded.name)
    return loaded
