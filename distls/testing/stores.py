"""What every place for files promises, on a disk or in an object store: what the formats of the package ask of it."""

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from distls.storage.dataset.chunks import read_arrays, write_arrays
from distls.storage.errors import FormatError
from distls.storage.filesystem.append_log import Lines
from distls.storage.filesystem.atomic import remove_tree, replace_directory, subfolders, text_file, write_bytes
from distls.storage.filesystem.paths import Place
from distls.storage.filesystem.safe_read import opened_ranges, read_array_file, read_bytes
from distls.storage.model.bundle import read_bundle, write_bundle
from distls.storage.temporary.row_state import RowState


def _write(path: Place, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


class StoreContract:
    """What every place must do; subclasses provide the fixture `place`, a new one for each test."""

    def test_names_tell_files_from_folders(self, place: Place) -> None:
        for name, content in (("a/x.bin", b"123"), ("a/b/y", b""), ("ab", b"4")):
            _write(place / name, content)
        names = ("a", "ab", "a/x.bin", "a/b", "b", "a/x")
        assert [name for name in names if (place / name).exists()] == ["a", "ab", "a/x.bin", "a/b"]
        assert [name for name in names if (place / name).is_dir()] == ["a", "a/b"]
        assert [name for name in names if (place / name).is_file()] == ["ab", "a/x.bin"]
        assert (place / "a/b/y").is_file()
        assert sorted(each.name for each in place.iterdir()) == ["a", "ab"]
        assert subfolders(place) == [place / "a"]
        assert (place / "a" / "x.bin").stat().st_size == 3

    def test_what_is_removed_is_not_there(self, place: Place) -> None:
        for name in ("a/x.bin", "a/b/y", "ab"):
            _write(place / name, b"1")
        remove_tree(place / "a")
        remove_tree(place / "nothing")
        assert [each.name for each in place.iterdir()] == ["ab"]
        gone = place / "ab"
        gone.unlink()
        gone.unlink(missing_ok=True)
        for act in (gone.unlink, gone.stat, gone.read_bytes, gone.read_text):
            with pytest.raises(FileNotFoundError, match="ab"):
                act()

    @pytest.mark.parametrize("size", [0, 1, 1000, 2**20 + 1])
    def test_bytes_come_back(self, place: Place, size: int) -> None:
        content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
        write_bytes(place / "x", content[: size // 3].data, b"", content[size // 3 :].data)
        read = read_array_file(place / "x")
        assert np.array_equal(read, content)
        assert read.flags.writeable
        assert read_bytes(place / "x") == (place / "x").read_bytes() == content.tobytes()
        with opened_ranges(place / "x", place) as fill:
            for start, length in ((0, min(size, 10)), (size // 2, size), (size, 5)):
                into = bytearray(length)
                got = fill(start, memoryview(into))
                assert bytes(into[:got]) == content.tobytes()[start : start + length]
                # into several views as into one
                views = (memoryview(again := bytearray(length)), memoryview(bytearray()), memoryview(bytearray(3)))
                assert fill(start, *views) == min(length + 3, size - start)
                assert (again, bytes(views[2])) == (into, content.tobytes()[start + length :][:3].ljust(3, b"\0"))

    def test_what_is_too_large_is_not_read(self, place: Place) -> None:
        write_bytes(place / "x", bytes(100))
        with pytest.raises(FormatError, match=re.escape("100 bytes, more than the 99")):
            read_bytes(place / "x", limit=99)

    def test_a_text_is_whole_or_absent(self, place: Place) -> None:
        with text_file(place / "x.csv") as file:
            file.write("ä,b\r\n")
            assert not (place / "x.csv").exists()
        assert (place / "x.csv").read_bytes() == "ä,b\r\n".encode()
        with contextlib.suppress(KeyError), text_file(place / "y.csv") as file:
            file.write("1\n" * 20_000_000)  # more than is kept before the file is begun
            raise KeyError
        assert [each.name for each in place.iterdir()] == ["x.csv"]

    def test_lines_are_appended(self, place: Place) -> None:
        lines = Lines(place / "events.jsonl")
        assert lines.read() == []
        for number in range(50):
            lines.append(f"line {number}")
        lines.flush()
        assert Lines(place / "events.jsonl").read() == [f"line {number}" for number in range(50)]
        again = Lines(place / "events.jsonl")
        again.replace(again.read()[:2])
        again.append("new")
        assert again.read() == ["line 0", "line 1", "new"]
        again.flush()
        assert (place / "events.jsonl").read_text() == "line 0\nline 1\nnew\n"

    def test_groups_are_replaced(self, place: Place) -> None:
        arrays: dict[str, NDArray[Any]] = {"a": np.arange(5), "b": np.zeros((2, 0), np.float32)}
        write_arrays(place / "old", {"c": np.ones(3)})
        write_arrays(place / "new", arrays)
        replace_directory(place / "new", place / "old")
        found = read_arrays(place / "old", place)
        assert found.keys() == arrays.keys()
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())
        remove_tree(place / "new")
        assert [each.name for each in place.iterdir()] == ["old"]

    def test_bundles_are_replaced(self, place: Place) -> None:
        for number in range(3):
            write_bundle(place / "b", "model", {"n": number}, {"a": np.full(4, number)})
        attributes, arrays = read_bundle(place / "b", "model")
        assert (attributes, arrays["a"].tolist()) == ({"n": 2}, [2, 2, 2, 2])

    def test_the_state_of_rows_is_that_of_two_versions(self, place: Place) -> None:
        state = RowState(str(place / "state"))
        for version in range(4):
            state.write(3, version, np.full((2, 2), version, np.float32))
        assert state.read(3, 3).tolist() == [[3, 3], [3, 3]]
        assert [state.holds(3, version) for version in range(5)] == [False, False, True, True, False]
