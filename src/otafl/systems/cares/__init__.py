"""CARES: receive scalings certified for convergence, privacy and participation; fixed, or a bandit among them."""
