"""How much learning a plan buys: one figure of merit, from plans and one number about the data. Host, float64.

At one privacy budget every scheme here is the same Gaussian mechanism. With C the norm bound, A_t the weight that is
heard in round t and sigma_t the noise per coordinate of the update,

    S     = C sum_t A_t / sqrt(sum_t sigma_t^2)         accumulated step over accumulated noise
    S_max = K mu C / sensitivity                        no power control passes it (Cauchy-Schwarz for every client)
    e     = S / S_max                                   privacy efficiency
    Q     = agreement S (650/D)^0.14                    agreement: norm of the mean of clipped messages over C
    lift  = 1 / (1 + ((9/Q)^2 + 0.87/T)^0.885)          share of the attainable accuracy that is reached

S and S_max are derived; they hold without amplification by sampling. Q, the lift and its band are fits to 264
trainings of ten-class images (digits, MNIST) that reach 85 % or more without privacy, with 20 to 1,437 devices, epsilon
0.5 to 200, 10 to 400 rounds and 170 to 20,000 parameters: `in_domain` says whether a question lies inside.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Floats

USEFUL, MARGINAL = 25.0, 10.0  # Q at which a task like the calibrated ones reaches 0.87 and 0.55 of what is attainable
REFERENCE_PARAMS, SIZE_EXPONENT = 650, 0.14
HALF_AT, ROUNDS_COST, STEEPNESS = 9.0, 0.87, 0.885  # standard errors 0.13, 0.13, 0.02
DOMAIN = {"num_params": (170, 20_000), "rounds": (30, 400), "devices": (20, 1_437)}
# Measured lift over Q: (geometric middle of a bin, 10 % and 90 % quantile of the points in it).
BAND = ((1.2, 0.0, 0.07), (3.2, 0.10, 0.19), (7.1, 0.28, 0.49), (12.6, 0.57, 0.66), (20.0, 0.73, 0.87),
        (31.6, 0.84, 0.92), (56.6, 0.91, 0.96), (160.0, 0.94, 1.0))  # fmt: skip
LARGEST_MOVE = 8.0  # of the model, in one round in which all clients agree
STEP_SCALE = {True: 0.35, False: 0.15}  # s of linear models, of networks
# Samples per device at which devices half agree: 37 to 70 were measured.
AGREEING_SAMPLES = 50.0

Verdict = Literal["useful", "marginal", "not useful"]


class Merit(NamedTuple):
    """What a plan promises. `band`: where 80 % of the calibrating runs of like Q lie."""

    snr: float  # S
    snr_max: float  # S_max
    efficiency: float  # e
    quality: float  # Q
    lift: float
    band: tuple[float, float]
    verdict: Verdict


def learning_snr(bound: float, heard_weight: Floats, noise_std: Floats) -> float:
    """S of the live rounds: heard weight and noise per coordinate of each, (T,).

    Where nobody is heard nothing is learnt, be there noise or none.

    >>> learning_snr(1.0, np.ones(4), np.full(4, 0.5)), learning_snr(1.0, np.zeros(4), np.zeros(4))
    (4.0, 0.0)
    """
    with np.errstate(over="ignore"):  # noise without end: nothing is heard
        noise, heard = math.sqrt(math.fsum(np.square(noise_std))), math.fsum(heard_weight)
    if noise == 0 or heard == 0:
        return math.inf if heard else 0.0
    return float(bound * heard / noise)


def learning_snr_max(devices: int, mu: float, bound: float, sensitivity: float) -> float:
    """S_max: every client spends all of mu at one amplitude."""
    return devices * mu * bound / sensitivity


def quality(snr: float, agreement: float, num_params: int) -> float:
    """Q.

    >>> round(quality(74.071, 0.1186, 650), 2)
    8.78
    """
    return float(agreement * snr * (REFERENCE_PARAMS / num_params) ** SIZE_EXPONENT)


def lift(q: float, rounds: int) -> float:
    """Share of the attainable accuracy, accuracy = chance + lift (accuracy without privacy - chance).

    >>> [round(lift(q, 200), 2) for q in (2, 10, 25, 80)]
    [0.07, 0.55, 0.86, 0.97]
    """
    if q <= 0 or rounds < 1:
        return 0.0
    return float(1 / (1 + ((HALF_AT / q) ** 2 + ROUNDS_COST / rounds) ** STEEPNESS))


def band(q: float) -> tuple[float, float]:
    """10 % and 90 % quantile of the measured lift at like Q; between two bins in between.

    >>> band(20.0), [round(end, 2) for end in band(25.0)]
    ((0.73, 0.87), [0.78, 0.89])
    """
    middle, low, high = zip(*BAND)
    at = math.log(min(max(q, middle[0]), middle[-1]))
    return float(np.interp(at, np.log(middle), low)), float(np.interp(at, np.log(middle), high))


def verdict(q: float) -> Verdict:
    return "useful" if q >= USEFUL else "marginal" if q >= MARGINAL else "not useful"


def guessed_agreement(samples_per_device: float) -> float:
    """How much devices agree, without a look at data: n mixed samples each, or about the number of its labels.

    >>> round(guessed_agreement(1), 2), round(guessed_agreement(300), 2)
    (0.14, 0.93)
    """
    validate.positive("samples_per_device", samples_per_device)
    return 1 / math.sqrt(1 + AGREEING_SAMPLES / samples_per_device)


def merit(snr: float, snr_max: float, agreement: float, num_params: int, rounds: int) -> Merit:
    """All of it for one plan."""
    q = quality(snr, agreement, num_params)
    return Merit(snr, snr_max, snr / snr_max if snr_max else 0.0, q, lift(q, rounds), band(q), verdict(q))


def in_domain(num_params: int, rounds: int, devices: int) -> list[str]:
    """What lies outside the calibration, one phrase each; empty where nothing does."""
    asked = {"num_params": num_params, "rounds": rounds, "devices": devices}
    return [
        f"{name}={asked[name]} (calibrated on {low} to {high})"
        for name, (low, high) in DOMAIN.items()
        if not low <= asked[name] <= high
    ]


def devices_for(q: float, devices: int) -> int:
    """Least number of like devices that is useful: S grows with K while nearly all are heard."""
    return math.ceil(devices * USEFUL / q) if q > 0 else 0


def mu_for(q: float, mu: float) -> float:
    """Least mu that is useful: S is proportional to it."""
    return mu * USEFUL / q if q > 0 else math.inf


def params_for(q: float, num_params: int) -> int | None:
    """Largest useful model, or None where size is not the lever (outside the calibrated sizes)."""
    if q <= 0:
        return None
    log_size = math.log(num_params) + math.log(q / USEFUL) / SIZE_EXPONENT
    low, high = DOMAIN["num_params"]
    return int(math.exp(log_size)) if math.log(low) <= log_size <= math.log(high) else None


def step_size(noise_std: Floats, bound: float, linear: bool, scale: float | None = None) -> float:
    """Step by rule: `scale` over the accumulated noise, at most 8/C; 0.35 for linear models, 0.15 for networks."""
    noise = math.sqrt(math.fsum(np.square(noise_std)))
    return min(LARGEST_MOVE / bound, (scale or STEP_SCALE[linear]) / noise) if noise > 0 else LARGEST_MOVE / bound
