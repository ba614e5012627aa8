"""`otafl plan NAME`: a system, or one scheme, in detail without training. Who plans on its own names a `PLANNER`."""

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel
from rich.console import Console

from otafl.channels import Devices, energy_from_power, load_devices, load_site, to_deployment
from otafl.core import validate
from otafl.core.arrays import Array, Floats
from otafl.core.errors import InputError, OtaflError
from otafl.core.files import naming
from otafl.core.plan import Context, Deployment, Message
from otafl.systems import SCHEMES, SYSTEMS, system_of

NAMES = ("name", "names", "device", "title", "label")  # what users call things
NUMERICAL = (ArithmeticError, ValueError)  # overflow, division by zero and NumPy's LinAlgError among them


class Asked(NamedTuple):
    """What an experiment file tells a planner: one scheme of its system at the site of the first seed."""

    scheme: str
    config: Any  # its options
    deployment: Deployment
    message: Message
    context: Context  # with the whole trace
    bandwidth_hz: float | None
    own: dict[str, Any]  # [plan] of the file: keys of the planner's own

    @property
    def rms(self) -> Array:
        """(K,) statistical CSI before the first round."""
        assert self.context.trace is not None
        return np.asarray(self.context.trace.rms_estimate[0], float)


def rayleigh(asked: Asked) -> None:
    """Refuse gains of another law, for a plan that is made of Rayleigh's."""
    if not asked.context.rayleigh:
        raise InputError(
            f"{asked.scheme} is planned in detail for Rayleigh fading, and the gains of this experiment are of another "
            "law, or measured; `otafl plan FILE` charges them"
        )


def one_law(asked: Asked) -> None:
    """Refuse a channel whose statistics change, for a plan that is made of those before the first round."""
    rayleigh(asked)
    assert asked.context.trace is not None
    if np.any(np.asarray(asked.context.trace.rms_estimate) != asked.rms):
        raise InputError(
            f"{asked.scheme} is planned in detail for one law of the channel, and this one's changes (channel.drift or "
            "channel.pilots); `otafl plan FILE` charges every round as it is"
        )


def follows(asked: Asked, **values: tuple[Any, ...]) -> None:
    """Refuse options of a scheme that its planner would leave out of account; `values` are those that it follows."""
    for name, known in values.items():
        value = getattr(asked.config, name, known[0])
        if value not in known:
            raise InputError(
                f"{asked.scheme}: {name}={value!r} is not planned in detail, only {' or '.join(map(repr, known))}; "
                "`otafl plan FILE` charges it as the run does"
            )


def no_pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """Of a planner whose answer is a table."""
    return []


class Planner(NamedTuple):
    """A file in, a design out."""

    inputs: type[BaseModel]  # schema of FILE, a `FileModel`
    keys: Callable[[Asked], dict[str, Any]]  # what FILE would say of an experiment
    example: str  # a complete FILE that plans as it stands
    plan: Callable[[Any, Path], dict[str, Any]]  # (inputs, folder of FILE) -> JSON-ready dict; may raise Infeasible
    show: Callable[[dict[str, Any], Console], None]  # the human output
    pictures: Callable[[dict[str, Any], Path], list[Path]] = no_pictures  # into a folder; returns plots and exports
    antennas: bool = False  # whether it plans for a server with several
    errors: bool = False  # whether it charges estimates that are off, or prints no epsilon at all


def example(planner: str, name: str) -> str:
    """A complete FILE, from the folder `examples` beside a planner's code (`__file__`)."""
    return (Path(planner).parent / "examples" / f"{name}.toml").read_text(encoding="utf-8")


def listed(path: Path, dim: int, key: str, stated: Any) -> tuple[Devices, Floats, Deployment | None]:
    """Devices of a file, their energies of a round, and the site that its own [radio] makes of them.

    That counts where FILE states no noise (`stated`, under `key`); without it powers are those of symbols of a second.
    """
    if path.suffix.lower() == ".toml" and stated is None:
        site = load_site(path)
        made = to_deployment(site, dim)
        return site.devices, np.asarray(made.energy, float), made
    if stated is None:
        raise InputError(f"{key}: missing; {path.name} has no [radio] block to take it from")
    devices = load_devices(path)
    return devices, energy_from_power(devices.power_w, dim, symbol_time_s=1.0), None


def available() -> dict[str, str]:
    """The systems, and the single schemes, that plan on their own, with their summaries."""
    return {name: one.summary for known in (SYSTEMS, SCHEMES) for name, one in known.items() if one.planner}


def load(name: str) -> Planner:
    validate.one_of("system", name, available())
    system = SYSTEMS[name] if name in SYSTEMS else system_of(name)
    return system.load(str(system.planner if name == system.name else system.schemes[name].planner))


def in_numbers(report: Any) -> Any:
    """A report for the screen: infinities, which JSON has as text, as numbers again; names stay what they are."""
    if isinstance(report, dict):
        return {key: value if key in NAMES else in_numbers(value) for key, value in report.items()}
    if isinstance(report, list):
        return [in_numbers(value) for value in report]
    return float(report) if report in ("inf", "-inf") else report


@contextmanager
def warned() -> Iterator[list[str]]:
    """What is warned of meanwhile, each text once, is for the report; what libraries say among themselves is not."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
    said += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))


def unread(inputs: BaseModel, *rules: tuple[bool, str, Collection[str]]) -> list[str]:
    """What a file states and nothing reads; a rule: whether its keys are read, what they belong to, the keys."""
    usual = {name: field.default for name, field in type(inputs).model_fields.items()}
    idle = ((key, place) for read, place, keys in rules if not read for key in keys)
    return [f"{key} has no effect: it belongs to {place}" for key, place in idle if getattr(inputs, key) != usual[key]]


def design(scheme: str, inputs: Any, file: Path) -> dict[str, Any]:
    """Plan a file that was read: every refusal of bad input names the file, and keys as they stand in it.

    The last net is for numbers each of which is allowed and which together leave float64's range.
    """
    try:
        with naming(file, lambda told: inputs.in_its_words(told)), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's remarks; what they led to is refused or reported
            return load(scheme).plan(inputs, file.parent)
    except OtaflError:
        raise
    except NUMERICAL as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{file}: {scheme} cannot be planned with these numbers ({said}): together they leave the range of double "
            "precision; check their units"
        ) from None
