"""EEZOFL: scalars of zero-order learning, encrypted under the sum of all keys."""
