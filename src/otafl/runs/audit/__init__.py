"""`otafl audit`: canaries in the compiled round of every scheme, and what they show held against the charge."""
