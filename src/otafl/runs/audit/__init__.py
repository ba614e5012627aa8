"""`otafl audit`: attacks the compiled round of every scheme with canaries, and holds what it finds against the charge."""
