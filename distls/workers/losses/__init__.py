"""Losses: values, gradients, curvature, and what each can be used for."""
