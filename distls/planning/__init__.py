"""What a fit would need and cost, on this machine or on a hypothetical cluster."""
