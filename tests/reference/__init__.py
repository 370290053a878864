"""Plain-NumPy oracles: each paper's equations written as they stand, with no regard for speed."""
