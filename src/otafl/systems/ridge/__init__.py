"""Ridge inversion: the power control that learns most per joule under a privacy budget, by own channel knowledge."""
