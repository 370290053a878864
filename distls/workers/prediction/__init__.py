"""From rows to scores, classes and label sets."""
