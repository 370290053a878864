"""Readers of the input formats, one each."""
