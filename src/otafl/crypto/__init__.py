"""Encryption for over-the-air sums: exact ring arithmetic, xMK-CKKS, the four-phase protocol, and its honest budget.

ring, ntt         Z_q[X]/(X^n+1) as residues, exact, jit-able
randomness        operating-system randomness and exact samplers
parameters        what a job agrees on; security table
scaling           floats to residues and back, channel grid, packing
xmkckks, clients  keys, encryption, shares; what devices refuse
modes, overair    channels on a grid; the protocol, failure detection
fused             the same round for simulation under scan
singlekey, realchannel   comparisons that are insecure or must fail
budget, planning, feasibility, convergence   noise, parameters, radio, theorem

Importing needs numpy and jax only.
"""
