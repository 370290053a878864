"""Column shards, source files, estimators and refusals, and the table of all cases."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from cases import _FOURIER, _TABLE, FITS, GENERATED, GENERATED_LARGE, INGESTS, METHODS, Fit, fit_of, ingest_of
from entries import (
    dataset_facts,
    evaluation,
    fitted,
    fitted_by_processes,
    generated,
    ingested,
    ingested_after_interrupt,
    ingested_by_processes,
    planned,
    predictions,
    resumed_by_processes,
    stopped,
)
from folder import ENDS, Book, Entry, command, digest
from sources import arrays, lazy_arrays

import distls


def sharded(book: Book, dataset: str, shard_size: int) -> Entry:
    """Add column shards of another size to a copy of a data set."""
    with book.copied(book.needed("data", dataset)) as copy:
        distls.add_columns(copy, shard_size=shard_size)
        return dataset_facts(copy)


def scored_sources(book: Book, run: str, source: str, **options: Any) -> Entry:
    """Score a model on a source file, and predict for it."""
    model, path = book.needed("runs", run), book.path("sources", source)
    notes: list[str] = []
    labelled = options.pop("labelled", True)
    predicted = predictions(book, model, path, labelled=labelled, notify=notes.append, **options)
    found: dict[str, Any] = {"predictions_sha256": predicted}
    if labelled:
        # beside the run is where an older version keeps it
        options |= {"beside": book.out / "scored", "notify": notes.append}
        found["evaluation"] = evaluation(model, path, **options)
    return found | {"notes": [book.plain(note) for note in notes]}


def predicted_as(book: Book, run: str, kind: str, **options: Any) -> Entry:
    """Predict with options, to another kind of file."""
    data = book.held_out(FITS[run].dataset)
    return {"predictions_sha256": predictions(book, book.needed("runs", run), data, kind, **options)}


def scored_unknown(book: Book) -> Entry:
    """Score a model on data with a class that it does not know."""
    return evaluation(book.needed("runs", "mcid-three"), book.held_out("sparse"), unknown_labels="count")


def estimated(model: Any, x: Any) -> dict[str, Any]:
    """Return the digests of what an estimator has learned, and of what it predicts."""
    found = {}
    for name in ("coef_", "intercept_", "classes_", "used_features_", "n_iter_", "t_"):
        if hasattr(model, name):
            found[name] = digest(getattr(model, name))
    for name in ("predict", "decision_function", "predict_proba"):
        if hasattr(model, name):
            found[name] = digest(np.asarray(getattr(model, name)(x)))
    return found


def estimator(name: str, data: str, weighted: bool = False, **params: Any) -> Callable[[Book], Entry]:
    """Return the case of an estimator that learns from arrays."""

    def run(book: Book) -> Entry:
        known = arrays()
        x, y = known[f"{data}.x"], known[f"{data}.y"]
        model = getattr(distls, name)(**params)
        model.fit(x, y, **({"sample_weight": known[f"{data}.weight"]} if weighted else {}))
        return estimated(model, x)

    return run


def stream(name: str, data: str, cuts: Sequence[int], **params: Any) -> Callable[[Book], Entry]:
    """Return the case of an estimator that learns from blocks of rows, and travels between two of them."""

    def run(book: Book) -> Entry:
        known = arrays()
        x, y = known[f"{data}.x"], known[f"{data}.y"]
        model, first = getattr(distls, name)(**params), {}
        if "Regressor" not in name:
            first = {"classes": np.unique(y)}
        for start, stop in zip([0, *cuts], [*cuts, x.shape[0]], strict=True):
            model.partial_fit(x[start:stop], y[start:stop], **(first if start == 0 else {}))
            model = pickle.loads(pickle.dumps(model))
        return estimated(model, x)

    return run


def estimated_from_dataset(book: Book) -> Entry:
    """Train an estimator on a data set, twice, and predict for another."""
    model = distls.MCIDClassifier(passes=2, warm_start=True, random_state=2)
    for _ in range(2):
        model.fit(str(book.needed("data", "sparse")))
    return {"coef_": digest(model.coef_), "predict": digest(model.predict(str(book.held_out("sparse"))))}


def estimated_from_chunks(book: Book) -> Entry:
    """Train an estimator on a dask array and predict for one."""
    lazy = lazy_arrays()
    model = distls.StochasticClassifier(passes=2).fit(lazy["lazy.dense"], lazy["lazy.y"])
    return estimated(model, lazy["lazy.dense"])


def refused(book: Book, do: Callable[[Book], Any]) -> Entry:
    """Return with which words something is refused."""
    try:
        do(book)
    except Exception as error:
        return {"refused": book.plain(f"{type(error).__name__}: {error}")}
    return {"refused": None}


def refused_ingest(*sources: str, **options: Any) -> Callable[[Book], Any]:
    """Return an ingest to be refused."""
    case = ingest_of(*sources, **options)

    def run(book: Book) -> None:
        out = book.out / "data" / "refused"
        shutil.rmtree(out, ignore_errors=True)
        distls.ingest(book.resolved(case.sources), out, **book.options(case.options))

    return run


def refused_fit(method: str, dataset: str, **given: Any) -> Callable[[Book], Any]:
    """Return a fit to be refused."""
    case = fit_of(method, dataset, **given)

    def run(book: Book) -> None:
        data = book.needed("data", case.dataset)
        distls.fit(case.method, data, params=book.options(case.params), **book.options(case.options))

    return run


def refused_command(code: int, *arguments: str) -> Callable[[Book], Any]:
    """Return a command that is to end with this exit code."""

    def run(book: Book) -> None:
        raise RuntimeError(command(*map(book.resolved, arguments), code=code).strip())

    return run


REFUSED: dict[str, Callable[[Book], Any]] = {
    "bad-line": refused_ingest("bad.svm"),
    "missing-file": refused_ingest("nowhere.svm"),
    "two-formats": refused_ingest("sparse-0.svm", "table.csv"),
    "no-label-column": refused_ingest("table.csv"),
    "missing-values": refused_ingest("holes.csv", **_TABLE),
    "foreign-option": refused_ingest("sparse-0.svm", hash_bits=3),
    "unlike-width": refused_ingest("@array/dense.x", y="@array/dense.y", like="@data/numbers"),
    "unlike-label": refused_ingest("sparse-0.svm", like="@data/binary"),
    "no-labels": refused_ingest("dense-x.npy"),
    "by-columns": refused_ingest("by-columns.npy", labels="@source/dense-y.npy"),
    "bad-transform": refused_ingest("sparse-0.svm", transform="log2"),
    "bad-split": refused_ingest("sparse-0.svm", split="test=2"),
    "unknown-method": refused_fit("mcidd", "sparse"),
    "unknown-parameter": refused_fit("mcid", "sparse", alpa=1),
    "value-out-of-range": refused_fit("mcid", "sparse", alpha=0),
    "unknown-loss": refused_fit("mcid", "sparse", loss="squared"),
    "wrong-target": refused_fit("mcid", "labels"),
    "wrong-target-of-numbers": refused_fit("bcd", "numbers"),
    "no-columns": refused_fit("bcd", "words"),
    "no-certificate": refused_fit("mcid", "sparse", loss="perceptron", tol=1e-3),
    "patience-without-data": refused_fit("mcid", "sparse", patience=2),
    "grid-without-data": refused_fit("mcid", "sparse", alpha=[1e-3, 1e-4]),
    "unused-parameter": refused_fit("stagewise", "sparse", pca=3),
    "sparse-group-of-fobos": refused_fit("fobos", "sparse", penalty="sparse-group"),
    "init-of-another-width": refused_fit("mcid", "dense", init="@run/mcid-softmax"),
    "lanes-of-rls": refused_fit("rls", "numbers", lanes=2),
    "other-features": lambda book: distls.evaluate(book.needed("runs", "mcid-softmax"), book.held_out("dense")),
    "no-probabilities": lambda book: predicted_as(book, "mcid-hinge", "csv", proba=True),
    "top-of-too-many": lambda book: predicted_as(book, "mcid-softmax", "csv", top=9),
    "command-usage": refused_command(2, "fit", "mcid", "@data/sparse", "run", "-p", "los=log"),
    "command-failed": refused_command(1, "info", "@source/sparse-0.svm"),
    "command-unknown": refused_command(2, "fitt"),
    "memory": refused_command(
        1, "plan", "rls", "@data/svmlight-width", "--no-probe", "--workers", "2", "--memory-limit", "1GiB"
    ),
}

_MODEL: dict[str, Any] = {"passes": 2, "random_state": 1}

ESTIMATORS: dict[str, Callable[[Book], Entry]] = {
    "mcid": estimator("MCIDClassifier", "dense", **_MODEL),
    "mcid-weighted": estimator("MCIDClassifier", "sparse", weighted=True, loss="hinge", lanes=1, **_MODEL),
    "sgd": estimator("StochasticClassifier", "sparse", alpha=1e-3, **_MODEL),
    "sgdqn": estimator("SGDQNClassifier", "dense", loss="log", fit_intercept=True, **_MODEL),
    "adaline": estimator("AdalineClassifier", "dense", **_MODEL),
    "adaline-free": estimator("AdalineClassifier", "sparse", constrained=False, eta0=0.01, **_MODEL),
    "csgd": estimator("CSGDRegressor", "numbers", **_MODEL),
    "gls": estimator("GeneralizedLeastSquaresClassifier", "dense", passes=5),
    "gls-path": estimator("GeneralizedLeastSquaresRegressor", "numbers", alpha="path", folds=3),
    "cls": estimator("CalibratedLeastSquaresClassifier", "sparse", weighted=True, rounds=3),
    "stagewise": estimator("StagewiseClassifier", "dense", inner="logistic", stages=2, inner_rounds=2, **_FOURIER),
    "bcd": estimator("SparseMulticlassClassifier", "sparse", alpha=1e-2, loss="log"),
    "stream-mcid": stream("MCIDClassifier", "dense", [7, 200], alpha=1e-3),
    "stream-mcid-batches": stream("MCIDClassifier", "sparse", [80, 200], batch_size=20, loss="hinge"),
    "stream-sgd": stream("StochasticClassifier", "sparse", [100, 101, 400], loss="ovr_log"),
    "stream-sgdqn": stream("SGDQNClassifier", "dense", [64], diagonal="secant"),
    "stream-adaline": stream("AdalineClassifier", "dense", [50, 300]),
    "stream-csgd": stream("CSGDRegressor", "numbers", [111], eta0=0.02),
    "dataset": estimated_from_dataset,
    "dask": estimated_from_chunks,
}

USES: dict[str, Callable[[Book], Entry]] = {
    "columns-small": partial(sharded, dataset="sparse", shard_size=1024),
    "columns-of-dense": partial(sharded, dataset="dense64", shard_size=6000),
    "columns-of-text": partial(sharded, dataset="text-wide", shard_size=4096),
    "source-svmlight": partial(scored_sources, run="mcid-softmax", source="sparse-2.svm"),
    "source-gzip": partial(scored_sources, run="gls-softmax", source="sparse.svm.gz"),
    "source-text": partial(scored_sources, run="mcid-words", source="documents.txt", format="text"),
    "source-bare": partial(scored_sources, run="mcid-words", source="bare.txt", format="text", labelled=False),
    "source-csv": partial(scored_sources, run="mcid-table", source="new.csv"),
    "source-parquet": partial(scored_sources, run="mcid-table", source="table.parquet"),
    "predict-zarr": partial(predicted_as, run="sgd-log", kind="zarr", top=3, proba=True),
    "predict-top": partial(predicted_as, run="mcid-hinge", kind="csv", top=4),
    "predict-probabilities": partial(predicted_as, run="gls-softmax", kind="csv", top=2, proba=True),
    "predict-labels": partial(predicted_as, run="gls-logit", kind="zarr", top=2, proba=True),
    "predict-numbers": partial(predicted_as, run="gls-numbers", kind="zarr"),
    "predict-simplex": partial(predicted_as, run="cls", kind="csv", top=2, proba=True),
    "unknown-labels": scored_unknown,
}


def fit_cases(name: str, fit: Fit) -> dict[str, Callable[[Book], Entry]]:
    """Return the cases of a fit that was stopped, and of one by processes, by name."""
    cases: dict[str, Callable[[Book], Entry]] = {}
    for how in ENDS if fit.stop else ():
        cases[f"{how}/{name}"] = partial(stopped, how=how, name=name, case=fit)
    if fit.cluster:
        cases[f"fit-by-processes/{name}"] = partial(fitted_by_processes, name=name, case=fit)
    if fit.cluster and fit.stop:
        cases[f"resume-by-processes/{name}"] = partial(resumed_by_processes, name=name)
    return cases


def all_cases() -> dict[str, Callable[[Book], Entry]]:
    """Return all cases by name, in the order in which they are run."""
    cases: dict[str, Callable[[Book], Entry]] = {
        f"ingest/{name}": partial(ingested, name=name, case=ingest) for name, ingest in INGESTS.items()
    }
    cases |= {f"ingest/generated-{kind}": partial(generated, kind=kind) for kind in GENERATED}
    cases |= {f"large/generated-{kind}": partial(generated, kind=kind) for kind in GENERATED_LARGE}
    for name in ("sparse", "dense", "words"):
        cases[f"ingest-by-processes/{name}"] = partial(ingested_by_processes, name=name)
    for name in ("sparse", "csv"):
        cases[f"ingest-interrupted/{name}"] = partial(ingested_after_interrupt, name=name)
    cases |= {f"fit/{name}": partial(fitted, name=name, case=fit) for name, fit in FITS.items()}
    for name, fit in FITS.items():
        cases |= fit_cases(name, fit)
    cases |= {f"use/{name}": use for name, use in USES.items()}
    cases |= {f"estimator/{name}": learn for name, learn in ESTIMATORS.items()}
    cases |= {f"plan/{method}": partial(planned, method=method) for method in METHODS}
    cases |= {f"refused/{name}": partial(refused, do=do) for name, do in REFUSED.items()}
    return cases


CASES = all_cases()
