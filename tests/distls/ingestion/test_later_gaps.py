"""Missing values in columns that lack none in training: what stands for them, and that it is said."""

import json

import numpy as np
import pandas as pd
import pytest

import distls
from distls import ingest, open_dataset
from distls.storage.errors import BadInputError
from distls.testing.formats import read_all
from distls.workers.ingestion.formats.table_columns import Feature
from distls.workers.ingestion.stand_ins import stand_ins

pytest.importorskip("pyarrow")
N = 61
TABLES = {
    "numbers": ["a", "b"],
    "categories": ["a", "c"],
    "mixed": ["a", "c", "when", "price", "note"],
    "others with gaps": ["a", "c", "when", "gaps"],
}


def frame(columns):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "a": np.round(rng.normal(40, 9, N), 1),
            "b": rng.integers(0, 9, N),
            "c": ["u", "v", "w", "v"] * 15 + ["v"],
            "when": (np.datetime64("2020-01-01") + rng.integers(0, 900, N)).astype(str),
            "price": [f"{k * 37 % 97 + 1},{k * 113 % 900 + 100}" for k in range(N)],
            "note": [f"the rain fell on road {k}" for k in range(N)],
            "gaps": np.where(rng.random(N) < 0.3, np.nan, np.round(rng.normal(5, 2, N), 2)),
        }
    )
    return table[columns].assign(y=rng.integers(0, 2, N))


def sources(table, folder):
    """Yield the table as files of each format and as a frame."""
    table.to_csv(folder / "a.csv", index=False)
    table.to_parquet(folder / "a.parquet", index=False)
    rows = ({n: None if v != v else v for n, v in row.items()} for row in table.to_dict("records"))
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield from (("csv", folder / "a.csv"), ("parquet", folder / "a.parquet"), ("json", folder / "a.jsonl"))
    yield "frame", table


@pytest.mark.parametrize("columns", TABLES.values(), ids=TABLES)
def test_later_gaps_are_filled_in_and_named(tmp_path, columns):
    table, options = frame(columns), {"label_column": "y", "shuffle": False}
    assert not any("missing" in n for n in ingest(table, tmp_path / "d", transform="auto", **options).notices) or (
        "gaps" in columns
    )
    later = table.iloc[:10].astype(object)
    usual = {"a": float(np.median(table["a"].astype(np.float32))), "c": "v"}
    wanted = later.copy()
    for row, name in enumerate(name for name in columns if name in usual):
        later.loc[row, name], wanted.loc[row, name] = None, usual[name]
    expected = read_all(_like(wanted, tmp_path, "wanted")[1])[0]
    if "when" in columns:
        later.loc[9, "when"] = None
    whole = slice(0, 9 if "when" in columns else 10)
    for name, source in sources(later, tmp_path):
        report, data = _like(source, tmp_path, name)
        x = read_all(data)[0]
        assert np.array_equal(x[whole], expected[whole])
        assert np.isfinite(x).all()
        (notice,) = [notice for notice in report.notices if "no row lacked" in notice]
        assert all(f'"{column}" (1 row' in notice for column in columns if column in (*usual, "when"))
        assert '"gaps"' not in notice


def _like(source, folder, name):
    report = ingest(source, folder / name, like=folder / "d", shuffle=False)
    return report, open_dataset(folder / name)


def test_models_predict_rows_with_gaps_alike(tmp_path):
    table = frame(["a", "c"])
    table.to_csv(tmp_path / "a.csv", index=False)
    distls.train(
        tmp_path / "a.csv", tmp_path / "m", label_column="y", method="gls", params={"alpha": 0.1}, notify=print,
    )  # fmt: skip
    rows = table.drop(columns="y").iloc[:3].astype(object)
    rows.loc[0, "a"], rows.loc[1, "c"] = None, None
    model = distls.load_model(tmp_path / "m")
    with pytest.warns(UserWarning, match=r'no row lacked in training.* "a" \(1 row: median .*most frequent v'):
        own = model.decision_function(rows)
    usual = rows.copy()
    usual.loc[0, "a"], usual.loc[1, "c"] = float(np.median(table["a"].astype(np.float32))), "v"
    assert np.array_equal(own, model.decision_function(usual))
    assert "impute" not in [step["name"] for step in model.transforms]  # nothing else of the model changes


def test_who_asks_to_refuse_is_obeyed(tmp_path):
    table = frame(["a", "b", "c"])
    ingest(table, tmp_path / "d", label_column="y", transform="auto", impute=["refuse", "b=constant:3"])
    for column in ("a", "c"):
        later = table.astype(object)
        later.loc[3, column] = None
        with pytest.raises(BadInputError, match=f'column "{column}".*the value is missing'):
            ingest(later, tmp_path / "e", like=tmp_path / "d")
    later = table.astype(object)
    later.loc[3, "b"] = None
    report, data = _like(later, tmp_path, "f")
    assert not any("missing" in notice for notice in report.notices)  # what was asked for needs no word
    assert np.array_equal(read_all(data)[0], read_all(_like(table.assign(b=table["b"].where(table.index != 3, 3)),
                                                            tmp_path, "g")[1])[0])  # fmt: skip


@pytest.mark.parametrize(
    "feature",
    [
        Feature("a", impute="median:x"), Feature("a", impute="median:inf"), Feature("a", impute="median:1,2"),
        Feature("c", ("u",), impute="most_frequent:v"),
    ],
)  # fmt: skip
def test_recipes_of_others_are_checked(feature):
    with pytest.raises(ValueError, match=r"fill|float|index"):
        stand_ins([feature])


def test_sets_without_a_word_are_no_features(tmp_path):
    (tmp_path / "t.csv").write_text("tags,x,y\n" + "NA,1,a\nNA,2,b\n" * 20)
    ingest(tmp_path / "t.csv", tmp_path / "d", label_column="y", kind={"tags": "set:|"})
    assert open_dataset(tmp_path / "d").feature_names() == ["x"]
