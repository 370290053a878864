"""Sets of labels from memory: what scikit-learn's `type_of_target` knows as such, and lists of labels."""

import numpy as np
import pytest
import scipy.sparse as sp

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import BadInputError

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.column_stack([X[:, :3] > 0, np.zeros(60, dtype=bool)]).astype(int)  # a label that no row has
LISTS = [np.flatnonzero(row).tolist() for row in Y]
ALL = [0, 1, 2, 3]
FORMS = {
    "matrix": (Y, ALL),
    "booleans": (Y.astype(bool), ALL),
    "floats": (Y.astype(float), ALL),
    "sparse": (sp.csr_matrix(Y), ALL),
    "columns": (sp.csc_array(Y), ALL),
    "lists": (LISTS, ALL[:3]),
    "sets": ([set(row) for row in LISTS], ALL[:3]),
    "words": ([[f"w{label}" for label in row] * 2 for row in LISTS], ["w0", "w1", "w2"]),
}


@pytest.mark.slow_cases("csr-[^mw]", "dense-(booleans|floats|columns|sets)")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [X, sp.csr_matrix(X)], ids=["dense", "csr"])
def test_sets_are_those_of_svmlight_text(tmp_path, form, rows):
    y, labels = FORMS[form]
    notices = ingest(rows, tmp_path / "d", y=y, sample_weight=np.ones(60), shuffle=False).notices
    assert (len(notices) == 1) == (len(labels) == 4), "a matrix might have been numbers"
    data = open_dataset(tmp_path / "d")
    assert (data.meta.target, data.meta.classes) == ("multilabel", labels)
    found = data.read(0).y
    assert np.split(found.indices, found.indptr[1:-1])[7].tolist() == LISTS[7]
    assert np.array_equal(np.diff(found.indptr), Y.sum(axis=1))


def test_rows_that_are_refused_take_their_sets_with_them(tmp_path):
    x = np.where(np.arange(60)[:, None] == 3, np.nan, X)
    ingest(x, tmp_path / "d", y=Y, on_error="skip", shuffle=False, split={"held": 0.5})
    counts = [
        sum(c)
        for c in zip(*(open_dataset(tmp_path / n).meta.label_counts for n in ("d", "d-held")), strict=True)
    ]
    assert counts == np.delete(Y, 3, axis=0).sum(axis=0).tolist()


def test_numbers_are_numbers_where_they_are_asked_for(tmp_path):
    ingest(X, tmp_path / "d", y=Y, target="continuous")
    assert open_dataset(tmp_path / "d").meta.n_targets == 4
    ingest(X, tmp_path / "e", y=Y * 2.5)
    assert open_dataset(tmp_path / "e").meta.target == "continuous"


def test_frames_name_their_labels(tmp_path):
    pd = pytest.importorskip("pandas")
    ingest(X, tmp_path / "d", y=pd.DataFrame(Y, columns=list("pqrs")))
    assert open_dataset(tmp_path / "d").meta.classes == list("pqrs")


@pytest.mark.parametrize(
    ("y", "keyword"),
    [
        (Y[:, 0], "matrix of 0 and 1"),
        (sp.csr_matrix(2 * Y), "ones"),
        ([[0.5]] * 60, "whole numbers"),
        (LISTS[1:], "59"),
    ],
)
def test_what_is_no_set_is_refused(tmp_path, y, keyword):
    with pytest.raises(BadInputError, match=keyword):
        ingest(X, tmp_path / "d", y=y, multilabel=True)


def test_a_frame_of_one_column_is_one_label_a_row(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame({"kind": ["u", "v"] * 30})
    ingest(x, tmp_path / "d", y=y)
    assert open_dataset(tmp_path / "d").meta.target == "class"
