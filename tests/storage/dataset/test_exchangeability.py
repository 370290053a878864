"""Means of partitions against chance: silent on rows in random order, whatever they are; loud on sorted ones."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.dataset.exchangeability import SUMS, feature_moments, label_deviation, largest_deviation, moments
from distls.storage.rows import CsrRows, DenseRows

KINDS = {
    "normal": lambda random, size: random.normal(size=size) + 1e3,
    "heavy": lambda random, size: random.standard_cauchy(size),
    "rare": lambda random, size: (random.random(size) < 0.002) * 1e6,
    "text": lambda random, size: random.poisson(0.1, size) * random.random(size),
}


def cut(values, parts):
    return np.array_split(values, parts)


@pytest.mark.fast_cases("2-normal", "7-rare", "100-text")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [2, 7, 100])
def test_rows_in_random_order_are_silent(kind, parts):
    for seed in range(20):
        x = KINDS[kind](np.random.default_rng(seed), (1200, 9))
        found = largest_deviation([feature_moments(DenseRows(part)) for part in cut(x, parts)])
        assert 0 <= found.times_chance < 1, (seed, found)


@pytest.mark.fast_cases("2-2", "7-50", "300-700")
@pytest.mark.parametrize("classes", [2, 50, 700])
@pytest.mark.parametrize("parts", [2, 7, 300])
def test_labels_in_random_order_are_silent(classes, parts):
    for seed in range(25):
        # most classes have a row or two
        codes = (np.random.default_rng(seed).random(1500) ** 4 * classes).astype(int)
        counts = [np.bincount(part, minlength=classes) for part in cut(codes, parts)]
        found = label_deviation(counts, [int(count.sum()) for count in counts])
        assert found.times_chance < 1, (seed, found)


@pytest.mark.parametrize("classes", [2, 50])
def test_sorted_labels_are_found(classes):
    counts = [np.bincount(part, minlength=classes) for part in cut(np.sort(np.arange(5000) % classes), 10)]
    assert label_deviation(counts, [500] * 10).times_chance > 3


def test_a_drifting_feature_is_found_among_others():
    random = np.random.default_rng(0)
    x = random.normal(size=(20_000, 300))
    x[:, 17] += np.linspace(-4, 4, len(x))
    found = largest_deviation([feature_moments(DenseRows(part)) for part in cut(x, 10)])
    assert found.times_chance > 1.5
    assert found.partition in (0, 9)


def test_sums_are_the_same_of_sparse_and_of_dense_rows():
    x = sp.random(700, 90, 0.1, format="csr", random_state=0, dtype=np.float64)
    sparse, dense = (
        feature_moments(CsrRows(x.indptr.astype(np.int64), x.indices, x.data)),
        feature_moments(DenseRows(x.toarray())),
    )
    assert sparse["count"] == dense["count"] == 700
    for name in ("mean", "squares", "low", "high"):
        np.testing.assert_allclose(sparse[name], dense[name], rtol=1e-12, atol=1e-12)


def test_sums_of_few_columns_are_the_columns():
    x = np.arange(12.0).reshape(4, 3)
    found = feature_moments(DenseRows(x))
    assert len(found["mean"]) == SUMS
    np.testing.assert_array_equal(np.abs(found["mean"][:3]), x.mean(axis=0))
    np.testing.assert_array_equal(found["squares"][:3], np.square(x - x.mean(axis=0)).sum(axis=0))


def test_of_many_rows_evenly_spaced_ones_are_taken():
    x = np.arange(3 * 4096.0)[:, None]
    found = feature_moments(DenseRows(x))
    assert (found["count"], abs(found["mean"][0])) == (4096, x[::3].mean())


def test_numbers_at_the_end_of_float64_say_nothing():
    parts = [moments(np.full((5, 2), sign * 1.5e308)) for sign in (-1, 1, -1)]
    json.dumps(parts, allow_nan=False)
    assert largest_deviation(parts).times_chance == 0


def test_one_partition_or_none_is_not_compared():
    one = moments(np.ones((5, 1)))
    assert largest_deviation([]) is largest_deviation([one]) is largest_deviation([one, {"count": 0}]) is None
    assert label_deviation([], []) is label_deviation([[3]], [3]) is label_deviation([[], []], [3, 3]) is None


def ingested(path, order, **options):
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 4000)
    x = random.normal(size=(len(y), 5)).astype(np.float32)
    rows = np.argsort(y, kind="stable") if order == "sorted" else np.arange(len(y))
    ingest(x[rows], path, y=y[rows], partition_size=x.nbytes // 8, **options)
    return open_dataset(path)


def test_what_ingest_measures(tmp_path):
    found = ingested(tmp_path / "sorted", "sorted", shuffle=False).exchangeability
    assert found.labels.times_chance > 3
    assert found.largest == ("labels", found.labels)
    assert found.features.times_chance < 1
    for seed in range(5):
        shuffled = ingested(tmp_path / f"shuffled{seed}", "sorted", seed=seed).exchangeability
        assert shuffled.largest[1].times_chance < 1
    assert ingested(tmp_path / "same", "as it comes", shuffle=False).exchangeability.largest[1].times_chance < 1


def test_continuous_targets(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32), np.linspace(0, 1, 2000)
    options = {"partition_size": x.nbytes // 5, "target": "continuous"}
    ingest(x, tmp_path / "sorted", y=y, shuffle=False, **options)
    ingest(x, tmp_path / "shuffled", y=y, **options)
    assert open_dataset(tmp_path / "sorted").exchangeability.labels.times_chance > 1.5
    assert open_dataset(tmp_path / "shuffled").exchangeability.labels.times_chance < 1


@pytest.mark.parametrize("stored", [None, 3, {"labels": {"times_chance": -1, "partition": 0}}, {"labels": []}])
def test_data_sets_without_it_open_with_the_same_fingerprint(tmp_path, stored):
    data = ingested(tmp_path / "data", "sorted", shuffle=False)
    path = tmp_path / "data" / "zarr.json"
    content = json.loads(path.read_text())
    assert content["attributes"].pop("exchangeability") is not None
    if stored is not None:
        content["attributes"]["exchangeability"] = stored
    path.write_text(json.dumps(content))
    again = open_dataset(tmp_path / "data")
    assert again.exchangeability is None
    assert again.fingerprint == data.fingerprint
