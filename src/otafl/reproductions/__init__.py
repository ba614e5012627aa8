"""Analyses behind the presets: each turns runs and designs into a published figure or table, and a verdict."""
