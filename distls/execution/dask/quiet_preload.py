"""Imported first by the process that workers are forked from: Dask, without a word where its settings are broken."""

import contextlib
import importlib

# the driver imports it too, and says what is wrong
with contextlib.suppress(Exception):
    importlib.import_module("distributed")
