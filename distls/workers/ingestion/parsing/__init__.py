"""Kernels and helpers of the text formats."""
