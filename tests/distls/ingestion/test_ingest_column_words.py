"""Columns of hashed text have their most frequent word as name, where that is asked for."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

import distls
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import ParameterError

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
