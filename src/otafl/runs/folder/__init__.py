"""The run folder: what a run leaves behind, sealed, and how it is read again.

store            the folder; disk, sealed: failures in one line, every read against its hash
checkpoints, chunks   a scheme that is still running; its rounds as arrays
results          their tables, and the summary; summaries: read again
shapes, recount  what files can say; what they say of privacy, against the ledgers
"""
