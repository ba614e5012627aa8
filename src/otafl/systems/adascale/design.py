"""AdaScale's mathematics: leakage, the online problem, its optimum in hindsight, certificates. Host, float64."""

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
