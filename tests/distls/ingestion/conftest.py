"""Columns of documents have few features here: naming a quarter of a million costs each ingest a second."""

import pytest

from distls.ingestion.formats import column_kinds


@pytest.fixture(autouse=True)
def few_features_of_documents(request, monkeypatch):
    """Make them 2**12; a test of the width itself asks for the `default_width`."""
    if "default_width" not in request.fixturenames:
        monkeypatch.setattr(column_kinds, "DOCUMENTS", 2**12)


@pytest.fixture
def default_width():
    """Return the number of features that a column of documents has by default."""
    return column_kinds.DOCUMENTS
