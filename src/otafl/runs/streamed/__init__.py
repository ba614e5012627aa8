"""Runs whose rounds are not kept client by client: channels, plans, charges and records go by in blocks of rounds.

    choice      which runs, in how large blocks, and what cannot go by in blocks
    ahead       channel and plan of one seed, block by block
    tally       what is kept of rounds that are over: exact sums per client, figures per round, quantiles over clients
    passed      what a checkpoint holds of them
    planned     planned and charged block by block: `otafl plan`
    execution   then trained the same way: `otafl run`

The size of a block changes no bit of a model or a ledger.
"""
