"""Algorithm 1 over a whole trace at once: Newton's method on the trajectory, not round by round. Host, float64.

Unknown are all y_t and Q_t together. One iteration linearises every round's optimality condition at the present guess,
y_t = A_t - B_t Q_t (all rounds in one call), and one cheap sweep over the rounds then follows the queue exactly. As
0 < B_t < 1, errors of the queue shrink along the sweep, and the iteration converges quadratically. What comes out is
checked round by round against the per-round problem; whoever calls this solves round after round where it fails.
"""

from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Floats
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.offline import fill, water_level

ITERATIONS = 40
CHANGE = 1e-8  # relative change of N and Q after which one more iteration is below the last digits
FEW = 16  # lanes up to which numbers one by one are faster than arrays
RESIDUAL = 1e-12  # of the optimality condition, relative to the size of its terms


class Trajectory(NamedTuple):
    excess: Floats  # (T, L) y_t
    queue: Floats  # (T + 1, L)


def whole_trace(
    floors: Floats, V: Floats, nu: Floats, leakage: Leakage, first_queue: Floats, max_floor: float = np.inf
) -> Trajectory | None:
    """Algorithm 1 on L lanes: floors (T, L); V, nu and Q_0 (L,). None where the iteration did not settle.

    Full power (y = 0) in rounds above max_floor, and throughout where nu = 0 leaves no other choice.
    """
    most = np.where((floors <= max_floor) & (nu > 0), np.inf, 0.0)
    pull = V * -leakage.slopes(floors)[0]  # y_t > 0 iff this exceeds Q_t
    level = water_level(floors.T, nu)
    excess = fill(floors.T, level).T
    queue = np.broadcast_to(np.maximum(V * -leakage.slopes(level)[0] - nu, 0.0), floors.shape)
    with np.errstate(all="ignore"):  # a lane that runs away is found by the check
        for _ in range(ITERATIONS):
            offset, share = _tangent(floors, excess, queue, V, pull, leakage)
            found = _sweep(offset, share, most, nu, first_queue)
            moved = np.abs(found.excess - excess) <= CHANGE * (floors + excess)
            moved &= np.abs(found.queue[:-1] - queue) <= CHANGE * (queue + nu)
            excess, queue = found.excess, found.queue[:-1]
            if moved.all():
                return found if _is_optimal(floors, found, V, most, pull, leakage) else None
    return None


def _tangent(
    floors: Floats, excess: Floats, queue: Floats, V: Floats, pull: Floats, leakage: Leakage
) -> tuple[Floats, Floats]:
    """(A, B) of y_t = A_t - B_t Q_t near the guess, from log(V abs(R'(N))) = log(Q + y), nearly straight in log N."""
    room = np.maximum(pull - queue, 0.0)  # no root lies further out
    outset = floors * np.expm1(np.log1p(room / floors) / 2)  # the middle, in log N, of the proven bracket
    excess = np.where(excess > 0, excess, outset)
    noise, push = floors + excess, queue + excess
    slope, curvature = leakage.slopes(noise)
    bent = noise / push - noise * curvature / slope
    step = np.log(V * -slope / push) / bent
    target = np.maximum(excess + noise * np.expm1(step), excess / 20)
    share = noise / (push * bent)
    at_rest = excess <= 0  # full power, and the queue is long enough for that: the tangent of the condition itself
    share = np.where(at_rest, 1 / (1 + V * curvature), share)
    target = np.where(at_rest, share * (pull - queue), np.minimum(target, np.where(room > 0, room, excess)))
    return target + share * queue, share


def _sweep(offset: Floats, share: Floats, most: Floats, nu: Floats, first_queue: Floats) -> Trajectory:
    """The queue along y_t = max(A_t - B_t Q_t, 0), at most `most`.  # AdaScale (29)"""
    rounds, lanes = offset.shape
    if lanes <= FEW:
        columns = zip(*(part.T.tolist() for part in (offset, share, most, nu, first_queue)))
        return Trajectory(*(np.ascontiguousarray(np.array(part).T) for part in zip(*(_lane(*one) for one in columns))))
    excess, queue = np.empty((rounds, lanes)), np.empty((rounds + 1, lanes))
    queue[0] = first_queue
    for t in range(rounds):
        now, chosen = queue[t], excess[t]
        np.multiply(share[t], now, out=chosen)
        np.subtract(offset[t], chosen, out=chosen)
        np.maximum(chosen, 0.0, out=chosen)
        np.minimum(chosen, most[t], out=chosen)
        following = queue[t + 1]
        np.add(now, chosen, out=following)
        np.subtract(following, nu, out=following)
        np.maximum(following, 0.0, out=following)
    return Trajectory(excess, queue)


def _lane(
    offset: list[float], share: list[float], most: list[float], nu: float, queue: float
) -> tuple[list[float], list[float]]:
    """The same of one lane, to the bit, in Python's own numbers. NaN stays NaN: it comes first."""
    excess, queues = [], [queue]
    for a, b, limit in zip(offset, share, most):
        chosen = min(max(a - b * queue, 0.0), limit)
        queue = max(queue + chosen - nu, 0.0)
        excess.append(chosen)
        queues.append(queue)
    return excess, queues


def _is_optimal(floors: Floats, found: Trajectory, V: Floats, most: Floats, pull: Floats, leakage: Leakage) -> bool:
    """Whether every y_t solves its round: g(y) = V R'(f + y) + Q + y is zero, or not negative at y = 0."""
    excess, queue = found.excess, found.queue[:-1]
    force = V * -leakage.slopes(floors + excess)[0]
    scale = RESIDUAL * (force + queue + excess)
    good = np.where(excess > 0, np.abs(queue + excess - force) <= scale, pull <= queue + scale)
    return bool(np.all(good | (most == 0)))
