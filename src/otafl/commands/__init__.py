"""Verbs of the command line that have much to say, and what all verbs share."""
