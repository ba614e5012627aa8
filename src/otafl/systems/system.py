"""What a published system exports: one `SYSTEM` value. Strings name what is loaded when it is first used."""

import dataclasses
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from otafl.core.errors import InputError
from otafl.core.plan import Policy


class Scheme(NamedTuple):
    """One power-control rule, by where it lives. `factory(config, deployment, message, context) -> Policy`."""

    summary: str
    factory: str | Callable[..., Policy]  # "module:function" within the system's folder, or the function itself
    config: str | type = "Config"  # frozen dataclass beside the factory: what a user may set
    private: bool = True  # False: a reference without privacy, which no budget stops
    hindsight: bool = False  # True: it is told the whole channel before the first round, which no server is
    settings: str | None = None  # "module:function" that chooses its options for a site and a target, without data
    planner: str | None = None  # "module:PLANNER" of `otafl plan NAME`, where the scheme has one of its own
    antennas: Literal["any", "fixed", "one"] = "any"  # receivers it plans for: every beam, a fixed one
    array_note: str = ""  # what becomes of its certificate, or of its own privacy levels, at more than one antenna
    plans_as: str | None = None  # of a closed loop: the open one whose settings and plans it starts from
    around: str | None = None  # "module:function" from the settings of that one to its own
    informative: str | None = None  # "module:function": whether a plan's certificate says more than clipping alone
    clients: Mapping[str, Any] | None = None  # what its clients send where it is advised, if that is no gradient
    weighs: bool = True  # False: it counts all clients alike, whatever their weights


class LoadedScheme(NamedTuple):
    """A scheme with its code."""

    name: str
    summary: str
    config: type
    factory: Callable[..., Policy]


class System(NamedTuple):
    """A published system: its schemes, its planner, and its folder with presets and examples."""

    name: str
    summary: str
    package: str  # `__name__` of the folder that exports it
    schemes: Mapping[str, Scheme]
    planner: str | None = None  # "module:PLANNER" of `otafl plan NAME`
    advised: bool = True  # False: compared with, not offered (hindsight, a device more, a charge that no site affords)

    def load(self, place: str) -> Any:
        """What "module:attribute" names, within the system's folder."""
        module, _, attribute = place.partition(":")
        return getattr(import_module(f"{self.package}.{module}"), attribute)

    def scheme(self, name: str) -> LoadedScheme:
        entry = self.schemes[name]
        factory, config = entry.factory, entry.config
        if isinstance(factory, str):
            config = self.load(f"{factory.partition(':')[0]}:{config}") if isinstance(config, str) else config
            factory = self.load(factory)
        if not isinstance(config, type) or not dataclasses.is_dataclass(config):
            raise InputError(f"scheme {name!r}: config={config!r} must be a dataclass")
        return LoadedScheme(name, entry.summary, config, factory)

    def presets(self) -> list[Path]:
        """Its experiment files, one per published table or figure."""
        return sorted(Path(str(import_module(self.package).__file__)).parent.glob("presets/*.toml"))
