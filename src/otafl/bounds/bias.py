"""How far a round's aggregate can be from the ideal one: a bound on E||bias||^2 for any linear scheme. NumPy, float64.

A client that sends is received with weight v_k = amplitude_k / rx_scale, a silent one with 0, where the ideal is p_k.
With e_k = v_k A_k - p_k (A_k = 1 if sent) and messages of norm at most G_k the bias is sum_k e_k g_k, and

    any dependence       E||bias||^2 <= S_max E[S],   S = sum_k G_k |e_k|, S_max its largest value
    independent silence  E||bias||^2 <= (sum_k G_k |E e_k|)^2 + sum_k G_k^2 Var e_k

For v_k = p_k (CARES) the first is G^2 `dropped_weight`, the second G^2 `dropped_square`. With nobody silent (AdaScale)
both are (sum_k G_k |v_k - p_k|)^2. CDPB divides by its mean participation, so E e_k vanishes: use the second there.
Messages of random size may give G_k = sqrt(E||x_k||^2) (Minkowski) where silence does not look at them.
"""

import numpy as np

from otafl.core.arrays import Floats


def bias_bound(
    share: Floats, silent: Floats, weights: Floats, bound: Floats, *, exact: bool, independent: bool
) -> Floats:
    """Bound on E||bias||^2, (T,), from received weights v (T, K), silence q (T, K), weights p (K,), norms G (K,).

    With exact=False each q is only an upper bound, and the worst value below it is taken.
    """
    sent, missed = np.abs(share - weights), np.broadcast_to(weights, share.shape)
    largest = np.where(silent > 0, np.maximum(sent, missed), sent) @ bound
    mean = silent * missed + (1 - silent) * sent
    if not exact:
        mean = np.maximum(mean, sent)  # linear in q: the worst is at an end
    plain = largest * (mean @ bound)
    if not independent:
        return plain
    offset = np.abs((1 - silent) * share - weights)
    likely = silent
    if not exact:  # the joint bound rises in q where v <= p; elsewhere bound mean and variance one by one
        over = share > weights
        offset = np.where(over, np.maximum(offset, sent), offset)
        likely = np.where(over, np.minimum(silent, 0.5), silent)
    variance = (share**2 * likely * (1 - likely)) @ bound**2
    return np.minimum(plain, (offset @ bound) ** 2 + variance)
