"""Bias-variance power control (Ul Abrar, Michelusi): fixed pre-scalers that trade bias for noise; its rivals."""
