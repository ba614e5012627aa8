"""What the plan of one seed comes to, block of rounds by block of rounds. Host, float64."""

from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.merit import learning_snr
from otafl.core.plan import Events, cut
from otafl.privacy.events import total_noise_var
from otafl.runs.folder.results import AT_LIMIT
from otafl.runs.planning.energy import planned_energy
from otafl.runs.planning.planned import Planned


def clip_norm(message: Any) -> float:
    """The norm bound, or the root mean square where Poisson batches have none."""
    bounded = np.isfinite(message.bound)
    return float(message.bound) if bounded else float(np.sqrt(np.max(message.mean_square)))


class _Rounds(NamedTuple):
    """Figures of live rounds, (T,) each."""

    heard: np.ndarray  # weight
    noise: np.ndarray  # per coordinate of the update
    dropped: np.ndarray  # weight that is not heard
    uses: np.ndarray  # of the channel
    noisy: np.ndarray  # bool: any noise is counted
    of_devices: np.ndarray  # share of that noise which devices add


class Figures:
    """Of live rounds only; `ledger` holds them besides."""

    def __init__(self, planned: Planned, s: int):
        site, self.ledger, self.rounds = planned.setup.sites[s], planned.ledgers[s], planned.ran[s]
        bound, limit = clip_norm(site.message), np.asarray(site.deployment.energy, float)
        wanted = np.asarray(site.deployment.weights, float)
        parts, total, energy = [], np.zeros(wanted.size), np.zeros(wanted.size)
        self.fill, self.at_limit, ever = 0.0, np.zeros(wanted.size, bool), np.zeros(wanted.size, bool)
        self.devices_add_noise = False
        for trace, whole in planned.blocks(s):
            live = np.asarray(whole.live, bool)
            released = planned.released(whole, trace, site)
            self.ledger = planned.count(self.ledger, released)
            plan = cut(whole, live)
            link = planned._link(whole, trace, site, 0, released)
            allowed = np.asarray(plan.max_norm) >= min(bound, site.message.bound)
            weight = np.where(allowed, np.asarray(link.weight)[live], 0.0)
            sent = planned_energy(plan, site.message, planned.uplink)
            uses = planned.uplink.uses(whole, trace, site.deployment)[live]
            dropped = np.sum(np.where(allowed, 0.0, wanted), -1)
            parts.append(_Rounds(weight.sum(-1), np.asarray(link.noise_std)[live], dropped, uses, *_noises(released)))
            total, energy = total + weight.sum(0), energy + sent.sum(0)
            self.fill = max(self.fill, float(np.max(sent / limit, initial=0.0)))
            self.at_limit, ever = self.at_limit | np.any(sent >= AT_LIMIT * limit, axis=0), ever | np.any(allowed, 0)
            self.devices_add_noise |= bool(np.any(whole.noise))
        self.each = each = _Rounds(*map(np.concatenate, zip(*parts)))
        self.snr = learning_snr(bound, each.heard, each.noise)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = np.sqrt(site.message.dim) * each.noise / (bound * each.heard)
            share = total / self.rounds / (total / self.rounds).sum()
            self.noise_over_clip = float(np.sqrt(np.mean(np.square(relative))))
        self.dropped_weight = float(np.mean(each.dropped))
        self.bias = float(np.sum(np.abs(share - wanted)) / 2)
        self.energy_mean, self.energy_max = float(energy.mean()), float(energy.max())
        self.uses, self.silent = round(float(each.uses.sum())), int(np.sum(~ever))


def _noises(released: Events) -> tuple[np.ndarray, np.ndarray]:
    """(T,) of live rounds: whether any noise is counted, and the share of it that devices add."""
    total, receiver = total_noise_var(released)[released.live], released.receiver_var[released.live]
    return total > 0, (total - receiver) / np.where(total > 0, total, 1.0)
