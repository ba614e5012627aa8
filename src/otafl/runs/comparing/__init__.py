"""`otafl compare`: equal settings, equal trials, and what may be said about the differences."""
