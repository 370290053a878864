"""Text in other encodings: named once, recorded, obeyed by each command and overruled alike."""

import gzip

import numpy as np
import pytest
from helpers import distls as command
from helpers import printed, raised, refuses

import distls
from distls import ingest, open_dataset
from distls.ingestion.request.like import like_model, open_like
from distls.storage.errors import BadInputError, FormatError, ParameterError
from distls.storage.model.model import load_model
from distls.testing.formats import read_all

CITIES = ("Zürich", "Köln", "Genève")
TABLE = "größe,stadt,y\n" + "".join(f"{k % 7}.5,{CITIES[k % 3]},{int(k % 7 > 3)}\n" for k in range(42))
MARKED = ("utf-8-sig", "utf-16", "utf-32")  # the file says it itself


def rows_of(folder, written, /, text=TABLE, name="a.csv", pack=bytes, **options):
    """Return rows, names and description of text in an encoding."""
    (folder / name).write_bytes(pack(text.encode(written)))
    place = folder / f"{len([*folder.iterdir()])}"
    ingest(folder / name, place, shuffle=False, **options)
    data = open_dataset(place)
    return read_all(data)[0], data.feature_names(), data


@pytest.mark.fast_cases("bytes-utf-8$", "bytes-cp1252$")
@pytest.mark.parametrize("encoding", ["utf-8", *MARKED, "utf-16-le", "cp1252", "latin-1", "mac_roman", "gb18030"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_rows_are_those_of_utf_8(tmp_path, encoding, pack):
    marked = encoding == "utf-8" or encoding in MARKED
    options = {"label_column": "y"} | ({} if marked else {"encoding": encoding})
    x, names, data = rows_of(tmp_path, encoding, pack=pack, **options)
    expected, known, _ = rows_of(tmp_path, "utf-8", name="b.csv", label_column="y")
    assert np.array_equal(x, expected)
    assert names == known
    assert ("encoding" in data.meta.source["recipe"]) != marked


def test_small_pieces_and_old_line_ends(tmp_path, monkeypatch):
    text = TABLE.replace("\n", "\r")
    expected = rows_of(tmp_path, "utf-8", label_column="y")[0]
    assert np.array_equal(rows_of(tmp_path, "mac_roman", text, label_column="y", encoding="mac-roman")[0], expected)


def test_every_command_reads_as_training_did_and_is_overruled(tmp_path):
    train, new = tmp_path / "train.csv", tmp_path / "new.csv"
    train.write_bytes(TABLE.encode("cp1252"))
    options = {"method": "gls", "params": {"alpha": 1e-3}, "notify": lambda _: None}
    distls.train(train, tmp_path / "run", label_column="y", encoding="cp1252", test=[train], **options)
    assert distls.evaluate(tmp_path / "run", train).error == 0
    assert distls.calibrate(tmp_path / "run", train).evaluation.n_rows == 42
    ingest(train, tmp_path / "like", like=tmp_path / "run")
    found = []
    for encoding, given in (("cp1252", None), ("utf-8-sig", None), ("utf-16", None), ("utf-8", "utf-8")):
        new.write_bytes(TABLE.encode(encoding))
        distls.predict(tmp_path / "run", new, tmp_path / f"{len(found)}.csv", encoding=given, labelled=True)
        found.append((tmp_path / f"{len(found)}.csv").read_text())
    assert len({*found}) == 1
    # what nobody overrules is read as it was recorded
    (tmp_path / "c.csv").write_bytes("größe,stadt\n1,Köln\n".encode())
    ran = command("predict", tmp_path / "run", tmp_path / "c.csv", "--quiet")
    assert (ran.code, 'no column "größe"' in ran.err) == (1, True)
    printed("predict", tmp_path / "run", tmp_path / "c.csv", "--encoding", "utf-8")


def test_documents_and_numbered_columns(tmp_path):
    lines = "".join(f"{k % 2}\tein schöner langer Tag Nummer {k}\n" for k in range(20))
    options = {"format": "text", "n_features": 64}
    expected = rows_of(tmp_path, "utf-8", lines, "a.txt", **options)[0]
    x, _, data = rows_of(tmp_path, "cp1252", lines, "a.txt", encoding="cp1252", **options)
    assert np.array_equal(x, expected)
    assert np.array_equal(rows_of(tmp_path, "cp1252", lines, "b.txt", like=data.path)[0], expected)
    numbered = "1 1:0.5 3:2\n0 2:1\n"  # as a redirected PowerShell writes it
    assert rows_of(tmp_path, "utf-16", numbered, "a.svm")[0].tolist() == [[0.5, 0, 2], [0, 1, 0]]


@pytest.mark.fast_cases("cp1252", "utf-8-options5")
@pytest.mark.parametrize(
    ("written", "options", "kind", "keyword"),
    [
        ("cp1252", {}, BadInputError, "--encoding names its encoding"),
        ("utf-16-le", {}, BadInputError, "--encoding names its encoding"),
        ("utf-8", {"encoding": "ascii"}, BadInputError, "not ascii text .*--encoding names another"),
        ("utf-8", {"encoding": "utf-16"}, BadInputError, "not utf-16 text"),
        ("utf-8", {"encoding": "klingon"}, ParameterError, "klingon"),
        ("utf-8", {"encoding": "zlib"}, ParameterError, "zlib"),
    ],
)
def test_refusals_name_the_option(tmp_path, written, options, kind, keyword):
    refuses(kind, keyword, rows_of, tmp_path, written, label_column="y", **options)


@pytest.mark.parametrize("encoding", ["zlib", "../x", 7])
def test_a_recorded_encoding_is_judged(tmp_path, encoding):
    model = like_model(load_model(trained(tmp_path)), "m")
    model.meta.source["recipe"]["encoding"] = encoding
    raised(FormatError, open_like, model)


def trained(folder):
    (folder / "t.csv").write_text(TABLE)
    distls.train(folder / "t.csv", folder / "r", label_column="y", method="gls", passes=1, notify=lambda _: None)
    return folder / "r"
