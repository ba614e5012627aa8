"""Which node of the federation is which device of the site: node ids are random, its `partition-id` says it."""

import time
from logging import INFO, WARNING

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from otafl.connect.flower.mod import DEVICE, RECORD
from otafl.core.errors import InputError

PAUSE_S = 1.0  # between two looks at who is there
ANSWER_S = 120.0  # for a node to say who it is: its ClientApp has to start


class Nodes:
    """The nodes of `devices` devices. Every node is asked once who it is; a device may come back as another node."""

    def __init__(self, devices: int):
        self.devices = devices
        self.node_of: dict[int, int] = {}
        self.device_of: dict[int, int] = {}

    def wait_for_all(self, grid: Grid, patience_s: float) -> None:
        """Until every device of the site has a node: a plan is made for all of them."""
        deadline = time.monotonic() + patience_s
        while len(self.look(grid, strict=True)) < self.devices:
            if time.monotonic() > deadline:
                away = sorted(set(range(self.devices)) - set(self.node_of))
                raise InputError(
                    f"devices {', '.join(map(str, away))} of {self.devices} did not connect within {patience_s:g} s; "
                    "start their SuperNodes, or plan for fewer devices"
                )
            log(INFO, "Waiting for devices: %d of %d are here", len(self.node_of), self.devices)
            time.sleep(PAUSE_S)

    def look(self, grid: Grid, strict: bool = False) -> dict[int, int]:
        """Devices that are here, and their nodes. While some are away, nodes not seen before are asked who they are."""
        here = set(grid.get_node_ids())
        strangers = here - set(self.device_of)
        if strangers and len(here & set(self.device_of)) < self.devices:
            content = RecordDict({RECORD: ConfigRecord({})})
            # A ClientApp need not know queries, but all can train; the mod answers before the app is reached.
            asked = [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in sorted(strangers)]
            for reply in grid.send_and_receive(asked, timeout=ANSWER_S):
                try:
                    self._enter(reply, here)
                except InputError as problem:
                    if strict:
                        raise
                    log(WARNING, "%s", problem)
        return {device: node for device, node in self.node_of.items() if node in here}

    def _enter(self, reply: Message, here: set[int]) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error() or RECORD not in reply.content:
            why = reply.error.reason if reply.has_error() else "it answered something else"
            raise InputError(
                f"node {node} does not say which device it is ({' '.join(why.split())[:200]}); "
                "its ClientApp needs mods=[clip_mod]"
            )
        said = reply.content[RECORD]
        device = said.get(DEVICE) if isinstance(said, ConfigRecord) else None
        if isinstance(device, bool) or not isinstance(device, int) or not 0 <= device < self.devices:
            raise InputError(
                f"node {node}: partition-id={device!r:.40} must lie in [0, {self.devices}): the site's devices"
            )
        before = self.node_of.get(device)
        if before == node:
            return
        if before is not None and before in here:
            raise InputError(f"nodes {before} and {node} both have partition-id={device}; every device is one node")
        if before is not None:
            log(WARNING, "Device %d came back as another node", device)
        self.node_of[device], self.device_of[node] = node, device
