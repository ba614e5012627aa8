"""Bridges to other frameworks, each behind an extra of its own and tested against the real thing."""
