"""AdaScale (Moradi Kalarde, Liang, Dong, Ahmed, Cheng): online receive scaling for the least Renyi leakage.

    leakage       R(N), the leakage of a round as a function of its noise energy, and its slopes
    online        the per-round problem, the virtual queue, Algorithm 1
    sweeps        Algorithm 1 over whole traces at once
    odometer      what devices keep track of themselves, and refuse
    offline       the optimum in hindsight: water-filling, and the general dual form
    convergence   Theorem 1: the bound of a run, and the cap nu for a target gamma
    certificates  what is certain about a finished run
    rivals        EqualAlloc, EstimFuture, constant scaling, StatLevel, StatWater, reconstructions of [20] and [23]
    tuning        V (and the parameters of the reconstructions) such that the cap is spent
    stationary    the stationary water level of Rayleigh channels
    variables     from radios and messages to noise energies and back
    setting       the published settings, and channels drawn as published
    methods       all methods on the same channels: the leakage of Figures 1 and 2

Host, float64 throughout.
"""

from otafl.systems.adascale.certificates import Certificate, certify
from otafl.systems.adascale.convergence import Convergence
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.offline import best_excess_offline, dual_excess, optimal_excess, water_level
from otafl.systems.adascale.online import Rule, Run, View, adascale_rule, algorithm1, best_excess, next_queue, play
from otafl.systems.adascale.setting import CIFAR10, MNIST, Setting, draw
from otafl.systems.adascale.tuning import tune_V
from otafl.systems.adascale.variables import leakage_of, noise_floor, noise_multiplier, receive_scaling, unit_noise

__all__ = [
    "CIFAR10", "MNIST", "Certificate", "Convergence", "Leakage", "Rule", "Run", "Setting", "View", "adascale_rule",
    "algorithm1", "best_excess", "best_excess_offline", "certify", "draw", "dual_excess", "leakage_of", "next_queue",
    "noise_floor", "noise_multiplier", "optimal_excess", "play", "receive_scaling", "tune_V", "unit_noise",
    "water_level",
]  # fmt: skip
