"""Convergence and bias certificates for any sequence of receive scalings. Host, float64; no data."""
