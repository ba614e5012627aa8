"""`otafl audit`: canaries in the compiled round of every scheme, and what they show held against the charge.

audit, attack    of an experiment or a run; of one scheme
targets, target  what is attacked: plans fixed, who is a canary, a pair of worlds
canaries         the worlds, played by the real round; canary_clients, canary_records: who differs in them
both_parts       an observer who keeps all that the receiver hears
single           one run as its own audit
"""
