"""What an experiment file may say. Pydantic; every mistake becomes one line (see `otafl.core.files`)."""

from otafl.runs.schema.blocks import EngineOptions, Privacy, Radio, Server, Task
from otafl.runs.schema.experiment import Experiment, Own, follow_schemes
from otafl.runs.schema.reading import assign, config_hash, extreme_numbers, load, override_all, resolved
from otafl.runs.schema.tagged import options_of, tagged, union

__all__ = [
    "EngineOptions", "Experiment", "Own", "Privacy", "Radio", "Server", "Task", "assign", "config_hash",
    "extreme_numbers", "follow_schemes", "load", "options_of", "override_all", "resolved", "tagged", "union",
]  # fmt: skip
