"""What a loop over the air was opened with: checked at the door, kept in a folder, and read back the same."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from otafl.channels import PUBLISHED, Channel
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, parse
from otafl.core.plan import Message, frozen
from otafl.runs.folder.sealed import file_digest
from otafl.runs.schemes import Chosen, choose, chosen
from otafl.runs.sites import hashes_of

RADIO = ("max_energy", "power_dbm", "noise_std", "noise_dbm", "trusted_share")
PRIVACY = ("eps", "delta", "accountant", "order", "accounting", "stop", "retired_noise", "already_spent")


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
        spent = self.privacy["already_spent"]
        site = Path(self.site) if isinstance(self.site, str) else None
        plain["files"] = hashes_of(site, self.channel, None if spent is None else Path(spent))
        return json.loads(json.dumps(plain, default=_plain))


def from_json(plain: dict[str, Any], path: Path) -> Settings:
    """Settings as `to_json` wrote them; InputError if a file that they name has changed since."""
    for name, stated in plain.pop("files").items():
        if file_digest(Path(name), "the loop was planned with it") != stated:
            raise InputError(f"{path}: {name} was changed since the loop began; put it back, or begin a new loop")
    bounded = {} if plain["message"] is None else {"clip_norm": 1.0}  # infinite where the message says so
    parse(Door, {name: plain[name] for name in Door.model_fields} | bounded, path)
    plain["site"] = _site_of(plain["site"])
    for name, keys in (("radio", RADIO), ("privacy", PRIVACY)):
        plain[name] = {key: plain[name].get(key) for key in keys}
    plain |= _tuples(plain)
    if plain["message"] is not None:
        one = plain["message"]
        arrays = {name: np.asarray(one[name], float) for name in ("mean_square", "sensitivity", "rate")}
        plain["message"] = Message(**{**one, **arrays, "published": tuple(one["published"])})
    plain["scheme"] = choose(plain["scheme"]["name"], plain["scheme"]["config"])
    plain["channel"] = channel_of(plain["channel"])
    return Settings(**plain)


def _plain(value: Any) -> Any:
    """NumPy's numbers and sequences as Python's, paths as text; the rest as it is."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class ChannelTable(FileModel):
    channel: Channel


def channel_of(channel: Any) -> Channel:
    """A published channel's name, a table, a Channel, or None for Rayleigh fading of mean power one."""
    if channel is None:
        return Channel()
    if isinstance(channel, Channel):
        return channel
    if isinstance(channel, str):
        validate.one_of("channel", channel, PUBLISHED)
        return PUBLISHED[channel]
    return parse(ChannelTable, {"channel": channel}, "Air").channel


class Door(FileModel):
    """What must be right about the plain arguments of `Air`, whoever passes them on."""

    num_params: Annotated[int, Field(ge=1)]
    clip_norm: Annotated[float, Field(gt=0)]
    rounds: Annotated[int, Field(ge=1, le=10**7)]
    adjacency: Literal["replace", "zero-out", "add-remove"]
    sizes: list[Annotated[int, Field(ge=1)]] | None
    weights: list[Annotated[float, Field(ge=0)]] | None
    step_size: Annotated[float, Field(gt=0)]
    classes: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None
    strict: bool
    outside: list[str]


def settings_of(given: dict[str, Any]) -> Settings:
    """What `Air` was given, by name, checked as far as it can be before the site is known."""
    message, spent = given["message"], given["already_spent"]
    if message is None and given["num_params"] is None:
        raise InputError("num_params is required: how many real numbers one message has")
    if message is not None and not isinstance(message, Message):
        raise InputError(f"message={validate.shown(message)} must be an otafl.core.plan.Message")
    if message is not None and given["num_params"] not in (None, message.dim):
        raise InputError(f"num_params={given['num_params']} but message.dim={message.dim}: leave num_params out")
    given = {**given, "num_params": given["num_params"] if message is None else message.dim}
    door = parse(Door, {name: _plain(given[name]) for name in Door.model_fields}, "Air").model_dump()
    door["clip_norm"] = door["clip_norm"] if message is None else float(message.bound)
    given = {**given, "already_spent": None if spent is None else _path("already_spent", spent)}
    return Settings(
        scheme=chosen(given["scheme"]),
        site=_site_of(given["site"]),
        channel=channel_of(given["channel"]),
        radio={name: _plain(given[name]) for name in RADIO},
        privacy={name: _plain(given[name]) for name in PRIVACY},
        message=None if message is None else frozen(message),
        **(door | _tuples(door)),
    )


def _tuples(lists: dict[str, Any]) -> dict[str, Any]:
    named = {name: lists[name] for name in ("sizes", "weights", "outside")}
    return {name: None if value is None else tuple(value) for name, value in named.items()}


def _site_of(site: Any) -> int | str:
    if isinstance(site, int | np.integer) and not isinstance(site, bool):
        validate.whole("site", site, 1, 10**7)
        return int(site)
    return _path("site", site)


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str | Path):
        kinds = "a number of devices or a path" if name == "site" else "a path"
        raise InputError(f"{name}={validate.shown(value)} must be {kinds}")
    return str(validate.path(name, value).absolute())
