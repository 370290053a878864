"""The method and the parameters of a fit for which none were chosen (docs/decisions/0025)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distls.methods.data_defaults import suited
from distls.methods.default_losses import OF_CLASSES, OF_NUMBERS, OF_SUPPORT_VECTORS
from distls.methods.method import Params
from distls.methods.method_registry import method_named
from distls.storage.dataset.dataset import Dataset

AUTO = "auto"

_FEW_FEATURES = 1000  # whose second moments cost less than the passes that they save
_FEW_WEIGHTS = 100_000  # of features times outputs, of which `gls` fits alphas times folds at a time
_MUCH_WORK = 1_000_000_000  # stored values times outputs, of which a hundred passes take minutes
_MANY_WEIGHTS = 10_000_000, 200_000_000  # which sixty fits, or even seven, would add and write for minutes
_MANY_CLASSES = 100  # whose blocks keep all threads at work
_MOST_DUALS = 8_000_000  # rows: the smallest block has 16 duals of each, then half a GiB
# One strength for very many classes, and weights too small to be stored, both for rows of norm one (DiSMEC's Delta)
_CLASSES_C, _CLASSES_PRUNE = 10.0, 1e-2
_ONE_LANE_BYTES = 32 * 2**20
_COARSE = (1e-3, 1e-4, 1e-5)  # alphas of few fits, in mean squared norms of a row
_FOLDS, _WIDE_FOLDS = 5, 3  # of few wide rows, whose folds cost the most
_ALPHAS = 6
# Where the fits end: strengths are told apart long before the optimum
_PASSES, _GAP = 20.0, 1e-2
# What is compared in memory, by `distls.training.memory_search`: stored values, outputs, and values times outputs
_FEW_VALUES, _FEW_OUTPUTS, _LITTLE_WORK = 2_000_000, 64, 100_000_000
_FEW_SPARSE_WEIGHTS = 4_000_000  # of features times outputs, of the one fit that is left
SPARSE_WEIGHTS = 1_000_000  # of columns with a value times outputs: some tens of such vectors are remembered there
_NEWTON_PASSES, _NEWTON_GAP = 1000.0, 1e-6
_TABLE_PASSES = 300.0  # of `gls`, which ends sooner where it has converged
_TABLE_ALPHAS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # in mean squares of a feature


@dataclass(frozen=True)
class Recommendation:
    """A method, the parameters that differ from its defaults, and why."""

    method: str
    params: Params
    reason: str
    passes: float | None = None  # limits where none are given; else the method's own
    rtol: float | None = None


def recommended(
    data: Dataset, given: Mapping[str, Any] | None = None, *, judged: bool = False, limited: bool = False
) -> Recommendation:
    """Return what to fit to a data set, from its metadata, and of dense numbers with no alpha given the first rows.

    Parameters that were `given` replace those recommended. Where other data choose among the settings (`judged`), no
    folds are needed. A fit that is `limited` takes a method that can be stopped.
    """
    seen = data if (given or {}).get("alpha") is not None else suited(data)
    found = _for_shape(seen, limited)
    method = method_named(found.method)
    params = {**found.params, **(given or {})}
    if judged and method.path and params.get("alpha") == "path":
        params = {name: value for name, value in params.items() if name not in ("folds", "prune")}
    if method.path and params.get("alpha") != "path":
        of_path = ("alphas", "folds", "prune")
        params = {name: value for name, value in params.items() if name not in of_path}
        params |= {name: value for name, value in (given or {}).items() if name in of_path}
    if seen is not data and "link" in params:
        params = {"standardize": True, **params}
    return replace(found, params=params)


def _for_shape(data: Dataset, limited: bool) -> Recommendation:
    meta = data.meta
    outputs = max(len(meta.classes), meta.n_targets, 1)
    numbers = meta.target == "continuous"
    folds = max(2, min(_FOLDS, meta.n_rows // 10))
    if meta.target == "class" and _is_small(data, outputs):
        return _for_few_rows(data, folds)
    if meta.n_features <= _FEW_FEATURES and meta.n_features * outputs <= _FEW_WEIGHTS:
        params: Params = {"alpha": "path", "folds": folds, **_table_alphas(data)}
        if meta.target != "class":
            params["link"] = "identity" if numbers else "logit"
        return Recommendation("gls", params, f"{meta.n_features} features are few: {_found(folds)}", _TABLE_PASSES)
    if numbers or meta.target == "multilabel":
        params = {"loss": OF_NUMBERS, "alpha": "path", "alphas": _ALPHAS, **_search(data, folds)}
        reason = f"ridge regression on {meta.n_features:,} features: {_found(folds)}"
        return Recommendation("sdca", params, reason, _PASSES, _GAP)
    if _are_very_many(data, outputs) and not limited:
        return _for_very_many_classes(data, outputs)
    return _for_wide_classes(data, outputs, folds)


def _is_small(data: Dataset, outputs: int) -> bool:
    """Return whether classes are compared in memory, within seconds."""
    meta, sparse = data.meta, data.meta.layout == "csr"
    stored = meta.nnz if sparse else meta.n_rows * meta.n_features
    narrow = meta.n_features <= _FEW_FEATURES
    if sparse:
        used = min(meta.n_features, stored) * outputs
        narrow = used <= SPARSE_WEIGHTS and meta.n_features * outputs <= _FEW_SPARSE_WEIGHTS
    return narrow and stored <= _FEW_VALUES and outputs <= _FEW_OUTPUTS and stored * outputs <= _LITTLE_WORK


def _for_few_rows(data: Dataset, folds: int) -> Recommendation:
    meta = data.meta
    # of text now logistic regression and now the support vector machine is better
    wide = meta.n_features > _FEW_FEATURES
    alphas: Params = {"alphas": _ALPHAS} if wide else _table_alphas(data)
    params: Params = {
        "loss": [OF_CLASSES, OF_SUPPORT_VECTORS] if wide else OF_CLASSES,
        "alpha": "path",
        **alphas,
        "folds": min(folds, _WIDE_FOLDS) if wide else folds,
        "start": "zero",  # a pass of stochastic gradients costs kernels, and here saves nothing
        **({} if wide else {"dtype": "float64"}),
    }
    reason = f"{meta.n_rows:,} rows fit in memory: the exact optimum, {_found(params['folds'])}"
    return Recommendation("newton", params, reason, _NEWTON_PASSES, _NEWTON_GAP)


def _are_very_many(data: Dataset, outputs: int) -> bool:
    """Return whether classes are so many that their weights had better be sparse."""
    meta = data.meta
    many = outputs >= _MANY_CLASSES and meta.n_features * outputs > _MANY_WEIGHTS[0]
    return many and meta.layout == "csr" and meta.mean_square_norm > 0.0 and meta.n_rows <= _MOST_DUALS


def _for_very_many_classes(data: Dataset, outputs: int) -> Recommendation:
    meta = data.meta
    params: Params = {
        "alpha": float(f"{meta.mean_square_norm / (_CLASSES_C * meta.n_rows):.6g}"),
        "prune": float(f"{_CLASSES_PRUNE / meta.mean_square_norm**0.5:.6g}"),
    }
    reason = f"{outputs:,} classes x {meta.n_features:,} features: one against the rest, a sparse model"
    return Recommendation("ovr-sdca", params, reason)


def _for_wide_classes(data: Dataset, outputs: int, folds: int) -> Recommendation:
    meta = data.meta
    weights = meta.n_features * outputs
    if meta.nnz * outputs <= _MUCH_WORK and weights <= _MANY_WEIGHTS[0]:
        # LogisticRegression and LinearSVC, of which now the one and now the other is better
        params: Params = {
            "loss": [OF_CLASSES, OF_SUPPORT_VECTORS],
            "intercept_scaling": 1.0,
            "alpha": "path",
            "alphas": _ALPHAS,
            **_search(data, folds),
        }
        reason = f"{meta.n_features:,} features: logistic regression or support vector machine, {_found(folds)}"
        return Recommendation("sdca", params, reason, _PASSES, _GAP)
    if meta.nnz * outputs <= _MUCH_WORK and weights <= _MANY_WEIGHTS[1] and meta.mean_square_norm > 0.0:
        params = {
            "loss": OF_SUPPORT_VECTORS,
            "intercept_scaling": 1.0,
            "alpha": "path",
            "alphas": ":".join(f"{meta.mean_square_norm * each:.6g}" for each in _COARSE),
            **_search(data, 2),
        }
        reason = f"{weights:,} weights are many: a support vector machine, {_found(2)}"
        return Recommendation("sdca", params, reason, _PASSES, _GAP)
    return Recommendation(
        "sgd", {}, f"{meta.n_rows:,} rows with {outputs} classes are much work: one setting that rarely needs tuning"
    )


def _search(data: Dataset, folds: int) -> Params:
    # one lane takes fewer passes, and what is small is trained in one process
    small = int(data.decoded_bytes.sum()) <= _ONE_LANE_BYTES
    return {"folds": folds, "prune": True, **({"lanes": 1} if small else {})}


def _table_alphas(data: Dataset) -> Params:
    square = data.meta.mean_square_norm / data.meta.n_features
    if not square > 0.0:
        return {}
    return {"alphas": ":".join(f"{square * each:.6g}" for each in _TABLE_ALPHAS)}


def _found(folds: int) -> str:
    return f"the strength found by {folds}-fold cross-validation"
