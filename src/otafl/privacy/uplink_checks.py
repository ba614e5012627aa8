"""What an uplink promises the ledger, held against what it does. Host; probes run the uplink's own compiled parts.

The ledger charges amplitudes and noise from plan and trace. An uplink that heard messages louder, or added less noise,
would make that number false, so: it may not trust noise that is not there (`meet`), its links may not be louder or
quieter than charged (`check_links`), and one from outside otafl is tried out (`probe`) before it carries data.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf, gammaincinv

from otafl.core.errors import PrivacyViolation
from otafl.core.plan import Deployment, Events, Link, Message, Plan, Trace, frozen, ours
from otafl.core.uplink import FAINTEST, Uplink, to_float32, transmit_energy
from otafl.privacy.events import pick, total_noise_var

TOLERANCE = 1e-9  # of products of doubles in another order
CONFIDENCE = 1e-9  # of refusing an honest uplink
SAMPLES = 20_000  # noise that is 6 % too small is found with them
LOUDEST = 4  # clients whose messages are tried out


def is_own(uplink: Uplink) -> bool:
    """Whether all parts of an uplink are otafl's; anybody else's are checked by trying."""
    parts = [uplink.site, uplink.lower, uplink.combine, uplink.add, uplink.decode]
    parts += [uplink.energy, uplink.uses, *([] if uplink.release is None else [uplink.release])]
    return all(ours(part) for part in parts)


def meet(uplink: Uplink, trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    """The site as the uplink meets it; an uplink from outside may not make the radio safer than it is."""
    if is_own(uplink):
        return uplink.site(trace, deployment)
    if uplink.release is not None:
        raise PrivacyViolation(
            f"uplink {uplink.name!r} comes from outside otafl with its own account of what it releases, which nothing "
            "can check; leave release=None"
        )
    if uplink.energy is not transmit_energy:
        raise PrivacyViolation(f"uplink {uplink.name!r} comes from outside otafl and may not count energy by itself")
    heard, site = uplink.site(frozen(trace), frozen(deployment))
    most = min(deployment.trusted_noise_var, float(site.noise_var))
    rules = {
        "trusted_noise_var": (site.trusted_noise_var <= most * (1 + TOLERANCE), f"at most {most:g}"),
        "gain_error": (site.gain_error >= deployment.gain_error, f"at least {deployment.gain_error:g}"),
        "phase_error": (site.phase_error == deployment.phase_error, f"{deployment.phase_error}"),
        "energy": (np.all(np.asarray(site.energy) <= np.asarray(deployment.energy)), "no larger than the device's"),
        "weights": (np.array_equal(site.weights, deployment.weights), "unchanged"),
        "dim": (site.dim == deployment.dim, f"{deployment.dim}"),
        "receiver": (site.receiver[:3] == deployment.receiver[:3], "unchanged"),
    }
    for name, (kept, rule) in rules.items():
        if not kept:
            found = getattr(site, name)
            raise PrivacyViolation(f"uplink {uplink.name!r} changed the site's {name} to {found}; it must be {rule}")
    return heard, site


def check_links(uplink: Uplink, link: Link, plan: Plan, events: Events, first_round: int = 0) -> None:
    """Links of some rounds (T, K) against plan and charge: no message louder, no noise quieter, nobody sent besides."""
    scale = np.where(np.isfinite(plan.rx_scale), plan.rx_scale, 1.0)  # at rx_scale = inf nothing may arrive at all
    if uplink.release is None:  # else amplitudes and noise of the charge are in units of its own
        _check_levels(uplink, link, plan, events, scale, first_round)
    opened = ~(np.asarray(link.max_norm) <= plan.max_norm)
    _refuse(uplink, events.live[..., None] & opened, link.max_norm, "sends up to norm", "above the plan's", first_round)
    _refuse(
        uplink, np.asarray(link.live, bool) & ~plan.live, scale, "runs with rx_scale", "a stopped round", first_round
    )


def _check_levels(uplink: Uplink, link: Link, plan: Plan, events: Events, scale: Any, first_round: int) -> None:
    heard = np.abs(link.weight) * scale[..., None]
    loud = ~(heard <= np.where(np.isfinite(plan.rx_scale), 1.0, 0.0)[..., None] * events.amp * (1 + TOLERANCE))
    noise, charged = (np.asarray(link.noise_std) * scale) ** 2, total_noise_var(events)
    quiet = np.isfinite(plan.rx_scale) & ~(noise >= charged * (1 - TOLERANCE))
    _refuse(uplink, events.live[..., None] & loud, heard, "hears an amplitude of", "more than was charged", first_round)
    _refuse(uplink, events.live & quiet, noise, "has a noise variance of", "less than was charged", first_round)
    std = np.asarray(link.noise_std)
    faint = events.live & (std > 0) & (std < FAINTEST) & np.any(link.weight, axis=-1)
    _refuse(uplink, faint, std, "divides noise down to", "float32 cannot hold it; lower rx_scale", first_round)


def _refuse(uplink: Uplink, bad: Any, value: Any, what: str, why: str, first_round: int) -> None:
    if np.any(bad):
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        whose = f", client {index[1]}" if len(index) > 1 else ""
        found = np.broadcast_to(value, bad.shape)[index]
        raise PrivacyViolation(
            f"uplink {uplink.name!r} {what} {found:.6g} in round {first_round + index[0]}{whose}: {why}"
        )


def probe(uplink: Uplink, plan: Plan, trace: Trace, site: Deployment, message: Message, events: Events) -> None:
    """Try an uplink from outside on made-up messages of the round that is charged most; PrivacyViolation if it lied."""
    used = events.live & np.isfinite(plan.rx_scale)
    if not np.any(used):
        return
    round_ = int(np.argmax(np.where(used, events.amp.max(-1), -1.0)))
    row = Plan(*(leaf[round_] for leaf in plan))
    one = pick(events, slice(round_, round_ + 1))
    with jax.enable_x64(True):
        link = to_float32(uplink.lower(row, trace.gain[round_], site))
        _probe_noise(uplink, link, message.dim, float(np.sqrt(total_noise_var(one)[0]) / row.rx_scale))
        for client in np.argsort(-one.amp[0])[:LOUDEST]:
            if row.max_norm[client] >= 0:
                _probe_client(uplink, link, message, int(client), float(one.amp[0, client] / row.rx_scale))


def _contribution(uplink: Uplink, link: Link, messages: Any, sent: Any) -> Any:
    count = len(messages)
    ids, factor = jnp.arange(count), jnp.ones(count, jnp.float32)
    return uplink.combine(link, ids, jnp.asarray(sent), factor, jnp.asarray(messages, jnp.float32))


def _values(received: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(received)])


def _probe_noise(uplink: Uplink, link: Link, dim: int, std: float) -> None:
    """Differences of two draws, so that a constant is no noise; chi-square test of their variance."""
    count = link.weight.shape[-1]
    silence = _contribution(uplink, link, np.zeros((count, dim)), np.zeros(count, bool))
    pairs = -(-SAMPLES // dim)
    keys = jax.random.split(jax.random.key(0), 2 * pairs)
    drawn = [_values(uplink.decode(silence, link, key)[0]) for key in keys]
    apart = np.concatenate([(a - b) / np.sqrt(2) for a, b in zip(drawn[::2], drawn[1::2])])
    least = std**2 * 2 * gammaincinv(apart.size / 2, CONFIDENCE)  # of chi squared
    if not np.sum(apart**2) >= least * (1 - TOLERANCE):
        raise PrivacyViolation(
            f"uplink {uplink.name!r} adds noise of std {np.sqrt(np.mean(apart**2)):.6g}, not {std:.6g} as charged"
        )
    # The sum over coordinates says nothing of each of them, nor whether they share their noise: one that has none, or
    # two that have the same, hide nothing. Sizes must be those of N(0, std^2), of differences between coordinates too.
    mixed = np.concatenate([_between_coordinates(part) for part in np.split(apart, pairs)])
    for values, what in ((apart, "in some coordinates"), (mixed, "between coordinates")):
        share = _too_small(values, std)
        if share > np.sqrt(np.log(1 / CONFIDENCE) / (2 * max(values.size, 1))):  # Dvoretzky, Kiefer, Wolfowitz
            raise PrivacyViolation(
                f"uplink {uplink.name!r} adds less noise {what} than the {std:.6g} charged: "
                f"{share:.2g} of it is smaller than Gaussian noise may be"
            )


def _between_coordinates(noise: Any) -> np.ndarray:
    """Differences over the root of 2 of disjoint pairs of coordinates, next to each other and far apart."""
    half = noise.size // 4 * 2
    near, far = noise[:half], noise[half : 2 * half]
    middle = half // 2
    found: np.ndarray = np.concatenate([near[::2] - near[1::2], far[:middle] - far[middle:]]) / np.sqrt(2)
    return found


def _too_small(values: np.ndarray, std: float) -> float:
    """By how much the share of small values passes that of N(0, std^2), at the size where it does so most."""
    if values.size == 0:
        return 0.0
    sizes = np.sort(np.abs(values))
    expected = erf(sizes / (std * np.sqrt(2))) if std > 0 else np.ones(sizes.size)
    return float(np.max(np.arange(1, sizes.size + 1) / sizes.size - expected))


def _probe_client(uplink: Uplink, link: Link, message: Message, client: int, amplitude: float) -> None:
    """One client's message moves what the server has by no more than its amplitude, and by nothing if it is silent."""
    count, norm = link.weight.shape[-1], min(message.bound, 1.0)
    messages = np.zeros((count, message.dim))
    messages[client, 0] = norm
    key, alone = jax.random.key(1), np.arange(count) == client
    nothing = _contribution(uplink, link, 0 * messages, alone)
    quiet = _values(uplink.decode(nothing, link, key)[0])
    for sent, most in ((alone, amplitude * norm), (np.zeros(count, bool), 0.0)):
        loud = _values(uplink.decode(_contribution(uplink, link, messages, sent), link, key)[0])
        shift, slack = np.linalg.norm(loud - quiet), 1e-5 * np.linalg.norm(quiet)  # float32 of a noisy sum
        if not shift <= most * (1 + 1e-4) + slack:
            raise PrivacyViolation(
                f"uplink {uplink.name!r} moves by {shift:.6g} for client {client}, more than the {most:.6g} charged"
            )
