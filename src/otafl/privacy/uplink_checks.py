"""What an uplink promises the ledger, held against what it does. Host; probes run the uplink's own compiled parts.

The ledger charges amplitudes and noise from plan and trace. An uplink that heard messages louder, or added less noise,
would make that number false, so: it may not trust noise that is not there (`meet`), its links may not be louder or
quieter than charged (`check_links`), and one from outside otafl is tried out (`probe`) before it carries data.
"""

from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf, gammaincinv

from otafl.core.errors import PrivacyViolation
from otafl.core.plan import Deployment, Events, Link, Message, Plan, Trace, cut, frozen, ours
from otafl.core.uplink import FAINTEST, Uplink, to_float32, transmit_energy
from otafl.core.validate import first_place
from otafl.privacy.events import pick, total_noise_var

TOLERANCE = 1e-9  # of products of doubles in another order
CONFIDENCE = 1e-9  # of refusing an honest uplink
SAMPLES = 20_000  # noise that is 6 % too small is found with them
LOUDEST = 4  # clients whose messages are tried out
LARGEST_LINK = float(np.sqrt(np.finfo(np.float32).max))  # times the norm of any message is a number in float32
SHORT = 2.0**-6  # of the bound: a message that is not clipped; or what clipping leaves of a long one


def is_own(uplink: Uplink) -> bool:
    """Whether an uplink and all its parts are otafl's; anybody else's are checked by trying.

    Parts of otafl's that do not belong together, one uplink's sum under another's charge, are anybody else's too.
    """
    parts = [uplink.site, uplink.lower, uplink.combine, uplink.add, uplink.decode]
    parts += [uplink.energy, uplink.uses, *([] if uplink.release is None else [uplink.release])]
    return not uplink.outside and all(ours(part) for part in parts)


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
    for name in ("gain", "array", "coin"):  # what is declared of them is held against the charge afterwards
        if not np.array_equal(getattr(heard, name), getattr(trace, name)):
            raise PrivacyViolation(f"uplink {uplink.name!r} changed the site's {name}; it must be unchanged")
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


def lowered(uplink: Uplink, plan: Plan, gain: Any, deployment: Deployment, compiled: bool) -> Link:
    """The link of plans on the host. Somebody else's is asked as the round asks it: where it is `compiled` into the
    loop, it sees JAX's arrays there and may answer them otherwise than NumPy's."""
    if is_own(uplink) or not compiled:
        return uplink.lower(plan, gain, deployment)
    with jax.enable_x64(True):
        link = jax.jit(lambda a, b: uplink.lower(a, b, deployment))(plan, gain)
    return jax.tree.map(np.asarray, link)


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
    if is_own(uplink):  # slots are put on one scale, maybe of a client who has fallen silent: messages are fainter too
        hidden = heard * np.sqrt(charged)[..., None] <= events.amp * np.sqrt(noise)[..., None] * (1 + TOLERANCE)
        quiet &= ~np.all(hidden, axis=-1)
    _refuse(uplink, events.live[..., None] & loud, heard, "hears an amplitude of", "more than was charged", first_round)
    _refuse(uplink, events.live & quiet, noise, "has a noise variance of", "less than was charged", first_round)
    std = np.asarray(link.noise_std)
    faint = events.live & (std > 0) & (std < FAINTEST) & np.any(link.weight, axis=-1)
    _refuse(uplink, faint, std, "divides noise down to", "float32 cannot hold it; lower rx_scale", first_round)
    huge = events.live[..., None] & (np.abs(link.weight) > LARGEST_LINK)  # infinite, it would be louder than any noise
    _refuse(uplink, huge, link.weight, "lifts a message by", "float32 cannot hold it; raise rx_scale", first_round)


def _refuse(uplink: Uplink, bad: Any, value: Any, what: str, why: str, first_round: int) -> None:
    if np.any(bad):
        index = first_place(bad)
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
    row = cut(plan, round_)
    one = pick(events, slice(round_, round_ + 1))
    loudest = np.argsort(-one.amp[0])[:LOUDEST]
    with jax.enable_x64(True):
        link = to_float32(uplink.lower(row, trace.gain[round_], site))
        # Compiled, as in a round: what looks at its arguments may do otherwise with plain numbers.
        parts: dict[str, Any] = {name: jax.jit(getattr(uplink, name)) for name in ("combine", "add", "decode")}
        air = _Tried(uplink._replace(**parts), link, loudest, message.dim)
        _probe_noise(air, float(np.sqrt(total_noise_var(one)[0]) / row.rx_scale))
        for place, client in enumerate(loudest):
            if row.max_norm[client] >= 0:
                _probe_client(air, message, place, float(one.amp[0, client] / row.rx_scale))


class _Tried(NamedTuple):
    """An uplink and the few clients whose made-up messages it carries, n of them."""

    uplink: Uplink
    link: Link
    clients: Any  # (n,) int
    dim: int

    def entered(self, rows: Any, sent: Any, factor: float, at_once: bool) -> Any:
        """What messages (n, D) before clipping become in the air, at once or one after the other, as rounds have it.

        Two leaves are of one shape: noise drawn by their shapes alone would be the same in both.
        """
        half = self.dim // 2
        leaves = [part for part in np.split(np.asarray(rows, np.float32), [half, 2 * half], axis=1) if part.size]

        def some(index: Any) -> Any:
            ids, scale = jnp.asarray(self.clients[index], jnp.int32), jnp.full(len(index), factor, jnp.float32)
            own = tuple(jnp.asarray(leaf[index]) for leaf in leaves)
            return self.uplink.combine(self.link, ids, jnp.asarray(sent[index]), scale, own)

        everyone = np.arange(len(self.clients))
        if at_once:
            return some(everyone)
        parts = [some(everyone[n : n + 1]) for n in everyone]
        return reduce(self.uplink.add, parts, jax.tree.map(jnp.zeros_like, parts[0]))

    def heard(self, entered: Any, key: Any) -> np.ndarray:
        received = self.uplink.decode(entered, self.link, key)[0]
        return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(received)])


def _probe_noise(air: _Tried, std: float) -> None:
    """Differences of two draws, so that a constant is no noise; chi-square test of their variance."""
    nobody = np.zeros(len(air.clients), bool)
    silence = air.entered(np.zeros((len(nobody), air.dim)), nobody, 1.0, at_once=True)
    pairs = -(-SAMPLES // air.dim)
    keys = jax.random.split(jax.random.key(0), 2 * pairs)
    drawn = [air.heard(silence, key) for key in keys]
    apart = np.concatenate([(a - b) / np.sqrt(2) for a, b in zip(drawn[::2], drawn[1::2])])
    least = std**2 * 2 * gammaincinv(apart.size / 2, CONFIDENCE)  # of chi squared
    if not np.sum(apart**2) >= least * (1 - TOLERANCE):
        raise PrivacyViolation(
            f"uplink {air.uplink.name!r} adds noise of std {np.sqrt(np.mean(apart**2)):.6g}, not {std:.6g} as charged"
        )
    # The sum over coordinates says nothing of each of them, nor whether they share their noise: one that has none, or
    # two that have the same up to a sign, hide nothing. Sizes must be those of N(0, std^2), of sums and differences of
    # coordinates too.
    mixed = [np.concatenate([_of_pairs(part, sign) for part in np.split(apart, pairs)]) for sign in (-1, 1)]
    for values, what in ((apart, "in some coordinates"), *((values, "between coordinates") for values in mixed)):
        share = _too_small(values, std)
        if share > np.sqrt(np.log(1 / CONFIDENCE) / (2 * max(values.size, 1))):  # Dvoretzky, Kiefer, Wolfowitz
            raise PrivacyViolation(
                f"uplink {air.uplink.name!r} adds less noise {what} than the {std:.6g} charged: "
                f"{share:.2g} of it is smaller than Gaussian noise may be"
            )


def _of_pairs(noise: Any, sign: int) -> np.ndarray:
    """Sums or differences over the root of 2 of disjoint pairs: the same places of both halves, and neighbours."""
    half = noise.size // 2
    low, high, far = noise[:half], noise[half : 2 * half], -(-half // 2)
    near = np.concatenate([part[far:][: (half - far) // 2 * 2].reshape(-1, 2) for part in (low, high)])
    return np.concatenate([low[:far] + sign * high[:far], near[:, 0] + sign * near[:, 1]]) / np.sqrt(2)


def _too_small(values: np.ndarray, std: float) -> float:
    """By how much the share of small values passes that of N(0, std^2), at the size where it does so most."""
    if values.size == 0:
        return 0.0
    sizes = np.sort(np.abs(values))
    expected = erf(sizes / (std * np.sqrt(2))) if std > 0 else np.ones(sizes.size)
    return float(np.max(np.arange(1, sizes.size + 1) / sizes.size - expected))


def _probe_client(air: _Tried, message: Message, place: int, amplitude: float) -> None:
    """A client's message moves what the server has by no more than its amplitude, and by nothing if it is silent.

    Of a message that is clipped, and of a short one: a record moves the message by little, and what is received may
    then move by as little. Of a client only the whole message counts.
    """
    bound = message.bound if np.isfinite(message.bound) else 1.0
    key, alone = jax.random.key(1), np.arange(len(air.clients)) == place
    direction = np.random.default_rng(0).standard_normal(air.dim)
    rows = alone[:, None] * (bound / np.linalg.norm(direction)) * direction
    for at_once, (norm, factor) in product((True, False), ((1.0, SHORT), (SHORT, 1.0))):
        there, back, none = (
            air.heard(air.entered(turn * norm / factor * rows, alone, factor, at_once), key) for turn in (1, -1, 0)
        )
        silent = air.heard(air.entered(norm / factor * rows, ~alone, factor, at_once), key)
        most = amplitude * bound * (norm if message.unit == "record" else 1.0)
        slack = 1e-5 * np.linalg.norm(none)  # float32 of a noisy sum
        for other, times in ((none, 1.0), (back, 2.0), (silent, 0.0)):
            shift = np.linalg.norm((none if other is silent else there) - other)
            if not shift <= times * most * (1 + 1e-4) + slack:
                raise PrivacyViolation(
                    f"uplink {air.uplink.name!r} moves by {shift:.6g} for client {air.clients[place]}, more than the "
                    f"{times * most:.6g} charged"
                )
