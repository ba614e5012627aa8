"""Samples that are made or read when a round needs them are those that arrays would have held."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import otafl
from otafl.clients import Gradient, PerSample, gradient, per_sample
from otafl.core.errors import InputError
from otafl.core.messages import Data, Seed, draw, fold
from otafl.core.plan import Link
from otafl.runs.build import build_task
from otafl.runs.described import described
from otafl.tasks import partitions
from otafl.tasks.demand import consecutive
from otafl.tasks.models import build
from otafl.tasks.reading import Reader

SIZES = [5, 5, 4, 5, 3, 5]
OWNER = np.repeat(np.arange(6), SIZES)
ENDS = np.cumsum(SIZES)
CENTRES = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def sample(key, client):
    which, where = jax.random.split(key)
    y = (client + jax.random.randint(which, (), 0, 2)) % 3
    return jnp.asarray(CENTRES)[y] + 0.5 * jax.random.normal(where, (4,)), y


def of(client, arrays):
    """A client's own samples."""
    return tuple(part[ENDS[client] - SIZES[client] : ENDS[client]] for part in arrays)


@pytest.fixture(scope="module")
def made():
    return otafl.task(sample, clients=6, samples=SIZES, held_out=60)


@pytest.fixture(scope="module")
def arrays(made):
    """The same samples one by one, by the documented rule: the key is folded with the client, then with the number."""
    key = jax.random.key(0)
    one = jax.jit(lambda k, j: sample(jax.random.fold_in(jax.random.fold_in(key, k), j), k))
    found = [one(k, j) for k, size in enumerate(SIZES) for j in range(size)]
    return np.stack([x for x, _ in found]), np.array([int(y) for _, y in found])


@pytest.fixture(scope="module")
def whole(made, arrays):
    return otafl.task(*arrays, owner=OWNER, held_out=(made.x_held_out, made.y_held_out))


def test_labels_and_sizes_are_those_of_the_samples(made, arrays):
    split = partitions.by_owner(OWNER, 6)
    np.testing.assert_array_equal(made.source.partition.sizes, SIZES)
    np.testing.assert_allclose(made.source.mix, partitions.label_mix(split, arrays[1], 3))
    assert made.classes == 3 and made.x_held_out.shape == (60, 4) and len(np.unique(made.x_held_out[:, 0])) == 60


def test_consecutive_rows_are_an_array_that_nobody_keeps():
    part = consecutive(np.full(3000, 20))
    rows, sizes = partitions.stacked([part, part])
    assert rows.shape == (2, 3000, 20) and sum(leaf.size for leaf in jax.tree.leaves((rows, sizes))) == 4 * 3000
    one = jax.tree.map(lambda leaf: leaf[0], rows)
    np.testing.assert_array_equal(one[np.array([0, 7])], np.arange(60_000).reshape(3000, 20)[[0, 7]])


@pytest.mark.parametrize("kind", ["gradient", pytest.param("poisson", marks=pytest.mark.slow)])
def test_the_superposed_round_is_the_same(kind, made, arrays):
    """All clients' part of a round from made, read and kept samples: batches, padding and weights included."""
    x, y = arrays
    model = build("logistic", (4,), 3)
    clients = {
        "gradient": lambda: gradient(Gradient(batch=4), model, min_size=3),
        "poisson": lambda: per_sample(PerSample(batch=2), model, min_size=3),
    }[kind]()
    params, key = model.init(jax.random.key(3)), jax.random.key(5)
    link = Link(jnp.full(6, 0.2), jnp.full(6, jnp.inf), jnp.float32(0), jnp.bool_(True))

    @jax.jit
    def total(data, rows):
        seed = Seed(key, rows, jnp.asarray(SIZES, jnp.int32))
        drawn = draw(clients, seed, key, "vmap")
        return fold(clients, params, data, seed, drawn, link, jnp.int32(0), "vmap")[0]

    read = otafl.task(lambda k: of(k, arrays), clients=6, held_out=(x[:3], y[:3]))
    rows = jax.tree.map(jnp.asarray, made.source.partition.rows)
    kept = total(Data(jnp.asarray(x), jnp.asarray(y)), jnp.asarray(partitions.by_owner(OWNER, 6).rows))
    for source in (made.source, read.source):
        other = total(source.data(whole_numbers=False), rows)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), kept, other)


def test_an_iterator_brings_what_arrays_bring(arrays):
    x, y = arrays
    held = (x[:3], y[:3])
    by_array = otafl.task(lambda k: of(k, arrays), clients=6, held_out=held)
    walked = otafl.task(lambda k: iter([*zip(*of(k, arrays))]), clients=6, held_out=held)
    assert walked.sha256 == by_array.sha256 and walked.classes == 3
    np.testing.assert_array_equal(walked.source.mix, by_array.source.mix)


def test_a_reader_that_changes_its_mind_stops_the_run(arrays):
    x, y = arrays
    seen: list[int] = []

    def read(client):
        seen.append(client)
        own_x, own_y = of(client, arrays)
        return own_x + (len(seen) > 6), own_y

    data = otafl.task(read, clients=6, held_out=(x[:3], y[:3])).source.data(whole_numbers=False)
    jax.block_until_ready(jax.jit(data.at)(jnp.arange(4)))
    with pytest.raises(InputError, match=r"x\(0\) brought other samples"):
        data.check()


def test_the_hash_is_that_of_the_function_its_seed_and_its_sizes(made):
    def other(key, client):
        x, y = sample(key, client)
        return 2 * x, y

    def jitted(scale):
        table = jnp.full(made.x.shape[-1], scale)  # a constant of the inner function's own
        return jax.jit(lambda key, client: (lambda x, y: (table * x, y))(*sample(key, client)))

    again = otafl.task(sample, clients=6, samples=SIZES, held_out=60)
    assert again.sha256 == made.sha256
    changed = [
        otafl.task(other, clients=6, samples=SIZES, held_out=(made.x_held_out, made.y_held_out)),
        otafl.task(sample, clients=6, samples=SIZES, held_out=(made.x_held_out, made.y_held_out), split_seed=1),
        otafl.task(sample, clients=6, samples=5, held_out=(made.x_held_out, made.y_held_out)),
        *(otafl.task(jitted(s), clients=6, samples=SIZES, held_out=(made.x_held_out, made.y_held_out)) for s in (2, 3)),
    ]
    assert len({made.sha256, *(task.sha256 for task in changed)}) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda: otafl.task(sample, samples=3, held_out=5), "give clients"),
        (lambda: otafl.task(sample, clients=2, samples=0, held_out=5), "from 1 on"),
        (lambda: otafl.task(sample, clients=2, samples=[3], held_out=5), "one per client"),
        (lambda: otafl.task(sample, clients=2, samples=3), "held_out must be"),
        (lambda: otafl.task(sample, clients=10**6, samples=10**4, held_out=5), "more than 2"),
        (lambda: otafl.task(sample, [0, 1], clients=2, samples=3), "are for arrays"),
        (lambda: otafl.task(np.zeros((4, 2)), [0, 1, 0, 1], clients=2, samples=3), "must be a JAX function"),
        (lambda: otafl.task(lambda key, client: None, clients=2, samples=3, held_out=5), "returns one sample"),
        (lambda: otafl.task(lambda key, client: (key, np.int32(-1)), clients=2, samples=3, held_out=5), "JAX function"),
        (lambda: otafl.task(lambda key, client: (0.5, -1), clients=2, samples=3, held_out=5), "labels from -1"),
        (lambda: otafl.task(lambda k: ([[1.0]] * (k + 1), [0] * k), clients=2, held_out=([[1.0]], [0])), "samples but"),
        (lambda: otafl.task(lambda k: iter([1, 2]), clients=2, held_out=([[1.0]], [0])), "samples that are pairs"),
        (lambda: otafl.task(lambda k: 1 // 0, clients=2, held_out=([[1.0]], [0])), r"x\(0\) fails: integer division"),
        (lambda: otafl.task(lambda k: iter([]), clients=2, held_out=([[1.0]], [0])), "brought no samples"),
        (lambda: otafl.task(lambda k: (np.ones((2, k + 1)), [0, 1]), clients=2, held_out=([[1.0]], [0])), "unlike"),
        (lambda: otafl.task(sample, clients=2, samples=3, held_out=(np.ones((2, 3)), [0, 1])), "have shape"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(arguments, said):
    with pytest.raises(InputError, match=said) as refused:
        arguments()
    assert "\n" not in str(refused.value)


def test_nothing_but_held_out_samples_can_be_reported_on(made):
    said = {"task": made, "model": "logistic", "schemes": ["fedavg"]}
    experiment = described(None, said, "test")
    on_train = experiment.model_copy(update={"task": experiment.task.model_copy(update={"report_on": "train"})})
    with pytest.raises(InputError, match="report_on='train' has no samples"):
        build_task(on_train)


@pytest.mark.slow
def test_whole_runs_are_the_same(made, whole, arrays):
    """Models to the last bits, ledgers to the byte."""
    held = (made.x_held_out, made.y_held_out)
    read = otafl.task(lambda k: of(k, arrays), clients=6, held_out=held)
    runs = [
        otafl.run(task=task, model="logistic", schemes=[otafl.constant(rx_scale=0.3)], rounds=4, seeds=2, eps=100.0,
                  evaluate_every=2, channel="cares", clients={"kind": "local-sgd", "batch": 2, "steps": 2})
        for task in (whole, made, read)
    ]  # fmt: skip
    for other in runs[1:]:
        for seed in (0, 1):
            one, two = (run.params("constant", seed=seed) for run in (runs[0], other))
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7), one, two)
        np.testing.assert_array_equal(runs[0].table["eps"], other.table["eps"])


def test_a_reader_is_asked_by_one_thread_at_a_time_and_brings_a_pair_or_an_iterator() -> None:
    """Seeds run in threads; a reader of files has one position in each."""
    inside, overlaps = [0], []

    def read(client: int) -> tuple[np.ndarray, np.ndarray]:
        inside[0] += 1
        time.sleep(0.002)
        overlaps.append(inside[0])
        inside[0] -= 1
        return np.ones((2, 3), np.float32), np.array([0, 1])

    reader = Reader(read, 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(reader.of, [0, 1] * 8))
    assert set(overlaps) == {1}
    two = [(np.ones(3), 0), (np.ones(3), 1)]
    assert Reader(lambda client: iter(two), 1).partition.sizes.tolist() == [2]
    with pytest.raises(InputError, match="pair of arrays"):
        Reader(lambda client: two, 1)
