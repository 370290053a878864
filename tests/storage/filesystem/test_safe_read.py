"""Reading what somebody else may have made: bounded, regular, inside its folder, and never code."""

import ast
import json
import os
import re
import tracemalloc
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest
from helpers import raised, refuses

from distls.storage.errors import FormatError
from distls.storage.filesystem.paths import StorePath
from distls.storage.filesystem.safe_read import (
    LARGEST_JSON,
    convert_json,
    open_regular,
    parse_json,
    read_array_file,
    read_bytes,
    read_json,
    refuse_links,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path):
    """A folder with a file two levels down, and a secret beside it."""
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file.json").write_text('{"a": 1}')
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    return tmp_path / "folder"


def refusal(function, *arguments):
    return raised(FormatError, function, *arguments)


# -- links and things that are no files ------------------------------------------------------------------


def read_any(path, within=None):
    return read_json(path, object, within)


READERS = [read_bytes, read_any, read_array_file, open_regular]


@pytest.mark.fast_cases("the file-read_bytes", "its folder-read_bytes", "its folder-open_regular")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("linked", ["the file", "its folder"])
def test_a_link_out_of_the_folder(folder, read, linked):
    path = folder / "inner" / "file.json"
    if linked == "the file":
        path.unlink()
        path.symlink_to(folder.parent / "secret.json")
    else:
        (folder / "inner").rename(folder.parent / "elsewhere")
        (folder / "inner").symlink_to(folder.parent / "elsewhere")
    message = f"{path}: a link leads out of {folder}; all its files must be inside it: copy them there"
    assert refusal(read, path, folder) == message


def test_links_that_stay_inside_and_a_link_to_the_folder(folder):
    (folder / "again.json").symlink_to("inner/file.json")
    (folder / "absolute.json").symlink_to(folder / "inner" / "file.json")
    (folder.parent / "link").symlink_to(folder)
    for root in (folder, folder.parent / "link"):
        for name in ("again.json", "absolute.json", "inner/file.json"):
            assert read_any(root / name, root) == {"a": 1}


def test_a_folder_whose_name_starts_like_another(folder):
    (folder.parent / "folder-two").mkdir()
    (folder.parent / "folder-two" / "x.json").write_text("{}")
    (folder / "x.json").symlink_to("../folder-two/x.json")
    assert "a link leads out of" in refusal(read_any, folder / "x.json", folder)


def test_the_link_to_the_folder_may_be_turned_to_another(folder):
    other, link = folder.parent / "other", folder.parent / "link"
    other.mkdir()
    (other / "x.json").write_text("2")
    (folder / "x.json").write_text("1")
    for target, value in ((folder, 1), (other, 2), (folder, 1)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert read_any(link / "x.json", link) == value


def test_links_without_proc(folder, monkeypatch):
    def absent(path, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, **options)

    real = os.readlink
    (folder / "x.json").symlink_to("../secret.json")
    monkeypatch.setattr(os, "readlink", absent)
    assert read_any(folder / "inner" / "file.json", folder) == {"a": 1}
    assert "a link leads out of" in refusal(read_any, folder / "x.json", folder)


@pytest.mark.fast_cases("fifo-read_bytes", "device-read_bytes", "device-open_regular", "file of proc-open_regular")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", ["fifo", "device", "file of proc"])
def test_what_is_no_file_is_not_waited_for(folder, read, kind):
    path = folder / "inner" / "file.json"
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to("/proc/self/environ")
        # a file of /proc is regular, and elsewhere
        assert "a link leads out of" in refusal(read, path, folder)
        return
    assert (
        refusal(read, path, folder) == f"{path}: not a regular file; a file of distls is never a pipe, socket or device"
    )


def _target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed since
        return ""


def test_descriptors_are_closed(folder):
    (folder / "x.json").symlink_to("../secret.json")

    def opened():
        # of this folder: threads that other tests have left may open sockets meanwhile
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return [place for place in map(_target, links) if place.startswith(str(folder))]

    file = (folder / "inner" / "file.json").open()
    assert opened() == [str(folder / "inner" / "file.json")]
    file.close()
    for _ in range(20):
        refusal(read_any, folder / "x.json", folder)
        read_any(folder / "inner" / "file.json")
    assert opened() == []


def test_a_folder_that_will_be_written_to(folder):
    (folder / "inside").symlink_to("inner")
    refuse_links(folder)
    refuse_links(folder / "missing")
    (folder / "inner" / "out").symlink_to("../../secret.json")
    message = f"{folder}/inner/out: a link leads out of {folder}; all its files must be inside it: copy them there"
    assert refusal(refuse_links, folder) == message
    (folder / "inner" / "out").unlink()
    os.mkfifo(folder / "inner" / "pipe")
    assert refusal(refuse_links, folder) == f"{folder}/inner/pipe: not a regular file; remove it"


# -- JSON ------------------------------------------------------------------------------------------------

BOMBS = {
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "deeper than ours": b"[" * 65 + b"]" * 65,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "unclosed": b"[" * 1_000_000,
    "wide": b"[" + b"[]," * 9_000_000 + b"[]]",
    "long number": b"1" * 1_000_000,
    "infinite": b"[1e999]",
    "nan": b'{"a": NaN}',
    "half a character": b'{"a": "\\ud800"}',
    "not UTF-8": b'{"a": "\xff"}',
    "NUL": b"\0" * 1000,
}


class Document(msgspec.Struct):
    """A document of ours with a member that may hold anything."""

    a: Any = None
    n: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0


@pytest.mark.fast_cases(
    "object-NUL", "object-half", "object-not", "Document-deep objects", "Document-long", "Document-wide"
)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", sorted(BOMBS))
@pytest.mark.parametrize("form", [object, Document])
def test_json_bombs(tmp_path, kind, form):
    path = tmp_path / "x.json"
    path.write_bytes(BOMBS[kind])
    tracemalloc.start()
    try:
        raised(ValueError, read_json, path, form)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(BOMBS[kind]) + 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.fast_cases(
    '\\{"n": -1\\}', '\\{"n": null\\}', '\\{"a": Infinity\\}', r"\{\}\{\}", '\\{"a": "\\\\\\\\udcff", "b"'
)
@pytest.mark.parametrize(
    "text",
    ['{"n": -1}', '{"n": true}', '{"n": "1"}', '{"n": 1.0}', '{"n": null}', '{"n": 9223372036854775808}',
     '{"n": 1e400}', '{"n": %s}' % ("1" * 5000), '{"n": NaN}', '{"a": Infinity}', '{"a": [1e999]}',
     "[]", "1", "", "{}{}", '{"n": 1,}',
     '{"a": {"b": "\\ud800"}}', '{"a": "\\udcff", "n": "1"}', '{"a": "\\udcff", "b": NaN}'],
)  # fmt: skip
def test_documents_of_other_types(text):
    assert "\n" not in raised(ValueError, parse_json, text.encode(), Document)


@pytest.mark.parametrize("escape", ["", "\\udcff"], ids=["plain", "no UTF-8"])
def test_depth_of_what_a_document_holds(escape):
    """With half a byte of a name the standard library reads it instead."""

    def text(depth):
        return b'{"a": %s"%s"%s}' % (b"[" * depth, escape.encode(), b"]" * depth)

    deepest = 63  # the document itself is the 64th
    value = parse_json(text(deepest), Document).a
    for _ in range(deepest):
        (value,) = value
    assert value == json.loads(f'"{escape}"')
    for depth in (deepest + 1, 100_000):
        refuses(ValueError, "nested more than 64 deep", parse_json, text(depth), Document)


def test_of_a_name_that_is_there_twice_the_last_counts():
    assert parse_json(b'{"n": 1, "n": 2}', Document).n == json.loads('{"n": 1, "n": 2}')["n"] == 2


def test_messages_of_conversions_are_one_short_line():
    class Closed(msgspec.Struct, forbid_unknown_fields=True):
        pass

    for name in ("a\nb", "x" * 10_000):
        with pytest.raises(ValueError, match="Object contains unknown field") as caught:
            convert_json({name: 1}, Closed)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 200


def test_json_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: no disk is used
    message = f"{path}: {2**40} bytes, more than the {LARGEST_JSON} that such a file of distls has at most"
    assert refusal(read_any, path) == message


def test_json_that_is_ours(tmp_path):
    path, value = (tmp_path / "x.json", {"a": [1, -2.5, 1e300, None, "é\U0001f600", "\udcff", 2**70], "b": {"c": [[]]}})
    path.write_text(json.dumps(value))
    assert read_any(path) == read_json(path, dict[str, Any]) == value
    path.write_text("[1]")
    refuses(ValueError, "Expected `object`, got `array`", read_json, path, dict[str, Any])


def test_places_of_object_stores(monkeypatch):
    def read_whole(self, room):
        content = np.frombuffer(b'{"a": 1}', np.uint8)
        into = room(len(content))
        into[:] = content
        return into

    monkeypatch.setattr(StorePath, "read_whole", read_whole)
    place = StorePath("s3://bucket", "x.json")
    assert read_any(place, StorePath("s3://bucket", "")) == {"a": 1}
    assert read_array_file(place).tobytes() == b'{"a": 1}'
    message = "s3://bucket/x.json: 8 bytes, more than the 7 that such a file of distls has at most"
    assert refusal(lambda: read_bytes(place, limit=7)) == message
    refuse_links(place)


# -- never code ------------------------------------------------------------------------------------------

# The standard library, and what reads pickles on behalf of others.
CODE = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
EXPECTED = {
    # measures what Dask sends, and copies or cuts it: what is read was made by a process of the same cluster
    ("distls/execution/dask/reduction_tasks.py", "pickle"),
    # numba's own format of compiled kernels, which are code anyway; in a folder that nobody else can write to
    # (`test_what_others_plant_is_not_unpickled`), and after a checksum (`test_damaged_entries.py`)
    ("distls/workers/compilation/entry_files.py", "pickle"),
    ("distls/testing/losses.py", "pickle"),  # a loss that the suite itself has just pickled
}
CALLS = {"eval", "exec", "compile", "__import__"}
ANY_OF_THEM = re.compile(rf"\b({'|'.join([*CODE, *CALLS, 'allow_pickle'])})\b")


def modules():
    return sorted((ROOT / "distls").rglob("*.py"))


def suspicious(path):
    """Yield what of a module could run code found in a file."""
    text = path.read_text()
    # most modules have none of the names and need not be parsed
    for node in ast.walk(ast.parse(text)) if ANY_OF_THEM.search(text) else ():
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in CODE)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in CODE:
            yield node.module
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            said = all(isinstance(argument, ast.Constant) for argument in node.args)
            if isinstance(node.func, ast.Name) and name in CALLS and not said:
                yield name
            if any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords):
                yield "allow_pickle"


def test_no_module_reads_pickles_or_runs_text():
    found = {(str(path.relative_to(ROOT)), what) for path in modules() for what in suspicious(path)}
    assert len(modules()) > 150
    assert found == EXPECTED


def test_pickle_is_of_messages_between_tasks_only():
    tree = ast.parse((ROOT / "distls/execution/dask/reduction_tasks.py").read_text())
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith("pickle.")} == {
        "pickle.PickleBuffer",
        "pickle.dumps",
        "pickle.loads",
    }
