"""Rounds that were run, as a file has them: the names are those that run folders of before have."""

import numpy as np

from otafl.core.messages import Stats
from otafl.core.plan import Plan
from otafl.runs.folder.chunks import REQUIRED, Chunk, Evaluation, merge

NAMES = [
    *("plan.tx", "plan.noise", "plan.max_norm", "plan.rx_scale", "plan.send_prob", "plan.live"),
    *("stats.norm", "stats.raw_norm", "stats.sent", "stats.left_out", "stats.zeroed"),
    *("live", "update_norm", "refused", "info.z", "info.a"),
    *("eval.right", "eval.total", "eval.loss", "eval.penalty"),
]


def chunk(rounds: int, first: float) -> Chunk:
    """Two seeds, three clients, an evaluation every other round; every leaf has numbers of its own."""
    place = iter(np.arange(first, first + 100))

    def leaf(*shape: int) -> np.ndarray:
        return next(place) + np.arange(np.prod(shape)).reshape(shape) / 1000

    plan = Plan(*(leaf(2, rounds, 3) for _ in Plan._fields))
    stats = Stats(*(leaf(2, rounds, 3) for _ in range(5)), overflow=())
    alone = [leaf(2, rounds) for _ in range(3)]
    info = {"z": leaf(2, rounds), "a": leaf(2, rounds)}
    return Chunk(plan, stats, *alone, info, Evaluation(*(leaf(2, rounds // 2) for _ in range(4))))


def test_the_names_in_a_file_are_those_of_the_fields_in_order() -> None:
    names = list(chunk(4, 0).arrays())
    assert names == NAMES
    assert set(names) - {"info.z", "info.a"} == REQUIRED


def test_what_was_written_is_read_back_and_chunks_join_along_the_rounds() -> None:
    first, second = chunk(4, 0), chunk(2, 200)
    joined = merge([Chunk.read(first.arrays()), Chunk.read(second.arrays())]).arrays()
    for name, whole in joined.items():
        assert np.array_equal(whole[:, : first.arrays()[name].shape[1]], first.arrays()[name]), name
        assert np.array_equal(whole[:, first.arrays()[name].shape[1] :], second.arrays()[name]), name


def test_the_plan_of_a_seed_is_live_where_the_round_was_run() -> None:
    played = chunk(4, 0)
    assert np.array_equal(played.of_seed(1).live, played.live[1])
    assert np.array_equal(played.of_seed(1).tx, played.plan.tx[1])
