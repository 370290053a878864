"""Evaluation sums: errors, objective, gradient."""
