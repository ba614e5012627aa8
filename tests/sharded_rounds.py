"""Run as a script with eight devices: rounds on one device and on meshes of several; prints what differs, as JSON."""

import json
import sys
from typing import Any

import jax
import numpy as np
import optax

import small
from otafl.clients import Gradient, gradient
from otafl.core.engine import make_engine
from otafl.core.messages import Seed
from otafl.core.plan import Link
from otafl.core.rounds import Row, make_round
from otafl.core.sharding import CLIENT, mesh_of

ROUNDS, EVERY = 2, 2
SIZES = (20, 21, 24, 25, 30, 31, 22, 27, 28, 33, 23)  # eleven clients: eight devices do not divide them


def rounds(devices: int, seeds: Seed, rows: Row, split: bool = True) -> tuple[Any, Any, Any]:
    model, optimizer = small.model(), optax.sgd(0.5, momentum=0.5)
    mesh = mesh_of(jax.local_devices()[:devices], len(seeds.key), len(SIZES) if split else 1)
    axis = CLIENT if mesh is not None and mesh.shape[CLIENT] > 1 else None
    clients = gradient(Gradient(batch=8, clip_norm=0.3), model, min(SIZES))
    round_ = make_round(clients, optimizer, "vmap", client_axis=axis)
    score = lambda params, held_out: optax.tree.norm(params)  # noqa: E731
    engine = make_engine(model.init, score, round_, optimizer, "map", EVERY, mesh)
    carry = engine.init(seeds.key, np.zeros((len(seeds.key), 0)))
    carry, record, seen = engine.chunk(small.data(), (), (), seeds, carry, rows)
    carry, record, seen = engine.chunk(small.data(), (), (), seeds, carry, rows)  # from where the first chunk ended
    assert mesh is None or len(jax.tree.leaves(carry.params)[0].sharding.device_set) == mesh.size
    return jax.tree.map(np.asarray, (carry.params, record, seen))


def links(seeds: int) -> Row:
    rng, shape = np.random.default_rng(0), (seeds, ROUNDS, len(SIZES))
    weight = rng.uniform(0.02, 0.2, shape).astype(np.float32)
    max_norm = np.where(rng.random(shape) < 0.2, -1, np.inf).astype(np.float32)
    link = Link(weight, max_norm, np.full(shape[:2], 0.01, np.float32), np.ones(shape[:2], bool))
    return Row(link, (), np.ones(shape[:2], bool))


def difference(one: Any, other: Any) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(a.astype(float) - b.astype(float)))) for a, b in pairs)


def main(count: int, split: bool) -> None:
    seeds, rows = small.seeds(list(range(count)), SIZES), links(count)
    alone, shared = rounds(1, seeds, rows), rounds(8, seeds, rows, split)
    assert alone[1].stats.norm.shape == shared[1].stats.norm.shape == (count, ROUNDS, len(SIZES))
    same = bool(np.array_equal(alone[1].stats.sent, shared[1].stats.sent))
    told = {"devices": jax.local_device_count(), "difference": difference(alone, shared), "same senders": same}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "split")
