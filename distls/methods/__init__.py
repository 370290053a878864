"""Methods by name: parameters, validation, help."""
