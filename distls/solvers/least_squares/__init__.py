"""Solvers of the least-squares family."""
