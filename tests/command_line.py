"""A small experiment for the command line, and what calling it gives."""

from collections.abc import Callable

SMALL = """
rounds = 3
seeds = 1
evaluate_every = 2
channel = "cares"
clients = { kind = "gradient", batch = 4 }
engine = { checkpoint_seconds = 0 }
privacy = { eps = 200.0 }

[task]
data = { name = "digits", train_size = 40 }
clients = 2
partition = { kind = "iid" }
model = { name = "logistic" }

[[scheme]]
name = "constant"
"""
Call = Callable[..., tuple[int, str, str]]  # exit code, stdout, stderr
