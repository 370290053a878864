"""Models of Vowpal Wabbit: written in its binary format by its own Python package, read from that and from text."""

import re
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from distls.interchange.linear_form import Folded, expected_rows, folded, label_threshold
from distls.serving.fitted_model import FittedModel
from distls.storage.errors import ParameterError, needing
from distls.storage.model.model import LinearModel, one_of_two
from distls.workers.losses.loss_registry import binary_form, loss_elsewhere

_MOST_BITS = 31
# the options of losses, as `Loss.elsewhere` has them
_SQUARED, _HINGE, _LOGISTIC = "--loss_function squared", "--loss_function hinge", "--link logistic"
# vw clips predictions to the labels it was trained on, and here it was trained on none
_OPTIONS = "--quiet --sgd --min_prediction=-1e30 --max_prediction=1e30"


def to_vw(model: FittedModel) -> tuple[bytes, str]:
    """Return a model file for ``vw -t -i``, and what rows it is for.

    Raises ParameterError if vw has no such model, its table of weights would be too large, or vowpalwabbit is not
    installed.
    """
    if model.target == "continuous" and model.n_outputs > 1:
        raise ParameterError(
            f"{model.name}: a model of Vowpal Wabbit as written here cannot predict {model.n_outputs} numbers a row"
        )
    own = folded(model, "a model of Vowpal Wabbit")
    reduction, labels = "", ""
    if model.target == "class" and len(model.classes) == 2:
        own = Folded(one_of_two(own.weights.T).T, one_of_two(own.intercept))
        reduction, labels = ("--binary", f"; predictions are -1 for {model.classes[0]} and 1 for {model.classes[1]}")
    elif model.target == "multilabel":
        # vw predicts the labels of positive scores
        own = Folded(own.weights, own.intercept - label_threshold(model))
        reduction = f"--multilabel_oaa {len(model.classes)}"
        labels = f"; predictions are the numbers of the labels, from 0 for {model.classes[0]}"
    elif model.target == "class":
        reduction = f"--oaa {len(model.classes)}"
        labels = f"; predictions are the numbers of the classes, from 1 for {model.classes[0]}"
    names, bits = _names_and_bits(model, own)
    # weights of one feature are neighbours, in groups of a power of two
    shift = (own.weights.shape[1] - 1).bit_length()
    if bits + shift > _MOST_BITS:
        raise ParameterError(f"{model.name}: {own.weights.size} weights are too many for a table of Vowpal Wabbit")
    return _saved(own, f"{reduction} -b {bits + shift}", 2**bits, shift), expected_rows(model) + names + labels


def _names_and_bits(model: FittedModel, own: Folded) -> tuple[str, int]:
    """Return how features are named, and the bits that number them and the intercept."""
    n_columns, recipe = len(own.weights), model.source.get("recipe", {})
    bits = recipe.get("hash_bits") if model.source.get("format") == "vw" else None
    if bits is None:
        bits = max(1, (n_columns - 1).bit_length())
        while CONSTANT % 2**bits < n_columns:
            bits += 1
        return "; column j of an array is the feature named j, without a namespace", bits
    if own.intercept.any() and own.weights[CONSTANT % 2**bits].any():
        raise ParameterError(
            f"{model.name}: a feature has the number of Vowpal Wabbit's constant; train without an intercept"
        )
    return "; text of Vowpal Wabbit with the names of training", bits


def _saved(own: Folded, options: str, size: int, shift: int) -> bytes:
    """Return the bytes of a model with these weights, made by vw itself."""
    with needing("--to vw needs the package vowpalwabbit; pip install 'distls[vw]'"):
        from vowpalwabbit import Workspace
    with tempfile.TemporaryDirectory(prefix="distls-export-") as folder:
        path = Path(folder) / "model"
        constant = "" if own.intercept.any() else "--noconstant "
        made = Workspace(f"{_OPTIONS} {constant}{options} -f {path}")
        _set_weights(made, own.weights, 0, shift)
        _set_weights(made, own.intercept[None, :], CONSTANT % size, shift)
        made.finish()
        return path.read_bytes()


def _set_weights(made: Any, weights: NDArray[np.float64], first: int, shift: int) -> None:
    for row, output in zip(*(places.tolist() for places in np.nonzero(weights)), strict=True):
        made.set_weight(((first + row) << shift) + output, 0, float(weights[row, output]))


# -- from text, or by the package ------------------------------------------------------------------------

CONSTANT = 11_650_396  # the feature that vw adds to each example: its weight is the intercept
# an optional name, the number of the weight, its value, and what the learner keeps with it
_WEIGHT = re.compile(rb"(?m)^(?:.*:)?([0-9]+):([-+.0-9einfa]+)(?: .*)?$")
# Options that leave a model linear in the hashed features, and how many values follow them.
_KNOWN = {"--oaa": 1, "--link": 1, "--binary": 0, "--noconstant": 0, "--quiet": 0, "--hash_seed": 1, "--random_seed": 1,
          "--min_prediction": 1, "--max_prediction": 1, "--bit_precision": 1,
          # how steps were taken, whatever the rule: the weights are the outcome
          "--sgd": 0, "--adaptive": 0, "--normalized": 0, "--invariant": 0, "--learning_rate": 1, "-l": 1,
          "--power_t": 1, "--initial_t": 1, "--decay_learning_rate": 1, "--ftrl": 0, "--ftrl_alpha": 1,
          "--ftrl_beta": 1, "--coin": 0,
          "--pistol": 0, "--bfgs": 0, "--conjugate_gradient": 0, "--mem": 1, "--l2": 1, "--passes": 1,
          "--holdout_off": 0, "--save_resume": 0, "--preserve_performance_counters": 0}  # fmt: skip


def read_vw(content: bytes) -> LinearModel:
    """Return the model of a file that vw wrote, as text or in its own format, or raise ValueError."""
    text = content if content.startswith(b"Version ") else _as_text(content)
    head, found, weights = text.partition(b"Checksum:")
    if not found:
        raise ValueError("it has no line Checksum; make it with --readable_model or --invert_hash")
    facts = dict(line.split(":", 1) for line in head.decode("utf-8", "replace").splitlines() if ":" in line)
    options = _options(facts.get("options", ""))
    bits = int(facts.get("bits", "0"))
    k = int(options.get("--oaa", "1"))
    shift = (k - 1).bit_length()
    if not 0 < bits <= _MOST_BITS or not 1 <= k <= 2**bits or bits <= shift:
        raise ValueError(f"{bits} bits for {k} classes")
    if options.get("--hash_seed", "0") != "0":
        _refuse("--hash_seed")
    columns, table = 2 ** (bits - shift), np.zeros((2 ** (bits - shift), k))
    for place, value in _WEIGHT.findall(weights):
        column, output = int(place) >> shift, int(place) % 2**shift
        if column >= columns or output >= k or not np.isfinite(float(value)):
            raise ValueError(f"the weight {place.decode()}:{value.decode()[:40]}")
        table[column, output] = float(value)
    # a feature with the number of the constant shares its weight in vw, and here
    constant = "--noconstant" not in options
    intercept = table[CONSTANT % columns].copy() if constant else np.zeros(k)
    return _model(table, intercept, options, bits - shift)


def _model(table: Any, intercept: Any, options: dict[str, str], bits: int) -> LinearModel:
    classes: list[Any] = []
    logistic, many = options.get("--link") == "logistic", "--oaa" in options
    of_classes = many or logistic or "--binary" in options
    option = _HINGE if of_classes else _SQUARED
    loss = loss_elsewhere(_LOGISTIC if logistic else option, separable=many)
    if many:
        classes = [*range(1, table.shape[1] + 1)]
    elif of_classes:
        loss, classes = binary_form(loss), [-1, 1]
    return LinearModel(
        weights=np.ascontiguousarray(table),
        intercept=intercept,
        classes=classes,
        method="vw",
        loss=loss.name,
        params={"options": " ".join(f"{name} {value}".strip() for name, value in options.items())},
        transforms=[],
        transforms_digest="",
        dataset_fingerprint="",
        zero_based=True,
        source={"format": "vw", "recipe": {"hash_bits": bits, "namespace": ""}},
        target="class" if classes else "continuous",
    )


def _options(text: str) -> dict[str, str]:
    """Return the options of a model by name; raise ValueError for one that makes other features or another model."""
    words, found = text.replace("=", " ").split(), {}
    while words:
        name = words.pop(0)
        if name not in _KNOWN:
            _refuse(name)
        found[name] = words.pop(0) if _KNOWN[name] and words else ""
    return found


def _refuse(option: str) -> NoReturn:
    raise ValueError(
        f"it was trained with {option}; models linear in the hashed features are read, with --oaa, --binary, --link "
        "and --noconstant, and any of the rules of steps"
    )


def _as_text(content: bytes) -> bytes:
    """Return the readable form of a binary model, as vw itself writes it."""
    remedy = "pip install 'distls[vw]'; or give the text that vw writes with --readable_model"
    with needing(f"--from vw of a binary model needs the package vowpalwabbit: {remedy}"):
        from vowpalwabbit import Workspace
    with tempfile.TemporaryDirectory(prefix="distls-import-") as folder:
        model, readable = Path(folder) / "model", Path(folder) / "text"
        model.write_bytes(content)
        try:
            Workspace(f"--quiet -t -i {model} --readable_model {readable}").finish()
        except Exception as error:  # of the library's own types
            raise ValueError(" ".join(str(error).split())[:200]) from None
        return readable.read_bytes()
