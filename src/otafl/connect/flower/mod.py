"""The device's side: one mod in the ClientApp clips the update, and says which device of the site this node is."""

from logging import ERROR

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from otafl.connect.flower.leaves import Leaves, arrays_of, norm, replaced, update_of
from otafl.core.errors import InputError

RECORD = "otafl"  # the record beside the app's own: to the device a question or a bound, from the device its answer
DEVICE = "device"
CLIP_NORM = "clip-norm"
NAMES = "leaves"  # names of the leaves that are sent, one per line
FAILED = "the app failed; this node's log says why"  # what it says itself may quote the data


def clip_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """`ClientApp(mods=[clip_mod])`: nothing but an update of norm at most `clip_norm` leaves this node.

    The app's reply is a model. What is sent is the global model plus the clipped difference: sensitivity clip_norm
    under zero-out, 2 clip_norm under replacement of this client. Leaves that are not sent go back as they came; metrics
    and the words of errors are functions of private data that nobody charged, and stay here.
    """
    told = message.content.get(RECORD)
    if not isinstance(told, ConfigRecord):
        return call_next(message, context)
    if CLIP_NORM not in told:
        return _who(message, context)
    message.content = RecordDict({key: record for key, record in message.content.items() if key != RECORD})
    key, global_model = next(iter(message.content.array_records.items()))
    model = arrays_of(global_model, str(told[NAMES]).split("\n"))
    try:
        reply = call_next(message, context)
    except Exception as problem:
        log(ERROR, "the app failed", exc_info=problem)
        return _refusal(message, FAILED)
    if reply.has_error():
        log(ERROR, "the app failed: %s", reply.error.reason)
        return _refusal(message, FAILED)
    records = reply.content.array_records
    if len(records) != 1:
        return _refusal(message, f"the reply holds {len(records)} ArrayRecords; send one, the trained model")
    (trained,) = records.values()
    try:
        bounded = clipped(arrays_of(trained, list(model)), update_of(trained, model), model, float(told[CLIP_NORM]))
    except InputError as problem:
        return _refusal(message, str(problem))
    reply.content = RecordDict({key: replaced(global_model, bounded)})
    return reply


def clipped(trained: Leaves, update: Leaves, model: Leaves, bound: float) -> Leaves:
    """The trained model, drawn towards `model` until their distance is at most `bound`, rounding of both included.

    A sum and a difference lose half a unit in the last place each: together they move the norm by at most `lost`.
    """
    lost = max(float(np.finfo(leaf.dtype).eps) for leaf in model.values()) * (norm(model) + bound)
    size = norm(update)
    if not np.isfinite(size):  # the server reports that, and gets no more of it
        return {name: np.full_like(leaf, np.nan) for name, leaf in model.items()}
    if size <= bound - lost:
        return trained
    if lost >= bound:
        raise InputError(f"clip_norm={bound:g} is lost in the rounding of this model; raise it, or use wider leaves")
    factor = (bound - lost) / size
    return {name: model[name] + (leaf * factor).astype(leaf.dtype) for name, leaf in update.items()}


def _who(message: Message, context: Context) -> Message:
    """The device this node is: its `partition-id`."""
    number = context.node_config.get("partition-id")
    if isinstance(number, bool) or not isinstance(number, int):
        return _refusal(message, "start this SuperNode with --node-config 'partition-id=<its device, from 0>'")
    return Message(RecordDict({RECORD: ConfigRecord({DEVICE: number})}), reply_to=message)


def _refusal(message: Message, reason: str) -> Message:
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=f"clip_mod: {reason}"), reply_to=message)
