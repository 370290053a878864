"""Seeded source files of every input format, small."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


def linear_rows(
    n_rows: int, n_features: int, n_outputs: int, *, density: float = 1.0, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows (n_rows, n_features) of three decimals, and noisy linear scores (n_rows, n_outputs)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_features)) * np.linspace(0.5, 1.5, n_features)
    x[rng.random(x.shape) > density] = 0.0
    x = x.round(3) + 0.0
    weights, noise = rng.standard_normal((n_features, n_outputs)), rng.standard_normal((n_rows, n_outputs))
    return x, (x @ weights + 0.5 * noise).round(4) + 0.0


@cache
def arrays() -> dict[str, Any]:
    """Return the arrays in memory that cases ingest, and that sources are written from, by name."""
    made: dict[str, Any] = {}
    made["dense.x"], scores = linear_rows(480, 12, 3, seed=1)
    made["dense.y"] = scores.argmax(axis=1)
    made["dense.words"] = np.array(["low", "mid", "über"])[made["dense.y"]]
    made["dense.float32"] = made["dense.x"].astype(np.float32)
    x, scores = linear_rows(500, 40, 3, density=0.2, seed=2)
    made["sparse.x"], made["sparse.y"] = sp.csr_matrix(x), scores.argmax(axis=1)
    made["sparse.csc"] = sp.csc_array(x)
    made["sparse.weight"] = np.random.default_rng(3).integers(0, 5, 500) / 2
    made["numbers.x"], made["numbers.y"] = linear_rows(400, 10, 2, seed=4)
    made["numbers.one"] = made["numbers.y"][:, 0]
    patterns = np.random.default_rng(5).integers(0, 200, (4, 8, 8))
    made["images.y"] = np.random.default_rng(6).integers(0, 4, 240).astype(np.uint8)
    noise = np.random.default_rng(7).integers(0, 56, (240, 8, 8))
    made["images.x"] = (patterns[made["images.y"]] + noise).astype(np.uint8)
    return made


def lazy_arrays() -> dict[str, Any]:
    """Return some of the arrays as dask arrays of several chunks, by name."""
    import dask.array as da

    known = arrays()
    dense = da.from_array(known["dense.x"], chunks=(130, 5))
    sparse = da.from_array(known["sparse.x"].toarray(), chunks=(200, 40))
    return {
        "lazy.dense": dense,
        "lazy.y": da.from_array(known["dense.y"], chunks=130),
        "lazy.sparse": sparse.map_blocks(sp.csr_matrix, dtype=np.float64, meta=sp.csr_matrix((0, 0))),
        "lazy.classes": da.from_array(known["sparse.y"], chunks=200),
    }


def svmlight(x: NDArray[Any], labels: Sequence[object], base: int = 1) -> str:
    """Return rows as svmlight text."""
    lines = []
    for label, row in zip(labels, x, strict=True):
        pairs = " ".join(f"{j + base}:{row[j]:g}" for j in np.flatnonzero(row).tolist())
        lines.append(f"{label} {pairs}".rstrip() + "\n")
    return "".join(lines)


def write_svmlight(folder: Path) -> None:
    """Write svmlight text of every kind."""
    x, scores = linear_rows(750, 60, 4, density=0.2, seed=11)
    y = scores.argmax(axis=1)
    for part in range(3):
        rows = slice(250 * part, 250 * (part + 1))
        (folder / f"sparse-{part}.svm").write_text(svmlight(x[rows], y[rows]))
    text = svmlight(x[:300], y[:300]).encode()
    (folder / "sparse.svm.gz").write_bytes(gzip.compress(text, mtime=0))
    (folder / "sparse.svm.bz2").write_bytes(bz2.compress(text))
    (folder / "zero.svm").write_text(svmlight(x[:200], y[:200], base=0))
    (folder / "three.svm").write_text(svmlight(x[y < 3], y[y < 3]))
    ranks = text.decode().splitlines()[:200]
    queries = [line.replace(" ", f" qid:{k // 7} ", 1) for k, line in enumerate(ranks)]
    (folder / "queries.svm").write_text("# a comment\r\n\r\n" + " # of a row\r\n".join(queries) + "\n\n")
    bad = ["x 1:1", "1 3:1 2:1", "2 1:nan", "0 5:1e999", "1 7"]
    (folder / "bad.svm").write_text("\n".join(ranks[:50] + bad + ranks[50:100]) + "\n")
    (folder / "unlabelled.svm").write_text("".join(line.partition(" ")[2] + "\n" for line in ranks))
    x, scores = linear_rows(500, 40, 1, density=0.3, seed=12)
    (folder / "binary.svm").write_text(svmlight(x, np.where(scores[:, 0] > 0, "+1", "-1").tolist()))
    (folder / "number.svm").write_text(svmlight(x, [f"{score:g}" for score in scores[:, 0].tolist()]))
    (folder / "whole.svm").write_text(svmlight(x, scores[:, 0].round().astype(int).tolist()))
    x, scores = linear_rows(450, 30, 5, density=0.4, seed=13)
    sets = [",".join(map(str, np.flatnonzero(row > 1.0).tolist())) for row in scores]
    (folder / "labels.svm").write_text(svmlight(x, sets))


def write_vw(folder: Path) -> None:
    """Write Vowpal Wabbit text: numbers as names, words, sets of labels, none."""
    rng = np.random.default_rng(21)
    numbered, words, sets, unlabelled = [], [], [], []
    for row in range(240):
        columns = np.sort(rng.choice(50, 7, replace=False)).tolist()
        values = rng.integers(1, 90, 7).tolist()
        pairs = " ".join(f"{c}:{v / 10:g}" for c, v in zip(columns, values, strict=True))
        label, importance = rng.integers(3), rng.integers(1, 4) / 2
        numbered.append(f"{label} |f {pairs}\n")
        tagged = " ".join(f"w{c % 20}:{v}" for c, v in zip(columns, values, strict=True))
        words.append(f"{label} {importance:g} 0.5 'row{row}|words {tagged}|size:0.5 width:{values[0]} tall :2\n")
        sets.append(f"{','.join(map(str, columns[: label + 1]))} |f {pairs}\n")
        unlabelled.append(f"'tag |f {pairs}\n")
    (folder / "numbered.vw").write_text("".join(numbered))
    (folder / "words.vw").write_text("".join(words))
    (folder / "words.vw.gz").write_bytes(gzip.compress("".join(words).encode(), mtime=0))
    (folder / "labels.vw").write_text("".join(sets))
    (folder / "unlabelled.vw").write_text("".join(unlabelled))


def table_rows(n_rows: int, seed: int, *, holes: bool = False) -> list[list[Any]]:
    """Return rows of id, age, job, size, weight and group; with `holes` some ages and jobs are missing."""
    rng = np.random.default_rng(seed)
    jobs = ["baker", "smith, black", 'said "no"', "Köhler", "12"]
    rows: list[list[Any]] = []
    for k in range(n_rows):
        age, job, group = int(rng.integers(20, 90)), jobs[rng.integers(5)], int(rng.integers(3))
        size, weight = round(float(rng.normal(group)), 4), int(rng.integers(1, 4)) / 2
        rows.append([f"p{k}", age, job, size, weight, f"g{group}"])
        if holes and k % 9 == 0:
            rows[-1][1 + k % 2] = ["", "?", "NA"][k % 3]
    return rows


HEADER = ["id", "age", "job", "size", "weight", "group"]


def delimited(rows: Sequence[Sequence[Any]], **options: Any) -> str:
    """Return rows as text of a table."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n", **options).writerows(rows)
    return file.getvalue()


def write_tables(folder: Path) -> None:
    """Write tables of text."""
    rows, new = table_rows(300, 31), table_rows(80, 32)
    (folder / "table.csv").write_text(delimited([HEADER, *rows]))
    (folder / "table.csv.gz").write_bytes(gzip.compress(delimited([HEADER, *rows]).encode(), mtime=0))
    (folder / "table.tsv").write_text(delimited([HEADER, *rows], delimiter="\t"))
    (folder / "semicolon.txt").write_text(delimited([HEADER, *rows], delimiter=";"))
    (folder / "holes.csv").write_text(delimited([HEADER, *table_rows(300, 33, holes=True)]))
    order = [3, 5, 2, 0, 1, 4]
    new[5][2] = "stranger"
    (folder / "new.csv").write_text(delimited([[row[k] for k in order] for row in [HEADER, *new]]))
    known = arrays()
    numbers = [[*row, y] for row, y in zip(known["dense.x"].tolist(), known["dense.y"].tolist(), strict=True)]
    (folder / "numbers.csv").write_text(delimited(numbers[:300]))
    (folder / "more.csv").write_text(delimited(numbers[300:]))


def documents(n_rows: int, seed: int) -> list[tuple[str, str]]:
    """Return labels and documents."""
    words = ["sun", "rain", "Wind", "über", "snow", "fog", "hail", "ice"]
    labels = ["greeting", "order, big", "Ärger"]
    rng, made = np.random.default_rng(seed), []
    for _ in range(n_rows):
        code = int(rng.integers(3))
        share = np.roll([0.3, 0.3, 0.2, *[0.04] * 5], 2 * code)
        made.append((labels[code], " ".join(rng.choice(words, rng.integers(1, 12), p=share).tolist())))
    return made


def write_documents(folder: Path) -> None:
    """Write raw text: plain lines and JSON lines."""
    rows = documents(360, 41)
    (folder / "documents.txt").write_text("".join(f"{label}\t{text}\n" for label, text in rows), "utf-8")
    (folder / "bare.txt").write_text("".join(f"{text}\n" for _, text in rows[:90]), "utf-8")
    lines = [
        {"id": k, "kind": label, "body": text, "importance": k % 3 / 2, "tags": sorted({label, text.split()[0]})}
        for k, (label, text) in enumerate(rows)
    ]
    written = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "documents.jsonl").write_text(written)
    (folder / "documents.jsonl.gz").write_bytes(gzip.compress(written.encode(), mtime=0))


def write_parquet(folder: Path) -> None:
    """Write tables of parquet: words and numbers, dictionaries, sparse rows, vectors, with holes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(name: str, columns: dict[str, Any]) -> None:
        pq.write_table(pa.table(columns), folder / name, row_group_size=90)

    columns = dict(zip(HEADER, map(list, zip(*table_rows(300, 31), strict=True)), strict=True))
    write("table.parquet", columns)
    write("dictionary.parquet", columns | {"job": pa.array(columns["job"]).dictionary_encode()})
    holed = [None if k % 8 == 0 else age for k, age in enumerate(columns["age"])]
    write("holes.parquet", columns | {"age": pa.array(holed, pa.int32())})
    known = arrays()
    x, y = known["sparse.x"], known["sparse.y"].tolist()
    bounds = list(zip(x.indptr[:-1].tolist(), x.indptr[1:].tolist(), strict=True))
    lists = {
        "indices": [x.indices[a:b].tolist() for a, b in bounds],
        "values": [x.data[a:b].astype(np.float32).tolist() for a, b in bounds],
    }
    write("pairs.parquet", lists | {"y": y})
    write("named.parquet", {"i": lists["indices"], "v": lists["values"], "y": y})
    vectors = known["dense.float32"].tolist()
    write("vectors.parquet", {"a": known["dense.x"][:, 0], "e": vectors, "y": known["dense.words"].tolist()})


def write_anndata(folder: Path) -> None:
    """Write AnnData stores: .h5ad, and zarr of both versions."""
    import anndata
    import pandas

    known = arrays()
    labels = np.array(["T cell", "B cell", "Läufer"])[known["sparse.y"]]
    obs = pandas.DataFrame(
        {
            "kind": pandas.Categorical(labels),
            "code": known["sparse.y"],
            "weight": known["sparse.weight"],
            "score": known["sparse.y"] + 0.5,
        },
        index=[f"r{k}" for k in range(500)],
    )
    var = pandas.DataFrame(index=[f"gene {k}" for k in range(40)])
    x = known["sparse.x"].astype(np.float32)
    anndata.AnnData(x, obs=obs, var=var).write_h5ad(folder / "sparse.h5ad")
    anndata.AnnData(x.toarray(), obs=obs, var=var).write_h5ad(folder / "dense.h5ad")
    for version in (2, 3):
        with anndata.settings.override(zarr_write_format=version):
            anndata.AnnData(x, obs=obs, var=var).write_zarr(folder / f"version{version}.zarr")


def write_arrays(folder: Path) -> None:
    """Write npy, npz and IDX files."""
    known = arrays()
    np.save(folder / "dense-x.npy", known["dense.x"])
    np.save(folder / "dense-32.npy", known["dense.float32"])
    np.save(folder / "by-columns.npy", np.asfortranarray(known["dense.float32"]))
    np.save(folder / "dense-y.npy", known["dense.y"])
    np.save(folder / "words-y.npy", known["dense.words"])
    np.save(folder / "numbers-y.npy", known["numbers.y"])
    np.save(folder / "numbers-x.npy", known["numbers.x"])
    np.savez(folder / "dense.npz", X=known["dense.x"], y=known["dense.y"])
    sp.save_npz(folder / "csr.npz", known["sparse.x"])
    np.save(folder / "sparse-y.npy", known["sparse.y"])
    for name in ("images.x", "images.y"):
        array = known[name]
        data = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()
        (folder / f"{name}.idx").write_bytes(data)
        (folder / f"{name}.idx.gz").write_bytes(gzip.compress(data, mtime=0))


WRITERS = (
    write_svmlight, write_vw, write_tables, write_documents, write_parquet, write_anndata, write_arrays,
)  # fmt: skip
