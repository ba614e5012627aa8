"""`otafl audit`: attacks the compiled round of every scheme with canaries; what it finds is held against the charge."""
