"""The round and what its parts share. Knows no scheme.

plan             the data that the parts of a round hand to each other
messages         what clients of all kinds do: clip, decide to send, add up; uplink: the air in between
rounds           the round; engine: rounds as a compiled program; sharding, kernels: on several devices, on a GPU
streams, draws   every random stream; draws of any shape by one key
errors           the ways to refuse; validate: checks at the edge; authors: of functions that are not ours
files            what users wrote, read; mistakes: said in one line; archives: arrays in files
arrays, interval, markdown   names of array types; the interval of a mean; pages that hold others' names
"""
