"""Stores written by other programs, read block by block."""
