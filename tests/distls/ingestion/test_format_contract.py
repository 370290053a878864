"""What every format keeps: the same bits whatever runs an ingest, and however often it is killed; compressed text."""

import bz2
import csv
import gzip

import numpy as np
import pytest
from ingest_helpers import (
    csv_documents,
    file_bytes,
    make_documents,
    make_text,
    make_vw,
    make_words,
    rare_text,
    write_json,
)
from paper_files import write_alpha, write_cifar, write_directory, write_rcv1
from table_helpers import HEADER, OPTIONS, csv_text, expected, make_rows, write_rows

from distls import ingest, open_dataset
from distls.execution import ClusterOptions, open_executor
from distls.testing.formats import Dying, Killed, Reversed, read_all

SPLIT = {"partition_size": 4000, "split": ["test=0.25"], "seed": 3}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Several items of each source, and several blocks in each."""
    monkeypatch.setattr("distls.ingestion.request.source_plan.RANGE_BYTES", 2000)
    monkeypatch.setattr("distls.workers.ingestion.formats.documents._CHUNK_BYTES", 500)
    monkeypatch.setattr("distls.workers.ingestion.formats.document_records.CHUNK_ROWS", 7)


def svmlight(root):
    (root / "a.svm").write_text(make_text())
    return [root / "a.svm"], {**SPLIT, "transform": "log1p,idf,l2norm"}


def fitted(root):
    (root / "a.svm").write_text(rare_text())
    # more than two groups of partitions are fitted
    return [root / "a.svm"], {**SPLIT, "partition_size": 300, "transform": "idf,standardize", "min_count": 5}


def vw(root):
    for seed, name in enumerate(("a.vw", "b.vw")):
        (root / name).write_text(make_vw(300 - 220 * seed, seed))
    return [root / "a.vw", root / "b.vw"], {**SPLIT, "transform": "l2norm", "min_count": 2}


def json_lines(root):
    write_json(root / "a.jsonl", *make_documents())
    write_json(root / "b.jsonl.gz", *make_documents(80, seed=1), pack=gzip.compress)
    options = {"n_features": 64, "partition_size": 2000, "transform": "log1p,idf,l2norm"}
    return [root / "a.jsonl", root / "b.jsonl.gz"], {**SPLIT, **options}


def documents_of_a_table(root):
    csv_documents(root / "a.csv", *make_documents(90))
    return [root / "a.csv"], {**SPLIT, "text_column": "text", "n_features": 64, "partition_size": 500}


def table(root):
    rows = make_rows()
    rows[250][1] = "unknown"  # one more survey
    write_rows(root / "a.csv", rows, HEADER)
    return [root / "a.csv"], {**SPLIT, **OPTIONS}


def _frame():
    return pytest.importorskip("pandas").DataFrame(make_rows(), columns=HEADER)


def parquet(root):
    pytest.importorskip("pyarrow")
    _frame().to_parquet(root / "a.parquet", row_group_size=40)
    return [root / "a.parquet"], {**SPLIT, **OPTIONS}


def anndata(root, sparse=False):
    library, frame = pytest.importorskip("anndata"), _frame()
    frame.index = frame["id"]
    x = expected(make_rows())
    x = pytest.importorskip("scipy.sparse").csr_matrix(x) if sparse else x
    library.AnnData(x, obs=frame.drop(columns="id")).write_h5ad(root / "a.h5ad")
    return [root / "a.h5ad"], {
        **SPLIT, "label_column": "group", "weight_column": "weight", "partition_size": 3000,
    }  # fmt: skip


def sparse_anndata(root):
    return anndata(root, sparse=True)


def arrays_of_words(root):
    for name, array in zip(("x.npy", "y.npy"), make_words(), strict=True):
        np.save(root / name, array)
    return [root / "x.npy"], {**SPLIT, "labels": root / "y.npy", "partition_size": 2000}


def joined(root):
    """Labels of another file by id, their ancestors, rows left out."""
    write_rcv1(root)
    beside = {"labels": root / "rcv1-v2.topics.qrels", "label_map": root / "rcv1.topics.hier.orig"}
    rules = {"label_level": 1, "drop": "several,unknown,empty", "id_column": "label", "min_count": 2}
    return [root / "lyrl2004_vectors_train.dat"], {**SPLIT, **beside, **rules}


def ordered(root):
    """Labels of another file by position, in several items of two files."""
    _, y = write_alpha(root)
    (root / "b.dat").write_text((root / "alpha_train.dat").read_text()[:9000].rpartition("\n")[0] + "\n")
    n_rows = (root / "b.dat").read_text().count("\n")
    (root / "both.lab").write_text("".join(f"{label}\n" for label in [*y, *y[:n_rows]]))
    read = {"format": "csv", "separator": "space", "header": "no", "labels": root / "both.lab"}
    return [root / "alpha_train.dat", root / "b.dat"], {**SPLIT, **read, "partition_size": 2000}


def marked(root):
    write_directory(root, 160)  # of each class a number that four divides
    options = {
        "label_level": 2, "drop": "unknown", "id_column": "about", "n_features": 64, "partition_size": 800,
    }  # fmt: skip
    return [root / "content.rdf.u8.gz"], {**SPLIT, **options}


def cifar(root):
    write_cifar(root)
    return [root / f"data_batch_{number}.bin" for number in (1, 2)], {**SPLIT, "partition_size": 100_000}


SOURCES = {
    source.__name__: source
    for source in (
        *(svmlight, fitted, vw, json_lines, documents_of_a_table, table, parquet, anndata, sparse_anndata),
        *(arrays_of_words, joined, ordered, marked, cifar),
    )
}


def _bytes(root, name):
    return file_bytes(root / name), file_bytes(root / f"{name}-test")


@pytest.mark.fast_cases("svmlight$", "joined$")
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_bits_whatever_runs_it_and_wherever_it_is_killed(tmp_path, source):
    files, options = SOURCES[source](tmp_path)
    counter = Dying(10**6)
    ingest(files, tmp_path / "whole", **options, executor=counter)
    whole, n_tasks = _bytes(tmp_path, "whole"), 10**6 - counter.tasks
    assert n_tasks > 6
    ingest(files, tmp_path / "reversed", **options, executor=Reversed())
    assert _bytes(tmp_path, "reversed") == whole
    # in each stage, and once more in what was resumed
    kills = 0
    for share in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
        try:
            ingest(files, tmp_path / "killed", **options, executor=Dying(int(share * n_tasks)))
            break  # a resumed ingest may have fewer tasks
        except Killed:
            kills += 1
    else:
        ingest(files, tmp_path / "killed", **options)
    assert kills > 3
    assert _bytes(tmp_path, "killed") == whole
    ingest(files, tmp_path / "other", **{**options, "seed": 4})
    assert _bytes(tmp_path, "other") != whole
    counts = [open_dataset(tmp_path / name).meta.label_counts for name in ("whole", "whole-test")]
    assert [round((train + held) / 4) for train, held in zip(*counts, strict=True)] == counts[1]


def test_worker_processes_give_the_same_bits(tmp_path):
    executor, _ = open_executor(ClusterOptions(executor="dask", workers=2))
    try:
        for source in ("table", "parquet", "anndata", "joined"):
            files, options = SOURCES[source](tmp_path)
            for name, runner in ((f"{source}-1", "serial"), (f"{source}-2", executor)):
                ingest(files, tmp_path / name, **options, executor=runner)
            assert _bytes(tmp_path, f"{source}-1") == _bytes(tmp_path, f"{source}-2")
    finally:
        executor.close()


TEXTS = {
    "svmlight": (make_text(), {}),
    "vw": (make_vw(), {}),
    "csv": (csv_text(make_rows(), HEADER), OPTIONS),
    "text": ("".join(f"{k % 3}\t{'sun rain snow'[: k % 14]}\n" for k in range(300)), {"n_features": 64}),
}


@pytest.mark.slow_cases("vw")
@pytest.mark.parametrize("name", TEXTS)
def test_compressed_text_has_the_rows_of_plain_text(tmp_path, name):
    text, options = TEXTS[name]
    files = {"a": bytes, "a.gz": gzip.compress, "a.bz2": bz2.compress, "b.dat.gz": gzip.compress}
    found = []
    for file, pack in files.items():
        (tmp_path / file).write_bytes(pack(text.encode()))
        ingest([tmp_path / file] * 2, tmp_path / f"d-{file}", shuffle=False, format=name, **options)
        found.append(read_all(tmp_path / f"d-{file}"))
    for x, y in found[1:]:
        assert np.array_equal(x, found[0][0])
        assert np.array_equal(y, found[0][1])
    n_rows = len(list(csv.reader(text.splitlines()))) - (name == "csv")
    assert len(found[0][0]) == 2 * n_rows
