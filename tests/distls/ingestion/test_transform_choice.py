"""`transform=auto`: what is chosen for which rows, and that the choice is as good as one that was given."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import ParameterError

SPARSE, Y = labelled_rows(60, 5, 2)
X = SPARSE.toarray()
TEXT = ["log1p", "idf", "l2norm"]


def _words(scale=1.0):
    counts = sp.random(40, 1500, 0.02, "csr", random_state=3)
    counts.data = scale * np.random.default_rng(1).integers(1, 5, counts.nnz).astype(np.float64)
    return counts


def _chosen(x, y, place):
    report = ingest(x, place, y=y, transform="auto")
    names = [step["name"] for step in open_dataset(place).meta.transforms]
    (notice,) = (text for text in report.notices if text.startswith("transform auto: "))
    return names, notice


def test_dense_rows_are_standardized(tmp_path):
    names, notice = _chosen(X, Y, tmp_path / "auto")
    assert names == ["standardize"]
    assert notice == "transform auto: standardize, for dense rows"
    ingest(X, tmp_path / "given", y=Y, transform="standardize")
    assert open_dataset(tmp_path / "auto").fingerprint == open_dataset(tmp_path / "given").fingerprint


def test_counts_of_words_get_idf_and_unit_rows(tmp_path):
    y = np.arange(40) % 2
    assert _chosen(_words(), y, tmp_path / "auto")[0] == TEXT
    ingest(_words(), tmp_path / "given", y=y, transform=TEXT)
    assert open_dataset(tmp_path / "auto").fingerprint == open_dataset(tmp_path / "given").fingerprint


@pytest.mark.parametrize(
    ("scale", "columns", "expected"),
    [
        (0.1, 1500, []),  # weights already, from 0.1 to 0.4
        (0.7, 1500, ["standardize"]),  # fractions above 1
        (-1.0, 1500, ["standardize"]),
        (1.0, 400, ["standardize"]),  # too few columns for words
    ],
)
def test_other_sparse_rows(tmp_path, scale, columns, expected):
    assert _chosen(_words(scale)[:, :columns], np.arange(40) % 2, tmp_path / "d")[0] == expected


def test_raw_text_is_text_however_short(tmp_path):
    (tmp_path / "a.txt").write_text("a\tone two\nb\tthree\na\tfour\n")
    ingest(tmp_path / "a.txt", tmp_path / "d", format="text", transform="auto")
    assert [step["name"] for step in open_dataset(tmp_path / "d").meta.transforms] == TEXT


def test_categories_of_a_table_are_not_words(tmp_path):
    lines = [f"c{i},{i % 7},{i % 2}" for i in range(1200)]
    (tmp_path / "a.csv").write_text("\n".join(["city,number,y", *lines]))
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", categorical=["city"], transform="auto")
    data = open_dataset(tmp_path / "d")
    assert data.meta.n_features == 1201
    assert [step["name"] for step in data.meta.transforms] == ["standardize"]


def test_rare_features_go_first(tmp_path):
    ingest(_words(), tmp_path / "d", y=np.arange(40) % 2, min_count=1, transform="auto")
    assert next(step["name"] for step in open_dataset(tmp_path / "d").meta.transforms) == "min_count"


def test_test_rows_take_what_was_chosen(tmp_path):
    _chosen(X, Y, tmp_path / "train")
    ingest(X, tmp_path / "test", y=Y, like=tmp_path / "train")
    train, test = open_dataset(tmp_path / "train").meta, open_dataset(tmp_path / "test").meta
    assert train.transforms_digest == test.transforms_digest


def test_auto_stands_alone(tmp_path):
    with pytest.raises(ParameterError, match="transform auto chooses all transforms; give it alone"):
        ingest(X, tmp_path / "d", y=Y, transform="auto,l2norm")
