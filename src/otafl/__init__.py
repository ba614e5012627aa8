"""otafl: over-the-air federated learning with privacy: plan, run, account, certify and encrypt.

`task` and `model` take your own data and network, `run` trains schemes on them and returns a `Run`; `scheme` makes a
function of yours a scheme. `Air` is the smallest useful thing: the rounds of a scheme with the messages brought by your
own loop. A scheme is a name, or a value made by the function of that name: `otafl.constant(rx_scale=0.3)`; `dir(otafl)`
lists them.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see of `_FRONT`
    from otafl.reports.run import Run as Run
    from otafl.reproductions.verb import reproduce as reproduce
    from otafl.runs.air import Air as Air
    from otafl.runs.air.replies import Reply as Reply
    from otafl.runs.own_scheme import scheme as scheme
    from otafl.tasks.own_data import task as task
    from otafl.tasks.own_model import model as model
    from otafl.verbs import advise as advise
    from otafl.verbs import audit as audit
    from otafl.verbs import compare as compare
    from otafl.verbs import plan as plan
    from otafl.verbs import report as report
    from otafl.verbs import run as run
    from otafl.verbs import sweep as sweep

__version__ = "0.2.0"

# Found on first use: importing otafl costs nothing.
_FRONT = {
    "Air": "otafl.runs.air",
    "Reply": "otafl.runs.air.replies",
    "Run": "otafl.reports.run",
    "advise": "otafl.verbs",
    "audit": "otafl.verbs",
    "compare": "otafl.verbs",
    "model": "otafl.tasks.own_model",
    "plan": "otafl.verbs",
    "report": "otafl.verbs",
    "reproduce": "otafl.reproductions.verb",
    "run": "otafl.verbs",
    "scheme": "otafl.runs.own_scheme",
    "sweep": "otafl.verbs",
    "task": "otafl.tasks.own_data",
}


def __getattr__(name: str) -> Any:
    if name in _FRONT:
        return getattr(import_module(_FRONT[name]), name)
    if name.startswith("_") or find_spec(f"otafl.{name}"):  # `from otafl import systems` asks here first
        raise AttributeError(f"module 'otafl' has no attribute {name!r}")
    return import_module("otafl.runs.schemes").factory_named(name, _FRONT)


def __dir__() -> list[str]:
    ours = {*globals(), *_FRONT, *import_module("otafl.runs.schemes").factory_names()}
    return sorted(ours - {"Any", "TYPE_CHECKING", "find_spec", "import_module"})
