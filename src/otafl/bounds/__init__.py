"""Convergence and bias certificates for any sequence of receive scalings. Host, float64; no data.

convergence      the bound after T rounds; local_steps: what several local steps add to it
sequence         the certificate of any sequence of rounds; budget: what it costs in zCDP
envelopes        who is dropped, from channel statistics; antennas: at several antennas
bias             how far an aggregate is from the ideal one
merit            how much learning a plan buys
"""
