"""Stochastic methods that use curvature: a diagonal, a matrix, or a history of steps."""
