"""The blocks of an experiment file but its schemes: task, radio, server, privacy, engine."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from otafl import clients as client_kinds
from otafl.channels import PathLoss, dbm_to_w
from otafl.channels.radio import THERMAL_DBM_PER_HZ
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.eavesdropper import Eavesdropper
from otafl.runs.schema.tagged import union
from otafl.tasks.features import DataOptions, PcaOptions
from otafl.tasks.models import MODELS
from otafl.tasks.partitions import PARTITIONS
from otafl.tasks.sources import DATASETS

for strict in (DataOptions, PcaOptions, Eavesdropper):  # unknown keys are mistakes here as everywhere
    strict.__pydantic_config__ = {"extra": "forbid"}  # type: ignore[union-attr]

Positive = Annotated[float, Field(gt=0)]
StepSize = Annotated[float, Field(gt=0, le=1e30)]  # float32 ends at 3e38
Whole = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
MOST_SEEDS = 10**4  # each is planned by itself, more would take minutes in silence
Count = Annotated[int, Field(ge=1, le=MOST_SEEDS)]
Crowd = Annotated[int, Field(ge=1, le=10**7)]  # of clients
SeedNumbers = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1, max_length=MOST_SEEDS)]

Partition: Any = union({name: kind.options for name, kind in PARTITIONS.items()}, "kind")
ModelChoice: Any = union({name: kind.options for name, kind in MODELS.items()}, "name")
ClientChoice: Any = union({name: options for name, (options, _) in client_kinds.KINDS.items()}, "kind")


WITH_DATA = ("data", "partition", "model", "report_on")  # keys of a task that is more than a size


class Task(FileModel):
    """What is learned, from whose data."""

    data: DataOptions = Field(default_factory=DataOptions, description=f"a table, or a name: {', '.join(DATASETS)}")
    clients: Crowd = 20
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
            near = validate.meant(str(name), DATASETS)
            raise InputError(f"data set {validate.shown(name)} must be one of {', '.join(DATASETS)}{near}")
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
    run_energy: Positive | None = Field(
        None, description="J, each client, the whole run: by a public plan it skips rounds that would pass it"
    )
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

    step_size: StepSize = 0.1
    step_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="step_size (1 + round)^-step_decay")
    momentum: Share = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class Privacy(FileModel):
    """The target. A budget is a cap: the round that would pass it is not run."""

    eps: Positive | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    accountant: str = Field("zcdp", description=f"what the cap is counted in: {', '.join(ACCOUNTANTS)}")
    order: Annotated[float, Field(gt=1, le=1e6)] | None = Field(
        None, description="Renyi order of accountant rdp, fixed in advance: a closed loop needs one"
    )
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
            raise InputError(f"accountant={validate.shown(self.accountant)} must be one of {', '.join(ACCOUNTANTS)}")
        if self.order is not None and self.accountant != "rdp":
            raise InputError(f"order={self.order:g} belongs to accountant='rdp', not to {self.accountant!r}")
        return self


class EngineOptions(FileModel):
    """How the work is mapped; part of the config because it may change the last bits."""

    client_map: Literal["auto", "vmap", "map"] | Whole = "auto"
    seed_map: Literal["auto", "threads", "map", "vmap"] = "auto"
    devices: Whole | None = Field(
        None, description="local devices that share seeds and clients; default: all accelerators, a CPU is one"
    )
    record_devices: bool = True
    stream: bool | None = Field(
        None, description="rounds go by in blocks, not kept client by client; default: where clients x rounds > 2^23"
    )
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 10.0
