"""Models, checkpoints and predictions on disk."""
