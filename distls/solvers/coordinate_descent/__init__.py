"""Solvers of sparse models: block coordinate descent and proximal gradient."""
