"""What a policy inside the loop is told: its value, its noise, its charge, and that it is told only before a round."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import small
from otafl.clients import Gradient, gradient
from otafl.core.engine import make_engine
from otafl.core.errors import Infeasible, InputError, Interrupted
from otafl.core.messages import Data
from otafl.core.plan import Feedback, Obs, Plan, Policy
from otafl.core.rounds import Row, make_round, stack
from otafl.privacy import Ledger
from otafl.runs import build, runner
from otafl.runs.feedback import private_accuracy
from otafl.runs.folder.store import read_table
from otafl.runs.planning import table as planning
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment, load
from otafl.tasks import own_model

Tiny = Callable[..., Experiment]
NOISE = 0.5
PRIVATE = f"scheme=[{{name='cares-adaptive', reward_data='private_noisy', reward_noise={NOISE}}}]"
BY_RECORD = (
    "task.data.reward_fraction=0.0",  # no public data are needed
    "clients={kind='per-sample', clip_norm=1.0, batch=8, sampling='without-replacement', unit='record'}",
    f"scheme=[{{name='cares-adaptive', reward_data='private_noisy', reward_noise={NOISE}, silence='bound'}}]",
)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory, tiny_text: str) -> Path:
    """An uninterrupted run with private rewards."""
    folder = tmp_path_factory.mktemp("private")
    (folder / "tiny.toml").write_text(tiny_text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("otafl.reports.write_report", lambda runs, out_file=None: [])
        return runner.start(load(folder / "tiny.toml", [PRIVATE]), folder / "run")


# --- the number ------------------------------------------------------------------------------------------------------


def weighted_accuracy(params: Any, seed: int = 0, sizes: tuple[int, ...] = (20, 50, 60, 70)) -> float:
    """sum_k p_k acc_k client by client, in NumPy."""
    data, dealt, total = small.data(), small.seeds([seed], sizes), 0.0
    right = np.argmax(np.asarray(small.model().logits(params, data.x)), axis=1) == np.asarray(data.y)
    for k, size in enumerate(sizes):
        total += size / sum(sizes) * float(np.mean(right[np.asarray(dealt.rows[0, k, :size])]))
    return total


@pytest.mark.parametrize("mixes", [
    lambda x: jnp.stack([0 * x[:, 0] + x[:, 0].sum(), 0 * x[:, 0]], axis=1), lambda x: 0 * x[:, 0] - x[:, 0].sum(),
])  # fmt: skip
def test_no_sample_has_a_say_in_the_decisions_on_others(mixes: Any) -> None:
    """A reward charged for one decision of n, by a model that looks at the whole batch."""
    net = own_model.model(lambda key: {"w": jnp.zeros(2)}, lambda p, x: mixes(x))
    params, data, found = net.init(jax.random.key(0)), small.data(), []
    for value in (-1.0, 1.0):
        seen = Data(jnp.zeros_like(data.x).at[3, 0].set(value), jnp.zeros_like(data.y))
        with jax.enable_x64(True):
            told = private_accuracy(net, 0.0)(params, seen, (), small.one_seed(), jax.random.key(0))
        found.append(float(told))
    assert abs(found[0] - found[1]) <= 1 / small.SAMPLES + 1e-9


@pytest.mark.parametrize("block", [7, 1000])
def test_private_accuracy_is_the_weighted_mean_of_the_clients_own(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otafl.runs.feedback.BLOCK", block)
    params = small.model().init(jax.random.key(1))
    seed = jax.tree.map(lambda leaf: leaf[0], small.seeds([0]))
    with jax.enable_x64(True):
        found = private_accuracy(small.model(), 0.0)(params, small.data(), (), seed, jax.random.key(0))
    assert found.dtype == jnp.float64
    assert float(found) == pytest.approx(weighted_accuracy(params), abs=1e-12)


class Told(NamedTuple):
    metric: Any


def listening(noise_std: float) -> Policy:
    """Plans rounds that change nothing and writes down what it was told."""

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Told]:
        zero = jnp.zeros(4, complex)
        idle = Plan(zero, zero, jnp.full(4, np.inf), jnp.asarray(np.inf), jnp.ones(4), jnp.asarray(True))
        return state, idle, Told(obs.metric)

    feedback = Feedback("private", noise_std)
    return Policy("listening", lambda key: np.zeros(0), step, "round", "own", "open", feedback=feedback)


def test_the_noise_that_is_drawn_is_the_noise_that_is_declared() -> None:
    """3000 draws of the whole engine, two seeds: mean, variance and correlations within five standard errors (a false
    alarm in 1.7 million for each)."""
    rounds, policy = 1500, listening(NOISE)
    net, optimizer = small.model(), optax.sgd(0.1)
    measure = private_accuracy(net, policy.feedback.noise_std)
    clients = gradient(Gradient(batch=4), net)
    round_ = make_round(clients, optimizer, "vmap", policy=policy, deployment=small.deployment(), measure=measure)
    engine = make_engine(net.init, lambda p, held: jnp.zeros(()), round_, optimizer)
    batch = small.seeds([3, 4])
    carry = engine.init(batch.key, stack([policy.init(None)] * 2))
    rows = Row((), stack([small.trace(rounds)] * 2), np.ones((2, rounds), bool))
    carry, record, _ = engine.chunk(small.data(), (), (), batch, carry, rows)
    still = [weighted_accuracy(jax.tree.map(lambda leaf, s=s: leaf[s], carry.params)) for s in range(2)]
    noise = np.asarray(record.info.metric) - np.array(still)[:, None]
    count = noise.size
    assert abs(noise.mean()) < 5 * NOISE / np.sqrt(count)
    assert abs(noise.var() / NOISE**2 - 1) < 5 * np.sqrt(2 / count)
    for one, other in ((noise[0], noise[1]), (noise[0, 1:], noise[0, :-1])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(rounds - 1)


# --- the charge ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["client", "record"])
def test_the_ledger_holds_the_hand_formula(level: str, tiny: Tiny, tmp_path: Path, private: Path) -> None:
    """Rounds over the air plus one release before each of them: p_k^2/(2 s^2), or 1/(2 n^2 s^2) for a record."""
    experiment = tiny(*BY_RECORD) if level == "record" else tiny(PRIVATE)
    run = runner.start(experiment, tmp_path / "run") if level == "record" else private
    folder = run / "schemes/cares-adaptive"
    rounds, task = read_table(folder / "rounds.parquet"), build.build_task(experiment)
    evaluations = read_table(folder / "evaluations.parquet")
    for seed, part in zip(experiment.seed_list, task.partitions):
        weights, total = part.sizes / part.sizes.sum(), part.sizes.sum()
        eta = rounds["rx_scale"][rounds["seed"] == seed]
        change = weights / np.minimum(8, part.sizes) if level == "record" else weights
        air = 2 * np.sum(eta**2) * change**2 / 0.05**2
        reward = 1 / (2 * total**2 * NOISE**2) if level == "record" else weights**2 / (2 * NOISE**2)
        ledger = Ledger.load(folder / f"ledger-{seed}.bin")
        assert len(eta) == ledger.rounds() > 1
        assert [(r.noise_std, r.times) for r in ledger.releases] == [(NOISE, len(eta))]
        np.testing.assert_allclose(ledger.zcdp(), air + len(eta) * reward, rtol=1e-12)
        last = evaluations["eps"][evaluations["seed"] == seed][-1]
        assert last == pytest.approx(float(ledger.spent().worst), rel=1e-12)
    certificate = json.loads((folder / "certificate.json").read_text())
    spent = [float(Ledger.load(folder / f"ledger-{seed}.bin").spent("zcdp").worst) for seed in experiment.seed_list]
    assert certificate["eps"] == pytest.approx(spent, rel=1e-12)


def test_all_accountants_and_an_export_count_the_release(private: Path) -> None:
    ledger = Ledger.load(private / "schemes/cares-adaptive/ledger-0.bin")
    without = Ledger(ledger.budget, ledger.clients, list(ledger.parts))
    for name in ("zcdp", "zcdp-optimal", "gaussian", "rdp", "pld"):
        assert ledger.spent(name).worst > without.spent(name).worst
    assert len(ledger.export_dp_events()[0].events) == len(without.export_dp_events()[0].events) + 1


@pytest.mark.parametrize("stream", ["false", "true"])
def test_the_cap_covers_rewards_and_what_an_earlier_run_spent(
    stream: str, tiny: Tiny, tmp_path: Path, private: Path
) -> None:
    """Rewards take most of what is left here: the run stops by its budget, and not one more round would fit."""
    earlier, eps = Ledger.load(private / "schemes/cares-adaptive/ledger-0.bin"), 300.0
    before = replace(earlier, budget=replace(earlier.budget, eps=eps))  # one cap for both, fixed in advance
    before.save(spent := tmp_path / "ledger-0.bin")
    scheme = "scheme=[{name='cares-adaptive', reward_data='private_noisy', reward_noise=0.06, arms=[0.1, 0.11]}]"
    overrides = (
        scheme,
        f"privacy.eps={eps}",
        "rounds=40",
        f"privacy.already_spent='{spent}'",
        f"engine.stream={stream}",
    )
    folder = runner.start(tiny(*overrides), tmp_path / "run") / "schemes/cares-adaptive"
    after = Ledger.load(folder / "ledger-0.bin")
    ran = after.rounds() - before.rounds()
    assert 0 < ran < 40
    assert [(r.noise_std, r.times) for r in after.releases] == [(0.06, ran), (NOISE, before.rounds())][::-1]
    assert float(after.spent().worst) <= eps
    evaluations = read_table(folder / "evaluations.parquet")
    assert evaluations["eps"][evaluations["seed"] == 0][-1] == pytest.approx(float(after.spent().worst), rel=1e-12)
    assert float(np.min(after.zcdp_left())) < 2 * 0.11**2 * 0.25**2 / 0.05**2 + 0.25**2 / (2 * 0.06**2)
    assert json.loads((folder / "summary.json").read_text())["stopped_by"][0] == "budget"


def test_a_reward_that_cannot_be_paid_is_refused_before_anything_is_written(tiny: Tiny, tmp_path: Path) -> None:
    scheme = "scheme=[{name='cares-adaptive', reward_data='private_noisy', reward_noise=0.02}]"
    with pytest.raises(Infeasible, match=r"not one round is affordable: one reward at reward_noise=0\.02") as refusal:
        runner.start(tiny(scheme, "privacy.eps=8"), tmp_path / "run")
    assert refusal.value.exit_code == 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("reward_data='secret'", "reward_data='secret'"),
        ("reward_data='private_noisy'", "needs reward_noise"),
        ("reward_data='private_noisy', reward_noise=0.0", "reward_noise=0.0 must be finite and > 0"),
        ("reward_data='private_noisy', reward_noise=-1.0", "reward_noise=-1.0"),
        ("reward_data='private_noisy', reward_noise=inf", "reward_noise=inf"),
        ("reward_noise=0.1", "reward_noise=0.1 is for reward_data='private_noisy'"),
    ],
)
def test_bad_values_are_refused_in_one_line(options: str, said: str, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        runner.start(tiny(f"scheme=[{{name='cares-adaptive', {options}}}]"), tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_private_rewards_would_tell_secret_sizes(tiny: Tiny) -> None:
    hidden = BY_RECORD[1].replace("unit='record'", "unit='record', adjacency='add-remove'")
    experiment = tiny(BY_RECORD[0], hidden, BY_RECORD[2], "task.weights='equal'")  # all sizes are 20: the same weights
    with pytest.raises(InputError, match="adjacency='add-remove' with private rewards is false"):
        planning.plan(experiment)


def test_public_rewards_need_public_data(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reward_fraction leaves no sample"):
        runner.start(tiny("task.data.reward_fraction=0.0"), tmp_path / "run")


# --- the card and the bytes ------------------------------------------------------------------------------------------


def test_the_card_names_the_reward_data(private: Path, reference: Path) -> None:
    folder = private / "schemes/cares-adaptive"
    told = json.loads((folder / "card.json").read_text())
    assert "clients' data" in told["reward"] and "charged" in told["reward"] and "released 5 times" in told["reward"]
    assert f"Reward: {told['reward']}" in (folder / "card.md").read_text()
    public = json.loads((reference / "schemes/cares-adaptive/card.json").read_text())
    assert "public data" in public["reward"] and "nothing was charged" in public["reward"]
    assert "reward" not in json.loads((reference / "schemes/constant/card.json").read_text())


class StopAt(Reporter):
    def __init__(self, round_: int):
        self.round = round_

    def tick(self, tick: Tick) -> None:
        if tick.round == self.round:
            signal.raise_signal(signal.SIGINT)


def test_a_stopped_run_with_private_rewards_resumes_to_the_same_bytes(
    tiny: Tiny, tmp_path: Path, private: Path, same_results: Callable[[Path, Path], None]
) -> None:
    with pytest.raises(Interrupted):
        runner.start(tiny(PRIVATE), tmp_path / "run", StopAt(2))
    runner.resume(tmp_path / "run")
    same_results(tmp_path / "run", private)
