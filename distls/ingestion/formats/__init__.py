"""The input formats of the driver: recognition, options, plan."""
