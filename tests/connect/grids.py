"""A Flower grid in this process: real messages, real ClientApps, no network. A test can lose or forge replies."""

from collections.abc import Callable, Iterable
from copy import deepcopy

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # this process plays the ServerApp


class LocalGrid(Grid):
    """Nodes 100, 101, ... run `app` as partitions 0, 1, ...; `tamper(replies) -> replies` acts on every exchange."""

    def __init__(self, app: ClientApp, nodes: int, tamper: Callable[[list[Message]], list[Message]] | None = None):
        self.app, self.tamper = app, tamper or (lambda replies: replies)
        self.contexts = {
            100 + n: Context(
                run_id=1, node_id=100 + n, node_config={"partition-id": n, "num-partitions": nodes},
                state=RecordDict(), run_config={},
            )
            for n in range(nodes)
        }  # fmt: skip
        self.received: list[Message] = []
        self._number = 0

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.tamper([self._answer(message) for message in messages])

    def _answer(self, message: Message) -> Message:
        self._number += 1
        message.metadata.__dict__["_message_id"] = str(self._number)
        self.received.append(message)
        node = message.metadata.dst_node_id
        try:
            return self.app(deepcopy(message), self.contexts[node])
        except Exception as problem:  # as a SuperNode does
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(problem)), reply_to=message)

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError


def call(app: ClientApp, message: Message, **node_config: int) -> Message:
    """One message through one ClientApp."""
    context = Context(run_id=1, node_id=7, node_config=dict(node_config), state=RecordDict(), run_config={})
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, context)
