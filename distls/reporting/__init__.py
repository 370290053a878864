"""Reports and comparisons of runs: as JSON values, and as one HTML file that needs no network."""
