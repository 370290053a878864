"""What ingest refuses, with the exact message."""

import gzip
import json
import shutil

import ingest_helpers
import numpy as np
import pytest
from helpers import raised, refuses
from ingest_helpers import file_bytes, make_text, small_ranges  # noqa: F401
from scipy.sparse import csr_array

import distls.ingestion.request.source_plan
import distls.workers.ingestion.parsing.text_blocks
from distls.ingestion.formats.format_registry import format_names
from distls.ingestion.ingest import ingest
from distls.ingestion.request.source_plan import check_columns
from distls.storage.errors import BadInputError, ParameterError, StorageError
from distls.testing.formats import Reversed

pytestmark = pytest.mark.usefixtures("small_ranges")


def test_bad_lines_have_the_number_they_have_in_the_file(tmp_path, monkeypatch):
    lines = make_text(120).splitlines()
    lines[77] = "1 5:1 3:1"
    (tmp_path / "a.svm").write_text("\n".join(lines))
    message = f'{tmp_path}/a.svm:78: "3:1": index 3 comes after index 5; indices must increase within a row'
    for size in (50, 700, 10**6):
        monkeypatch.setattr(distls.ingestion.request.source_plan, "RANGE_BYTES", size)
        assert raised(BadInputError, ingest, tmp_path / "a.svm", tmp_path / "d", executor=Reversed()) == message
        assert not (tmp_path / "d").exists()
    report = ingest(tmp_path / "a.svm", tmp_path / "d", on_error="skip")
    assert (report.rows, report.skipped, report.skipped_lines) == (119, 1, (message,))
    assert report.notices == (f"1 line skipped; the first: {message}",)


def test_bad_lines_of_a_compressed_file_have_their_number_too(tmp_path):
    lines = make_text(300).splitlines()
    lines[211] = "1 5:x"
    lines[250] = "y 5:1"
    (tmp_path / "a.svm.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    first = f'{tmp_path}/a.svm.gz:212: "5:x": a value must be a decimal number'
    assert raised(BadInputError, ingest, tmp_path / "a.svm.gz", tmp_path / "d") == (
        f"{first}; 2 of 300 lines read are refused: a value must be a decimal number (1, from "
        f"{tmp_path}/a.svm.gz:212), a label must be a decimal number (1, from {tmp_path}/a.svm.gz:251)"
    )
    report = ingest(tmp_path / "a.svm.gz", tmp_path / "d", on_error="skip")
    second = f'{tmp_path}/a.svm.gz:251: "y": a label must be a decimal number'
    assert (report.rows, report.skipped, report.skipped_lines) == (298, 2, (first, second))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_that_cannot_be_a_row_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(distls.workers.ingestion.parsing.text_blocks, "MAX_LINE", 5000)
    monkeypatch.setattr(distls.workers.ingestion.parsing.text_blocks, "_READ_BYTES", 100)
    (tmp_path / "a.svm").write_bytes(pack(b"1 1:1\n\n2 " + b"1" * 20_000 + b"\n"))
    said = raised(BadInputError, ingest, tmp_path / "a.svm", tmp_path / "d")
    assert said == f"{tmp_path}/a.svm:3: a line of more than 0 MiB: not text in lines"


FIRST_LINES = {
    "a.csv": (b"a,", {"label_column": 0}),
    "one-word.csv": (b"a", {"label_column": 0}),
    "a.svm": (b"1 1:", {}),
    "a.vw": (b"1 | a", {}),
    "a.txt": (b"ja\ta word ", {"format": "text"}),
    "a.jsonl": (b'{"text": "', {"text_column": "text", "label_column": "y"}),
    "documents.csv": (b'label,text\nja,"', {"text_column": "text"}),
}


@pytest.mark.slow_cases("(?!a.csv)")
@pytest.mark.parametrize("name", FIRST_LINES)
def test_a_first_line_is_refused_as_later_ones_are(tmp_path, name):
    """Fault: A first line that does not end | compressed sources, each format of lines | one line, after 64 MiB"""
    start, options = FIRST_LINES[name]
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(start + b"7" * (65 * 2**20), 1))
    refuses(BadInputError, "a line of more than 64 MiB", ingest, tmp_path / f"{name}.gz", tmp_path / "d", **options)


@pytest.mark.parametrize("separator", [None, ";"])
def test_a_header_of_more_columns_than_can_be_named_is_not_taken_apart(tmp_path, monkeypatch, separator):
    monkeypatch.setattr("distls.ingestion.formats.csv_header._split", lambda lines, separator: 1 / 0)
    mark = separator or ","
    (tmp_path / "a.csv").write_text(f"a{mark}" * 1_400_000 + "\n")
    given = {} if separator is None else {"separator": separator}
    if separator is None:
        monkeypatch.setattr("distls.ingestion.formats.csv_header._SEPARATORS", (",",))
    with pytest.raises(BadInputError, match="1,400,001 columns, whose names need more than 64 MiB of metadata"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="a", **given)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_record_of_more_fields_than_can_be_named_is_refused(tmp_path, monkeypatch, name):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("distls.workers.ingestion.formats.table_columns.MOST_COLUMNS", 4)
    fields = dict.fromkeys("abcde", 1.0)
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(fields)}\n")
    parquet.write_table(arrow.table({key: [value] for key, value in fields.items()}), tmp_path / "a.parquet")
    with pytest.raises(BadInputError, match=f"{name}: 5 columns, whose names need more"):
        ingest(tmp_path / name, tmp_path / "d", format=name[2:], label_column="a")


def test_columns_that_metadata_cannot_name_are_refused():
    check_columns(names := [f"{i:07}" for i in range(1_000_000)], names)
    with pytest.raises(BadInputError, match="the table has 1,200,000 columns"):
        check_columns(names := [f"{i:07}" for i in range(1_200_000)], names)


@pytest.mark.fast_cases("1 1:1\\\\n1", "1\\\\n2\\\\n", "1 0", "-options8")
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1 1:1\n1 2:1\n", {}, "{a}: every label is 1; two classes are needed at least"),
        ("# nothing\n\n", {}, "{a}: no rows"),
        ("x\ny\n", {"on_error": "skip"}, "{a}: no rows; all 2 lines with content were refused"),
        ("1\n2\n", {}, "{a}: no row has a feature; give n_features if that is meant"),
        ("1 1:1\n2 9:1\n", {"n_features": 3}, "{a}:2: index 9 does not fit into n_features=3"),
        ("1 0:1\n2 9:1\n", {"zero_based": "no"}, '{a}:1: "0:1": index 0 in a file that was declared to count from 1'
         " (--zero-based no)"),
        ("1 1:1\n# c\n2 2:-1\n", {"transform": "log1p"}, "{a}:3: log1p of -1; values must be above -1"),
        ("1 1:1\n2 2:-8\n", {"transform": "scale=4,log1p"}, "{a}:2: log1p of -2; values must be above -1"),
        ("", {}, "{a}: the file is empty"),
    ],
)  # fmt: skip
def test_refused_text(tmp_path, text, options, message):
    (tmp_path / "a.svm").write_text(text)
    said = raised(BadInputError, ingest, tmp_path / "a.svm", tmp_path / "d", **options)
    assert said == message.format(a=tmp_path / "a.svm")
    assert not (tmp_path / "d").exists()


def test_a_folder_of_pictures_is_told_what_to_do(tmp_path):
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "1.PNG").write_bytes(b"\x89PNG")
    refuses(BadInputError, r"a folder of pictures; .*: numpy\.savez", ingest, tmp_path, tmp_path / "d")
    (tmp_path / "a.csv").write_text("a,b,y\n1,2,p\n3,4,q\n")
    with pytest.raises(ParameterError, match="--multilabel of ingest and train is for documents of a table"):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", multilabel=True)


def test_refused_sources(tmp_path):
    def refusal(source, **options):
        return ingest_helpers.refusal(BadInputError, source, tmp_path / "d", **options)

    (tmp_path / "a.dat").write_text("1,2,3\n4,5\n")
    assert refusal(tmp_path / "a.dat") == (
        f'{tmp_path}/a.dat: not recognised by its name or its start ("1,2,3"); '
        f"name its format, one of {', '.join(format_names())}"
    )
    assert refusal(tmp_path / "none.svm") == f"{tmp_path}/none.svm: no such file"
    assert refusal(tmp_path) == f"{tmp_path}: a folder; name the files in it"
    whole = gzip.compress(make_text().encode())
    (tmp_path / "cut.svm.gz").write_bytes(whole[: len(whole) // 2])
    assert refusal(tmp_path / "cut.svm.gz", format="svmlight").startswith(
        f"{tmp_path}/cut.svm.gz: damaged or cut short gzip file ("
    )
    np.save(tmp_path / "x.npy", np.array([[1.0, 2], [np.nan, 1], [3, 4]]))
    np.save(tmp_path / "y.npy", np.array([0, 1, 0]))
    np.save(tmp_path / "short.npy", np.array([0, 1]))
    assert refusal(tmp_path / "x.npy", labels=tmp_path / "y.npy") == (
        f"{tmp_path}/x.npy, row 1: a value is not finite in float32"
    )
    assert refusal(tmp_path / "x.npy", labels=tmp_path / "short.npy") == f"{tmp_path}/short.npy: 2 labels for 3 rows"
    assert (
        refusal(tmp_path / "x.npy")
        == f"{tmp_path}/x.npy: no labels; give their file with --labels, or ingest --unlabelled"
    )
    np.savez(tmp_path / "x.npz", data=np.ones((2, 2)), target=np.array([0, 1]))
    assert "no labels, which an array y or labels would hold; give" in refusal(tmp_path / "x.npz")
    assert refusal(np.array([[1.0], [1e300]]), y=[0, 1]) == "X, row 1: a value is not finite in float32"
    assert refusal(np.ones((2, 2)), y=[0, np.inf]) == "X, row 1: the label is not finite"
    assert refusal(np.ones((2, 2)), y=[0, 1], n_features=3) == (
        "X: 2 columns of dense rows, which n_features=3 does not widen"
    )
    assert refusal(np.ones((2, 2)), y=[0]) == "y: shape (1,) does not go with the 2 rows of X"
    assert (
        refusal(np.array([["a"]]), y=[0]) == "X: an array of shape (1, 1) and type <U1; rows of real numbers are needed"
    )
    assert refusal(-np.ones((2, 1)), y=[0, 1], transform="log1p") == "X, row 0: log1p of -1; values must be above -1"
    report = ingest(tmp_path / "x.npy", tmp_path / "d", labels=tmp_path / "y.npy", on_error="skip", target="continuous")
    assert (report.rows, report.skipped) == (2, 1)


@pytest.mark.fast_cases("options0", "options4", "options8", "options12")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": ["a"]}, "a split is NAME=FRACTION with a fraction between 0 and 1, not 'a'"),
        ({"split": ["a=1.5"]}, "a split is NAME=FRACTION with a fraction between 0 and 1, not 'a=1.5'"),
        ({"split": ["a=.5", "b=.5"]}, "the fractions of all splits must add up to less than 1"),
        ({"split": ["a=.2", "a=.5"]}, "two splits have the same name"),
        ({"format": "xls"}, f"format must be one of auto, {', '.join(format_names())}, not 'xls'"),
        (
            {"transform": "sqrt"},
            "unknown transform 'sqrt'; there are log1p, idf, l2norm, scale, standardize, auto, none",
        ),
        ({"transform": "none,log1p"}, "transform none leaves the values as they are; give it alone"),
        ({"unlabelled": True, "multilabel": True}, "unlabelled and multilabel exclude each other"),
        ({"labels": "y.npy", "unlabelled": True}, "unlabelled and labels exclude each other"),
        ({"drop": "none"}, "drop takes several, unknown, empty, not none"),
        (
            {"drop": "several", "multilabel": True},
            "multilabel keeps several labels of a row, drop=several leaves out such rows",
        ),
        ({"label_level": 0}, "label_level must be from 1 to 99, not 0"),
        ({"y": [1]}, "y and sample_weight go with arrays in memory; files were given"),
        ({"split": {"a": 0.001}}, "split a=0.001 of 20 rows leaves none for it"),
    ],
)
def test_refused_options(tmp_path, options, message):
    (tmp_path / "a.svm").write_text(make_text(20))
    assert raised(ParameterError, ingest, tmp_path / "a.svm", tmp_path / "d", **options) == message
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("", "{d}: partition 0: values up to 1e+300: the sum of their squares is beyond float64; divide them: "
         "ingest with --transform scale=1e+300"),
        ("l2norm", "{d}: partition 0: l2norm of values up to 1e+300: their squares are beyond float64; divide first: "
         "ingest with --transform scale=1e+300,l2norm"),
        ("standardize", "standardize: the variance of column 0 is beyond float64; scale the data"),
    ],
)  # fmt: skip
def test_values_whose_squares_are_beyond_float64(tmp_path, transform, message):
    x, y = np.array([[1e300, 0], [-1e300, 1.0]]), np.array([0, 1])
    for rows in (x, csr_array(x)):
        said = raised(BadInputError, ingest, rows, tmp_path / "d", y=y, dtype="float64", transform=transform)
        assert said == message.format(d=tmp_path / "d")
        ingest(rows, tmp_path / "scaled", y=y, dtype="float64", transform=f"scale=1e+300,{transform}")
        shutil.rmtree(tmp_path / "scaled")


def test_an_existing_folder_is_not_touched(tmp_path):
    (tmp_path / "a.svm").write_text(make_text(20))
    ingest(tmp_path / "a.svm", tmp_path / "d")
    before = file_bytes(tmp_path / "d")
    said = raised(StorageError, ingest, tmp_path / "a.svm", tmp_path / "d")
    assert said == f"{tmp_path}/d: exists already; remove it or choose another name"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    raised(StorageError, ingest, tmp_path / "a.svm", tmp_path / "mine")
    (tmp_path / "new-x").write_text("a file")
    raised(StorageError, ingest, tmp_path / "a.svm", tmp_path / "new", split=["x=0.3"])
    assert not (tmp_path / "new").exists()
    assert file_bytes(tmp_path / "d") == before
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "x"
