"""What an experiment file may say. Pydantic; every mistake becomes one line (see `otafl.core.files`).

The options of schemes, clients, partitions and models are the frozen dataclasses that their own modules declare; the
tagged models below are made from them, so a new scheme brings its own part of the schema along.
"""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_type_hints

import numpy as np
import tomli_w
from pydantic import Field, PrivateAttr, PydanticUserError, create_model, field_validator, model_validator

from otafl import clients as client_kinds
from otafl import systems
from otafl.channels import CHANNELS, PUBLISHED, Channel, PathLoss, dbm_to_w
from otafl.channels.radio import THERMAL_DBM_PER_HZ
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, parse, read_toml
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.eavesdropper import Eavesdropper
from otafl.runs.folder.store import slug
from otafl.tasks.features import DataOptions, PcaOptions
from otafl.tasks.models import MODELS, Model
from otafl.tasks.own_data import OwnTask
from otafl.tasks.partitions import PARTITIONS
from otafl.tasks.sources import DATASETS

for strict in (DataOptions, PcaOptions, Eavesdropper):  # unknown keys are mistakes here as everywhere
    strict.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[union-attr]

Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**5)]  # of clients, of seeds
SeedNumbers = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1, max_length=10**5)]


def tagged(name: str, tag: str, options: type, **common: Any) -> type[FileModel]:
    """A file model with the fields of a dataclass, its tag, and fields common to all of its kind."""
    hints = get_type_hints(options, include_extras=True)
    fields: dict[str, Any] = {tag: (Literal[name], name), **common}
    for f in dataclasses.fields(options):
        if f.name in fields:
            raise InputError(f"{name}: its setting {f.name!r} has a name that every {tag} has; choose another")
        if f.default is not dataclasses.MISSING:
            default: Any = f.default
        else:
            default = ... if f.default_factory is dataclasses.MISSING else Field(default_factory=f.default_factory)
        fields[f.name] = (hints[f.name], default)
    title = "".join(part.capitalize() for part in name.replace("_", "-").split("-"))
    try:
        return create_model(title, __base__=FileModel, **fields)
    except PydanticUserError as problem:
        raise InputError(f"{name}: its settings cannot stand in a file ({str(problem).splitlines()[0]})") from None


def options_of(model: FileModel, options: type) -> Any:
    """The dataclass that a tagged model was made from, with the file's values."""
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(options)}
    return options(**values)


def union(kinds: dict[str, type], tag: str, **common: Any) -> Any:
    made = tuple(tagged(name, tag, options, **common) for name, options in kinds.items())
    return Annotated[Union[made], Field(discriminator=tag)] if len(made) > 1 else made[0]  # noqa: UP007


Partition: Any = union({name: kind.options for name, kind in PARTITIONS.items()}, "kind")
ModelChoice: Any = union({name: kind.options for name, kind in MODELS.items()}, "name")
ClientChoice: Any = union({name: options for name, (options, _) in client_kinds.KINDS.items()}, "kind")


WITH_DATA = ("data", "partition", "model", "report_on")  # keys of a task that is more than a size


class Task(FileModel):
    """What is learned, from whose data."""

    data: DataOptions = Field(default_factory=DataOptions, description=f"a table, or a name: {', '.join(DATASETS)}")
    clients: Count = 20
    partition: Partition = Field({"kind": "dirichlet"}, validate_default=True)
    model: ModelChoice = Field({"name": "mlp"}, validate_default=True)
    weights: Literal["samples", "equal"] | list[Positive] = Field(
        "samples", description="of the clients in the sum: their shares of the records, equal, or declared; all schemes"
    )
    num_params: Whole | None = Field(
        None, description="parameters of a model that is only planned for: no data, no model, no `otafl run`"
    )
    samples: Whole | list[Whole] | None = Field(
        None, description="records of each client, beside num_params; default 1, or those of the deployment file"
    )
    report_on: Literal["report", "validation", "train"] = Field(
        "report", description="which part results are computed on"
    )

    @field_validator("data", mode="before", json_schema_input_type=DataOptions | Literal[tuple(DATASETS)])
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        value = {"name": value} if isinstance(value, str) else value
        name = value.get("name", "digits") if isinstance(value, dict) else getattr(value, "name", "digits")
        if not isinstance(name, str) or name not in DATASETS:
            raise InputError(f"data set {name!r} must be one of {', '.join(DATASETS)}")
        return value

    @field_validator("weights", mode="before")
    @classmethod
    def _second_name(cls, value: Any) -> Any:
        return "samples" if value == "sizes" else value

    @model_validator(mode="after")
    def _size_alone(self) -> "Task":
        given = [name for name in WITH_DATA if name in self.model_fields_set]
        if self.num_params is not None and given:
            raise InputError(f"num_params declares a size alone; it goes without {', '.join(given)}")
        if self.num_params is None and self.samples is not None:
            raise InputError("samples belongs to num_params: with data, the partition says who holds how many")
        if isinstance(self.samples, list):
            validate.shape("samples", self.samples, (self.clients,))
        return self

    @model_validator(mode="after")
    def _weights_of_all(self) -> "Task":
        if isinstance(self.weights, list):
            validate.shape("weights", self.weights, (self.clients,))
            validate.sums_to_one("weights", self.weights, 1e-9)
        return self

    @model_validator(mode="after")
    def _something_held_out(self) -> "Task":
        if self.report_on == "validation" and self.data.validation_fraction == 0:
            raise InputError("report_on='validation' needs data.validation_fraction > 0")
        return self


NOISES = ("noise_dbm", "noise_dbm_per_hz", "noise_figure_db")


class Radio(FileModel):
    """Limits and noise. Whole-vector energy with `noise_std`, or power per symbol with `noise_dbm`; SI inside."""

    max_energy: Positive | None = Field(None, description="J, energy of the whole vector of one round, each client")
    power_dbm: float | None = Field(None, description="mean power per complex symbol, each client")
    noise_std: Annotated[float, Field(ge=0)] | None = Field(None, description="receiver noise per real dimension")
    noise_dbm: float | None = Field(None, description="complex receiver noise power; half of it per real dimension")
    noise_dbm_per_hz: float | None = Field(None, description="the same by its density, with bandwidth_hz")
    noise_figure_db: float | None = Field(None, description="the same above thermal noise, with bandwidth_hz")
    bandwidth_hz: Positive | None = Field(
        None, description="symbols per second: energy in J and time on the air; without it one symbol takes 1 s"
    )
    trusted_share: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="part of the noise power that the ledger counts"
    )
    path_loss: PathLoss | None = Field(None, description="law for a CSV of devices with distances")

    @model_validator(mode="after")
    def _one_convention(self) -> "Radio":
        noises = [name for name in NOISES if getattr(self, name) is not None]
        if len(noises) > 1:
            raise InputError(f"{' and '.join(noises)}: only one of them may be given")
        whole = self.max_energy is not None or self.noise_std is not None
        if (self.power_dbm is not None or noises) and whole:
            raise InputError(
                "give max_energy with noise_std (whole vector), or power_dbm with noise_dbm (per symbol), not a mixture"
            )
        if self.power_dbm is not None and not noises:
            raise InputError("power_dbm and noise_dbm belong together: give both")
        if noises and noises != ["noise_dbm"] and self.bandwidth_hz is None:
            raise InputError(f"{noises[0]} needs bandwidth_hz")
        if noises:
            validate.in_closed(noises[0], getattr(self, noises[0]), -validate.MAX_DB, validate.MAX_DB)
        return self

    @property
    def noise_w(self) -> float | None:
        """Complex noise power; None where the noise is given for the whole vector."""
        if self.noise_dbm is not None:
            return float(dbm_to_w(self.noise_dbm))
        band = self.bandwidth_hz or 1.0
        if self.noise_dbm_per_hz is not None:
            return float(dbm_to_w(self.noise_dbm_per_hz)) * band
        above = self.noise_figure_db
        return None if above is None else float(dbm_to_w(THERMAL_DBM_PER_HZ + above)) * band

    @property
    def symbol_time_s(self) -> float:
        return 1.0 if self.bandwidth_hz is None else 1 / self.bandwidth_hz

    def energy(self, dim: int) -> float:
        """J per round and client."""
        if self.power_dbm is not None:
            return 10 ** (self.power_dbm / 10 - 3) * dim * self.symbol_time_s
        return 1.0 if self.max_energy is None else self.max_energy

    def noise_var(self) -> float:
        """Per real dimension, in the unit of `energy` per symbol."""
        if self.noise_w is not None:
            return self.noise_w / 2 * self.symbol_time_s
        return 0.05**2 if self.noise_std is None else self.noise_std**2


class Server(FileModel):
    """The update: gradient descent, post-processing of what was received."""

    step_size: Positive = 0.1
    step_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="step_size (1 + round)^-step_decay")
    momentum: Share = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class Privacy(FileModel):
    """The target. A budget is a cap: the round that would pass it is not run."""

    eps: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    accountant: str = Field("zcdp", description=f"what the cap is counted in: {', '.join(ACCOUNTANTS)}")
    accounting: Literal["none", "realised", "visible", "hidden"] = Field(
        "none", description="what silence is worth; none charges every round in full"
    )
    stop: Literal["worst", "each"] = Field(
        "worst", description="worst: the run ends for all at the worst client's cap; each: clients retire at their own"
    )
    eavesdropper: Eavesdropper | None = Field(
        None, description="a second receiver: gain at most, noise_std at least, antennas, downlink; on the card"
    )
    retired_noise: bool = Field(True, description="retired clients keep sending their artificial noise")
    already_spent: Path | None = Field(
        None, description="ledger of an earlier run on the same clients: what it spent counts"
    )

    @model_validator(mode="after")
    def _known(self) -> "Privacy":
        if self.accountant not in ACCOUNTANTS:
            raise InputError(f"accountant={self.accountant!r} must be one of {', '.join(ACCOUNTANTS)}")
        return self


class EngineOptions(FileModel):
    """How the work is mapped; part of the config because it may change the last bits."""

    client_map: Literal["auto", "vmap", "map"] | Whole = "auto"
    seed_map: Literal["auto", "threads", "map", "vmap"] = "auto"
    record_devices: bool = True
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 10.0


class ServerOverride(FileModel):
    step_size: Positive | None = None
    step_decay: Annotated[float, Field(ge=0)] | None = None
    momentum: Share | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None


def scheme_models() -> dict[str, type]:
    """Options of every scheme, by name."""
    return {name: systems.scheme(name).config for name in systems.SCHEMES}


COMMON: dict[str, Any] = {
    "label": (
        Annotated[str, Field(max_length=100)] | None,
        Field(None, description="name in tables and plots, at most 100 characters; default: the scheme's name"),
    ),
    "server": (ServerOverride, Field(default_factory=ServerOverride)),
    "clients": (ClientChoice | None, Field(None, description="other clients for this scheme")),
    "rounds": (Whole | None, Field(None, description="at most so many rounds for this scheme alone")),
    "stop_at_budget": (bool, Field(True, description="False runs past the privacy target: a diagnostic, labelled so")),
}
SchemeChoice: Any = union(scheme_models(), "name", **COMMON)


class Own(NamedTuple):
    """What an experiment was given in Python and no file can hold; a manifest has the hashes."""

    task: OwnTask | None = None
    model: Model | None = None


class Experiment(FileModel):
    """One experiment: a task, a channel, and the schemes to compare on them."""

    preset: dict[str, Any] | None = Field(None, exclude=True, description="what a preset says about itself")
    title: str = ""
    rounds: Annotated[int, Field(ge=1, le=10**7)] = Field(100, description="horizon; a budget may end a run before")
    seeds: Count | SeedNumbers = Field(5, description="how many (0, 1, ...), or which")
    evaluate_every: Whole = 10
    task: Task = Field(default_factory=Task)
    channel: Channel = Field(default_factory=Channel, description=f"a table, or one of {', '.join(CHANNELS)}")
    devices: Path | None = Field(
        None, description="deployment file with one row per device; replaces geometry and power"
    )
    radio: Radio = Field(default_factory=Radio)
    clients: ClientChoice = Field({"kind": "gradient"}, validate_default=True)
    server: Server = Field(default_factory=Server)
    privacy: Privacy = Field(default_factory=Privacy)
    engine: EngineOptions = Field(default_factory=EngineOptions)
    plan: dict[str, Any] = Field(
        default_factory=dict, exclude=True, description="own keys of a system, for `otafl plan SYSTEM FILE` alone"
    )
    outside: list[str] = Field(
        [], description="said on the privacy card as outside the guarantee (tuning, for example)"
    )
    scheme: Annotated[list[SchemeChoice], Field(min_length=1)]
    _own: Own = PrivateAttr(default_factory=Own)

    @field_validator("channel", mode="before", json_schema_input_type=Channel | Literal[tuple(CHANNELS)])
    @classmethod
    def _published(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in PUBLISHED:
            raise InputError(f"{value!r} must be a table or one of {', '.join(CHANNELS)}")
        return PUBLISHED[value]

    @model_validator(mode="after")
    def _one_radio(self) -> "Experiment":
        """Devices bring their powers; a deployment file with a [radio] of its own is checked when it is read."""
        radio = self.radio
        if self.devices is None:
            if radio.noise_w is not None and radio.power_dbm is None:
                raise InputError("radio: power_dbm and noise_dbm belong together: give both")
            if radio.path_loss is not None:
                raise InputError("radio.path_loss belongs to devices with distances; else use channel.path_loss")
        elif radio.power_dbm is not None or radio.max_energy is not None or radio.noise_std is not None:
            raise InputError(f"radio: the devices bring their powers; give one of {', '.join(NOISES)}")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if len(set(self.seed_list)) < len(self.seed_list):
            raise InputError(f"seeds={self.seeds} must not repeat")
        folders: dict[str, str] = {}
        for label in self.labels:
            if not label.isprintable():
                raise InputError(f"scheme label {label!r} must be one line of printable characters")
            if (folder := slug(label)) in folders:
                raise InputError(
                    f"scheme labels {folders[folder]!r} and {label!r} share a folder; give each its own label"
                )
            folders[folder] = label
        return self

    @property
    def own(self) -> Own:
        return self._own

    def bring(self, own: Own) -> "Experiment":
        """The same experiment with data or a model of somebody's own."""
        made = self.model_copy()
        made._own = own
        return made

    def horizon(self, scheme: Any) -> int:
        """Rounds of one scheme: the experiment's, or its own where they are fewer."""
        return int(self.rounds if scheme.rounds is None else min(scheme.rounds, self.rounds))

    @property
    def seed_list(self) -> list[int]:
        return list(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    @property
    def labels(self) -> list[str]:
        return [scheme.label or scheme.name for scheme in self.scheme]


def follow_schemes() -> None:
    """Take in a scheme that was registered after this module was imported."""
    choice: Any = list[union(scheme_models(), "name", **COMMON)]  # type: ignore[misc]
    Experiment.model_fields["scheme"].annotation = choice
    Experiment.model_rebuild(force=True)


systems.WATCHERS.append(follow_schemes)


def load(path: Path, overrides: list[str] | None = None) -> Experiment:
    """Read an experiment file, apply `key=value` overrides, resolve paths beside it, and check it all."""
    path = Path(path)
    data = read_toml(path)
    about = data.get("preset")
    if isinstance(about, dict) and isinstance(
        shown := about.get("experiment"), str
    ):  # a figure of another preset's runs
        data = {**read_toml(path.parent / f"{shown}.toml"), **data}
    for override in overrides or []:
        _spell_out(data)
        assign(data, override)
    for place in ("devices", "task.data.path", "privacy.already_spent"):
        *outer, key = place.split(".")
        table: Any = data
        for part in outer:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(table.get(key), str):
            table[key] = os.path.normpath(path.parent.absolute() / table[key])
    experiment = parse(Experiment, data, path)
    if experiment.devices is None or "clients" in experiment.task.model_fields_set:
        return experiment
    from otafl.runs.sites import devices_of

    data.setdefault("task", {})["clients"] = len(devices_of(experiment).devices.names)
    return parse(Experiment, data, path)


def _spell_out(data: dict[str, Any]) -> None:
    """A data set that is given by its name alone becomes a table, so that an override can set a key in it."""
    task = data.get("task")
    if isinstance(task, dict) and isinstance(name := task.get("data"), str):
        task["data"] = {"name": name}


def assign(data: dict[str, Any], override: str) -> None:
    """Apply one override such as `rounds=50`, `task.model.hidden=[64]` or `scheme.0.rx_scale=0.4`.

    >>> config = {"scheme": [{"name": "constant"}]}
    >>> assign(config, "scheme.0.rx_scale=0.4"); assign(config, "task.data=mnist"); config
    {'scheme': [{'name': 'constant', 'rx_scale': 0.4}], 'task': {'data': 'mnist'}}
    """
    import tomllib

    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise InputError(f"--set {override!r} must have the form key=value")
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        value = text.strip()  # a bare word is a string
    node: Any = data
    parts = key.strip().split(".")
    for part in parts[:-1]:
        node = _step(node, part, override)
    if isinstance(node, list):
        node[_index(node, parts[-1], override)] = value
    elif isinstance(node, dict):
        node[parts[-1]] = value
    else:
        raise InputError(f"--set {override!r}: {'.'.join(parts[:-1])} is a value, not a table")


def _step(node: Any, part: str, override: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, override)]
    if not isinstance(node, dict):
        raise InputError(f"--set {override!r}: {part!r} stands inside a value, not a table")
    return node.setdefault(part, {})


def _index(node: list[Any], part: str, override: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) < 10) or int(part) >= len(node):
        raise InputError(f"--set {override!r}: {part!r} must be a position from 0 to {len(node) - 1}")
    return int(part)


def resolved(experiment: Experiment) -> str:
    """The whole config as TOML, defaults included; reads back to the same experiment."""
    return tomli_w.dumps(_plain(experiment))


def _plain(experiment: Experiment) -> dict[str, Any]:
    """Tables, lists and numbers; a task that is declared by its size has no data and no model to show."""
    data: dict[str, Any] = _tomlable(experiment.model_dump(exclude_none=True))
    if experiment.task.num_params is not None:
        data["task"] = {key: value for key, value in data["task"].items() if key not in WITH_DATA}
    return data


def extreme_numbers(experiment: Experiment) -> str:
    """The keys of an experiment whose numbers are furthest from 1: where a numerical failure comes from, mostly."""
    found: dict[str, float] = {}

    def look(value: Any, key: str) -> None:
        if isinstance(value, dict | list):
            for name, item in value.items() if isinstance(value, dict) else enumerate(value):
                look(item, f"{key}.{name}" if key else str(name))
        elif isinstance(value, float) and value != 0:
            found[key] = value

    look(_plain(experiment), "")
    far = sorted(found, key=lambda key: -abs(np.log10(abs(found[key]))))[:2]
    return ", ".join(f"{key}={found[key]:g}" for key in far)


def config_hash(experiment: Experiment) -> str:
    """What tells one resolved experiment from another; a run's manifest has it."""
    return hashlib.sha256(resolved(experiment).encode()).hexdigest()


def _tomlable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tomlable(item) for key, item in value.items() if item is not None}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _tomlable(dataclasses.asdict(value))
    if isinstance(value, list | tuple):
        return [_tomlable(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return value
