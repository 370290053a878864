"""Generated features: random projections, products, convolutions."""
