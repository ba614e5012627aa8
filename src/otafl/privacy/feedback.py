"""What it costs to tell a policy how accurate the model is on the clients' own data. Host, float64. CARES E9"""

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Unit
from otafl.privacy.spend import Release

NOISY_ACCURACY = "noisy accuracy on the clients' data"
SMALLEST_NOISE = 1e-12  # float64 cannot add much less to an accuracy, so less would not be the noise that is drawn


def noisy_accuracy(unit: Unit, weights: Array, sizes: Array, noise_std: float) -> Release:
    """One release of sum_k weight_k accuracy_k + N(0, noise_std^2), whose noise nobody else sees.

    Sensitivity (K,), weights (K,) public and fixed:
    - client level, weight_k: any change of client k's data, its absence included (accuracy 0), moves accuracy_k by at
      most 1.
    - record level, weight_k / size_k: a replaced record moves one of size_k decisions. A record added moves the mean of
      size_k + 1 decisions by at most 1/(size_k + 1), one removed by at most 1/size_k (a client left empty counts as 0),
      so the same number covers every adjacency. For weights proportional to sizes it is 1/n, n all records, and that
      also covers weights that follow a record added or removed.

    >>> release = noisy_accuracy("record", np.array([0.25, 0.75]), np.array([15000, 45000]), 0.001)
    >>> [f"{cost:.2e}" for cost in release.square(2) / 2]
    ['1.39e-04', '1.39e-04']
    """
    weights = np.asarray(weights, np.float64)
    validate.not_negative("weights", weights)
    validate.positive("reward_noise", noise_std)
    if noise_std < SMALLEST_NOISE:
        raise InputError(f"reward_noise={noise_std!r} must be at least {SMALLEST_NOISE:g}: less hides nothing")
    if unit == "client":
        return Release(NOISY_ACCURACY, weights, noise_std)
    if sizes is None:
        raise InputError("a noisy accuracy at record level needs sizes, the number of records of each client")
    sizes = np.asarray(sizes, np.float64)
    validate.shape("sizes", sizes, weights.shape)
    validate.whole("sizes", sizes, 0)
    if np.any((sizes == 0) & (weights > 0)):
        k = int(np.argmax((sizes == 0) & (weights > 0)))
        raise InputError(f"sizes[{k}]=0 must be >= 1 where the weight is > 0: an accuracy needs records")
    return Release(NOISY_ACCURACY, weights / np.maximum(sizes, 1), noise_std)
