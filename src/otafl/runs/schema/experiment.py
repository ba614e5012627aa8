"""An experiment: a task, a channel, and the schemes to compare on them."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PrivateAttr, field_validator, model_validator

from otafl import systems
from otafl.channels import CHANNELS, PUBLISHED, Channel
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, slug
from otafl.runs.schema.blocks import (
    MOST_SEEDS,
    NOISES,
    ClientChoice,
    Count,
    EngineOptions,
    Positive,
    Privacy,
    Radio,
    SeedNumbers,
    Server,
    Share,
    StepSize,
    Task,
    Whole,
)
from otafl.runs.schema.tagged import union
from otafl.tasks.models import Model
from otafl.tasks.own_data import OwnTask


class ServerOverride(FileModel):
    step_size: StepSize | None = None
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
    "max_energy": (Positive | None, Field(None, description="J, own limit of a round, where below the radio's")),
    "stop_at_budget": (bool, Field(True, description="False runs past the privacy target: a diagnostic, labelled so")),
}
SchemeChoice: Any = union(scheme_models(), "name", **COMMON)


class Own(NamedTuple):
    """What an experiment was given in Python and no file can hold; a manifest has the hashes."""

    task: OwnTask | None = None
    model: Model | None = None


class Stretch(FileModel):
    """Seeds that follow each other, as a file may write them."""

    first: int
    count: int


class Experiment(FileModel):
    """One experiment: a task, a channel, and the schemes to compare on them."""

    preset: dict[str, Any] | None = Field(None, exclude=True, description="what a preset says about itself")
    title: str = ""
    rounds: Annotated[int, Field(ge=1, le=10**7)] = Field(100, description="horizon; a budget may end a run before")
    seeds: Count | SeedNumbers = Field(5, description="how many (0, 1, ...), which, or { first = 100, count = 20 }")
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
    scheme: Annotated[list[SchemeChoice], Field(min_length=1, max_length=500)]
    _own: Own = PrivateAttr(default_factory=Own)

    @field_validator("seeds", mode="before", json_schema_input_type=Count | SeedNumbers | Stretch)
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        first, count = value.get("first"), value.get("count")
        if set(value) != {"first", "count"} or type(first) is not int or type(count) is not int or count > MOST_SEEDS:
            raise InputError(f"{value} must be {{ first, count }}, whole numbers, at most {MOST_SEEDS:,} seeds")
        return list(range(first, first + count))

    @field_validator("channel", mode="before", json_schema_input_type=Channel | Literal[tuple(CHANNELS)])
    @classmethod
    def _published(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in PUBLISHED:
            near = validate.meant(value, CHANNELS)
            raise InputError(f"{validate.shown(value)} must be a table or one of {', '.join(CHANNELS)}{near}")
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
    def _everybody_is_heard(self) -> "Experiment":
        if self.channel.mean_power_gain is not None:
            validate.positive("channel.mean_power_gain", self.channel.mean_power_gain)
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "Experiment":
        if len(set(self.seed_list)) < len(self.seed_list):
            raise InputError(f"seeds={self.seeds} must not repeat")
        folders: dict[str, str] = {}
        for name, texts in (("title", [self.title]), ("outside", self.outside), ("scheme label", self.labels)):
            for text in texts:
                if not text.isprintable():
                    raise InputError(f"{name} {text!r} must be one line of printable characters")
        for label in self.labels:
            if (folder := slug(label)) in folders:
                raise InputError(
                    f"scheme labels {folders[folder]!r} and {label!r} share a folder; give each its own label"
                )
            folders[folder] = label
        return self

    @property
    def remark(self) -> str:
        """What to know about settings that stand in this file for a comparison alone; else nothing."""
        settings = (self.preset or {}).get("settings")
        chosen = isinstance(settings, dict) and "trials" in settings
        return "settings are those of the file; otafl compare chooses others, by plans" if chosen else ""

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

    def client_choice(self, scheme: Any) -> Any:
        """What the clients of one scheme are: its own choice, or the experiment's."""
        return scheme.clients or self.clients

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
