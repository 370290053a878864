"""Files as other programs write them: packed, with other line ends or first lines; what cannot be read is named."""

import gzip
import lzma
import shutil
import zipfile

import numpy as np
import pytest
from helpers import refuses

from distls import fit, ingest, load_model, open_dataset
from distls.storage.errors import BadInputError, ParameterError
from distls.testing.formats import read_all

TABLE = "a,b,y\n" + "".join(f"{i},{i / 4},{i % 2}\n" for i in range(3000))
SPACED = {"format": "csv", "separator": "space"}


def zstd(content):
    pa = pytest.importorskip("pyarrow")
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


def lines(change):
    return "".join(change(line) for line in TABLE.splitlines()).encode()


WRITTEN = {
    "xz": (lzma.compress(TABLE.encode()), {}),
    "zstd": (lambda: zstd(TABLE.encode()), {}),
    "old_mac": (lines("{}\r".format), {}),
    "excel": (b"sep=,\r\n" + TABLE.encode(), {}),
    "excel_semicolons": (b"\xef\xbb\xbfsep=;\r\n" + TABLE.replace(",", ";").encode(), {}),
    "runs_of_blanks": (lines(lambda line: f"  {line.replace(',', '   ')} \r\n"), SPACED),
}


@pytest.mark.fast_cases("xz$", "runs_of_blanks$")
@pytest.mark.parametrize("name", WRITTEN)
def test_rows_are_those_of_the_plain_table(tmp_path, name):
    content, options = WRITTEN[name]
    (tmp_path / "a.csv").write_text(TABLE)
    (tmp_path / "b.csv").write_bytes(content() if callable(content) else content)
    ingest(tmp_path / "a.csv", tmp_path / "a", label_column="y")
    assert ingest(tmp_path / "b.csv", tmp_path / "b", label_column="y", **options).notices == ()
    a, b = (open_dataset(tmp_path / name).read(0) for name in "ab")
    assert np.array_equal(a.x.values, b.x.values)
    assert np.array_equal(a.y, b.y)


@pytest.mark.parametrize("pack", [lzma.compress, zstd], ids=["xz", "zstd"])
def test_what_was_cut_short_is_refused(tmp_path, pack):
    (tmp_path / "a.csv").write_bytes(pack(TABLE.encode())[:900])
    refuses(BadInputError, "damaged", ingest, tmp_path / "a.csv", tmp_path / "d", label_column="y")


def test_positions_count_the_lines_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("sep=;\na;y\n1;0\nx;1\n2;0\n")
    with pytest.raises(BadInputError, match=r"a\.csv:4: .*\"x\""):
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y", like=trained(tmp_path))
    (tmp_path / "b.csv").write_text("a  y\n1  0\n2  3  1\n")
    with pytest.raises(BadInputError, match="3 fields where there should be 2"):
        ingest(tmp_path / "b.csv", tmp_path / "d", label_column="y", **SPACED)


def trained(folder):
    (folder / "t.csv").write_text("a,y\n1,0\n2,1\n")
    ingest(folder / "t.csv", folder / "trained", label_column="y")
    return folder / "trained"


@pytest.mark.parametrize(("header", "width"), [("2 7 5", 7), ("\ufeff2 7 5", 7), ("2 9999999999 9999999999", 3)])
def test_the_header_of_xmc_files_is_no_row(tmp_path, header, width):
    (tmp_path / "a.txt").write_text(f"{header}\n0,4 0:1\n3 2:3\n")
    (notice,) = ingest(tmp_path / "a.txt", tmp_path / "d", multilabel=True).notices
    assert "line 1" in notice
    meta = open_dataset(tmp_path / "d").meta
    assert (meta.n_rows, meta.n_features) == (2, width)


@pytest.mark.parametrize("header", ["a,b,y\n", "a,b,y,\n", ""])
def test_the_last_column_is_that_before_a_last_separator(tmp_path, header):
    (tmp_path / "a.csv").write_text(header + "".join(f"{k},2.5,{k % 2},\n" for k in range(12)))
    for label in ("last", "-1", "2"):
        notices = ingest(tmp_path / "a.csv", tmp_path / label, label_column=label).notices
        assert any("1 column left out" in notice for notice in notices)
        meta = open_dataset(tmp_path / label).meta
        assert (meta.classes, meta.n_features) == ([0, 1], 2)
    ingest(tmp_path / "a.csv", tmp_path / "w", label_column="last", weight_column="-2")
    assert (open_dataset(tmp_path / "w").meta.weighted, open_dataset(tmp_path / "w").meta.n_features) == (True, 1)


@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_quote_within_a_field_of_the_first_line_opens_nothing(tmp_path, separator):
    """Inches, or an apostrophe of another alphabet."""
    rows = [['16"', "5", "u"], ['12"', "6", "v"]] * 6
    (tmp_path / "a.csv").write_text("".join(f"{separator.join(row)}\n" for row in rows))
    ingest(tmp_path / "a.csv", tmp_path / "d", label_column="last", header="no")
    assert open_dataset(tmp_path / "d").feature_names()[:2] == ['0=12"', '0=16"']
    named = [['width (")', "n", "y"], *rows]
    (tmp_path / "b.csv").write_text("".join(f"{separator.join(row)}\n" for row in named))
    ingest(tmp_path / "b.csv", tmp_path / "e", label_column="y")
    assert open_dataset(tmp_path / "e").feature_names()[0] == 'width (")=12"'
    (tmp_path / "c.csv").write_text(f'"name{separator}n\n' + f"1{separator}2\n" * 5)
    with pytest.raises(BadInputError, match=r"a quote in its first line is never closed$"):
        ingest(tmp_path / "c.csv", tmp_path / "f", label_column="y")


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
def test_line_breaks_in_the_first_row(tmp_path, separator, place):
    """In names, as Excel has them, or in values of a table without names."""
    pandas = pytest.importorskip("pandas")
    rows = [[f'"town {k % 3}\nof two lines"', str(k % 7), str(k % 2)] for k in range(30)]
    if place:
        rows = [[b, a, y] for a, b, y in rows]

    def written(name, lines):
        (tmp_path / name).write_text("".join(f"{separator.join(line)}\n" for line in lines))
        return tmp_path / name

    names = ["n", "y"]
    names.insert(place, '"name\nof ""two"" lines"')
    headed, headless = written("a.csv", [names, *rows]), written("b.csv", rows)
    ingest(headed, tmp_path / "a", label_column="y", shuffle=False)
    ingest(headless, tmp_path / "b", label_column="last", shuffle=False)
    # the first of some files may have none
    files = [written("0.csv", [["1", "1", "0"]] * 5), headless]
    ingest(files, tmp_path / "c", label_column="last", categorical=[place], shuffle=False)
    assert [open_dataset(tmp_path / name).meta.n_rows for name in "abc"] == [30, 30, 35]
    x, y = read_all(open_dataset(tmp_path / "a"))
    assert np.array_equal(read_all(open_dataset(tmp_path / "b"))[0], x)
    known = pandas.read_csv(headless, sep=separator, header=None)
    assert np.array_equal(y, known[2])
    found = open_dataset(tmp_path / "a").feature_names()
    assert np.array_equal(x[:, found.index("n")], known[1 - place])
    assert 'name\nof "two" lines=town 0\nof two lines' in found
    # later rows are found by the same names, in memory too, and options may have blanks for line breaks
    for name, source in (("a", headed), ("b", headless), ("a", pandas.read_csv(headed, sep=separator))):
        place = tmp_path / f"{len([*tmp_path.iterdir()])}"
        ingest(source, place, like=tmp_path / name, shuffle=False)
        assert np.array_equal(read_all(open_dataset(place))[0], x)
    ingest(headed, tmp_path / "n", label_column='name of "two" lines')
    assert open_dataset(tmp_path / "n").feature_names() == ["n", "y"]


@pytest.mark.parametrize("header", ['y,id,"note', '"y",id,"note'])
def test_rows_between_stray_quotes_are_no_name(tmp_path, header):
    rows = "".join(f"{'pq'[k % 2]},{k},{k % 5}\n" for k in range(10))
    source = tmp_path / "a.csv"
    source.write_text(f'{header}\n{rows}p,3,4"\n{rows}')
    with pytest.raises(BadInputError, match=r"a\.csv: a quote in its first line is never closed$"):
        ingest(source, tmp_path / "d", label_column="y")
    source.write_text('"' + 7 * "net\n" + '",y\n1,0\n2,1\n')
    with pytest.raises(BadInputError, match=r"a\.csv: a quote in its first line is never closed$"):
        ingest(source, tmp_path / "d", label_column="y")
    source.write_text('"net\nprice",y\n1,0\n2,1\n')
    notices = ingest(source, tmp_path / "d", label_column="y").notices
    assert any('names with line breaks, as a stray quote makes them too: "net price"' in n for n in notices)


@pytest.mark.parametrize(("value", "wider"), [("1" * 60, True), ("3E400", False)])
def test_values_that_are_too_large_are_named_with_what_reads_them(tmp_path, value, wider):
    (tmp_path / "a.csv").write_text("v,y\n" + f"{value},0\n5,1\n" * 6)
    with pytest.raises(BadInputError, match=r"does not fit into float32; .*6 of 13 lines") as caught:
        ingest(tmp_path / "a.csv", tmp_path / "d", label_column="y")
    assert "--kind NAME=category" in str(caught.value)
    assert ("--dtype float64" in str(caught.value)) == wider
    kinds = [{"kind": "v=category"}, {"dtype": "float64"}][: 1 + wider]
    for number, options in enumerate(kinds):
        ingest(tmp_path / "a.csv", tmp_path / f"{number}", label_column="y", **options)


def saved(folder, name):
    """Write a file that cannot be read; return its path, and options."""
    path = folder / name
    if name.endswith((".zip", ".xlsx")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("[Content_Types].xml" if "xlsx" in name else "t.csv", "a,y\n1,0\n")
        return path, {"label_column": "y"}
    if name == "o.npz":
        np.savez(path, X=np.eye(2), y=np.array(["a", "b"], dtype=object))
    elif name == "p.npy.gz":
        np.save(folder / "p.npy", np.eye(2))
        path.write_bytes(gzip.compress((folder / "p.npy").read_bytes()))
        return path, {"unlabelled": True}
    else:
        path.write_text({"w.svm": "1:0.5 1:1\n0:2 2:3\n", "u.data": "1 2 3\n4 5 6\n"}.get(name, ""))
    return path, {}


@pytest.mark.fast_cases(r"t\.csv\.zip", r"o\.npz", r"u\.data")
@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("t.csv.zip", "a zip archive of t.csv; unpack it"),
        ("t.xlsx", "an Excel workbook; save it as CSV"),
        ("o.npz", r"y is of dtype object; save y.astype\(str\)"),
        ("p.npy.gz", "read plain; unpack it"),
        ("w.svm", "--weight-column label reads LABEL:WEIGHT"),
        ("u.data", "--format csv and --separator space"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_remedy(tmp_path, name, keyword):
    path, options = saved(tmp_path, name)
    refuses(BadInputError, keyword, ingest, path, tmp_path / "d", **options)


def test_a_pattern_is_not_expanded(tmp_path):
    refuses(BadInputError, r"glob\.glob", ingest, tmp_path / "*.csv", tmp_path / "d")


def test_tags_that_are_ids_are_not_said_to_be_ignored(tmp_path):
    (tmp_path / "a.vw").write_text("1 'r1|a x\n2 'r2|a y\n")
    assert not any("tag" in notice for notice in ingest(tmp_path / "a.vw", tmp_path / "d", id_column="tag").notices)
    assert any("tag" in notice for notice in ingest(tmp_path / "a.vw", tmp_path / "e").notices)


def test_the_index_of_pandas_is_no_feature_in_parquet_either(tmp_path):
    pd = pytest.importorskip("pandas")
    index = pd.Index([9001, 9002, 9003, 9004], name="customer")
    frame = pd.DataFrame({"age": [30, 40, 50, 60], "y": [0, 1, 0, 1]}, index=index)
    frame.to_parquet(tmp_path / "a.parquet")
    (notice,) = ingest(tmp_path / "a.parquet", tmp_path / "d", label_column="y").notices
    assert '--id-column "customer"' in notice
    ingest(frame, tmp_path / "f", label_column="y")
    assert open_dataset(tmp_path / "d").feature_names() == open_dataset(tmp_path / "f").feature_names() == ["age"]
    ids = {"label_column": "y", "id_column": "customer"}
    assert ingest(tmp_path / "a.parquet", tmp_path / "i", **ids).notices == ()
    # a model of such a file from before has it as a feature, and reads it
    frame.reset_index().to_parquet(tmp_path / "b.parquet")
    ingest(tmp_path / "b.parquet", tmp_path / "old", label_column="y")
    ingest(tmp_path / "a.parquet", tmp_path / "again", like=tmp_path / "old")
    assert open_dataset(tmp_path / "again").meta.n_features == 2


def test_columns_of_an_anndata_object_are_labels_as_those_of_its_file(tmp_path):
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    obs = pd.DataFrame({"kind": list("abab"), "w": [1.0, 2, 3, 4]}, index=list("wxyz"))
    cells = anndata.AnnData(np.arange(8.0).reshape(4, 2), obs=obs)
    ingest(cells, tmp_path / "d", label_column="kind", weight_column="w")
    assert open_dataset(tmp_path / "d").meta.classes == ["a", "b"]
    assert open_dataset(tmp_path / "d").meta.weighted
    refuses(ParameterError, "it has kind, w", ingest, cells, tmp_path / "e", label_column="type")


def test_lazy_frames_and_sparse_mappings_are_told_apart(tmp_path):
    dok_matrix = pytest.importorskip("scipy.sparse").dok_matrix
    ingest(dok_matrix(np.eye(4)), tmp_path / "d", y=[0, 1, 0, 1])
    fit("gls", tmp_path / "d", tmp_path / "run", params={"alpha": 1.0})
    polars = pytest.importorskip("polars")
    with pytest.raises(BadInputError, match=r"lazy frame; give X\.collect\(\)"):
        load_model(tmp_path / "run").predict(polars.LazyFrame({"a": [1.0]}))
    shutil.rmtree(tmp_path / "d")
