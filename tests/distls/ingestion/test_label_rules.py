"""Labels from another file, labels in place of labels, rows left out: the same of every format."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import refuses
from ingest_helpers import small_ranges  # noqa: F401

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError, IncompleteError, ParameterError
from distls.testing.formats import Dying, Killed, read_all

N = 60
IDS = [f"row {n}" if n % 2 else f"r{n}" for n in range(N)]
OWN = [("cat", "dog", "tiger", "stone")[n % 4] for n in range(N)]
BECOMES = {"cat": "feline", "tiger": "feline", "dog": "canine"}
# of each row: a place for a feature, none in every ninth
PLACES = [None if n % 9 == 4 else n % 5 for n in range(N)]


def values(n):
    return [float(PLACES[n] == k) for k in range(5)]


def svmlight(folder, labels):
    lines = (
        f"{labels[n] if labels else ''} {'0:0' if PLACES[n] is None else f'{PLACES[n]}:1'} # {IDS[n]}\n"
        for n in range(N)
    )
    (folder / "a.svm").write_text("".join(lines))
    return folder / "a.svm", {"id_column": "comment", "n_features": 5, "zero_based": True}


def vw(folder, labels):
    lines = (f"'{n} | {'' if PLACES[n] is None else f'{PLACES[n]}:1'}\n" for n in range(N))
    (folder / "a.vw").write_text("".join(lines))
    return folder / "a.vw", {"id_column": "tag", "n_features": 5}


def csv(folder, labels):
    own = ",label" * bool(labels)
    rows = (",".join([IDS[n], *map(str, values(n)), *(labels[n : n + 1] if labels else ())]) for n in range(N))
    (folder / "a.csv").write_text(f"key,a,b,c,d,e{own}\n" + "".join(f"{row}\n" for row in rows))
    return folder / "a.csv", {"id_column": "key", **({"label_column": "label"} if labels else {})}


def documents(folder, labels):
    words = "abcde"
    rows = (
        {"key": IDS[n], "text": "" if PLACES[n] is None else words[PLACES[n]] * 2}
        | ({"label": labels[n]} if labels else {})
        for n in range(N)
    )
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "a.jsonl", {"format": "text", "text_column": "text", "id_column": "key", "n_features": 64}


def frame(folder, labels):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([values(n) for n in range(N)], columns=list("abcde"))
    table["key"] = IDS
    if labels:
        table["label"] = labels
    return table, {"id_column": "key", **({"label_column": "label"} if labels else {})}


SOURCES = {source.__name__: source for source in (svmlight, vw, csv, documents, frame)}


def rows_of(path):
    """Return number in the source and class of each row, in the order of the numbers."""
    data = open_dataset(path)
    found = []
    for index in range(len(data)):
        codes, numbers = data.read(index).y, data.origins.read(index).rows
        found += zip(numbers.tolist(), [data.meta.classes[code] for code in codes.tolist()], strict=True)
    return sorted(found)


KEPT = [(n, BECOMES[OWN[n]]) for n in range(N) if OWN[n] in BECOMES and PLACES[n] is not None]


@pytest.mark.fast_cases("id-svmlight", "id-documents", "own-vw", "own-frame")
@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("how", ["id", "own"])
def test_the_same_rows_of_every_format(tmp_path, source, how):
    if how == "own" and source in ("vw", "svmlight"):
        pytest.skip("its labels are numbers")
    data, options = SOURCES[source](tmp_path, OWN if how == "own" else [])
    (tmp_path / "map.txt").write_text("".join(f"{label}\t{other}\n" for label, other in BECOMES.items()))
    names = IDS if source != "vw" else range(N)
    if how == "id":
        # in another order, without some, and with those of others
        lines = [f"{names[n]}\t{OWN[n]}\n" for n in range(N - 1, -1, -1) if n != 8] + ["nobody\tcat\n"]
        (tmp_path / "labels.txt").write_text("".join(lines))
        options["labels"] = tmp_path / "labels.txt"
    report = ingest(data, tmp_path / "d", label_map=tmp_path / "map.txt", drop="unknown,empty", **options)
    wanted = [row for row in KEPT if how == "own" or row[0] != 8]
    assert rows_of(tmp_path / "d") == wanted
    n_unknown = sum(OWN[n] == "stone" or (how == "id" and n == 8) for n in range(N))
    assert report.dropped == {"unknown": n_unknown, "empty": N - n_unknown - len(wanted)}
    assert report.rows == len(wanted)


def test_rows_in_memory_too(tmp_path):
    x = np.array([values(n) for n in range(N)])
    (tmp_path / "map.txt").write_text("cat feline\ntiger feline\ndog canine\n")
    report = ingest(x, tmp_path / "d", y=OWN, label_map=tmp_path / "map.txt", drop="unknown,empty")
    assert report.rows == len(KEPT)
    assert open_dataset(tmp_path / "d").meta.classes == ["canine", "feline"]
    # several targets are no labels: rows are judged by their features alone
    ingest(x, tmp_path / "targets", y=np.arange(2.0 * N).reshape(N, 2)[:, ::-1], drop="empty", shuffle=False)
    assert np.array_equal(read_all(tmp_path / "targets")[1][0], [1.0, 0.0])
    refuses(ParameterError, "labels are for files", ingest, x, tmp_path / "e", labels=tmp_path / "map.txt")


@pytest.mark.fast_cases("csv", "frame", "vw", r"nan\.parquet", r"nan\.vw")
@pytest.mark.parametrize(
    "source",
    [
        *("csv", "numbers", "mixed", "parquet", "frame", "jsonl", "text", "svm", "vw", "y", "array"),
        *("words.csv", "words.parquet", "nan.parquet", "words.jsonl", "prefixed", "nan.svm", "nan.vw"),
    ],
)
def test_rows_without_a_label_are_left_out_where_that_is_asked(tmp_path, source):
    shape, _, source = source.rpartition(".")
    words = source not in ("numbers", "svm", "vw", "array") and shape != "nan"
    labels = ["a", None, "b", "a", None, "b"] if words else ["1", None, "2", "1", None, "2"]
    frame = pd.DataFrame({"x": np.arange(6) / 2 + 1, "day": "2024-01-01", "y": labels})
    frame = frame if source == "mixed" else frame.drop(columns="day")
    if shape and source in ("csv", "parquet", "jsonl"):  # documents
        frame = frame[["y"]].astype(float) if shape == "nan" else frame[["y"]]
        frame.insert(1, "text", "some words")
    path, options = tmp_path / f"a.{source}", {"label_column": "y", "format": "auto"}
    if source in ("csv", "numbers", "mixed"):
        frame.to_csv(path, index=False)
        options["format"] = "csv"
    elif source == "parquet":
        frame.to_parquet(path)
        if shape == "nan":  # as such, not as a null
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.table({name: frame[name].to_numpy() for name in frame}), path)
    elif source == "jsonl":
        frame.to_json(path, orient="records", lines=True)
        options["format"] = "jsonl"
    elif source in ("text", "prefixed", "svm", "vw"):
        form = {"text": "{0}\tsome words\n", "svm": "{0} 1:{1}\n", "vw": "{0} | x:{1}\n"}
        form["prefixed"] = "__label__{0} some words\n"
        lines = (form[source].format(y or shape, x) for x, y in zip(frame.x, labels, strict=True))
        path.write_text("".join(lines).replace("__label__ ", ""))
        options = {"format": {"svm": "svmlight", "prefixed": "text"}.get(source, source)}
    options |= {"text_column": "text", "format": "text"} if "text" in frame else {}
    given = frame if source == "frame" else path
    if source in ("y", "array"):
        options = {"y": frame["y"] if source == "y" else np.array([1, np.nan, 2] * 2)}
        given = frame[["x"]] if source == "y" else frame[["x"]].to_numpy()
    refuses(BadInputError, "label", ingest, given, tmp_path / "d", **options)
    report = ingest(given, tmp_path / "d", **options, drop="unknown", shuffle=False)
    assert (report.dropped, report.skipped) == ({"unknown": 2}, 0)
    classes = ["a", "b"] if words else [1, 2]
    assert rows_of(tmp_path / "d") == [(0, classes[0]), (2, classes[1]), (3, classes[0]), (5, classes[1])]


@pytest.mark.parametrize("name", ["has no label", 'a": the label is empty'])
def test_names_of_columns_do_not_make_rows_unlabelled(tmp_path, name):
    table = pd.DataFrame({name: ["1", "1e999", "3"], "y": ["0", "1", "1"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    refuses(BadInputError, "float32", ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y", drop="unknown")


def test_labels_by_position_from_text_and_arrays_are_the_same(tmp_path):
    x = np.arange(24.0).reshape(12, 2)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.arange(12) % 3)
    (tmp_path / "y.txt").write_text("".join(f"{n % 3}\n" for n in range(12)))
    (tmp_path / "x.svm").write_text("".join(f"1:{a + 1} 2:{b + 1}\n" for a, b in x.tolist()))
    found = []
    for name in ("x.npy", "x.svm"):
        for labels in ("y.npy", "y.txt"):
            ingest(tmp_path / name, tmp_path / f"{name}-{labels}", labels=tmp_path / labels)
            found.append(rows_of(tmp_path / f"{name}-{labels}"))
    assert found == [[(n, n % 3) for n in range(12)]] * 4


@pytest.mark.usefixtures("small_ranges")
def test_a_file_with_lines_that_are_no_rows_does_not_shift_labels(tmp_path):
    lines = [f"1:{n + 1} 2:0.123456789\n" for n in range(300)]
    (tmp_path / "y.txt").write_text("".join(f"{n % 2}\n" for n in range(300)))
    (tmp_path / "a.svm").write_text("".join(lines))
    ingest(tmp_path / "a.svm", tmp_path / "d", labels=tmp_path / "y.txt")
    assert rows_of(tmp_path / "d") == [(n, n % 2) for n in range(300)]
    (tmp_path / "both.txt").write_text("".join(f"{n % 2}\n" for n in (*range(300), *range(1, 301))))
    both = [tmp_path / "a.svm"] * 2
    report = ingest(both, tmp_path / "twice", labels=tmp_path / "both.txt", shuffle=False)
    assert any("a.svm: the same file as" in notice for notice in report.notices)
    assert read_all(tmp_path / "twice")[1].tolist() == [n % 2 for n in (*range(300), *range(1, 301))]
    (tmp_path / "b.svm").write_text("".join([*lines[:10], "# a comment\n", *lines[10:], "\n"]))
    files = [tmp_path / "b.svm", tmp_path / "a.svm"]
    ingest(files, tmp_path / "e", labels=tmp_path / "both.txt", shuffle=False)
    assert read_all(tmp_path / "e")[1].tolist() == [n % 2 for n in (*range(300), *range(1, 301))]
    ingest(files[0], tmp_path / "split", labels=tmp_path / "y.txt", split={"v": 0.1})
    both = [*rows_of(tmp_path / "split"), *rows_of(tmp_path / "split-v")]
    assert sorted(both) == [(n, n % 2) for n in range(300)]
    (tmp_path / "y.txt").write_text("0\n1\n")
    with pytest.raises(BadInputError, match="2 labels for 300 rows; where rows have ids, --id-column joins"):
        ingest(tmp_path / "b.svm", tmp_path / "f", labels=tmp_path / "y.txt")
    (tmp_path / "a.svm").write_text("1:2\n")
    with pytest.raises(BadInputError, match=r"y\.txt: 2 labels for 1 rows"):
        ingest(tmp_path / "a.svm", tmp_path / "f", labels=tmp_path / "y.txt")


def test_sets_of_labels_become_one_or_are_left_out(tmp_path):
    (tmp_path / "a.svm").write_text("1,2 1:1\n3 1:2\n1,3 1:3\n 1:4\n2 1:5\n")
    (tmp_path / "map.txt").write_text("1 low\n2 low\n3 high\n")
    report = ingest(tmp_path / "a.svm", tmp_path / "d", label_map=tmp_path / "map.txt", drop=["several", "unknown"])
    assert rows_of(tmp_path / "d") == [(0, "low"), (1, "high"), (4, "low")]
    assert report.dropped == {"several": 1, "unknown": 1}
    ingest(tmp_path / "a.svm", tmp_path / "sets", label_map=tmp_path / "map.txt", multilabel=True)
    assert open_dataset(tmp_path / "sets").meta.label_counts == [2, 3]


def test_labels_that_the_data_of_like_do_not_have_are_unknown(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n2 1:2\n")
    (tmp_path / "b.svm").write_text("1 1:1\n5 1:2\n2 1:3\n")
    ingest(tmp_path / "a.svm", tmp_path / "a")
    report = ingest(tmp_path / "b.svm", tmp_path / "b", like=tmp_path / "a", drop="unknown")
    assert (rows_of(tmp_path / "b"), report.dropped) == ([(0, 1), (2, 2)], {"unknown": 1})
    # several labels stay several, known or not; of sets those that are known are kept
    (tmp_path / "b.svm").write_text("1,5 1:1\n5 1:2\n2 1:3\n5,6 1:1\n")
    report = ingest(tmp_path / "b.svm", tmp_path / "e", like=tmp_path / "a", drop="several,unknown")
    assert report.dropped == {"several": 2, "unknown": 1}
    (tmp_path / "c.svm").write_text("1,2 1:1\n")
    ingest(tmp_path / "c.svm", tmp_path / "sets", multilabel=True)
    report = ingest(tmp_path / "b.svm", tmp_path / "f", like=tmp_path / "sets", multilabel=True, drop="unknown")
    assert (report.dropped, report.rows) == ({"unknown": 2}, 2)
    assert open_dataset(tmp_path / "f").meta.label_counts == [1, 1]
    (tmp_path / "b.svm").write_text("5 1:1\n")
    with pytest.raises(BadInputError, match="no rows; 1 are left out by --drop"):
        ingest(tmp_path / "b.svm", tmp_path / "c", like=tmp_path / "a", drop="unknown")


def test_rows_that_min_count_leaves_without_features_are_left_out(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 2:1\n2 1:2\n1 3:1\n2 1:1 4:1\n1\n")
    report = ingest(tmp_path / "a.svm", tmp_path / "d", min_count=2, drop="empty")
    assert rows_of(tmp_path / "d") == [(0, 1), (1, 2), (3, 2)]
    assert (report.dropped, report.rows) == ({"empty": 2}, 3)
    assert "2 rows left out: 2 without features" in report.notices
    kept = ingest(tmp_path / "a.svm", tmp_path / "kept", min_count=2)
    assert (kept.dropped, kept.rows) == ({}, 5)


REFUSED = {
    "labels": ("r1 a\nr2 b\n", 'a.svm:3: "r3": no label in .*labels.txt; --drop unknown leaves such rows out$'),
    "several": ("r1 a\nr2 b\nr3 a\nr3 b\n", 'a.svm:3: "a,b": several labels in a row; --drop several leaves'),
    "unknown": ("r1 a\nr2 b\nr3 c\n", 'a.svm:3: "c": a label that is not in .*map.txt; --drop unknown leaves'),
    "judged": ("a r1 1\nb r2 1\na r3 0\n", 'a.svm:3: "r3": no label in'),
    "fields": ("r1 a\nr2\n", 'labels.txt:2: "r2": expected ID LABEL, or LABEL ID 1'),
    "nothing": ("\n\n", "labels.txt: no labels"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_left_out_is_refused_with_its_place(tmp_path, name):
    text, message = REFUSED[name]
    (tmp_path / "a.svm").write_text("1:1 # r1\n1:2 # r2\n1:3 # r3\n")
    (tmp_path / "labels.txt").write_text(text)
    (tmp_path / "map.txt").write_text("a x\nb y\n")
    options = {"id_column": "comment", "labels": tmp_path / "labels.txt"}
    options |= {"label_map": tmp_path / "map.txt"} if name == "unknown" else {}
    refuses(BadInputError, message, ingest, tmp_path / "a.svm", tmp_path / "d", **options)
    if name in ("labels", "several", "unknown", "judged"):
        report = ingest(tmp_path / "a.svm", tmp_path / "d", on_error="skip", **options)
        assert (report.rows, report.skipped) == (2, 1)
        assert [n for n, _ in rows_of(tmp_path / "d")] == [0, 1]


@pytest.mark.parametrize(
    ("text", "options", "error", "message"),
    [
        ("a b\na c\n", {}, BadInputError, 'map.txt:2: label "a" becomes "c", but "b" before'),
        ("a b c\n", {}, BadInputError, 'map.txt:1: "a b c": expected LABEL OTHER, or parent: OTHER child: LABEL'),
        ("a b\nb a\n", {"label_level": 1}, BadInputError, "is its own ancestor"),
        ("a b\n", {"label_level": 3}, ParameterError, "no label of .*map.txt is at level 3"),
        ("\n", {}, BadInputError, "map.txt: no pairs of labels"),
    ],
)  # fmt: skip
def test_maps_that_are_none_are_refused(tmp_path, text, options, error, message):
    (tmp_path / "a.svm").write_text("1 1:1\n2 1:2\n")
    (tmp_path / "map.txt").write_text(text)
    refuses(error, message, ingest, tmp_path / "a.svm", tmp_path / "d", label_map=tmp_path / "map.txt", **options)
    assert not (tmp_path / "d").exists()


def test_levels_count_from_below_the_one_root_or_from_the_roots(tmp_path):
    (tmp_path / "a.svm").write_text("3 1:1\n4 1:2\n5 1:3\n")
    for text, classes in (("3 1\n4 1\n5 2\n1 9\n2 9\n", [1, 2]), ("3 1\n4 1\n5 2\n", [1, 2])):
        (tmp_path / "map.txt").write_text(text)
        name = f"d{len(text)}"
        ingest(tmp_path / "a.svm", tmp_path / name, label_map=tmp_path / "map.txt", label_level=1)
        assert open_dataset(tmp_path / name).meta.classes == classes


@pytest.mark.usefixtures("small_ranges")
def test_an_unfinished_ingest_goes_on_with_the_same_files_only(tmp_path):
    data, options = svmlight(tmp_path, [])
    (tmp_path / "labels.txt").write_text("".join(f"{IDS[n]}\t{n % 3}\n" for n in range(N)))
    options["labels"] = tmp_path / "labels.txt"
    with pytest.raises(Killed):
        ingest(data, tmp_path / "d", executor=Dying(1), **options)
    with pytest.raises(IncompleteError, match=r"its drop was \[\], not \['empty'\]"):
        ingest(data, tmp_path / "d", drop="empty", **options)
    (tmp_path / "labels.txt").write_text("".join(f"{IDS[n]}\t{n % 2}\n" for n in range(N)) + "x\t1\n")
    refuses(IncompleteError, r"labels\.txt has changed since", ingest, data, tmp_path / "d", **options)


def test_options_are_those_of_every_format():
    assert distls.CsvOptions(labels="y", drop="empty").drop == ("empty",)
    assert str(distls.ArrayOptions("y.npy").labels).endswith("/y.npy")


@pytest.mark.slow
def test_labels_take_some_bytes_a_line_and_workers_map_them(tmp_path):
    """The peak of a process grows by at most 100 bytes for each line of the file of labels."""
    code = (
        "import sys, resource, distls; folder = sys.argv[1]; "
        "distls.ingest(f'{folder}/a.svm', f'{folder}/{sys.argv[2]}', labels=f'{folder}/{sys.argv[2]}.txt', "
        "id_column='label', executor='serial'); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    (tmp_path / "a.svm").write_text("".join(f"{n} 1:{n % 7}\n" for n in range(2000)))
    sizes, peaks = (50_000, 1_250_000), []
    for size in sizes:
        (tmp_path / f"{size}.txt").write_text("".join(f"C{n % 3} {n} 1\n" for n in range(size)))
        command = [sys.executable, "-c", code, str(tmp_path), str(size)]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] - peaks[0] < 100 * (sizes[1] - sizes[0])


# -- sets of labels from memory --------------------------------------------------------------------------


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
        sum(c) for c in zip(*(open_dataset(tmp_path / n).meta.label_counts for n in ("d", "d-held")), strict=True)
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
    refuses(BadInputError, keyword, ingest, X, tmp_path / "d", y=y, multilabel=True)


def test_a_frame_of_one_column_is_one_label_a_row(tmp_path):
    pd = pytest.importorskip("pandas")
    x, y = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame({"kind": ["u", "v"] * 30})
    ingest(x, tmp_path / "d", y=y)
    assert open_dataset(tmp_path / "d").meta.target == "class"
