"""Booleans of CSV and Parquet: one meaning, also for data sets in which they are categories."""

import numpy as np
import pandas as pd
import pytest

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError, MismatchError
from distls.testing.formats import read_all

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

_OWNER = [True, False, False, True]
_AGE = [30, 41, 52, 63]
_AGES = [[age] for age in _AGE]
_OPTIONS = {"label_column": "y", "shuffle": False}


def _csv(path, owner):
    lines = ["owner,age,y", *(f"{o},{a},{k % 2}" for k, (o, a) in enumerate(zip(owner, _AGE, strict=True)))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def parquet(tmp_path):
    columns = {"owner": _OWNER, "age": _AGE, "y": [k % 2 for k in range(4)]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


@pytest.mark.parametrize("spelled", ["True False", "true false", "TRUE FALSE", '"True" "False"'])
def test_csv_gives_what_parquet_gives(tmp_path, parquet, spelled):
    yes, no = spelled.split()
    source = _csv(tmp_path / "a.csv", [yes if own else no for own in _OWNER])
    ingest(source, tmp_path / "c", **_OPTIONS)
    ingest(parquet, tmp_path / "p", **_OPTIONS)
    x, _ = read_all(tmp_path / "c")
    assert x.tolist() == [[1, 30], [0, 41], [0, 52], [1, 63]]
    assert np.array_equal(read_all(tmp_path / "p")[0], x)
    assert open_dataset(tmp_path / "c").feature_names() == open_dataset(tmp_path / "p").feature_names()
    ingest(source, tmp_path / "like-p", like=tmp_path / "p")
    ingest(parquet, tmp_path / "like-c", like=tmp_path / "c")
    assert open_dataset(tmp_path / "like-p").meta.n_features == 2
    assert open_dataset(tmp_path / "like-c").meta.n_features == 2


def test_categories_of_csv_are_found_in_parquet(tmp_path, parquet):
    source = _csv(tmp_path / "a.csv", [*_OWNER])
    ingest(source, tmp_path / "c", categorical="owner", **_OPTIONS)
    assert open_dataset(tmp_path / "c").feature_names() == ["owner=False", "owner=True", "age"]
    ingest(parquet, tmp_path / "like", like=tmp_path / "c", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "like")[0], read_all(tmp_path / "c")[0])


def test_another_word_makes_a_category(tmp_path):
    ingest(_csv(tmp_path / "a.csv", [True, False, "maybe", True]), tmp_path / "d", **_OPTIONS)
    named = ["owner=False", "owner=True", "owner=maybe", "age"]
    assert open_dataset(tmp_path / "d").feature_names() == named


@pytest.mark.parametrize("spelled", ["True False", "true false", "TRUE FALSE", "1 0"])
def test_labels_are_the_same_truths_in_every_file(tmp_path, spelled):
    yes, no = spelled.split()
    pq.write_table(pa.table({"age": _AGE, "owner": _OWNER}), tmp_path / "a.parquet")
    rows = [f"{yes if own else no},{age}" for own, age in zip(_OWNER, _AGE, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["owner,age", *rows]) + "\n")
    options = {"label_column": "owner", "shuffle": False}
    for known in ("a.csv", "a.parquet"):
        ingest(tmp_path / known, tmp_path / f"{known}-d", **options)
        expected = read_all(tmp_path / f"{known}-d")
        for source in ("a.csv", "a.parquet"):
            ingest(
                tmp_path / source, tmp_path / f"{known}-{source}", like=tmp_path / f"{known}-d", shuffle=False
            )
            x, y = read_all(tmp_path / f"{known}-{source}")
            assert x.tolist() == _AGES
            assert np.array_equal(y, expected[1])


def test_truths_are_not_taken_for_numbers_of_other_classes(tmp_path):
    ingest(pd.DataFrame({"age": range(6), "y": [0, 1, 2, 0, 1, 2]}), tmp_path / "d", label_column="y")
    (tmp_path / "a.csv").write_text("age,y\n1,FALSE\n2,TRUE\n")
    with pytest.raises(MismatchError, match="is a word"):
        ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "d")


@pytest.mark.parametrize("word", ["tru", "truer", "falso", "False!"])
def test_what_is_nearly_a_boolean_is_none(tmp_path, word):
    ingest(_csv(tmp_path / "a.csv", [*_OWNER]), tmp_path / "c", **_OPTIONS)
    with pytest.raises(BadInputError, match=word):
        ingest(_csv(tmp_path / "b.csv", [True, word, True, False]), tmp_path / "d", like=tmp_path / "c")
