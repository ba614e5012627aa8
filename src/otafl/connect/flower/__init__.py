"""Flower over the air: `OverTheAir` for the ServerApp, `clip_mod` for the ClientApp. `pip install otafl[flower]`.

Light to import: a SuperNode starts a process for every message. What the strategy needs of the rest, it imports itself.

strategy, mod    the two ends
nodes, leaves    who answers as which client; arrays of theirs as one message
folder, record   what a federation leaves behind; its rounds for a page
"""

try:
    import flwr as _flwr  # noqa: F401
except ModuleNotFoundError as missing:
    from otafl.core.errors import InputError

    raise InputError("otafl.connect.flower needs Flower; pip install 'otafl[flower]'") from missing

from otafl.connect.flower.leaves import num_params
from otafl.connect.flower.mod import clip_mod
from otafl.connect.flower.strategy import OverTheAir

__all__ = ["OverTheAir", "clip_mod", "num_params"]
