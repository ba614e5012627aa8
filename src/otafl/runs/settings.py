"""What a loop over the air was opened with: checked at the door, kept in a folder, and read back the same."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from otafl.channels import PUBLISHED, Channel
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.plan import Message
from otafl.runs.schemes import Chosen, choose, chosen
from otafl.runs.sealed import file_digest

RADIO = ("max_energy", "power_dbm", "noise_std", "noise_dbm", "trusted_share")
PRIVACY = ("eps", "delta", "accountant", "accounting", "already_spent")


@dataclasses.dataclass(frozen=True)
class Settings:
    """All that a loop was opened with; what a folder keeps to go on from."""

    scheme: Chosen
    site: int | str
    num_params: int
    clip_norm: float
    channel: Channel
    rounds: int
    adjacency: str
    radio: dict[str, Any]
    privacy: dict[str, Any]
    sizes: tuple[int, ...] | None
    weights: tuple[float, ...] | None
    message: Message | None
    step_size: float
    classes: int
    seed: int | None
    strict: bool
    outside: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values from which `from_json` makes the same settings."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["scheme"] = {"name": self.scheme.name, "config": dataclasses.asdict(self.scheme.config)}
        plain["channel"] = dataclasses.asdict(self.channel)
        if self.message is not None:
            plain["message"] = {n: np.asarray(v).tolist() for n, v in self.message._asdict().items()}
        read = (name for name in (self.site, self.privacy["already_spent"]) if isinstance(name, str))
        plain["files"] = {name: file_digest(Path(name), "it is needed here") for name in read}
        return json.loads(json.dumps(plain, default=_plain))  # type: ignore[no-any-return]


def from_json(plain: dict[str, Any], path: Path) -> Settings:
    """Settings as `to_json` wrote them; InputError if a file that they name has changed since."""
    for name, stated in plain.pop("files").items():
        if file_digest(Path(name), "the loop was planned with it") != stated:
            raise InputError(f"{path}: {name} was changed since the loop began; put it back, or begin a new loop")
    for name in ("sizes", "weights", "outside"):
        plain[name] = None if plain[name] is None else tuple(plain[name])
    if plain["message"] is not None:
        one = plain["message"]
        arrays = {name: np.asarray(one[name], float) for name in ("mean_square", "sensitivity", "rate")}
        plain["message"] = Message(**{**one, **arrays, "published": tuple(one["published"])})
    plain["scheme"] = choose(plain["scheme"]["name"], plain["scheme"]["config"])
    plain["channel"] = channel_of(plain["channel"])
    return Settings(**plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if hasattr(value, "item") else str(value)


def channel_of(channel: Any) -> Channel:
    """A published channel's name, a table, a Channel, or None for Rayleigh fading of mean power one."""
    if channel is None:
        return Channel()
    if isinstance(channel, Channel):
        return channel
    if isinstance(channel, str):
        validate.one_of("channel", channel, PUBLISHED)
        return PUBLISHED[channel]
    try:
        return TypeAdapter(Channel).validate_python(channel)
    except (ValidationError, InputError) as problem:
        raise InputError(f"channel: {str(problem).splitlines()[-1].strip()}") from None


def settings_of(given: dict[str, Any]) -> Settings:
    """What `Air` was given, by name, checked as far as it can be before the site is known."""
    _check(given)
    message, site, spent = given["message"], given["site"], given["already_spent"]
    given = {**given, "already_spent": None if spent is None else str(Path(spent).absolute())}
    return Settings(
        scheme=chosen(given["scheme"]),
        site=int(site) if isinstance(site, int | np.integer) else str(Path(site).absolute()),
        num_params=int(given["num_params"] if message is None else message.dim),
        clip_norm=float(given["clip_norm"] if message is None else message.bound),
        channel=channel_of(given["channel"]),
        rounds=int(given["rounds"]),
        adjacency=given["adjacency"],
        radio={name: given[name] for name in RADIO},
        privacy={name: given[name] for name in PRIVACY},
        sizes=None if given["sizes"] is None else tuple(map(int, given["sizes"])),
        weights=None if given["weights"] is None else tuple(map(float, given["weights"])),
        message=message,
        step_size=float(given["step_size"]),
        classes=int(given["classes"]),
        seed=None if given["seed"] is None else int(given["seed"]),
        strict=bool(given["strict"]),
        outside=tuple(given["outside"]),
    )


def _check(given: dict[str, Any]) -> None:
    """Numbers at the door; the rest is checked where it is used."""
    if given["message"] is None and given["num_params"] is None:
        raise InputError("num_params is required: how many real numbers one message has")
    if given["message"] is None:
        validate.whole("num_params", given["num_params"])
        validate.positive("clip_norm", given["clip_norm"])
        validate.one_of("adjacency", given["adjacency"], ("replace", "zero-out"))
    validate.whole("rounds", given["rounds"])
    validate.whole("classes", given["classes"], 2)
    validate.positive("step_size", given["step_size"])
    if isinstance(given["site"], int | np.integer):
        validate.whole("site", given["site"])
    if given["seed"] is not None:
        validate.whole("seed", given["seed"], 0)
        validate.in_closed("seed", given["seed"], 0, 2**32 - 1)
