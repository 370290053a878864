"""The ingests and fits that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ingest:
    """An ingest.

    A value that is "@source/NAME", "@data/NAME", "@run/NAME" or "@array/NAME" stands for that path or array.

    Attributes
    ----------
    sources : str or tuple of str
    options : mapping
        Keywords of `distls.ingest`.
    """

    sources: str | tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def ingest_of(*sources: str, **options: Any) -> Ingest:
    """Return the ingest of files in FOLDER/sources, or of one array ("@array/NAME")."""
    named = tuple(source if source.startswith("@") else f"@source/{source}" for source in sources)
    return Ingest(named[0] if len(named) == 1 else named, options)


@dataclass(frozen=True)
class Fit:
    """A fit.

    Attributes
    ----------
    method, dataset : str
        The name of a case of ingest.
    params, options : mapping
        Parameters of the method, and keywords of `distls.fit`; with "@" as in `Ingest`.
    stop : int
        With 2 or more, runs are kept that were interrupted and killed in this round, and copies of them resumed.
    cluster : bool
        Whether to do it by two processes too.
    """

    method: str
    dataset: str
    params: Mapping[str, Any]
    options: Mapping[str, Any]
    stop: int = 0
    cluster: bool = False


_OPTIONS = ("passes", "tol", "rtol", "eval_data", "eval_every", "patience", "select", "seed")


def fit_of(method: str, dataset: str, *, stop: int = 0, cluster: bool = False, **given: Any) -> Fit:
    """Return a fit whose options and parameters are given side by side."""
    options = {name: given.pop(name) for name in _OPTIONS if name in given}
    return Fit(method, dataset, given, options, stop, cluster)


# Data that are trained on, with a quarter of the rows held out as NAME-test, in several partitions.
BASES: dict[str, Ingest] = {
    "sparse": ingest_of("sparse-0.svm", "sparse-1.svm", "sparse-2.svm", partition_size=8192, columns=True),
    "binary": ingest_of("binary.svm", partition_size=8192, columns=True),
    "number": ingest_of("number.svm", partition_size=8192),
    "labels": ingest_of("labels.svm", multilabel=True, partition_size=8192, columns=True),
    "dense": ingest_of("dense-x.npy", labels="@source/dense-y.npy", partition_size=4096, columns=True),
    "dense64": ingest_of(
        "dense-x.npy", labels="@source/words-y.npy", partition_size=8192, dtype="float64", transform="standardize"
    ),
    "weighted": ingest_of(
        "@array/sparse.x", y="@array/sparse.y", sample_weight="@array/sparse.weight", partition_size=8192,
        columns=True,
    ),
    "numbers": ingest_of("@array/numbers.x", y="@array/numbers.y", partition_size=4096),
    "images": ingest_of(
        "images.x.idx.gz", labels="@source/images.y.idx.gz", transform="scale=255", partition_size=8192
    ),
    "words": ingest_of(
        "documents.txt", format="text", n_features=64, transform="log1p,idf,l2norm", partition_size=4096
    ),
}  # fmt: skip
BASES = {name: Ingest(base.sources, {**base.options, "split": ("test=0.25",)}) for name, base in BASES.items()}

_TABLE: dict[str, Any] = {"label_column": "group", "weight_column": "weight", "ignore_columns": "id"}
_SMALL: dict[str, Any] = {"n_features": 128, "label_column": "kind"}

INGESTS: dict[str, Ingest] = BASES | {
    # svmlight
    "svmlight-gzip": ingest_of("sparse.svm.gz"),
    "svmlight-bz2": ingest_of("sparse.svm.bz2", partition_size=4096),
    "svmlight-base-0-found": ingest_of("zero.svm"),
    "svmlight-base-0-asked": ingest_of("sparse-0.svm", zero_based="yes"),
    "svmlight-base-1-asked": ingest_of("sparse-0.svm", zero_based=False),
    "svmlight-three": ingest_of("three.svm", n_features=60),
    "svmlight-queries": ingest_of("queries.svm"),
    "svmlight-bad-skipped": ingest_of("bad.svm", on_error="skip"),
    "svmlight-no-shuffle": ingest_of("sparse-0.svm", "sparse-1.svm", shuffle=False, partition_size=4096),
    "svmlight-seed": ingest_of("sparse-0.svm", "sparse-1.svm", seed=7, partition_size=4096),
    "svmlight-unlabelled": ingest_of("unlabelled.svm", unlabelled=True, partition_size=4096),
    "svmlight-unlabelled-shuffled": ingest_of("unlabelled.svm", unlabelled=True, shuffle=True),
    "svmlight-continuous": ingest_of("whole.svm", target="continuous", split={"a": 0.3, "b": 0.2}),
    "svmlight-whole": ingest_of("whole.svm", target="class"),
    "svmlight-width": ingest_of("sparse-0.svm", n_features=100000, partition_size=4096),
    "svmlight-min-count": ingest_of("sparse-0.svm", min_count=50, split="test=0.2"),
    "svmlight-scale": ingest_of("labels.svm", multilabel=True, transform=["scale=2", "l2norm"]),
    "svmlight-standardize": ingest_of("sparse-0.svm", transform="standardize", dtype="float64"),
    "svmlight-none": ingest_of("sparse-0.svm", compress="none"),
    "svmlight-lz4": ingest_of("sparse-0.svm", compress="lz4"),
    "svmlight-zstd": ingest_of("sparse-0.svm", compress="zstd", dtype="float64"),
    "svmlight-like": ingest_of("zero.svm", like="@data/svmlight-base-0-found", shuffle=False),
    "svmlight-like-run": ingest_of("sparse-0.svm", like="@run/mcid-softmax", shuffle=False),
    # Vowpal Wabbit
    "vw-numbered": ingest_of("numbered.vw", partition_size=4096),
    "vw-numbered-hashed": ingest_of("numbered.vw", hash_bits=7),
    "vw-words": ingest_of("words.vw"),
    "vw-words-narrow": ingest_of("words.vw.gz", hash_bits=6, partition_size=4096),
    "vw-labels": ingest_of("labels.vw", multilabel=True),
    "vw-unlabelled": ingest_of("unlabelled.vw", unlabelled=True),
    "vw-like": ingest_of("words.vw", like="@data/vw-words-narrow", shuffle=False),
    "vw-idf": ingest_of("numbered.vw", min_count=20, transform="log1p,idf,l2norm", split="test=0.2"),
    "vw-like-transforms": ingest_of("numbered.vw", like="@data/vw-idf", shuffle=False),
    # tables
    "csv": ingest_of("table.csv", partition_size=4096, **_TABLE),
    "csv-gzip": ingest_of("table.csv.gz", shuffle=False, **_TABLE),
    "csv-holes": ingest_of("holes.csv", na=-1, **_TABLE),
    "csv-categorical": ingest_of("table.csv", categorical=["age"], **_TABLE),
    "csv-position": ingest_of("table.csv", label_column=5, weight_column=-2, ignore_columns=["id", "job"]),
    "csv-continuous": ingest_of("table.csv", label_column="size", ignore_columns="id", transform="standardize"),
    "csv-no-header": ingest_of("numbers.csv", "more.csv", label_column="last", header=False, dtype="float64"),
    "csv-like": ingest_of("new.csv", like="@data/csv", ignore_columns="id", shuffle=False),
    "tsv": ingest_of("table.tsv", **_TABLE),
    "csv-semicolon": ingest_of("semicolon.txt", format="csv", separator=";", header="yes", **_TABLE),
    # raw text
    "text-pairs": ingest_of("documents.txt", format="text", n_features=256, ngrams="1,2", binary=True),
    "text-characters": ingest_of(
        "documents.txt", format="text", n_features=300, ngrams=(2, 3), analyzer="char_wb", lowercase=False
    ),
    "text-signs": ingest_of("documents.txt", format="text", n_features=32, alternate_sign=True, analyzer="char"),
    "text-wide": ingest_of("documents.txt", format="text", min_count=2, transform="log1p"),
    "text-unlabelled": ingest_of("bare.txt", format="text", unlabelled=True, n_features=128),
    "text-json": ingest_of("documents.jsonl", text_column="body", weight_column="importance", **_SMALL),
    "text-json-gzip": ingest_of("documents.jsonl.gz", label_column="tags", multilabel=True, n_features=128),
    "text-like": ingest_of("bare.txt", format="text", like="@data/words", unlabelled=True),
    # parquet
    "parquet": ingest_of("table.parquet", partition_size=4096, **_TABLE),
    "parquet-dictionary": ingest_of("dictionary.parquet", shuffle=False, **_TABLE),
    "parquet-holes": ingest_of("holes.parquet", na="0.5", **_TABLE),
    "parquet-pairs": ingest_of("pairs.parquet", label_column="y", partition_size=4096),
    "parquet-named-pairs": ingest_of("named.parquet", label_column="y", list_columns="i,v", n_features=64),
    "parquet-vectors": ingest_of("vectors.parquet", label_column="y", compress="lz4"),
    "parquet-like": ingest_of("new.csv", like="@data/parquet", ignore_columns="id"),
    # AnnData
    "anndata-h5ad": ingest_of("sparse.h5ad", label_column="kind", weight_column="weight", partition_size=8192),
    "anndata-h5ad-dense": ingest_of("dense.h5ad", label_column="code", transform="standardize"),
    "anndata-zarr-2": ingest_of("version2.zarr", label_column="kind", shuffle=False),
    "anndata-zarr-3": ingest_of("version3.zarr", label_column="score", dtype="float64"),
    "anndata-like": ingest_of("version2.zarr", like="@data/anndata-h5ad", shuffle=False),
    # arrays
    "npy-float32": ingest_of("dense-32.npy", labels="@source/words-y.npy", partition_size=4096),
    "npy-two": ingest_of("dense-x.npy", "dense-32.npy", unlabelled=True, partition_size=4096),
    "npy-numbers": ingest_of("numbers-x.npy", labels="@source/numbers-y.npy", split="test=0.2"),
    "npz-dense": ingest_of("dense.npz", transform="standardize", compress="zstd"),
    "npz-csr": ingest_of("csr.npz", labels="@source/sparse-y.npy", partition_size=8192),
    "idx": ingest_of("images.x.idx", labels="@source/images.y.idx", shuffle=False),
    "memory-dense": ingest_of("@array/dense.float32", y="@array/dense.words", partition_size=4096),
    "memory-csc": ingest_of("@array/sparse.csc", y="@array/sparse.y", dtype="float64", columns=True),
    "memory-one-number": ingest_of("@array/numbers.x", y="@array/numbers.one", dtype="float64"),
    "memory-unlabelled": ingest_of("@array/dense.x", unlabelled=True),
    "dask-dense": ingest_of("@array/lazy.dense", y="@array/lazy.y", partition_size=4096),
    "dask-sparse": ingest_of("@array/lazy.sparse", y="@array/lazy.classes", partition_size=8192),
}

# Kinds of synthetic data; test sets have the sizes of their papers.
GENERATED = ("rcv1-4", "rcv1-53", "dense", "csgd")
GENERATED_LARGE = ("odp", "csgd-wide", "alpha", "axis")

PENALTIES = ("l1l2", "l1", "l2", "elasticnet", "l1linf", "sparse-group")
_SCHEDULES = ("inverse", "constant", "sqrt", "two-phase")
_SGD_LOSSES = ("log", "hinge", "perceptron", "ovr_log", "ovr_hinge", "ovr_squared_hinge", "squared")
_SPARSE_LOSSES = ("multitask_squared_hinge", "log")
_ROUNDS: dict[str, Any] = {"sync_bytes": 500, "round_bytes": 2000}
_SELECT: dict[str, Any] = {"select": "@data/sparse-test"}
_EVAL: dict[str, Any] = {"eval_data": "@data/sparse-test"}
_FOURIER: dict[str, Any] = {"features": "fourier", "block_size": 24}
_MASKS: dict[str, Any] = {"image": "8x8x1", "mask_side": 3, "pool": 2}
_CENTRED: dict[str, Any] = {"loss": "squared", "fit_intercept": True, "schedule": "sqrt", "eta0": 0.02}

FITS: dict[str, Fit] = {
    "mcid-softmax": fit_of("mcid", "sparse", passes=3, **_EVAL),
    "mcid-hinge": fit_of("mcid", "sparse", passes=2, loss="hinge", alpha=1e-3, average="all", lanes=1),
    "mcid-perceptron": fit_of("mcid", "sparse", passes=2, loss="perceptron", average="none", lanes=2),
    "mcid-batch": fit_of(
        "mcid", "dense64", passes=3, batch_size=10, average="all", fit_intercept=True, dtype="float64"
    ),
    "mcid-balanced": fit_of("mcid", "dense", passes=2, class_weight="balanced", lanes=3, shuffle=False, cluster=True),
    "mcid-class-weights": fit_of("mcid", "dense", passes=1.5, class_weight={"0": 2.5}, loss="hinge"),
    "mcid-t0": fit_of("mcid", "binary", passes=2, t0=50, lanes=1, alpha=1e-2, seed=5),
    "mcid-weighted": fit_of("mcid", "weighted", passes=2, fit_intercept=True),
    "mcid-rounds": fit_of("mcid", "sparse", passes=3, lanes=4, stop=4, cluster=True, **_ROUNDS),
    "mcid-words": fit_of("mcid", "words", passes=3, alpha=1e-3),
    "mcid-init": fit_of("mcid", "sparse", passes=1, init="@run/mcid-softmax"),
    "mcid-select": fit_of("mcid", "sparse", passes=2, stop=4, cluster=True, alpha=[1e-4, 1e-3, 1e-2], **_SELECT),
    "mcid-patience": fit_of("mcid", "sparse", passes=12, patience=1, alpha=1e-3, stop=3, **_EVAL),
    "mcid-tol": fit_of("mcid", "sparse", tol=5e-2, alpha=0.1),
    "mcid-evaluations": fit_of("mcid", "sparse", passes=4, eval_every=2, loss="hinge", alpha=1e-2, **_EVAL),
    "mcid-wide": fit_of("mcid", "svmlight-width", passes=2),
    "mcid-three": fit_of("mcid", "svmlight-three", passes=2, alpha=1e-3),
    "mcid-table": fit_of("mcid", "csv", passes=2, alpha=1e-2, fit_intercept=True),
    "mcid-documents": fit_of("mcid", "text-wide", passes=2),
    "ovr-pegasos": fit_of("ovr-pegasos", "sparse", passes=2, alpha=1e-3),
    "ovr-pegasos-binary": fit_of("ovr-pegasos", "binary", passes=2, fit_intercept=True, dtype="float64"),
    "ovr-logistic": fit_of("ovr-logistic", "dense", passes=2, alpha=1e-3, batch_size=4),
    "ovr-logistic-weighted": fit_of("ovr-logistic", "weighted", passes=2, average="none", lanes=2),
    **{f"sgd-{loss}": fit_of("sgd", "sparse", passes=2, loss=loss) for loss in _SGD_LOSSES},
    **{
        f"sgd-{schedule}": fit_of("sgd", "dense", passes=2, schedule=schedule, loss="log", alpha=1e-4)
        for schedule in _SCHEDULES
    },
    "sgd-defaults-wide": fit_of("sgd", "svmlight-width", passes=1),
    "sgd-intercept": fit_of("sgd", "dense64", passes=2, fit_intercept=True, dtype="float64", alpha=1e-3, lanes=1),
    "sgd-tail": fit_of("sgd", "dense", passes=3, schedule="sqrt", eta0=0.1, average="tail", batch_size=5),
    "sgd-switch": fit_of("sgd", "binary", passes=2, schedule="two-phase", eta0=0.1, switch=30, loss="ovr_hinge"),
    "sgd-running": fit_of("sgd", "numbers", passes=2, center="running", **_CENTRED),
    "sgd-global": fit_of("sgd", "numbers", passes=2, center="global", lanes=1, **_CENTRED),
    "sgd-number": fit_of("sgd", "number", passes=2, loss="squared", fit_intercept=True, schedule="sqrt"),
    "sgd-weighted": fit_of("sgd", "weighted", passes=2, class_weight="balanced", fit_intercept=True),
    "sgd-rounds": fit_of("sgd", "sparse", passes=3, lanes=3, stop=3, **_ROUNDS),
    "sgd-grid": fit_of("sgd", "sparse", passes=1, alpha=[0.0, 1e-3], loss=["log", "hinge"], **_SELECT),
    "sgd-init": fit_of("sgd", "sparse", passes=1, init="@run/sgd-hinge"),
    "sgd-fourier": fit_of("sgd", "dense", passes=2, stop=2, loss="log", **_FOURIER),
    "sgd-logits": fit_of("sgd", "sparse", passes=2, features="logits", block_size=32, pca=5, loss="hinge"),
    "sgd-polynomials": fit_of("sgd", "dense", passes=2, features="polynomials", block_size=20, degree=3),
    "sgd-masks": fit_of("sgd", "images", passes=2, features="random-masks", block_size=32, **_MASKS),
    "asgd": fit_of("asgd", "sparse", passes=2, eta0=0.5, cluster=True),
    "asgd-hinge": fit_of("asgd", "binary", passes=2, loss="ovr_hinge", schedule="constant", average="tail", stop=2),
    "asgd-numbers": fit_of("asgd", "numbers", passes=2, loss="squared", fit_intercept=True, eta0=0.02),
    "svmsgd2": fit_of("svmsgd2", "sparse", passes=2),
    "svmsgd2-hinge": fit_of("svmsgd2", "binary", passes=2, loss="hinge", skip=4, t0=1e4, fit_intercept=True),
    "svmsgd2-log": fit_of("svmsgd2", "weighted", passes=2, loss="log", alpha=1e-3, dtype="float64"),
    "sgdqn": fit_of("sgdqn", "sparse", passes=3, lanes=2, stop=3, **_ROUNDS),
    "sgdqn-secant": fit_of("sgdqn", "dense", passes=2, diagonal="secant", loss="hinge", alpha=1e-3),
    "sgdqn-paper": fit_of("sgdqn", "binary", passes=2, diagonal="paper", loss="log", lanes=1),
    "sgdqn-log": fit_of("sgdqn", "dense64", passes=2, loss="log", fit_intercept=True, skip=3),
    "csgd": fit_of("csgd", "numbers", passes=3, stop=3, cluster=True, **_ROUNDS),
    "csgd-global": fit_of("csgd", "number", passes=2, center="global", eta0=0.05, alpha=1e-3),
    "csgd-classes": fit_of("csgd", "sparse", passes=2, switch=40, eta0=0.1, dtype="float64"),
    "csgd-no-intercept": fit_of("csgd", "dense", passes=2, fit_intercept=False, eta0=0.05, lanes=1),
    "ncsgd": fit_of("ncsgd", "numbers", passes=2),
    "ncsgd-sparse": fit_of("ncsgd", "number", passes=2, schedule="inverse", eta0=0.1, lanes=2),
    "adaline": fit_of("adaline", "sparse", passes=2),
    "adaline-two-phase": fit_of("adaline", "dense", passes=2, schedule="two-phase", alpha=1e-3, eta0=0.05),
    "c-adaline": fit_of("c-adaline", "sparse", passes=2, class_weight="balanced"),
    "c-adaline-global": fit_of("c-adaline", "dense", passes=2, center="global", schedule="constant", stop=2),
    "rls": fit_of("rls", "numbers", passes=2, round_bytes=6000, stop=3),
    "rls-squared-hinge": fit_of("rls", "binary", passes=1, loss="squared_hinge", alpha=1e-3),
    "rls-log": fit_of("rls", "dense", passes=1, loss="log", fit_intercept=False, dtype="float64"),
    "olbfgs": fit_of("olbfgs", "sparse", passes=2, round_bytes=10000, stop=3),
    "olbfgs-log": fit_of("olbfgs", "dense", passes=2, loss="log", rank=3, fit_intercept=True),
    "olbfgs-softmax": fit_of("olbfgs", "dense64", passes=2, loss="softmax", tau=100, dtype="float64"),
    "olbfgs-squared": fit_of("olbfgs", "numbers", passes=1, loss="squared", eta0=0.01, damping=0.5),
    **{f"bcd-{name}": fit_of("bcd", "sparse", passes=15, penalty=name, alpha=1e-2) for name in PENALTIES},
    **{f"bcd-{loss}": fit_of("bcd", "dense", passes=15, loss=loss, alpha=1e-2) for loss in _SPARSE_LOSSES},
    "bcd-rounds": fit_of("bcd", "sparse", passes=30, alpha=5e-3, lanes=3, tau=0, stop=3, cluster=True),
    "bcd-constant": fit_of("bcd", "sparse", passes=5, step="constant", alpha=1e-2, lanes=1, fit_intercept=True),
    "bcd-paper": fit_of("bcd", "dense", passes=5, active_sweeps=0, violation="max", dtype="float32"),
    "bcd-debias": fit_of("bcd", "sparse", passes=150, debias=1e-3, alpha=3e-2, tau=1e-2),
    "bcd-labels": fit_of("bcd", "labels", passes=15, alpha=1e-2, loss="multitask_squared_hinge"),
    "bcd-ranking": fit_of("bcd", "labels", passes=15, alpha=1e-2, eval_data="@data/labels-test"),
    "bcd-weighted": fit_of("bcd", "weighted", passes=15, alpha=1e-2, class_weight="balanced", loss="log"),
    "bcd-ratio": fit_of("bcd", "binary", passes=15, alpha=1e-2, penalty="sparse-group", l1_ratio=0.2),
    "bcd-init": fit_of("bcd", "sparse", passes=10, alpha=5e-3, init="@run/bcd-l1l2"),
    "bcd-path": fit_of("bcd", "sparse", passes=15, alpha="path", alphas=4, stop=5, cluster=True, **_SELECT),
    "bcd-path-listed": fit_of("bcd", "dense", passes=10, alpha="path", alphas="1e-3:1e-1:1e-2", penalty="l1"),
    **{
        f"sdca-{name}": fit_of("sdca", "sparse", passes=4, loss=name, alpha=1e-3)
        for name in ("softmax", "crammer_singer", "ovr_hinge", "ovr_squared_hinge", "ovr_log")
    },
    "sdca-binary": fit_of("sdca", "binary", passes=4, alpha=1e-3, lanes=2, cluster=True),
    "sdca-elasticnet": fit_of("sdca", "dense", passes=4, penalty="elasticnet", alpha=1e-3, l1_ratio=0.3),
    "sdca-numbers": fit_of("sdca", "numbers", passes=4, loss="squared", alpha=1e-2, dtype="float64"),
    "sdca-intercept": fit_of("sdca", "sparse", passes=4, alpha=1e-3, fit_intercept=True, intercept_scaling=1.0),
    "sdca-weighted": fit_of("sdca", "weighted", passes=3, alpha=1e-3, class_weight="balanced", loss="ovr_log"),
    "sdca-labels": fit_of("sdca", "labels", passes=3, alpha=1e-2, loss="ovr_log"),
    "sdca-init": fit_of("sdca", "sparse", passes=3, alpha=1e-3, init="@run/mcid-softmax"),
    "sdca-rtol": fit_of("sdca", "sparse", alpha=1e-2, rtol=1e-2, cluster=True),
    "sdca-path": fit_of("sdca", "sparse", passes=3, alpha="path", alphas="1e-2:1e-3", **_SELECT),
    "ovr-sdca": fit_of("ovr-sdca", "sparse", passes=4, alpha=1e-3),
    "sgd-path": fit_of("sgd", "sparse", passes=2, alpha="path", alphas="1e-3:1e-4:1e-5:1e-6", **_SELECT),
    "sgd-path-hinge": fit_of("sgd", "binary", passes=2, loss="ovr_hinge", alpha="path", alphas="1e-3:1e-4:1e-5"),
    "sgd-path-numbers": fit_of("sgd", "numbers", passes=2, loss="squared", alpha="path", alphas="1e-2:1e-3:1e-4"),
    "sgd-folds": fit_of("sgd", "sparse", passes=2, alpha="path", alphas="1e-3:1e-5", folds=3, cluster=True),
    "mcid-path": fit_of("mcid", "sparse", passes=2, alpha="path", alphas="1e-2:1e-3:1e-4", **_SELECT),
    "asgd-path": fit_of("asgd", "sparse", passes=2, alpha="path", alphas="1e-2:1e-3:1e-4", **_SELECT),
    "gls-path-folds": fit_of("gls", "dense", passes=10, alpha="path", alphas="1e-1:1e-2:1e-3", folds=3),
    "bcd-folds": fit_of("bcd", "sparse", passes=8, alpha="path", alphas="1e-2:5e-3", folds=2),
    **{f"fista-{name}": fit_of("fista", "sparse", passes=8, penalty=name, alpha=1e-2) for name in PENALTIES},
    **{f"fista-{loss}": fit_of("fista", "dense", passes=8, loss=loss, alpha=1e-2) for loss in _SPARSE_LOSSES},
    "fista-norm": fit_of("fista", "sparse", passes=40, step="constant", alpha=1e-2, stop=25, cluster=True),
    "fista-bound": fit_of("fista", "dense", passes=5, step="constant", lipschitz="bound", dtype="float32"),
    "fista-start": fit_of("fista", "weighted", passes=6, lipschitz=3.0, fit_intercept=True, lanes=2),
    "fista-labels": fit_of("fista", "labels", passes=6, alpha=1e-2),
    "fista-init": fit_of("fista", "sparse", passes=3, alpha=5e-3, init="@run/bcd-l1l2"),
    **{f"sparsa-{name}": fit_of("sparsa", "sparse", passes=8, penalty=name, alpha=1e-2) for name in PENALTIES},
    **{f"sparsa-{loss}": fit_of("sparsa", "dense", passes=8, loss=loss, alpha=1e-2) for loss in _SPARSE_LOSSES},
    "sparsa-descent": fit_of("sparsa", "weighted", passes=8, history=1, alpha=1e-3, stop=4),
    "sparsa-labels": fit_of("sparsa", "labels", passes=6, alpha=1e-2, fit_intercept=True),
    **{
        f"fobos-{name}": fit_of("fobos", "sparse", passes=2, penalty=name, alpha=1e-3, eta0=0.1)
        for name in PENALTIES[:-1]
    },
    **{f"fobos-{loss}": fit_of("fobos", "dense", passes=2, loss=loss) for loss in (*_SPARSE_LOSSES, "hinge")},
    "fobos-rounds": fit_of("fobos", "sparse", passes=3, lanes=4, fit_intercept=True, stop=3, **_ROUNDS),
    "gls-softmax": fit_of("gls", "sparse", passes=8, stop=4, cluster=True),
    "gls-logit": fit_of("gls", "labels", passes=8, link="logit", alpha=1e-3),
    "gls-identity": fit_of("gls", "dense", link="identity", alpha=1e-3, class_weight="balanced"),
    "gls-numbers": fit_of("gls", "numbers", link="identity", alpha=0),
    "gls-number-float32": fit_of("gls", "number", link="identity", dtype="float32", fit_intercept=False),
    "gls-identity-labels": fit_of("gls", "labels", link="identity"),
    "gls-paper": fit_of("gls", "dense", passes=6, lipschitz="paper", accelerate="none", alpha=1e-2, tol=1e-6),
    "gls-sharp": fit_of("gls", "binary", passes=6, lipschitz="sharp", link="logit", fit_intercept=False, lanes=1),
    "gls-start": fit_of("gls", "weighted", passes=6, lipschitz=0.05, dtype="float32"),
    "gls-init": fit_of("gls", "sparse", passes=3, init="@run/mcid-softmax"),
    "gls-path-identity": fit_of("gls", "numbers", link="identity", alpha="path", cluster=True),
    "gls-path-softmax": fit_of("gls", "dense", passes=30, alpha="path", folds=3, alphas="1:0.1:0.01", stop=4),
    "gls-path-logit": fit_of("gls", "binary", passes=20, alpha="path", folds=2, alphas="0.1:0.001", link="logit"),
    "gls-singular": fit_of("gls", "parquet-vectors", link="identity", alpha=0),
    "cls": fit_of("cls", "sparse", rounds=4, stop=3, cluster=True),
    "cls-basis": fit_of("cls", "dense", rounds=3, basis="1+3", alpha=0, fit_intercept=False, class_weight="balanced"),
    "cls-labels": fit_of("cls", "labels", rounds=3, basis=2),
    "cls-fourier": fit_of("cls", "dense", rounds=3, pca=4, dtype="float32", stop=3, **_FOURIER),
    "cls-masks": fit_of("cls", "images", rounds=2, features="random-masks", block_size=16, **_MASKS),
    "cls-init": fit_of("cls", "sparse", rounds=2, init="@run/gls-softmax", lanes=2),
    "stagewise-random": fit_of("stagewise", "sparse", block_size=13, stages=7, alpha=1e-2, stop=4, cluster=True),
    **{
        f"stagewise-{order}": fit_of("stagewise", "sparse", block_size=20, stages=4, order=order)
        for order in ("replacement", "frequency", "gradient")
    },
    "stagewise-calibrated": fit_of(
        "stagewise", "dense", inner="calibrated", stages=3, models=2, class_weight="balanced", stop=4, **_FOURIER
    ),
    "stagewise-logistic": fit_of(
        "stagewise", "dense", inner="logistic", stages=2, inner_rounds=4, accelerate="nesterov", stop=5, cluster=True,
        **_FOURIER,
    ),
    "stagewise-logistic-columns": fit_of(
        "stagewise", "sparse", inner="logistic", block_size=30, inner_rounds=3, dtype="float64", fit_intercept=False
    ),
    "stagewise-fourier": fit_of("stagewise", "numbers", stages=3, bandwidth=8.0, seed=3, stop=3, **_FOURIER),
    "stagewise-logits": fit_of("stagewise", "sparse", features="logits", pca=6, block_size=20, stages=2),
    "stagewise-polynomials": fit_of(
        "stagewise", "labels", features="polynomials", degree=3, block_size=24, stages=2, dtype="float64"
    ),
    "stagewise-random-masks": fit_of(
        "stagewise", "images", features="random-masks", block_size=24, expand=8, stages=2, rectify="absolute",
        inner="calibrated", **_MASKS,
    ),
    "stagewise-kmeans-masks": fit_of(
        "stagewise", "images", features="kmeans-masks", block_size=16, stages=2, contrast=True, threshold=0.1,
        lanes=1, **_MASKS,
    ),
    "stagewise-weighted": fit_of("stagewise", "weighted", bandwidth="median", stages=2, **_FOURIER),
    "stagewise-init": fit_of("stagewise", "sparse", block_size=20, stages=2, init="@run/gls-softmax"),
}  # fmt: skip

METHODS = (
    "mcid", "ovr-pegasos", "ovr-logistic", "sgd", "asgd", "svmsgd2", "sgdqn", "csgd", "ncsgd", "adaline",
    "c-adaline", "rls", "olbfgs", "bcd", "fista", "sparsa", "fobos", "gls", "cls", "stagewise",
)  # fmt: skip
