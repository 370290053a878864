"""Measurements: each is a script that prints a table and writes JSON, and runs tiny inside the tests."""
