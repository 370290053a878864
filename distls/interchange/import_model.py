"""Models of other programs as models of ours, to predict with or to start a fit from."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distls.interchange.vw_model import read_vw
from distls.serving.fitted_model import FittedModel, fitted_model
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.storage.filesystem.atomic import os_errors_described
from distls.storage.filesystem.paths import Place, place_of
from distls.storage.model.model import LinearModel, save_model
from distls.workers.losses.loss import Loss
from distls.workers.losses.loss_registry import binary_form, loss_elsewhere

SOURCES = ("liblinear", "vw")
_NAMES = {"liblinear": "LIBLINEAR", "vw": "Vowpal Wabbit"}
_LARGEST = 2**33  # bytes of a file that is read


def import_model(file: str | Path, out: str | Place, *, source: str = "liblinear") -> FittedModel:
    """Make a model folder of another program's model: `load_model` takes it, and methods with the parameter `init`.

    Parameters
    ----------
    file : path
        A model file of LIBLINEAR, as its ``train`` writes it; or one of Vowpal Wabbit, written with ``-f``,
        ``--readable_model`` or ``--invert_hash``: of regression, ``--binary``, ``--link logistic`` or ``--oaa``.
    out : path
        The model folder; must not exist.
    source : {"liblinear", "vw"}

    Returns
    -------
    FittedModel
        Feature j of a file of LIBLINEAR, from 1, is column j - 1. A model of vw takes vw text, hashed as it was.

    Raises
    ------
    BadInputError
        The file is not such a model.
    MismatchError, ParameterError, StorageError
        `out` exists or cannot be written, or there is no such `source`.
    """
    if source not in SOURCES:
        raise ParameterError(f"--from must be one of {', '.join(SOURCES)}, not {source!r}")
    target = place_of(out)
    if target.exists():
        raise MismatchError(f"{target} exists already; choose another name")
    with os_errors_described(f"cannot read {file}", "check its name"):
        if Path(file).stat().st_size > _LARGEST:
            raise BadInputError(f"{file}: more than {_LARGEST} bytes")
        text = Path(file).read_bytes()
    try:
        model = _read(text) if source == "liblinear" else read_vw(text)
    except (ValueError, KeyError, IndexError) as error:
        raise BadInputError(f"{file}: not a model file of {_NAMES[source]} ({error})") from None
    with os_errors_described(f"cannot write {target}", "make room and import again"):
        save_model(target, model)
    return fitted_model(model, str(target))


def _read(text: bytes) -> LinearModel:
    """Return the model that a file describes, or raise ValueError."""
    head, found, table = text.partition(b"\nw\n")
    if not found:
        raise ValueError("it has no line w")
    facts = dict(line.split(" ", 1) for line in head.decode("ascii", "replace").splitlines() if " " in line)
    for name in ("solver_type", "nr_class", "nr_feature", "bias"):
        if name not in facts:
            raise ValueError(f"it has no line {name}")
    solver, bias = facts["solver_type"].strip(), float(facts["bias"])
    n_classes, n_features = int(facts["nr_class"]), int(facts["nr_feature"])
    loss = _loss_of(solver, n_classes)
    numeric = "continuous" in loss.targets
    single = numeric or (n_classes == 2 and solver != "MCSVM_CS")
    weights, intercept = _weights(table, n_features, 1 if single else n_classes, bias)
    labels = []
    if not numeric:
        labels = [int(label) for label in facts["label"].split()]
        if len(labels) != n_classes or n_classes < 2 or len(set(labels)) < n_classes:
            raise ValueError(f"{n_classes} classes with the labels {facts['label']}")
        # Columns in the order of the labels, as everywhere here.
        order = np.argsort(labels)
        if single:  # the file has the weights of its first label
            sign, loss = (1.0 if order[1] == 0 else -1.0), binary_form(loss)
            weights, intercept = sign * weights, sign * intercept
        else:
            weights, intercept = weights[:, order], intercept[order]
        labels.sort()
    return LinearModel(
        weights=np.ascontiguousarray(weights),
        intercept=np.ascontiguousarray(intercept),
        classes=[*labels],
        method="liblinear",
        loss=loss.name,
        params={"solver_type": solver, "bias": bias},
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        zero_based=False,
        source={"format": "svmlight"},
        target="continuous" if numeric else "class",
    )


def _loss_of(solver: str, n_classes: int) -> Loss:
    """Return the loss of a type of solver, in which many classes have a problem each if there is such a form."""
    try:
        return loss_elsewhere(solver, separable=n_classes > 2)
    except KeyError:
        raise ValueError(f"solver_type {solver}") from None


def _weights(
    table: bytes, n_features: int, n_outputs: int, bias: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights (n_features, n_outputs) and intercept (n_outputs,)."""
    # two bytes a number at least: a short file may declare any size
    rows = n_features + (bias >= 0)
    if n_features < 1 or not 0 < rows * n_outputs <= len(table):
        raise ValueError(f"{n_features} features and {n_outputs} outputs, but {len(table)} bytes of weights")
    values: NDArray[Any] = np.array(table.split(), dtype=np.float64)
    if values.size != rows * n_outputs or not np.isfinite(values).all():
        raise ValueError(f"{values.size} weights, not {rows * n_outputs} finite ones")
    values = values.reshape(rows, n_outputs)
    intercept = values[-1] * bias if bias >= 0 else np.zeros(n_outputs)
    return values[:n_features], intercept
