"""Rows that are held out: as many as asked for, of each class its share, and never its last row."""

import numpy as np
import pytest

from distls.ingestion.ingest import ingest
from distls.storage.dataset.dataset import open_dataset
from distls.storage.errors import ParameterError, StorageError


def held(folder, y, splits):
    """Return the label counts of each part, and the notices."""
    x = np.arange(2.0 * len(y)).reshape(-1, 2)
    report = ingest(x, folder / "d", y=np.array(y), split=splits)
    parts = [open_dataset(path).meta for path in report.paths]
    return [dict(zip(m.classes, m.label_counts, strict=True)) for m in parts], report.notices


def test_classes_that_are_too_small_for_a_row_take_turns(tmp_path):
    y = [0] * 400 + [c for c in range(1, 101) for _ in range(4)]
    (train, test), notices = held(tmp_path, y, {"held": 0.1})
    assert sum(test.values()) == 80
    assert test[0] == 40
    assert max(count for label, count in test.items() if label) == 1
    assert min(train.values()) >= 3
    assert notices == ()


@pytest.mark.parametrize(
    ("counts", "fractions"), [((33, 33, 34), [0.1]), ((7, 5, 3), [0.3, 0.3]), ((60, 1, 2), [0.5])]
)
def test_parts_have_the_size_that_was_asked_for(tmp_path, counts, fractions):
    y = np.repeat(np.arange(len(counts)), counts)
    found, _ = held(tmp_path, y, {f"h{k}": fraction for k, fraction in enumerate(fractions)})
    sizes = [sum(part.values()) for part in found]
    assert sizes[1:] == [round(fraction * len(y)) for fraction in fractions]
    assert all(found[0].values()), "no class leaves training"
    assert {label: sum(part[label] for part in found) for label in found[0]} == dict(enumerate(counts))


def test_a_part_that_would_take_the_last_row_of_a_class_is_smaller_with_a_notice(tmp_path):
    (train, test), (notice,) = held(tmp_path, [0] * 10 + [1], {"held": 0.99})
    assert train == {0: 1, 1: 1}
    assert test == {0: 9, 1: 0}
    assert "9 of 11 rows, not 11" in notice


@pytest.mark.parametrize(("y", "fraction"), [([0.5] * 9, 0.99), ([0, 1] * 5, 0.01)])
def test_no_part_is_empty(tmp_path, y, fraction):
    with pytest.raises(ParameterError, match="leaves none"):
        held(tmp_path, y, {"held": fraction})


@pytest.mark.parametrize("name", ["part.csv", "d-held"])
def test_a_file_is_no_data_set_to_write_and_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    target = tmp_path / (name if name == "part.csv" else "d")
    with pytest.raises(StorageError, match="a file, and the last name"):
        ingest(np.eye(4), target, y=[0, 1, 0, 1], split={"held": 0.5})
    assert (tmp_path / name).read_text() == "mine"
