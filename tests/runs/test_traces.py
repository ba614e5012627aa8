"""Traces in experiments: who plays which rows, devices without a path, old estimates, and what the card says."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.channels import Channel, Fading, Stale, TraceFile, read_trace, write_trace
from otafl.core.errors import InputError
from otafl.core.plan import Plan, Trace
from otafl.core.rounds import observe
from otafl.privacy import Budget, Ledger, check_realised, events
from otafl.runs import build
from otafl.runs.planning.channel_risk import delta_left, said_of
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.table import plan
from otafl.runs.schema import Experiment, Privacy, load

ROOT = Path(__file__).parents[2]
MUNICH = ROOT / "examples" / "munich"
RNG = np.random.default_rng(0)
GAIN = (RNG.standard_normal((12, 4)) + 1j * RNG.standard_normal((12, 4))) / np.sqrt(2) / 4
DEAD = np.where(np.arange(4) == 2, 0, GAIN)


def experiment_of(tmp_path: Path, given: TraceFile, scheme: str = 'name = "weakest"', **said: Any) -> Experiment:
    write_trace(tmp_path / "trace.npz", given)
    options = {"file": "trace.npz", **said.pop("trace", {})}
    shown = ", ".join(f'{key} = "{value}"' for key, value in options.items())
    head = {"rounds": 6, "seeds": 2, "clients": 4, "radio": "{}", "more": "", **said}
    path = tmp_path / "file.toml"
    path.write_text(
        f"rounds = {head['rounds']}\nseeds = {head['seeds']}\nchannel = {{ trace = {{ {shown} }}{head['more']} }}\n"
        f"task = {{ num_params = 50, clients = {head['clients']} }}\nradio = {head['radio']}\n"
        f"privacy = {{ eps = 1e6 }}\n[[scheme]]\n{scheme}\n"
    )
    return load(path)


def sites_of(experiment: Experiment) -> list[build.Site]:
    return build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites


def test_every_seed_plays_its_own_rows(tmp_path):
    sites = sites_of(experiment_of(tmp_path, TraceFile(GAIN)))
    np.testing.assert_array_equal(np.concatenate([site.trace.gain for site in sites]), GAIN)
    np.testing.assert_allclose(sites[0].trace.rms_estimate[0] ** 2, np.mean(np.abs(GAIN) ** 2, axis=0))
    assert np.all(np.isnan(sites[0].trace.rms_low)) and np.all(np.isnan(sites[0].trace.rms_high))


def test_statistics_of_the_file_are_limits_too(tmp_path):
    trace = sites_of(experiment_of(tmp_path, TraceFile(GAIN, rms_gain=np.full((12, 4), 0.25))))[0].trace
    assert np.all(trace.rms_low == 0.25) and np.all(trace.rms_gain == 0.25)


def test_a_file_that_is_too_short_is_repeated_only_where_that_is_said(tmp_path):
    with pytest.raises(InputError, match=r"2 seeds x 7 rounds need 14 measured rows, the file has 12; .* repeat"):
        sites_of(experiment_of(tmp_path, TraceFile(GAIN), rounds=7))
    sites = sites_of(experiment_of(tmp_path, TraceFile(GAIN), rounds=7, trace={"repeat": "cycle"}))
    np.testing.assert_array_equal(sites[1].trace.gain, GAIN[[7, 8, 9, 10, 11, 0, 1]])


def test_energies_and_noise_of_the_file_stand_for_the_radio(tmp_path):
    trace = TraceFile(GAIN, energy=np.arange(1.0, 5.0), noise_var=0.04)
    site = sites_of(experiment_of(tmp_path, trace))[0].deployment
    assert site.energy.tolist() == [1, 2, 3, 4] and site.noise_var == 0.04
    with pytest.raises(InputError, match="has noise_var, and so has the experiment's radio"):
        sites_of(experiment_of(tmp_path, trace, radio="{ noise_std = 0.1 }"))


def test_estimates_of_the_file_are_charged_as_wrong_as_they_are(tmp_path):
    wrong = GAIN * (1 + 0.1 * np.exp(2j * np.pi * RNG.random(GAIN.shape)))
    site = sites_of(experiment_of(tmp_path, TraceFile(GAIN, estimate=wrong)))[0]
    assert site.deployment.gain_error == pytest.approx(np.max(np.abs(GAIN / wrong - 1)))
    assert site.deployment.phase_error is None
    with pytest.raises(InputError, match="estimates are off by up to"):
        sites_of(experiment_of(tmp_path, TraceFile(GAIN, estimate=GAIN / 3)))


def test_blocks_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="axes = TKB: an experiment has no blocks yet"):
        sites_of(experiment_of(tmp_path, TraceFile(np.stack([GAIN, GAIN], axis=-1), "TKB")))


def test_antennas_of_the_file_are_those_of_the_server(tmp_path):
    array = np.stack([GAIN, 1j * GAIN[::-1]], axis=-1)
    with pytest.raises(InputError, match="gain has 2 antennas but antennas=1"):
        sites_of(experiment_of(tmp_path, TraceFile(array, "TKM")))
    experiment = experiment_of(tmp_path, TraceFile(array, "TKM"), more=", antennas = 2, beam = 'iterated'")
    site = sites_of(experiment)[1]
    np.testing.assert_array_equal(site.trace.array, array[6:])
    assert np.all(np.abs(site.trace.gain) <= np.linalg.norm(array[6:], axis=-1) * (1 + 1e-12))
    with pytest.raises(InputError, match=r"has gains to 1 antenna\(s\) but channel\.antennas=2"):
        sites_of(experiment_of(tmp_path, TraceFile(GAIN), more=", antennas = 2"))


# --- devices without a path ----------------------------------------------------------------------------------------

NEEDED = {
    "weakest": "", "constant": "rx_scale = 0.05", "biasvar": "", "adascale": "nu = 50.0", "cdpb": "",
    "adascale-optimal": "nu = 50.0", "ridge": "", "opc": "", "lcpc": "", "fedavg-dp": "",
    "cares-static": "diagnostic = true",
}  # fmt: skip


def test_a_dead_device_is_named(tmp_path):
    named = TraceFile(DEAD, names=("gate", "yard", "cellar", "roof"))
    with pytest.raises(InputError, match="no path to cellar; move them, or say without_path = 'drop' or 'silent'"):
        sites_of(experiment_of(tmp_path, named))


def test_a_dropped_device_is_gone_and_the_others_share_its_weight(tmp_path):
    with pytest.raises(InputError, match=r"3 devices take part but task\.clients=4"):
        sites_of(experiment_of(tmp_path, TraceFile(DEAD), trace={"without_path": "drop"}))
    site = sites_of(experiment_of(tmp_path, TraceFile(DEAD), clients=3, trace={"without_path": "drop"}))[0]
    np.testing.assert_array_equal(site.trace.gain, DEAD[:6][:, [0, 1, 3]])
    np.testing.assert_allclose(site.deployment.weights, 1 / 3)


@pytest.mark.parametrize("name", NEEDED)
def test_a_silent_device_never_sends_and_its_weight_is_lost(tmp_path, name):
    scheme = f'name = "{name}"\n{NEEDED.get(name, "")}'
    experiment = experiment_of(tmp_path, TraceFile(DEAD), scheme, trace={"without_path": "silent"})
    planned = Planned(experiment, experiment.scheme[0], facts_of(experiment))
    made, site = planned.plans[0], planned.setup.sites[0]
    assert np.all(made.tx[:, 2] == 0) and np.all(made.max_norm[:, 2] == -1) and np.all(made.noise[:, 2] == 0)
    assert np.all(made.send_prob[:, 2] == 0) and np.any(made.tx[:, [0, 1, 3]] != 0)
    alone = experiment_of(tmp_path, TraceFile(DEAD), scheme, clients=3, trace={"without_path": "drop"})
    other = Planned(alone, alone.scheme[0], facts_of(alone))
    np.testing.assert_allclose(made.tx[:, [0, 1, 3]], other.plans[0].tx, rtol=1e-9)
    finite = np.isfinite(other.plans[0].rx_scale)
    np.testing.assert_allclose(made.rx_scale[finite], other.plans[0].rx_scale[finite] / 0.75, rtol=1e-9)
    released = events(made, site.trace, site.deployment, site.message)
    assert np.all(released.amp[:, 2] == 0)


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ('name = "blind"', "blind: .*cannot stay silent on its own uplink"),
        ('name = "bbfl"\ninterior = [0, 3]', "interior counts devices, and some have no path"),
    ],
)
def test_who_cannot_leave_a_device_silent_says_so(tmp_path, scheme, why):
    experiment = experiment_of(tmp_path, TraceFile(DEAD), scheme, trace={"without_path": "silent"})
    with pytest.raises(InputError, match=why):
        Planned(experiment, experiment.scheme[0], facts_of(experiment))


@pytest.mark.slow
def test_a_closed_loop_leaves_silent_devices_silent(tmp_path):
    """CARES' controller inside the compiled loop, one step of it: the same silence, traced by JAX."""
    experiment = experiment_of(
        tmp_path, TraceFile(DEAD), 'name = "cares-adaptive"\ndiagnostic = true', trace={"without_path": "silent"}
    )
    site = sites_of(experiment)[0]
    with jax.enable_x64(True):
        row = Trace(*(jnp.asarray(leaf[0]) for leaf in site.trace))
        step = jax.jit(lambda state, row: site.policy.step(state, observe(site.policy, row, 0, 0.5)))
        made = jax.tree.map(np.asarray, step(site.policy.init(0), row)[1])
    assert made.tx[2] == 0 and made.max_norm[2] == -1 and np.all(np.isfinite(made.tx)) and made.tx[0] != 0
    hole = np.where((np.arange(12)[:, None] == 3) & (np.arange(4) == 1), 0, GAIN)
    with pytest.raises(InputError, match="a gain of 0 in a single round needs a plan made in advance"):
        sites_of(experiment_of(tmp_path, TraceFile(hole), 'name = "cares-adaptive"\ndiagnostic = true'))


def test_a_gain_of_zero_in_one_round_silences_that_round_alone(tmp_path):
    hole = np.where((np.arange(12)[:, None] == 3) & (np.arange(4) == 1), 0, GAIN)
    for name in ("weakest", "constant", "ridge"):
        experiment = experiment_of(tmp_path, TraceFile(hole), f'name = "{name}"\n{NEEDED.get(name, "")}')
        planned = Planned(experiment, experiment.scheme[0], facts_of(experiment))
        made: Plan = planned.plans[0]
        assert made.tx[3, 1] == 0 and made.max_norm[3, 1] == -1
        assert np.all(np.isfinite(made.tx)) and np.any(made.tx[4] != 0)
        site = planned.setup.sites[0]
        check_realised(events(made, site.trace, site.deployment, site.message), made, site.trace)


# --- old estimates -------------------------------------------------------------------------------------------------

OLD = Channel(fading=Fading("ar1", rho=0.9995), stale=Stale(miss_prob=1e-10))


def test_the_chance_of_a_miss_is_part_of_delta():
    privacy = Privacy(delta=1e-5)
    assert delta_left(privacy, OLD, 100, 20) == pytest.approx((1e-5 - 2e-7, 2e-7), rel=1e-12)
    assert delta_left(privacy, Channel(), 100, 20) == (1e-5, 0)
    with pytest.raises(InputError, match=r"adds 1e-05 to delta, all of privacy\.delta=1e-05; lower it"):
        delta_left(privacy, OLD, 1000, 100)
    (line,) = said_of(OLD)
    assert "1 round(s) old" in line
    assert "probability" not in line  # the ledger tells it, of all runs together


def test_what_an_earlier_run_missed_stays_part_of_delta(tmp_path):
    earlier = tmp_path / "ledger.otafl"
    Ledger(Budget(8.0, 6e-6, missed=4e-6), clients=20).save(earlier)
    privacy = Privacy(delta=1e-5, already_spent=earlier)
    assert delta_left(privacy, Channel(), 100, 20) == pytest.approx((6e-6, 4e-6))
    assert delta_left(privacy, OLD, 100, 20) == pytest.approx((5.8e-6, 4.2e-6))
    with pytest.raises(InputError, match=r"and 4e-06 in the earlier run adds 1\.4e-05 to delta"):
        delta_left(privacy, OLD, 5000, 20)
    with pytest.raises(InputError, match="missed=-1"):
        Budget(8.0, 6e-6, missed=-1.0)


def test_an_experiment_with_old_estimates_is_counted_at_the_smaller_delta(tmp_path):
    path = tmp_path / "file.toml"
    path.write_text(
        "rounds = 20\nseeds = 1\ntask = { num_params = 50, clients = 5 }\nprivacy = { eps = 1e4 }\n"
        'channel = { fading = { kind = "ar1", rho = 0.9995 }, stale = { miss_prob = 1e-10 } }\n'
        '[[scheme]]\nname = "constant"\nrx_scale = 0.1\n'
    )
    experiment = load(path)
    planned = Planned(experiment, experiment.scheme[0], facts_of(experiment))
    assert planned.budget.delta == pytest.approx(1e-5 - 20 * 5 * 1e-10, rel=1e-12)
    site = planned.setup.sites[0]
    assert site.deployment.gain_error == OLD.gain_error and site.deployment.least_gain == 0.5
    assert plan(experiment).rows[0].rounds == [20]
    heard = np.abs(site.trace.estimate) >= 0.5 * site.trace.rms_estimate
    assert 0 < np.mean(heard) < 1 and np.all((planned.plans[0].tx != 0) <= heard)


# --- the shipped example -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def munich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from otafl.runs import runner

    experiment = load(MUNICH / "experiment.toml", ["rounds=4", "seeds=1", "evaluate_every=4"])
    experiment = experiment.model_copy(update={"scheme": [s for s in experiment.scheme if s.name == "biasvar"]})
    return runner.start(experiment, tmp_path_factory.mktemp("munich") / "run")


def test_rays_lead_to_a_model_and_a_card(munich):
    (card,) = munich.rglob("card.md")
    text = card.read_text()
    assert "left out, without a path: device-1, device-7; weights are shares of the others" in text
    assert "channel statistics are empirical" in text
    (certificate,) = munich.rglob("certificate.json")
    assert '"label": "realised_bound"' in certificate.read_text()


def test_the_shipped_trace_is_small_and_has_its_holes():
    trace = read_trace(MUNICH / "trace.npz")
    assert trace.gain.shape == (200, 10) and (MUNICH / "trace.npz").stat().st_size < 50_000
    assert [name for name, gone in zip(trace.devices, trace.without_path) if gone] == ["device-1", "device-7"]


def test_a_repeated_trace_is_said(tmp_path):
    from otafl.runs.planning.channel_risk import said_of_channel

    experiment = experiment_of(tmp_path, TraceFile(GAIN), rounds=7, trace={"repeat": "cycle"})
    assert "the trace of 12 rounds is repeated: rounds are not independent" in said_of_channel(experiment)
