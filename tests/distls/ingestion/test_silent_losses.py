"""What tables have, and what becomes of it: nothing is lost without a word."""

import pytest

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.testing.formats import read_all

pytest.importorskip("pyarrow")


def read(text, folder, label_column="y", **options):
    """Ingest the text of a file; return the notices, joined, the features by name, and the labels."""
    (folder / "a.csv").write_text(text)
    report = ingest(folder / "a.csv", folder / "d", label_column=label_column, shuffle=False, **options)
    x, y = read_all(open_dataset(folder / "d"))
    return (
        "\n".join(report.notices),
        dict(zip(open_dataset(folder / "d").feature_names(), x.T, strict=True)),
        y,
    )


def test_numbers_may_be_members_of_sets(tmp_path):
    rows = "".join(f"{k % 3}|{k % 5},{k % 2}\n" for k in range(40))
    _, found, _ = read("tags,y\n" + rows, tmp_path, kind="tags=set:|")
    assert [*found] == [f"tags={k}" for k in range(5)]
    assert found["tags=4"].tolist() == [k % 5 == 4 for k in range(40)]
