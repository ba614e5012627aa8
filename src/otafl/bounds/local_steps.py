"""What L local steps per round add to CARES' convergence bound, which the certifier assembles. NumPy, float64.

A client sends x_k = (1/L) sum_l g_k(w_k^l), the mean of L clipped gradients along its own steps of size a_l, every
batch fresh; the server steps by a (FedAvg: a = a_l L). Every client's loss is S-smooth, which CARES asks of their sum
alone.

    |(1/L) sum_l grad F_k(w_k^l) - grad F_k(w)| <= S a_l G (L - 1) / 2 = drift                                    (H1)
    bound = gap/(k a T) + (S a/k) s_g^2/L + (S a/2k) s_z^2 D/eta^2 + ((1/2 + a S)/k) (G sqrt(E) + drift)^2         (H2)

with k = 1/2 - a S > 0 and E the bound on the dropped mass: L = 1 gives the set `tight` of `bounds.convergence`.
The bias of clipping itself is not bounded.
"""

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats


def local_drift(smoothness: float, local_step_size: float, clip_norm: float, local_steps: int) -> float:
    """How far the mean gradient along L local steps may be from the one at the start (H1).

    >>> local_drift(smoothness=0.5, local_step_size=0.1, clip_norm=2.0, local_steps=5)
    0.2
    """
    validate.whole("local_steps", local_steps)
    validate.not_negative("local_step_size", local_step_size)
    return smoothness * local_step_size * clip_norm * (local_steps - 1) / 2


def local_record_sensitivity(
    clip_norm: float, batch_size: ArrayLike, local_steps: int, local_step_size: float, smoothness: float | None = None
) -> Floats:
    """L2 change of the message when one record is replaced, (...): batches of `batch_size`, per-example clipping.

    The changed record bends the later steps: 2 G, unless every example's loss is certified `smoothness`-smooth; then
    at most (2G/B) ((1 + a S)^L - 1) / (a S L), because clipping does not expand.

    >>> float(local_record_sensitivity(1.0, 10, local_steps=1, local_step_size=0.1, smoothness=2.0))
    0.2
    """
    batch = np.asarray(batch_size, float)
    validate.positive("batch_size", batch)
    validate.whole("local_steps", local_steps)
    whole = np.full(batch.shape, 2.0 * clip_norm)
    if local_steps == 1:
        return np.asarray(np.minimum(whole, whole / batch))
    if smoothness is None:
        return whole
    growth = local_step_size * smoothness
    bend = np.expm1(local_steps * np.log1p(growth)) / (growth * local_steps) if growth > 0 else 1.0
    return np.asarray(np.minimum(whole, whole / batch * bend))
