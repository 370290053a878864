"""Evaluation of models: scores, exact objective, certificate, metrics."""
