"""Booleans of CSV and Parquet: one meaning, also for data sets in which they are categories."""

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.mixed_columns import is_date

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
            ingest(tmp_path / source, tmp_path / f"{known}-{source}", like=tmp_path / f"{known}-d", shuffle=False)
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


# -- dates in tables -------------------------------------------------------------------------------------


@pytest.mark.fast_cases("2024-01-31$", r"31\.1\.2024", "2024-01-31T10")
@pytest.mark.parametrize("text", ["2024-01-31", "2024/1/31", "31.1.2024", "1/31/24", "2024-01-31T10:00:00Z"])
def test_dates(text):
    assert is_date(text)


@pytest.mark.parametrize("text", ["2024-13", "1.5", "192.168.0.1", "10-20", "2024-01/31", "555-1234", ""])
def test_other_texts(text):
    assert not is_date(text)


def table(path, n_days):
    first = datetime.date(2015, 1, 1)
    days = [first + datetime.timedelta(days=k % n_days) for k in range(2 * n_days)]
    rows = "".join(f"{k % 7},{day.isoformat()},{k % 2}\n" for k, day in enumerate(days))
    path.write_text("a,when,y\n" + rows)
    return path


def test_a_notice_names_the_column(tmp_path):
    report = distls.ingest(table(tmp_path / "t.csv", 60), tmp_path / "d", label_column="y")
    assert any('"when" is dates' in notice for notice in report.notices)
    names = distls.open_dataset(tmp_path / "d").feature_names()
    assert [n for n in names if n.startswith("when")][:2] == ["when[days]", "when[year sin]"]
    # asked for, they are categories without a word
    report = distls.ingest(tmp_path / "t.csv", tmp_path / "e", label_column="y", categorical="when")
    assert not any("dates" in notice for notice in report.notices)


# -- columns of hashed text have their most frequent word as name, where that is asked for ---------------


TEXTS = [
    "Cheap watches cheap pills", "meeting on Monday", "cheap pills now", "agenda of the meeting",
    "pills", "the agenda Monday",
] * 5  # fmt: skip


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("".join(f"{'ham' if k % 2 else 'spam'}\t{text}\n" for k, text in enumerate(TEXTS)))
    return path


@pytest.mark.parametrize("ngrams", ["1,1", "1,2"])
def test_each_column_has_a_word_that_is_hashed_to_it(source, tmp_path, ngrams):
    distls.ingest(source, tmp_path / "d", format="text", n_features=2**12, ngrams=ngrams, keep_words=True)
    data = open_dataset(tmp_path / "d")
    names = data.feature_names()
    part = data.read(0)
    used = np.unique(part.x.indices)
    low, high = map(int, ngrams.split(","))
    hashed = HashingVectorizer(n_features=2**12, ngram_range=(low, high), norm=None, alternate_sign=False)
    analyzer = hashed.build_analyzer()
    for column in used.tolist():
        # a bigram is two words, which the analyzer makes again
        assert names[column] in analyzer(names[column])
        assert hashed.transform([names[column]])[0, column] >= 1
    assert names[0] == "#0" if 0 not in used else True
    assert sum(not name.startswith("#") for name in names) == len(used)


def test_of_the_words_of_a_column_the_most_frequent_or_the_first(source, tmp_path):
    distls.ingest(source, tmp_path / "d", format="text", n_features=1, keep_words=True)
    assert open_dataset(tmp_path / "d").feature_names() == ["cheap"]


def test_words_survive_min_count_and_reach_the_model(source, tmp_path):
    distls.ingest(source, tmp_path / "d", format="text", n_features=2**12, min_count=6, keep_words=True)
    names = open_dataset(tmp_path / "d").feature_names()
    assert sorted(names) == ["agenda", "cheap", "meeting", "monday", "pills", "the"]
    distls.fit("sgd", tmp_path / "d", tmp_path / "run", passes=5, executor="serial")
    model = distls.load_model(tmp_path / "run")
    assert list(model.get_feature_names_out()) == names
    strongest = int(np.argmin(model.coef_[0] if model.classes[1] == "spam" else -model.coef_[0]))
    assert names[strongest] in {"meeting", "agenda", "monday", "the"}
    assert model.predict(["cheap pills", "the meeting"]).tolist() == ["spam", "ham"]


def test_without_it_nothing_is_kept(source, tmp_path):
    distls.ingest(source, tmp_path / "d", format="text", n_features=64)
    assert open_dataset(tmp_path / "d").feature_names() is None
    with pytest.raises(ParameterError, match=r"^keep_words: 8388608 columns are too .* with --n-f"):
        distls.ingest(source, tmp_path / "e", format="text", n_features=2**23, keep_words=True)


@pytest.mark.parametrize("kept", [False, True])
def test_a_model_of_hashed_words_says_how_to_name_them(source, tmp_path, kept):
    distls.ingest(source, tmp_path / "d", format="text", n_features=2**12, keep_words=kept)
    distls.fit("newton", tmp_path / "d", tmp_path / "r", params={"alpha": 0.1})
    words = distls.info(tmp_path / "r").get("words")
    assert words is None if kept else "names them" in words
