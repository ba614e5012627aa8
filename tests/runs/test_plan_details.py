"""`otafl plan SYSTEM` of an experiment file says what the policy of its run would do; own keys stand under [plan]."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.plan import first_look
from otafl.core.rounds import plan_ahead
from otafl.privacy import Budget, Ledger, Release, account, events
from otafl.runs import build
from otafl.runs.planning.channel_risk import statistics_known
from otafl.runs.planning.details import inputs_of
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.table import plan as plan_table
from otafl.runs.schema import load
from otafl.runs.sites import OTHER_LAW
from otafl.systems import planning
from otafl.systems.cares.planner_inputs import problem_of as stated
from otafl.systems.cares.policy import problem_of

FILE = """
rounds = 30
seeds = [3]
channel = "cares"

[task]
num_params = 60
clients = 4
samples = 200
weights = "equal"

[radio]
max_energy = 1.0
noise_std = 0.02

[clients]
kind = "gradient"
clip_norm = 0.5

[privacy]
eps = 200.0
delta = 1e-6
"""

SCHEMES = {
    "cares": '[[scheme]]\nname = "cares-static"\narms = [0.2, 0.3]\ndiagnostic = true\n',
    "cares-auto": '[[scheme]]\nname = "cares-static"\narms = "auto"\nsilence = "bound"\ndiagnostic = true\n',
    "biasvar": '[[scheme]]\nname = "biasvar"\nrho = 0.3\n',
    "cdpb": '[[scheme]]\nname = "cdpb"\nstrategy = "noisy"\n',
    "adascale": (
        '[[scheme]]\nname = "adascale"\nnu = 1.0\n'
        'clients = { kind = "per-sample", batch = 20, clip_norm = 0.5, sampling = "poisson" }\n'
    ),
    "liu-simeone": '[[scheme]]\nname = "liu-simeone"\nconditioning = 0.1\n',
    "seif": '[[scheme]]\nname = "seif"\n',
    "orthogonal": '[[scheme]]\nname = "orthogonal"\nbits = 6\n',
    "eezofl": '[plan]\ntau = 0.01\n[[scheme]]\nname = "eezofl"\n',
}


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(FILE + SCHEMES[request.param])
    return path


def both(system: str, file: Path) -> tuple[dict[str, Any], build.Site]:
    """The planner's answer, and the site with the policy that the run would play."""
    report = planning.design(system, inputs_of(system, file, []), file)
    experiment = load(file)
    return report, build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites[0]


def played(site: build.Site) -> tuple[Any, Any]:
    _, plan, info = plan_ahead(site.policy, site.policy.init(3), site.trace)
    return plan, info


def charged(accountant: str, site: build.Site) -> Any:
    """eps of every client after all rounds, as the run's ledger would count them."""
    released = events(played(site)[0], site.trace, site.deployment, site.message)
    return account(accountant, released, 1e-6, adjacency=site.message.adjacency).eps


@pytest.mark.parametrize("file", ["cares"], indirect=True)
def test_cares_certifies_the_problem_of_the_run(file: Path) -> None:
    experiment = load(file)
    scheme, facts = experiment.scheme[0], facts_of(experiment)
    told = build.told_of(experiment, scheme, build.clients_of(experiment, scheme, facts), facts, 0)
    config = build.options_of(scheme, build.systems.scheme(scheme.name).config)
    of_run = problem_of(config, first_look(told[2].trace), *told)
    inputs: Any = inputs_of("cares", file, [])
    of_plan, _ = stated(inputs, file.parent)
    for name, value in vars(of_run).items():
        if name in of_run.__dataclass_fields__ and name != "warnings":
            assert np.all(np.asarray(value) == np.asarray(getattr(of_plan, name))), name
    assert inputs.rounds == 30
    assert inputs.arms == [0.2, 0.3]


@pytest.mark.parametrize("rounds", [3, 30, 300])
@pytest.mark.parametrize("file", ["cares-auto"], indirect=True)
def test_cares_plans_the_scaling_that_the_run_plays(file: Path, rounds: int) -> None:
    """The automatic grid of a run leaves out what its rounds cannot spend."""
    file.write_text(file.read_text().replace("rounds = 30", f"rounds = {rounds}"))
    report, site = both("cares", file)
    np.testing.assert_allclose(report["eta_init"], played(site)[0].rx_scale, rtol=1e-12)
    own: Any = inputs_of("cares", file, ["plan.num_arms=7"])
    assert (own.arms, own.num_arms) == ("auto", 7)


OTHER_LAWS = {
    "real_gaussian": "channel={ fading = { kind = 'real_gaussian', mean = 1.0, std = 1.0 } }",
    "rician": "channel={ fading = { kind = 'rician', k_factor_db = 6.0 } }",
    "constant": "channel={ fading = { kind = 'constant' } }",
}


@pytest.mark.parametrize("law", OTHER_LAWS)
@pytest.mark.parametrize("file", ["cares-auto"], indirect=True)
def test_cares_certifies_rayleigh_fading_alone(file: Path, law: str) -> None:
    """Real normal gains silence many times what the envelope of Rayleigh fading says."""
    with pytest.raises(InputError, match="planned in detail for Rayleigh fading"):
        inputs_of("cares", file, [OTHER_LAWS[law]])
    experiment = load(file, [OTHER_LAWS[law], "rounds=400"])
    assert not statistics_known(experiment)
    site = build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites[0]
    plan, info = played(site)
    assert not np.any(info.certified)
    silent = np.mean(plan.max_norm < site.message.bound)
    if law == "real_gaussian":
        assert silent > 2 * np.max(info.dropped_weight)
    rayleigh = load(file, ["channel={ fading = { kind = 'ar1', rho = 0.5 } }"])
    assert statistics_known(rayleigh)


@pytest.mark.parametrize("law", OTHER_LAWS)
@pytest.mark.parametrize("file", ["biasvar", "cdpb"], indirect=True)
def test_probabilities_of_sending_are_told_of_rayleigh_fading_alone(file: Path, law: str) -> None:
    """Without fading everybody sends in every round; exp(-u^2 / 2) of them is no answer."""
    system = next(one for one in SCHEMES if SCHEMES[one] in file.read_text())
    with pytest.raises(InputError, match="planned in detail for Rayleigh fading"):
        inputs_of(system, file, [OTHER_LAWS[law]])
    design = load(file, [OTHER_LAWS[law], "privacy.accountant=rdp", "privacy.accounting=visible"])
    assert any(OTHER_LAW in note for note in plan_table(design).notes)


@pytest.mark.parametrize("file", ["biasvar"], indirect=True)
def test_biasvar_designs_the_levels_of_the_run(file: Path) -> None:
    report, site = both("biasvar", file)
    plan, _ = played(site)
    received = np.abs(plan.tx * site.trace.gain)[0]
    np.testing.assert_allclose(report["gamma"], received, rtol=1e-9)
    np.testing.assert_allclose(report["privacy"]["eps"], charged("gaussian", site), rtol=1e-9)


@pytest.mark.parametrize("file", ["cdpb"], indirect=True)
def test_cdpb_judges_what_the_run_plays(file: Path) -> None:
    report, site = both("cdpb", file)
    _, info = played(site)
    assert report["tau"] == 30
    np.testing.assert_allclose(report["rho"], info.rho[0], rtol=1e-9)
    free: Any = inputs_of("cdpb", file, ["plan.gbar=inf"])
    assert (free.rho, free.tau) == (None, None)


@pytest.mark.parametrize("file", ["adascale"], indirect=True)
def test_adascale_plays_the_rounds_of_the_run(file: Path) -> None:
    report, site = both("adascale", file)
    _, info = played(site)
    np.testing.assert_allclose(report["rounds"]["eta"], info.scaling, rtol=1e-5)  # rates are rounded to the generator's
    np.testing.assert_allclose(report["rounds"]["f"], info.floor, rtol=1e-6)
    np.testing.assert_allclose(report["totals"]["eps_rdp"], charged("rdp", site), rtol=1e-5)


@pytest.mark.parametrize("file", ["liu-simeone"], indirect=True)
def test_liu_simeone_allocates_as_the_run_does(file: Path) -> None:
    report, site = both("liu-simeone", file)
    np.testing.assert_allclose(np.sqrt(report["square"]), played(site)[0].rx_scale, rtol=1e-9)
    assert report["spent"] == pytest.approx(report["budget"], rel=1e-9)


@pytest.mark.parametrize("file", ["seif"], indirect=True)
def test_seif_splits_as_the_run_does(file: Path) -> None:
    report, site = both("seif", file)
    plan, info = played(site)
    np.testing.assert_allclose(np.sqrt(report["square"]), plan.rx_scale, rtol=1e-9)
    np.testing.assert_allclose(report["artificial_var"], info.artificial, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("errors", [False, True])
@pytest.mark.parametrize("accountant", ["zcdp", "gaussian", "rdp"])
@pytest.mark.parametrize("file", ["seif", "liu-simeone"], indirect=True)
def test_rivals_count_the_target_as_the_run_does(file: Path, accountant: str, errors: bool) -> None:
    """By the accountant in force, with the gain errors that the channel declares."""
    text = file.read_text().replace("[privacy]", f'[privacy]\naccountant = "{accountant}"')
    if errors:
        text = text.replace(
            'channel = "cares"', 'channel = { fading = { kind = "rayleigh" }, csi = { gain_error = 0.2 } }'
        )
    file.write_text(text)
    system = "seif" if '"seif"' in text else "liu-simeone"
    if (system, accountant) == ("liu-simeone", "rdp"):
        with pytest.raises(InputError, match="accountant='rdp' is not planned in detail"):
            inputs_of(system, file, [])
        assert inputs_of(system, file, ["plan.budget=zcdp"]).model_dump()["budget"] == "zcdp"
        return
    report, site = both(system, file)
    np.testing.assert_allclose(np.sqrt(report["square"]), played(site)[0].rx_scale, rtol=1e-9)


@pytest.mark.parametrize("file", ["biasvar", "cdpb"], indirect=True)
def test_a_plan_of_one_law_is_not_told_of_a_channel_that_drifts(file: Path) -> None:
    """The run designs anew when the law changes, and pays for what it then sends."""
    system = next(one for one in SCHEMES if SCHEMES[one] in file.read_text())
    with pytest.raises(InputError, match="planned in detail for one law of the channel"):
        inputs_of(system, file, ["channel.drift={ every = 5 }"])
    assert inputs_of(system, file, ["channel.drift={ every = 30 }"])


@pytest.mark.parametrize("file", ["orthogonal"], indirect=True)
def test_orthogonal_counts_the_uses_of_the_first_round(file: Path) -> None:
    report, site = both("orthogonal", file)
    assert report["uses"] == pytest.approx(played(site)[1].uses[0], rel=1e-9)


@pytest.mark.parametrize("file", ["eezofl"], indirect=True)
def test_eezofl_reads_the_ring_of_the_scheme_and_its_own_keys(file: Path) -> None:
    inputs: Any = inputs_of("eezofl", file, ["plan.tau=0.02", "scheme.0.n=8192"])
    assert (inputs.tau, inputs.ring, inputs.rounds, inputs.devices.count, inputs.P) == (0.02, "8192", 30, 4, 60)


@pytest.mark.parametrize("file", list(SCHEMES), indirect=True)
def test_a_planner_that_charges_no_channel_error_refuses_one(file: Path, request: pytest.FixtureRequest) -> None:
    """biasvar promised the ε of exact channels: a run under this error is charged 1.69 times its ρ."""
    system = request.node.callspec.params["file"].removesuffix("-auto")
    off = ["channel.csi={gain_error=0.3, phase_error=0.0}"]
    if system not in ("biasvar", "cdpb", "adascale"):
        assert inputs_of(system, file, off)
    else:
        with pytest.raises(InputError, match=f"gain_error=0.3: the planner of {system} counts channels"):
            inputs_of(system, file, off)


@pytest.mark.parametrize("file", ["cares"], indirect=True)
def test_a_planner_is_told_what_an_earlier_run_left(file: Path, tmp_path: Path) -> None:
    earlier = Ledger(Budget(200.0, 1e-6, adjacency="replace", unit="client"), clients=4)
    earlier.release(Release("a statistic", 2.0, 1.0))
    earlier.save(tmp_path / "ledger.bin")
    spent = [f"privacy.already_spent='{tmp_path / 'ledger.bin'}'"]
    inputs: Any = inputs_of("cares", file, spent)
    experiment = load(file, spent)
    of_run = Planned(experiment, experiment.scheme[0], facts_of(experiment))
    assert inputs.eps_target == of_run.left.eps < 200.0


@pytest.mark.parametrize("file", ["cdpb"], indirect=True)
def test_what_no_scheme_of_the_file_belongs_to_is_one_line(file: Path) -> None:
    with pytest.raises(InputError, match="no scheme of cares in this experiment"):
        inputs_of("cares", file, [])


@pytest.mark.parametrize(
    ("file", "option"),
    [
        ("biasvar", "headroom=0.5"),
        ("biasvar", "design=min-noise"),
        ("cdpb", "left_over=0.5"),
        ("cdpb", "debias=true"),
        ("adascale", "calibration_traces=5"),
        ("liu-simeone", "access=orthogonal"),
    ],
    indirect=["file"],
)
def test_options_that_a_plan_would_leave_out_are_refused(file: Path, option: str) -> None:
    system = next(one for one in SCHEMES if SCHEMES[one] in file.read_text())
    with pytest.raises(InputError, match=f"{option.partition('=')[0]}=.* is not planned in detail"):
        inputs_of(system, file, [f"scheme.0.{option}"])


@pytest.mark.parametrize("file", ["biasvar"], indirect=True)
def test_own_keys_replace_what_the_blocks_say(file: Path) -> None:
    inputs: Any = inputs_of("biasvar", file, ["plan.rho=2.0", "plan.frontier_points=7"])
    assert (inputs.rho, inputs.frontier_points) == (2.0, 7)
    with pytest.raises(InputError, match="unknown"):
        inputs_of("biasvar", file, ["plan.rhoo=2.0"])


@pytest.mark.parametrize(
    ("system", "override", "key", "value"),
    [
        ("cares", "eps=8.0", "eps_target", 8.0),
        ("cares", "eps_target=8.0", "eps_target", 8.0),
        ("biasvar", "T=500", "rounds", 500),
        ("cdpb", "rounds=77", "tau_cap", 77),
        ("adascale", "C=2.0", "G", 2.0),
        ("liu-simeone", "rounds=7", "rounds", 7),
        ("liu-simeone", "clients=7", "num_clients", 7),
        ("eezofl", "lambda_s=20", "smudging_bits", 20.0),
    ],
)
def test_an_override_replaces_a_key_under_any_of_its_names(
    system: str, override: str, key: str, value: Any, tmp_path: Path
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(planning.load(system).example)
    assert getattr(inputs_of(system, file, [override]), key) == value


@pytest.mark.parametrize("name", ["count", "N"])
def test_symbols_that_stand_in_a_table_are_replaced_there(name: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(planning.load("eezofl").example.replace("count = 10", f"{name} = 10"))
    inputs: Any = inputs_of("eezofl", file, ["N=4", "sigma=3.0"])
    assert (inputs.devices.count, inputs.devices.sigma, inputs.devices.mu) == (4, 3.0, 1.0)
