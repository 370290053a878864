"""Least squares: sufficient statistics and predictions, reduced over lanes."""
