"""Documents in columns of CSV and Parquet, fastText's lines, and text that resembles a table."""

import csv
import gzip

import numpy as np
import pytest
from helpers import raised, refuses
from ingest_helpers import csv_documents, make_documents, write_json, write_plain

from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, MismatchError, ParameterError
from distls.testing.formats import read_all

# with what csv quotes, line breaks among it
DOCUMENTS = ['rain, "sun"\nand snow', "Wind\tfog", "hail ice", "", "über\r\nice"]


def labels_of(path):
    classes = open_dataset(path).meta.classes
    return [classes[code] for code in read_all(path)[1]]


def documents():
    texts, labels = make_documents(60)
    return texts + DOCUMENTS, labels + ["a, b"] * len(DOCUMENTS)


def rows_like_json(tmp_path):
    """The rows of the same documents as JSON lines."""
    write_json(tmp_path / "same.jsonl", *documents())
    ingest(tmp_path / "same.jsonl", tmp_path / "same", n_features=64, shuffle=False)
    return read_all(tmp_path / "same")[0]


@pytest.mark.parametrize(
    ("name", "pack", "options"),
    [("a.csv", bytes, {}), ("a.csv.gz", gzip.compress, {}), ("a.dat", bytes, {"delimiter": ";"})],
)
def test_a_column_of_csv(tmp_path, name, pack, options):
    texts, labels = documents()
    csv_documents(tmp_path / name, texts, labels, pack=pack, **options)
    report = ingest(tmp_path / name, tmp_path / "d", text_column="text", n_features=64, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "d")[0], rows_like_json(tmp_path))
    assert labels_of(tmp_path / "d") == labels
    assert report.notices == ('column "id" not read: the features are the words of the documents',)
    recipe = open_dataset(tmp_path / "d").meta.source["recipe"]
    assert (recipe["text_column"], recipe["label_column"]) == ("text", "label")


def test_a_column_of_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts, labels = documents()
    table = arrow.table({"text": texts, "intent": labels, "at": [1.5] * len(texts)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    ingest(tmp_path / "a.parquet", tmp_path / "d", text_column="text", n_features=64, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "d")[0], rows_like_json(tmp_path))
    assert labels_of(tmp_path / "d") == labels


def test_sets_of_labels_in_columns(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    sets = [["a", "b"], [], ["b"]]
    table = arrow.table({"text": ["x y", "y", "z"], "label": sets})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = list(zip(["x y", "y", "z"], [",".join(each) for each in sets], strict=True))
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    for name in ("a.parquet", "a.csv"):
        options = {"text_column": "text", "multilabel": True, "n_features": 16, "shuffle": False}
        ingest(tmp_path / name, tmp_path / name[2:], **options)
    one, other = open_dataset(tmp_path / "parquet").read(0), open_dataset(tmp_path / "csv").read(0)
    assert open_dataset(tmp_path / "csv").meta.classes == ["a", "b"]
    assert one.y.indptr.tolist() == other.y.indptr.tolist() == [0, 2, 2, 3]
    assert np.array_equal(one.x.indices, other.x.indices)


def test_columns_without_header_and_weights(tmp_path):
    (tmp_path / "a.csv").write_text("3,rain and snow,0.5\n4,sun,2\n3,ice,1\n")
    options = {
        "text_column": 1, "label_column": 0, "weight_column": "last", "header": False, "shuffle": False,
    }  # fmt: skip
    ingest(tmp_path / "a.csv", tmp_path / "d", n_features=64, **options)
    part = open_dataset(tmp_path / "d").read(0)
    assert part.sample_weight.tolist() == [0.5, 2, 1]
    assert labels_of(tmp_path / "d") == [3, 4, 3]


def test_other_kinds_of_file_are_read_like_a_table(tmp_path):
    texts, labels = make_documents(30)
    csv_documents(tmp_path / "a.csv", texts, labels)
    csv_documents(tmp_path / "unlabelled.csv", texts, labels, header=("n", "skip", "text"))
    write_json(tmp_path / "b.jsonl", texts, labels)
    write_plain(tmp_path / "c.txt", texts, labels)
    ingest(tmp_path / "a.csv", tmp_path / "d", text_column="text", n_features=64)
    expected = None
    for name in ("a.csv", "b.jsonl", "c.txt"):
        ingest(tmp_path / name, tmp_path / f"{name}-d", like=tmp_path / "d", shuffle=False)
        found = read_all(tmp_path / f"{name}-d")
        expected = expected or found
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])
    ingest(tmp_path / "unlabelled.csv", tmp_path / "u", like=tmp_path / "d", unlabelled=True)
    assert np.array_equal(read_all(tmp_path / "u")[0], expected[0])
    # a model of plain lines finds the usual name in a table
    ingest(tmp_path / "c.txt", tmp_path / "plain", format="text", n_features=64)
    ingest(tmp_path / "a.csv", tmp_path / "e", like=tmp_path / "plain", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "e")[0], expected[0])


TABLE_REFUSALS = [
    ("label,text\na,x\nb\n", {}, '{a}:3: "b": 1 field where there should be 2'),
    ('label,text\na,x\nb,"y\n', {}, "{a}:3: a quote is never closed"),
    ('label,text\na,x\nb,"y"z\n', {}, "{a}:3: text after a closing quote; a quote between quotes is doubled"),
    ("label,text\na,x\n,y\n", {}, "{a}:3: the label is empty"),
    ("label,text,w\na,x,-1\nb,y,1\n", {"weight_column": "w"},
     '{a}:2: field "w" must be a number that is finite and not negative'),
    ("label,text\na,\udcff\nb,y\n", {},
     '{a}:2: column "text": "\\xff" is not UTF-8; --encoding names its encoding, such as cp1252 or latin-1'),
    ("what,text\na,x\nb,y\n", {},
     '{a}: no column named label, class, category, intent, target, y, labels; it has "what", "text": '
     "name one with --label-column or ingest --unlabelled"),
]  # fmt: skip


@pytest.mark.fast_cases("label,text\\\\na,x\\\\nb\\\\n", "label,text\\\\na,x\\\\n,y\\\\n", "what")
@pytest.mark.parametrize(("text", "options", "message"), TABLE_REFUSALS)
def test_refused_tables(tmp_path, text, options, message):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert raised(BadInputError, ingest, path, tmp_path / "d", text_column="text", **options) == message.format(a=path)
    assert not (tmp_path / "d").exists()


def test_refused_options(tmp_path):
    (tmp_path / "a.csv").write_text("label,text\na,x\nb,y\n")
    (tmp_path / "a.jsonl").write_text('{"label": 1, "text": "x"}\n')
    with pytest.raises(ParameterError, match="must be different columns"):
        ingest(tmp_path / "a.csv", tmp_path / "d", text_column="text", label_column="text")
    with pytest.raises(ParameterError, match=r'text_column: .* has no column "body"; it has "label", "text"'):
        ingest(tmp_path / "a.csv", tmp_path / "d", text_column="body")
    with pytest.raises(ParameterError, match=r"separator is for CSV; .* is JSON lines"):
        ingest(tmp_path / "a.jsonl", tmp_path / "d", text_column="text", separator=";")
    with pytest.raises(ParameterError, match="categorical is for sources of format csv or parquet"):
        ingest(tmp_path / "a.csv", tmp_path / "d", text_column="text", categorical="label")


def test_refused_records_are_skipped(tmp_path):
    (tmp_path / "a.csv").write_text("label,text\na,x\nb\nb,y\n")
    report = ingest(tmp_path / "a.csv", tmp_path / "d", text_column="text", on_error="skip")
    assert (report.rows, report.skipped) == (2, 1)
    assert report.skipped_lines == (f'{tmp_path}/a.csv:3: "b": 1 field where there should be 2',)


# -- lines -----------------------------------------------------------------------------------------------


def test_labels_of_fasttext(tmp_path):
    texts, labels = make_documents(40)
    names = [label.replace(", ", "-") for label in labels]
    lines = [f"__label__{name} {text}\n" for name, text in zip(names, texts, strict=True)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    ingest(tmp_path / "a.txt", tmp_path / "d", n_features=64, shuffle=False)
    write_json(tmp_path / "b.jsonl", texts, names)
    ingest(tmp_path / "b.jsonl", tmp_path / "e", n_features=64, shuffle=False)
    assert np.array_equal(read_all(tmp_path / "d")[0], read_all(tmp_path / "e")[0])
    assert labels_of(tmp_path / "d") == names
    # labels are no words of documents to be scored either
    (tmp_path / "a.txt").write_text("".join(lines))
    ingest(tmp_path / "a.txt", tmp_path / "u", like=tmp_path / "d", unlabelled=True)
    assert np.array_equal(read_all(tmp_path / "u")[0], read_all(tmp_path / "e")[0])


def test_sets_of_labels_of_fasttext(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("__label__a __label__b x y\nz __label__b\nno label\n")
    ingest(path, tmp_path / "d", multilabel=True, n_features=16, shuffle=False)
    assert open_dataset(tmp_path / "d").read(0).y.indptr.tolist() == [0, 2, 3, 3]
    with pytest.raises(BadInputError, match=r"a.txt:1: .*several labels in a row are read with --multilabel"):
        ingest(path, tmp_path / "e")
    path.write_text("__label__a x\ny\n")
    refuses(BadInputError, r'a.txt:2: "y": expected __label__NAME', ingest, path, tmp_path / "e")


def test_labels_of_fasttext_that_are_joined_to_their_documents_are_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("__label__A,some words\n__label__B,other words\n")
    (notice,) = ingest(path, tmp_path / "d", n_features=16).notices
    assert notice == '2 of 2 labels have "," in them: a label ends at the first blank'
    path.write_text("__label__A some, words\n__label__B other words\n__label__C,D other words\n")
    assert ingest(path, tmp_path / "e", n_features=16).notices == ()


def test_numbers_before_documents_are_labels(tmp_path):
    lines = "".join(f"{n % 3}\tthis is, in short, document {n}\n" for n in range(20))
    (tmp_path / "a.txt").write_text(lines)
    ingest(tmp_path / "a.txt", tmp_path / "d", n_features=64)
    meta = open_dataset(tmp_path / "d").meta
    assert (meta.source["format"], meta.classes) == ("text", [0, 1, 2])


@pytest.mark.parametrize(
    "text",
    ["1\tred car\n2\tblue car\n", "y\tx\n1\tone more of these\n2\tand a second\n", "1\t2.5\n2\t3.5\n"],
    ids=["short texts", "header", "numbers"],
)
def test_tables_of_two_columns_stay_tables(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    refuses(BadInputError, "name the column of labels with --label-column", ingest, tmp_path / "a.txt", tmp_path / "d")


# -- tables that hold documents ----------------------------------------------------------------------------


def test_documents_in_a_table_are_pointed_at(tmp_path):
    rows = [("label", "text")] + [(n % 2, f"this is quite a long text {n}") for n in range(40)]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(
        BadInputError, match=r'"label", "text"; if "text" holds documents, --text-column "text" reads them alone$'
    ):
        ingest(tmp_path / "a.csv", tmp_path / "d")
    (tmp_path / "a.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in rows[1:]))
    with pytest.raises(BadInputError, match=r'if "1" holds documents, --format text reads them alone$'):
        ingest(tmp_path / "a.tsv", tmp_path / "d")
    report = ingest(tmp_path / "a.csv", tmp_path / "d", label_column="label")
    assert '"text" is documents' in report.notices[0]


@pytest.mark.fast_cases("csv")
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_very_many_texts_is_documents(tmp_path, kind, default_width):
    # so many that the survey stops to collect them
    texts = [f"word{n} and more" for n in range(70_000)]
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        rows = "".join(f"{n % 2},{text}\n" for n, text in enumerate(texts))
        path.write_text("y,review\n" + rows)
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table({"y": [n % 2 for n in range(70_000)], "review": texts}), path)
    ingest(path, tmp_path / "d", label_column="y")
    assert open_dataset(tmp_path / "d").meta.n_features == default_width == 2**18


def test_documents_do_not_go_with_a_table(tmp_path):
    (tmp_path / "a.csv").write_text("y,v\n1,2\n2,3\n")
    (tmp_path / "b.csv").write_text("y,text\n1,x\n2,z\n")
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    with pytest.raises(MismatchError, match="is raw text, but"):
        ingest(tmp_path / "b.csv", tmp_path / "e", like=tmp_path / "d", text_column="text")


def test_labels_that_seem_joined_by_another_mark_are_named(tmp_path):
    for name, mark in (("a", "|"), ("b", ",")):
        rows = "".join(f'word{n} some,"x{mark}y{n}"\n' for n in range(20))
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{rows}")
    asked = {"text_column": "text", "label_column": "label", "multilabel": True, "n_features": 16}
    notices = ingest(tmp_path / "a.csv", tmp_path / "a", **asked).notices
    assert '20 of 20 labels have "|" in them: sets are labels with commas between them' in notices
    assert not [n for n in ingest(tmp_path / "b.csv", tmp_path / "b", **asked).notices if "labels" in n]


def test_classes_that_are_lists_of_labels_are_named(tmp_path):
    sets = ["a", "b", "c", "a,b", "a,c", "b, c", "Smith, John"]
    for name, labels in (("a", sets[:6]), ("b", [*sets[:4], *sets[6:]])):
        rows = "".join(f'{n},"{label}"\n' for n, label in enumerate(labels * 2))
        (tmp_path / f"{name}.csv").write_text(f"x,label\n{rows}")
    notices = [ingest(tmp_path / f"{name}.csv", tmp_path / name, label_column="label").notices for name in "ab"]
    said = 'the classes are lists of 3 labels, such as "a,b": --multilabel reads sets'
    assert [said in each for each in notices] == [True, False]
