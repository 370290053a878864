"""Memory and cost of a fit, on this machine or on a hypothetical cluster."""
