"""Transforms that are fitted: min_count and standardize, alone and among others."""

import numpy as np
import pytest
import scipy.sparse
from helpers import raised
from ingest_helpers import file_bytes, make_text, rare_text, small_ranges  # noqa: F401
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler, normalize

from distls import evaluate, fit, ingest, open_dataset
from distls.reporting.describe import describe
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all

pytestmark = pytest.mark.usefixtures("small_ranges")


def dense_rows(n_rows=500, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((n_rows, 6)) * [1, 1e3, 1e-3, 1, 1, 0] + [0, 5, 1, 1e6, -40, 3]
    x[:, 4] *= random.random(n_rows) < 0.5
    return x, random.integers(0, 2, n_rows)


# -- min_count -------------------------------------------------------------------------------------------


def test_features_of_few_training_rows_are_dropped(tmp_path):
    (tmp_path / "a.svm").write_text(rare_text())
    x, _ = load_svmlight_file(str(tmp_path / "a.svm"))
    x = x.toarray()
    report = ingest(tmp_path / "a.svm", tmp_path / "d", min_count=10, split={"test": 0.3}, partition_size=1500)
    train, test = (open_dataset(path) for path in report.paths)
    kept = train.features()["kept"]
    counts = (x != 0).sum(axis=0)
    assert np.array_equal(kept, test.features()["kept"])
    assert 0 < len(kept) < 60
    assert set(kept) <= set(np.flatnonzero(counts >= 10))  # the test rows are not counted
    assert train.meta.n_features == test.meta.n_features == len(kept)
    stored = np.concatenate([read_all(path)[0] for path in report.paths])
    assert sorted(map(tuple, stored)) == sorted(map(tuple, x[:, kept]))
    in_training = (read_all(report.paths[0])[0] != 0).sum(axis=0)
    assert in_training.min() >= 10
    dropped = np.setdiff1d(np.arange(60), kept)
    in_test = counts[kept] - in_training
    assert np.array_equal((read_all(report.paths[1])[0] != 0).sum(axis=0), in_test)
    assert len(dropped) == 60 - len(kept)
    step = {"name": "min_count", "count": 10, "columns": 60, "kept": len(kept)}
    assert describe(tmp_path / "d")["transforms"] == [step]
    # partitions are as large as without, in what they hold
    assert 0.5 < train.decoded_bytes.max() / 1500 < 1.5


def test_dense_columns_are_counted_by_their_non_zeros(tmp_path):
    x = np.array([[1.0, 0, 0, 7], [2, 0, 5, 7], [0, 3, 0, 7]])
    ingest(x, tmp_path / "d", y=[0, 1, 0], min_count=2, shuffle=False)
    assert read_all(tmp_path / "d")[0].tolist() == [[1, 7], [2, 7], [0, 7]]
    assert open_dataset(tmp_path / "d").features()["kept"].tolist() == [0, 3]
    ingest(scipy.sparse.csr_matrix(x), tmp_path / "s", y=[0, 1, 0], min_count=1, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "s")[0], x)


def test_min_count_comes_before_idf_and_goes_with_like(tmp_path):
    (tmp_path / "a.svm").write_text(rare_text())
    (tmp_path / "b.svm").write_text(rare_text(50, seed=3) + "1 60:1\n")
    options = {"shuffle": False, "dtype": "float64"}
    ingest(tmp_path / "a.svm", tmp_path / "d", min_count=12, transform="idf,l2norm", **options)
    ingest(tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "d", **options)
    train, test = open_dataset(tmp_path / "d"), open_dataset(tmp_path / "e")
    kept = train.features()["kept"]
    x, b = (load_svmlight_file(str(tmp_path / name), n_features=60)[0][:, kept] for name in ("a.svm", "b.svm"))
    model = TfidfTransformer(norm=None).fit(x)
    for rows, name in ((x, "d"), (b, "e")):
        np.testing.assert_allclose(read_all(tmp_path / name)[0], normalize(model.transform(rows)).toarray(), rtol=1e-12)
    assert train.meta.transforms == test.meta.transforms
    assert train.meta.transforms_digest == test.meta.transforms_digest
    fit("gls", train, tmp_path / "run", passes=2)
    assert evaluate(tmp_path / "run", test).n_rows == 51
    ingest(tmp_path / "b.svm", tmp_path / "f", like=tmp_path / "run", **options)
    assert file_bytes(tmp_path / "e" / "rows") == file_bytes(tmp_path / "f" / "rows")


def test_what_min_count_refuses(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 2:1\n0 1:1\n")
    (tmp_path / "b.svm").write_text("1 5:1\n")
    assert raised(BadInputError, ingest, tmp_path / "a.svm", tmp_path / "d", min_count=3) == (
        f"{tmp_path}/d: no feature has a value in 3 rows, 2 at most; lower min_count"
    )
    assert not (tmp_path / "d").exists()
    with pytest.raises(ParameterError) as refused:
        ingest(tmp_path / "a.svm", tmp_path / "d", min_count=0)
    assert str(refused.value) == "min_count must be at least 1, not 0"
    ingest(tmp_path / "a.svm", tmp_path / "d", min_count=2)
    said = raised(MismatchError, ingest, tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "d")
    refused_index = f"{tmp_path}/b.svm:1: index 5, but {tmp_path}/d keeps 1 of 2 features; --unknown-features ignore"
    assert said.startswith(refused_index)
    said = raised(ParameterError, ingest, tmp_path / "a.svm", tmp_path / "e", like=tmp_path / "d", min_count=2)
    assert said == "like takes min_count and transforms of other data; give none"


# -- standardize -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-9), ("float32", 2e-6)])
def test_dense_rows_are_standardized_as_by_scikit_learn(tmp_path, dtype, rtol):
    x, y = dense_rows()
    x = x.astype(dtype).astype(np.float64)
    options = {"shuffle": False, "dtype": dtype}
    report = ingest(x, tmp_path / "d", y=y, transform="standardize", partition_size=2000, **options)
    scaler = StandardScaler().fit(x)
    features = open_dataset(tmp_path / "d").features()
    np.testing.assert_allclose(features["mean"], scaler.mean_, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(features["std"], scaler.scale_, rtol=1e-9)
    got, _ = read_all(tmp_path / "d")
    np.testing.assert_allclose(got, scaler.transform(x), rtol=rtol, atol=rtol)
    assert not got[:, 5].any()  # a constant column
    assert report.notices == ()
    assert len(open_dataset(tmp_path / "d")) > 3
    new, _ = dense_rows(40, seed=1)
    new = new.astype(dtype).astype(np.float64)
    ingest(new, tmp_path / "e", unlabelled=True, like=tmp_path / "d", dtype=dtype)
    np.testing.assert_allclose(read_all(tmp_path / "e")[0], scaler.transform(new), rtol=rtol, atol=rtol)
    digests = {open_dataset(tmp_path / name).meta.transforms_digest for name in "de"}
    assert len(digests) == 1


def test_sparse_rows_are_divided_and_not_centred(tmp_path):
    (tmp_path / "a.svm").write_text(make_text())
    options = {"shuffle": False, "dtype": "float64", "partition_size": 4000}
    report = ingest(tmp_path / "a.svm", tmp_path / "d", transform="log1p,standardize,l2norm", **options)
    x = load_svmlight_file(str(tmp_path / "a.svm"))[0]
    x.data = np.log1p(x.data)
    scaler = StandardScaler(with_mean=False).fit(x)
    data = open_dataset(tmp_path / "d")
    assert sorted(data.features()) == ["std"]
    np.testing.assert_allclose(data.features()["std"], scaler.scale_, rtol=1e-12)
    np.testing.assert_allclose(read_all(tmp_path / "d")[0], normalize(scaler.transform(x)).toarray(), rtol=1e-12)
    assert (data.meta.nnz, report.notices) == (
        x.nnz,
        ("standardize divides sparse rows by the deviations, without centring them",),
    )


def test_it_is_fitted_on_what_comes_before_and_on_the_training_rows(tmp_path):
    (tmp_path / "a.svm").write_text(rare_text())
    report = ingest(
        tmp_path / "a.svm", tmp_path / "d", min_count=20, transform="idf,standardize", split={"test": 0.3},
        dtype="float64", partition_size=1500,
    )  # fmt: skip
    train, _ = read_all(report.paths[0])
    np.testing.assert_allclose(train.std(axis=0), 1.0, rtol=1e-12)
    test, _ = read_all(report.paths[1])
    assert np.abs(test.std(axis=0) - 1).max() > 0.01


def test_what_standardize_refuses(tmp_path):
    x, y = dense_rows(50)
    ingest(x, tmp_path / "d", y=y, transform="standardize")
    assert raised(MismatchError, ingest, scipy.sparse.csr_matrix(x), tmp_path / "e", y=y, like=tmp_path / "d") == (
        f"{tmp_path}/d has dense rows, centred by standardize; sparse rows cannot be centred"
    )
    assert not (tmp_path / "e").exists()
    with pytest.raises(BadInputError) as beyond:
        ingest(np.array([[1e200], [-1e200]]), tmp_path / "e", y=[0, 1], transform="standardize", dtype="float64")
    assert str(beyond.value) == "standardize: the variance of column 0 is beyond float64; scale the data"
    said = raised(ParameterError, ingest, x, tmp_path / "e", y=y, transform="standardize,standardize")
    assert said == "transform standardize is given twice; it is fitted once"
