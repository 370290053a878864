"""`partial_fit`: the bits of a fit in stored order, any cut into blocks, carrying on, refusals."""

import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import labelled_rows, refuses, write_dataset
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier

from distls import MCIDClassifier, fit
from distls.solvers.stochastic.streaming import Stream
from distls.storage.errors import ParameterError
from distls.storage.rows import CsrRows, DenseRows, Partition
from distls.workers.stochastic.sgd import mcid_steps
from distls.workers.stochastic.step_choice import ProblemStats
from reference import mcid as oracle

NAMES = np.array(["ant", "bee", "cat", "dog"])
ROWS = 512  # a power of two: with one row an update, `tail` is then that of a fit


@pytest.fixture(scope="module")
def rows():
    return labelled_rows(ROWS, 40, 4)


def streamed(made, x, y, cuts, **options):
    """Learn from the blocks between the cuts."""
    weight = options.pop("weight", None)
    for start, stop in zip([0, *cuts], [*cuts, len(y)], strict=True):
        own = None if weight is None else weight[start:stop]
        made.partial_fit(x[start:stop], y[start:stop], classes=np.unique(y), sample_weight=own)
    return made


@pytest.mark.fast_cases("options0-log-none$")
@pytest.mark.parametrize("average", ["none", "all", "tail"])
@pytest.mark.parametrize("loss", ["log", "hinge", "perceptron"])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": True, "dtype": "float64", "t0": 3.5}])
def test_same_bits_as_one_pass_over_a_dataset_of_the_blocks(tmp_path, rows, loss, average, options):
    x, y = rows
    dataset = write_dataset(tmp_path / "d", x, y, partition_rows=100)
    params = {"loss": loss, "average": average, "alpha": 1e-3, **options}
    model = fit("mcid", dataset, params={**params, "lanes": 1, "shuffle": False}, passes=1).model
    made = streamed(MCIDClassifier(**params), x, y, range(100, ROWS, 100))
    assert np.array_equal(made.coef_, model.weights.T)
    assert np.array_equal(made.intercept_, model.intercept)
    assert made.model_.sha256 == model.sha256
    assert made.t_ == ROWS
    assert np.any(made.coef_)


@pytest.mark.fast_cases("float32-csr")
@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_as_fit_of_the_estimator(rows, layout, dtype):
    x, y = rows[0].astype(dtype), NAMES[rows[1]]
    x = x if layout == "csr" else x.toarray()
    once = MCIDClassifier(alpha=1e-3, lanes=1, shuffle=False, passes=1).fit(x, y)
    made = streamed(MCIDClassifier(alpha=1e-3), x, y, [7, 300])
    assert made.model_.sha256 == once.model_.sha256
    assert made.classes_.tolist() == once.classes_.tolist() == NAMES.tolist()
    assert np.array_equal(made.predict(x), once.predict(x))


@pytest.mark.slow
def test_batches_end_with_their_block_as_with_their_partition(tmp_path, rows):
    x, y = rows
    dataset = write_dataset(tmp_path / "d", x, y, partition_rows=100)
    params = {"batch_size": 7, "average": "all", "alpha": 1e-2}
    model = fit("mcid", dataset, params={**params, "lanes": 1, "shuffle": False}, passes=1).model
    made = streamed(MCIDClassifier(**params), x, y, range(100, ROWS, 100))
    assert made.t_ == 5 * 15 + 2
    assert made.model_.sha256 == model.sha256


@pytest.mark.slow
def test_weights_of_mean_one_are_those_of_a_fit(tmp_path, rows):
    x, y = rows
    weight = np.where(np.arange(ROWS) % 2, 0.25, 1.75).astype(np.float32)
    params = {"alpha": 1e-2, "loss": "hinge"}
    dataset = write_dataset(tmp_path / "d", x, y, partition_rows=100, sample_weight=weight)
    model = fit("mcid", dataset, params={**params, "lanes": 1, "shuffle": False}, passes=1).model
    made = streamed(MCIDClassifier(**params), x, y, [100, 101], weight=weight)
    assert made.model_.sha256 == model.sha256
    plain = streamed(MCIDClassifier(**params), x, y, [100])
    assert plain.model_.sha256 != model.sha256


def test_class_weights_count_as_given_like_sample_weights(rows):
    x, y = rows
    by_class = streamed(MCIDClassifier(alpha=1e-2, class_weight={"bee": 3.0}), x, NAMES[y], [50])
    by_row = streamed(MCIDClassifier(alpha=1e-2), x, NAMES[y], [50], weight=np.where(y == 1, 3.0, 1.0))
    assert by_class.model_.sha256 == by_row.model_.sha256


@pytest.mark.slow
@pytest.mark.parametrize("average", ["none", "all", "tail"])
def test_cutting_the_stream_changes_no_bit(rows, average):
    x, y = rows[0][:387], rows[1][:387]
    found = {
        streamed(MCIDClassifier(alpha=1e-3, average=average, fit_intercept=True), x, y, cuts).model_.sha256
        for cuts in ([], [1], [1, 2, 3, 4, 5], [128, 256], [255, 257], range(16, 387, 16))
    }
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 5, 11, 16, 17, 100])
@pytest.mark.parametrize("size", [1, 3])
def test_tail_is_the_mean_since_the_last_power_of_two_but_one(n_rows, size):
    x, y = labelled_rows(300, 40, 4)
    made = MCIDClassifier(alpha=1e-2, dtype="float64", batch_size=size, fit_intercept=True)
    made.partial_fit(x[: n_rows * size], y[: n_rows * size], classes=range(4))
    whole = 2 ** (n_rows.bit_length() - 1)  # the window before the one under way ends here
    start = whole // 2
    plain = oracle.train(
        x.toarray().astype(float), y, "softmax", 1e-2, np.arange(n_rows * size).reshape(n_rows, size),
        w0=np.zeros((40, 4)), fit_intercept=True, tail_from=start,
    )  # fmt: skip
    np.testing.assert_allclose(made.coef_.T, plain.w_sum / (n_rows - start), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.intercept_, plain.b_sum / (n_rows - start), rtol=1e-9, atol=1e-9)
    assert n_rows - start >= n_rows / 2


def test_asking_for_the_model_disturbs_nothing(rows):
    x, y = rows
    quiet = streamed(MCIDClassifier(alpha=1e-3), x, y, [100, 300])
    asked = MCIDClassifier(alpha=1e-3)
    for start, stop in ((0, 100), (100, 300), (300, ROWS)):
        asked.partial_fit(x[start:stop], y[start:stop], classes=range(4))
        first = asked.model_
        assert asked.model_ is first
        assert asked.score(x, y) > 0.3
    assert asked.model_.sha256 == quiet.model_.sha256


def test_pickled_in_the_middle_and_carried_on(rows):
    x, y = rows
    made = streamed(MCIDClassifier(alpha=1e-3), x[:200], y[:200], [100])
    again = pickle.loads(pickle.dumps(made))
    assert isinstance(again._stream, Stream)
    for each in (made, again):
        each.partial_fit(x[200:], y[200:])
    assert again.model_.sha256 == made.model_.sha256
    assert clone(made).get_params() == made.get_params()


def test_after_fit_it_goes_on_from_its_weights_like_a_warm_start(tmp_path, rows):
    x, y = rows
    options = {"alpha": 1e-2, "average": "none", "lanes": 1, "shuffle": False}
    made = MCIDClassifier(**options, passes=5).fit(x, y)
    first = made.model_.sha256
    dataset = write_dataset(tmp_path / "d", x, y, partition_rows=ROWS)
    fit("mcid", dataset, tmp_path / "run", params=options, passes=5)
    wanted = fit("mcid", dataset, params={**options, "init": str(tmp_path / "run")}, passes=1).model
    made.partial_fit(x, y)
    assert made.model_.sha256 == wanted.sha256 != first
    assert made.fit(x, y).model_.sha256 == first  # fit begins anew
    with pytest.raises(AttributeError, match="has learned nothing by partial_fit"):
        _ = made.t_


@pytest.mark.slow
def test_after_fit_alpha_is_that_which_the_rows_decided(rows):
    x, y = rows
    made = MCIDClassifier(lanes=1).fit(x, y)
    decided = made.model_.params["alpha"]
    assert decided > 1e-5
    for _ in range(2):
        assert made.partial_fit(x[:8], y[:8]).model_.params["alpha"] == decided
    assert MCIDClassifier().partial_fit(x, y, classes=np.unique(y)).model_.params["alpha"] == 1e-5


@pytest.mark.slow
def test_what_fit_knew_of_the_data_is_kept(tmp_path, rows):
    x, y = rows
    made = MCIDClassifier(passes=1).fit(write_dataset(tmp_path / "d", x, y, classes=NAMES.tolist()))
    made.partial_fit(x, NAMES[y])
    assert made.model_.classes == NAMES.tolist()
    assert made.model_.dataset_fingerprint == ""
    assert np.array_equal(made.predict(tmp_path / "d"), made.predict(x))


@pytest.mark.slow
def test_sparse_rows_are_read_as_a_dataset_holds_them(rows):
    x, y = rows
    halves = sp.hstack([x, x], format="csr")  # each value twice, in one row, at columns that repeat
    data, columns = np.append(halves.data / 2, np.float32(0)), np.append(halves.indices % 40, 3)
    ends = np.append(halves.indptr[:-1], halves.indptr[-1] + 1)
    zeros = sp.csr_matrix((data, columns, ends), shape=x.shape)
    plain = MCIDClassifier(alpha=1e-3).partial_fit(x, y, classes=range(4))
    untidy = MCIDClassifier(alpha=1e-3).partial_fit(zeros, y, classes=range(4))
    assert np.array_equal(plain.coef_, untidy.coef_)
    assert len(zeros.data) == 2 * x.nnz + 1


@pytest.mark.slow
def test_as_good_as_scikit_learns(rows):
    x, y = rows
    ours, theirs = MCIDClassifier("hinge", alpha=1e-3), SGDClassifier(alpha=1e-3, random_state=0)
    for start in range(0, ROWS, 64):
        block = slice(start, start + 64)
        ours.partial_fit(x[block], y[block], classes=range(4))
        theirs.partial_fit(x[block], y[block], classes=range(4))
    assert ours.score(x, y) > theirs.score(x, y) - 0.02


@pytest.mark.fast_cases("options0", "options4", "options8")
@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"classes": None}, "classes must be passed on the first call to partial_fit"),
        ({}, {"classes": [1, 1]}, "classes has one class only; at least two are needed to learn from"),
        ({}, {"classes": [0, 1, 2]}, "y has the label 3, which is not among the 3 classes"),
        (
            {"class_weight": "balanced"},
            {},
            "class_weight='balanced' needs all rows at once; give weights to partial_fit",
        ),
        ({"class_weight": {7: 2.0}}, {}, "class_weight: 7 is not a class of y"),
        ({"alpha": "path"}, {}, "alpha='path' needs all rows at once; give partial_fit a number"),
        ({"lanes": 8}, {}, "lanes=8: partial_fit works in one lane"),
        ({"steps": 9}, {}, "steps=9: partial_fit learns from all rows that it is given"),
        ({"alpha": 0}, {}, "mcid: alpha=0: must be greater than 0, or path"),
    ],
)
def test_refused_at_the_first_call(rows, options, arguments, message):
    x, y = rows
    made = MCIDClassifier(**options)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        made.partial_fit(x, y, **{"classes": range(4), **arguments})
    assert str(caught.value) == message
    assert not hasattr(made, "classes_")
    assert not hasattr(made, "model_")


def test_refused_later(rows):
    x, y = rows
    made = MCIDClassifier(alpha=1e-3).partial_fit(x, y, classes=range(4))
    before = made.model_.sha256
    cases = [
        (x, {"classes": [0, 1]}, r"classes are \[0, 1\], at the first call they were \[0, 1, 2, 3\]"),
        (x[:, :30], {}, "X has 30 features, but MCIDClassifier is expecting 40 features as input"),
        (x, {"sample_weight": -np.ones(ROWS)}, "Negative values in data passed to `sample_weight`"),
    ]
    for data, arguments, message in cases:
        refuses(ValueError, message, made.partial_fit, data, y, **arguments)
    refuses(ValueError, "y has the label 9, which is not among the 4 classes", made.partial_fit, x, np.full(ROWS, 9))
    made.set_params(alpha=1e-2)
    refuses(ParameterError, "alpha was changed after the first call of partial_fit", made.partial_fit, x, y)
    assert made.model_.sha256 == before


@pytest.mark.slow
def test_divergence_is_an_error():
    huge = np.full((2, 2), 3e38, np.float32)
    made = MCIDClassifier("perceptron", average="none")
    refuses(ParameterError, "the weights are no longer finite", made.partial_fit, huge, [1, 0], classes=[0, 1])
    assert not hasattr(made, "classes_")


@pytest.mark.slow
@pytest.mark.parametrize("average", ["none", "tail"])
def test_divergence_of_the_last_row_shows_when_the_model_is_asked_for(average):
    made = MCIDClassifier("perceptron", alpha=1e-30, average=average)
    made.partial_fit(np.full((1, 2), 3e38, np.float32), [1], classes=[0, 1])
    refuses(ParameterError, "the weights are no longer finite", made.predict, np.ones((1, 2), np.float32))


def test_a_block_without_rows_changes_nothing():
    params = {"loss": "softmax", "alpha": 0.1, "batch_size": 2, "average": "tail", "fit_intercept": False,
              "dtype": "float64", "t0": None}  # fmt: skip
    stats = ProblemStats("softmax", "class", 0.1, False, 2, 3, 0, 1, 0.0)
    stream = Stream.begin(mcid_steps(stats, params, 1, warm=False), params, (3, 2))
    assert not stream.weights().coefficients.any()
    none = Partition(DenseRows(np.empty((0, 3))), np.empty(0, np.int32))
    one = Partition(CsrRows(np.array([0, 1]), np.zeros(1, np.uint16), np.ones(1)), np.zeros(1, np.int32))
    assert stream.learn(none) == 0.0
    assert stream.updates == 0
    assert stream.learn(one) == pytest.approx(np.log(2))
    before = stream.weights().coefficients
    stream.learn(none)
    assert np.array_equal(stream.weights().coefficients, before)
    assert (stream.updates, before[0, 0]) == (1, pytest.approx(0.5 / 0.1))
