"""`export`: a model in the format of another program."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distls.facts import Shown
from distls.interchange.export_formats import EXPORT_FORMATS, ExportFormat
from distls.interchange.linear_form import check_expressible, column_names
from distls.interchange.raw_columns import features_of, has_columns
from distls.methods.method import import_object
from distls.model_check import check_model
from distls.serving.fitted_model import FittedModel, fitted_model, load_model
from distls.storage.dataset.feature_names import unpack_names
from distls.storage.errors import MismatchError, ParameterError, StorageError
from distls.storage.filesystem.atomic import os_errors_described, write_bytes
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """A file that was written: its path, its format, the rows that the exported model takes, its size.

    `columns` has the names of their numbers or columns, in order, where the training data had names.
    """

    path: Place
    to: str
    expects: str
    n_bytes: int
    columns: tuple[str, ...] = ()


def export(model: str | Place | LinearModel, out: str | Place, *, to: str) -> Exported:
    """Write a model in the format of another program, with the same predictions.

    Parameters
    ----------
    model : run path, model path or LinearModel
    out : path
        Must not exist.
    to : {"onnx", "sklearn", "liblinear", "vw", "npz", "csv", "weights"}
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
    if to not in EXPORT_FORMATS:
        raise ParameterError(f"--to must be one of {', '.join(EXPORT_FORMATS)}, not {to!r}")
    fitted = _fitted(model)
    target = place_of(out)
    if target.exists():
        raise MismatchError(f"{target} exists already; choose another name")
    if isinstance(target, Path) and not target.parent.is_dir():
        raise StorageError(f"{target}: there is no folder {target.parent}; make it first")
    check_expressible(fitted, EXPORT_FORMATS[to])
    # each format has packages of its own
    made: Callable[[FittedModel], tuple[bytes, str]] = import_object(EXPORT_FORMATS[to].writer)
    content, expects = made(fitted)
    with os_errors_described(f"cannot write {target}", "make room and export again"):
        write_bytes(target, content)
    return Exported(target, to, expects, len(content), _columns(fitted, EXPORT_FORMATS[to]))


def _columns(model: FittedModel, format: ExportFormat) -> tuple[str, ...]:
    if has_columns(model) and format.has_columns:
        return tuple(feature.name for feature in features_of(model))
    return tuple(column_names(model)) if unpack_names(model.features, model.name) else ()


def _fitted(model: str | Place | LinearModel) -> FittedModel:
    if isinstance(model, FittedModel):
        return model
    loaded = fitted_model(model) if isinstance(model, LinearModel) else load_model(model)
    check_model(loaded, loaded.name)
    return loaded
