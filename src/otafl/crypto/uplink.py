"""Encrypted uplinks for the training round: the exact ring inside the compiled loop, or its noise alone.

Messages are the few scalars of a zero-order round. Clients scale and encode them, the air adds ciphertexts, the server
opens the sum with everyone's shares, and looks at the empty coefficients to see whether that worked.

`analytic`                      no ring: the analog sum under noise of the exact decoded variance given the gains
`digital-analytic`              the same on error-free links, whose weights are 1
`fixed-point`, `hybrid`, `digital`   the sound modes of `modes.MODES`, every residue computed (`round_sum`)
`single-key`                    one key for all clients, no key phase, no shares: hides nothing among clients
`lifted`                        real gains, no reduction (`unreduced`): hides nothing at all
`naive-reuse`, `zf`, `mmse`     controls whose key met another channel than the shares: they must fail, and are caught

Gains are put on the grid 2^-f Z before the run (`site`); the change is named in the remarks. Keys are drawn once per
run and shared by its seeds; all ring randomness inside the loop comes from the simulation's key, so nothing here hides
anything: every card says `insecure_test_rng`. Devices with operating-system keys are in `overair`.

The decoded error is not counted as privacy noise: the ledger sees a public, almost noiseless sum, plus whatever
artificial noise the clients add before they encrypt (the simulation draws the sum of it at once).
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import streams, uplink
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Link, Plan, Trace
from otafl.core.uplink import ANALOG, Uplink
from otafl.crypto import modes, round_sum, scaling, simulation, unreduced
from otafl.crypto import ring as rings
from otafl.crypto.budget import (
    FAIL_SIGMAS,
    Fading,
    analytic_noise_std,
    average_variance,
    check_headroom,
    decode_bits,
    message_bits,
)
from otafl.crypto.choosing import flooded
from otafl.crypto.feasibility import traffic
from otafl.crypto.parameters import GUARD_BITS, Parameters
from otafl.crypto.round_sum import Keys

RING_MODES = (*modes.GRID_MODES, "single-key", "lifted")
OWN_BUDGET = ("digital", "hybrid", "single-key", "lifted")  # the others share fixed-point's
NOISY = {  # phases that meet receiver noise, where not all do
    "digital": (), "hybrid": ("c0", "c1"), "single-key": ("c0", "c1"), "zf": modes.PHASES[1:], "mmse": modes.PHASES[1:],
}  # fmt: skip
WITHOUT_RING = ("analytic", "digital-analytic")
DIGITAL = ("digital", "digital-analytic")  # error-free links: gains 1
CONTROLS = ("naive-reuse", "zf", "mmse")
REACH = 8.0  # standard deviations: of a gain that must be counted with, and of noise wide against a lattice


class RingLink(NamedTuple):
    """What a ring round needs besides the link. Residues are uint32."""

    prescale: Array  # (K,) float64: what a client multiplies its scalars by, 1/mu
    weights: Array  # (K, L, 1) of the ciphertexts
    share_weights: Array  # (K, L, 1) of the shares
    key_weights: Array  # (K, L, 1) of the partial keys; another channel's in the failing controls


@dataclasses.dataclass(frozen=True)
class Job:
    """One encrypted training job. `discard`: a round that fails the check changes nothing; False applies it anyway."""

    parameters: Parameters
    fading: Fading
    mode: str = "fixed-point"
    seed: int = 0
    discard: bool = True
    pilot_error: float = modes.PILOT_ERROR

    @property
    def budget_mode(self) -> str:
        if self.mode in DIGITAL:
            return "digital"
        return self.mode if self.mode in OWN_BUDGET else "fixed-point"

    @cached_property
    def computed(self) -> Parameters:
        """What the loop computes with: the job's own ring and grid, or those that stand for integers and reals."""
        return unreduced.wide(self.parameters, self.fading) if self.mode == "lifted" else self.parameters

    def flooded(self, smudging_bits: float) -> "Job":
        """The same job with share noise that hides the key-dependent residue by so many bits."""
        if self.mode == "single-key":  # there are no shares
            return self
        p = flooded(self.parameters, self.fading, smudging_bits, self.budget_mode)
        return dataclasses.replace(self, parameters=p)

    @property
    def expected_rms(self) -> float:
        """Of the empty coefficients, in the unit of the messages: all that a server without the gains can expect."""
        return math.sqrt(average_variance(self.parameters, self.fading, self.budget_mode))

    @property
    def rounding(self) -> float:
        """How far the grid may move the scalars of one client, as a vector."""
        p = self.parameters
        return math.sqrt(p.P) * 2.0 ** (-message_bits(p, self.budget_mode) - 1)

    @property
    def least_noise(self) -> float:
        """Least std of each client's noise, per scalar, that the sum may be charged with as real-valued.

        The sum H_i m_i of whole numbers tells m up to the lattice on which it is zero, whose vectors need be no longer
        than sqrt(2) max H. Narrower noise can be taken apart: a client is then hidden by its own alone, or by nothing
        where it rounds to zero. Noise REACH max H wide smooths that lattice (Micciancio and Regev 2007, Lemma 3.3).
        Guard copies are opened too, and rounded to a coarser grid: noise that is narrow there is one client's again.
        """
        p, spread = self.parameters, np.sqrt(np.maximum(self.fading.Omega - self.fading.mu**2, 0))
        mean = np.abs(self.fading.mu)
        widest = 1 / np.min(mean) if self.mode in DIGITAL else math.ldexp(np.max(mean + REACH * spread), p.f)
        return float(REACH * widest * 2.0 ** ((GUARD_BITS if p.guard else 0) - message_bits(p, self.budget_mode)))


def make(job: Job) -> Uplink:
    """The uplink of a job; refuses parameters under which honest rounds would wrap."""
    if job.mode not in (*WITHOUT_RING, *RING_MODES):
        raise InputError(f"mode={job.mode!r} must be one of {', '.join((*WITHOUT_RING, *RING_MODES))}")
    if job.mode != "lifted":  # integers do not wrap
        check_headroom(job.parameters, job.fading, job.budget_mode)
    if job.mode in WITHOUT_RING:
        made = ANALOG._replace(name=job.mode, site=_site(job), lower=_lower_analytic(job), remarks=remarks(job))
        return made._replace(radio=False, bits=_bits(job))
    alarm = modes.MODES[job.mode].alarm
    if alarm:
        warnings.warn(alarm, modes.InsecureModeWarning, stacklevel=2)
    ring = job.computed.ring
    return Uplink(
        name=job.mode,
        site=_site(job),
        lower=_lower_ring(job),
        combine=_combine(job),
        add=lambda total, part: rings.add(ring, total, part),
        decode=_decode_with_drawn_keys(job),
        remarks=remarks(job),
        alarm=alarm,
        bits=_bits(job),
    )


def _bits(job: Job) -> Callable[[int], float] | None:
    """Ciphertexts and shares on a digital link; a ciphertext holds all scalars. None over the air."""
    if job.mode not in DIGITAL:
        return None
    return lambda dim: float(traffic(job.parameters, 1.0, job.budget_mode).uplink_bits)


# --- before the rounds: host, float64 ----------------------------------------------------------------------------


def effective_gains(job: Job, h: np.ndarray) -> np.ndarray:
    """Gains that ciphertexts meet, on the grid: the channel's, its pre-equalised remainder, or 1 on digital links."""
    if job.mode in DIGITAL:
        return np.broadcast_to(job.fading.mu, h.shape).copy()  # divided by mu again at encode: weights 1
    if job.mode in ("zf", "mmse"):
        h = modes.equalised(job.mode, h, np.random.default_rng([job.seed, streams.Host.RING_PILOTS]), job.pilot_error)
    return scaling.quantise_channel(h, job.computed.f).h


def _site(job: Job) -> Any:
    """Gains as this mode meets them; no receiver noise that a ledger might trust; symbols fill the ring, so energy
    limits on messages mean nothing (`feasibility` says what the radio would need)."""

    def site(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
        if job.mode not in DIGITAL and np.any(np.imag(trace.gain) != 0):  # a digital link never meets the fading
            raise InputError(
                f"mode={job.mode!r} needs real gains: a complex channel has no integer grid here; use mode='digital' "
                "or a real channel, as channel='eezofl'"
            )
        gain = effective_gains(job, np.real(trace.gain)) + 0j
        unlimited = np.full_like(np.asarray(deployment.energy, float), np.inf)
        quiet = deployment._replace(energy=unlimited, noise_var=0.0, trusted_noise_var=0.0)
        return trace._replace(gain=gain, estimate=gain), quiet._replace(gain_error=0.0, phase_error=0.0)

    return site


def _lower_analytic(job: Job) -> Any:
    def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        unit = np.ones(gain.shape) if job.mode in DIGITAL else np.real(gain)
        variance = analytic_noise_std(unit, job.parameters, job.budget_mode) ** 2  # EEZOFL 3.7, given h
        return uplink.lower(plan, gain, deployment._replace(noise_var=variance))

    return lower


def _lower_ring(job: Job) -> Any:
    """Ring weights H = 2^f h as residues; `noise_std` of the link is the clients' artificial noise alone."""
    p = job.computed

    def on_grid(h: np.ndarray) -> Array:
        return scaling.scaled_residues(p.ring, np.asarray(h, np.float64)[..., None], p.f)

    def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        h, count = np.real(gain), gain.shape[-1]
        one = np.broadcast_to(scaling.scaled_residues(p.ring, np.ones((count, 1)), 0), (*h.shape, p.ring.limbs, 1))
        weights = one if job.mode == "digital" else on_grid(h)
        shares = one if job.mode in ("digital", "hybrid", "single-key") else weights
        keys = {"zf": on_grid(np.ones(h.shape)), "mmse": on_grid(np.ones(h.shape))}.get(job.mode, shares)
        if job.mode == "naive-reuse":
            keys = np.broadcast_to(on_grid(setup_gains(job)), weights.shape)
        extra = RingLink(np.broadcast_to(np.real(plan.tx), h.shape), weights, shares, keys)
        if job.mode == "digital":
            extra = extra._replace(prescale=np.ones(h.shape))
        return uplink.lower(plan, gain, deployment)._replace(extra=extra)

    return lower


def setup_gains(job: Job) -> np.ndarray:
    """The channel through which `naive-reuse` once aggregated its key."""
    rng = np.random.default_rng([job.seed, streams.Host.RING_SETUP])
    spread = np.sqrt(job.fading.Omega - job.fading.mu**2)
    return scaling.quantise_channel(rng.normal(job.fading.mu, spread), job.parameters.f).h


def simulation_keys(job: Job) -> Keys:
    """The run's keys from its seed: one for each device, or one for all."""
    if job.mode == "lifted":
        return unreduced.keys(job.parameters, job.computed.ring, job.fading.N, job.seed)
    return simulation.keys(job.parameters, 1 if job.mode == "single-key" else job.fading.N, job.seed)


# --- inside the compiled round -----------------------------------------------------------------------------------


def _combine(job: Job) -> Any:
    """sum_k H_k m_k mod q, m_k = round(2^bits x_k / mu_k): (L, n) residues; chunks of clients add exactly."""
    p, bits = job.computed, message_bits(job.parameters, job.mode)

    def combine(link: Link, ids: Array, sent: Array, factor: Array, messages: Array) -> Array:
        if not isinstance(messages, jax.Array) or messages.shape[1:] != (p.P,):
            raise InputError(f"encrypted uplinks carry P={p.P} scalars per client; use zero-order clients")
        scalars = messages.astype(jnp.float64) * (link.extra.prescale[ids] * factor)[:, None]
        scalars = jnp.where(sent[:, None], scalars, 0.0)
        return round_sum.weighted(p.ring, link.extra.weights[ids], scaling.pack(p, scalars, bits))

    return combine


def _decode_with_drawn_keys(job: Job) -> Any:
    """`_decode` with the run's keys, which are drawn when a round is compiled: a plan needs none."""

    def decode(total: Array, link: Link, key: Array) -> tuple[Array, Array]:
        with jax.ensure_compile_time_eval():
            keys = simulation_keys(job)
        values, refused = _decode(job, keys)(total, link, key)
        return values, refused

    return decode


def _decode(job: Job, keys: Keys) -> Any:
    """Play the phases, centre, check, and let the scalars out. EEZOFL 3.5, 7.5"""
    p, expected, phases = job.computed, job.expected_rms, NOISY.get(job.mode, modes.PHASES)
    bits = unreduced.decode_bits(p) if job.mode == "lifted" else decode_bits(p, job.mode)
    total_bits = message_bits(job.parameters, job.mode) + (0 if job.mode == "digital" else p.f)

    def decode(total: Array, link: Link, key: Array) -> tuple[Array, Array]:
        ring_key, noise_key = jax.random.split(key)
        # Clients add their noise before they encrypt: whether a round is refused is told of the noisy sum alone.
        noise = link.noise_std * jax.random.normal(noise_key, (p.P,), jnp.float64)
        noisy = rings.add(p.ring, total, scaling.pack(p, noise, total_bits))
        received = opened_sum(job, keys, simulation.draws(p, job.fading.N, phases, ring_key), noisy, link.extra)
        opened = scaling.decode(p, received[:, p.layout.kept], bits)
        refused = failed(opened, expected)
        return jnp.where(refused & job.discard, 0.0, opened.values).astype(jnp.float32), refused

    return decode


def opened_sum(job: Job, keys: Keys, draws: round_sum.Draws, total: Array, extra: RingLink) -> Array:
    """M^ residues (L, n): what the server has after all phases of this mode."""
    ring, shares = job.computed.ring, extra.share_weights
    if job.mode == "lifted":
        return unreduced.lifted_round(ring, keys, draws, total, extra.weights)
    if job.mode == "single-key":  # whoever opens the sum holds the one key: a share without weight or noise
        draws, shares = draws._replace(e_star=jnp.zeros_like(draws.e_star[:1])), shares[:1]
    if job.mode in CONTROLS:  # the key that was broadcast is not the sum that the shares will undo
        other = rings.subtract(ring, extra.key_weights, shares)
        draws = draws._replace(w_key=rings.add(ring, draws.w_key, round_sum.weighted(ring, other, keys.b)))
    return round_sum.fused_round(ring, keys, draws, total, extra.weights, shares)


def failed(opened: scaling.Decoded, expected_rms: float, z: float = FAIL_SIGMAS) -> Array:
    """Whether a round must be discarded: loud empty coefficients, or a scalar and its guard copy apart. EEZOFL 7.5"""
    return (opened.empty_rms > z * expected_rms) | scaling.copies_apart(opened, z * expected_rms)


# --- what a card must say ----------------------------------------------------------------------------------------


def remarks(job: Job) -> tuple[str, ...]:
    """Who is protected from whom, and what was only simulated. An alarm comes first."""
    p, mode, hidden = job.parameters, modes.MODES[job.mode], modes.secrecy(job.mode, job.parameters)
    places = job.computed.f
    level = p.security_bits
    signs = ", which is for ternary secrets and was not estimated for these signs" if p.secret == "sign" else ""
    sized = f"{level} bits by the public table{signs}" if level else "security none: too small or too little noise"
    if job.mode == "lifted":
        sized = "q is never used to reduce, so its size protects nothing"
    lines = [
        "encryption is not differential privacy: the decrypted sum is public, its decoding error is tiny and not "
        "counted; only noise that the clients add themselves is",
        f"encrypted uplink {mode.name!r}: {hidden}; n={p.ring.n}, log2 q={p.ring.bits}: {sized}; an active "
        "server, or all other clients together with the server, are outside",
    ]
    if job.mode not in DIGITAL:
        change = f"gains were rounded to multiples of 2^-{places} (rms change {2.0**-places / math.sqrt(12):.1e})"
        lines.append(f"{change}; real channels are not on a grid")
    if job.mode in WITHOUT_RING:
        lines.append("no ring was computed: noise of the exact decoded variance was added instead")
    else:
        lines.append("insecure_test_rng: keys and ring noise came from the simulation's seed, so this run hid nothing")
    if not mode.sound:
        what = "discarded" if job.discard else "applied"
        lines.append(f"{mode.name!r} is a control that must fail: failed rounds were {what}")
    return (mode.alarm, *lines) if mode.alarm else tuple(lines)
