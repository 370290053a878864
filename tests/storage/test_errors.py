"""Errors are one line, whatever the names in them."""

import pytest

from distls.storage.errors import BadInputError, DistlsError, StorageError


@pytest.mark.parametrize("kind", [DistlsError, BadInputError, StorageError])
def test_names_with_line_breaks_are_shown_on_one_line(kind):
    error = kind("a\nb\x1b[2J\u2028c: größe \udc80")
    assert str(error) == r"a\nb\x1b[2J\u2028c: größe \udc80"
    assert len(str(error).splitlines()) == 1
