"""The run folder: what a run leaves behind, sealed, and how it is read again."""
