"""Temporary files of an ingest, a transposition or a fit."""
