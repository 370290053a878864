"""Formats in which single public data sets are distributed."""
