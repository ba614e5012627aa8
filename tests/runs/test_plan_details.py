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
from otafl.runs.planning.details import inputs_of
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.schema import load
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


@pytest.mark.parametrize("file", ["liu-simeone"], indirect=True)
def test_liu_simeone_plans_no_superposition_for_a_run_of_slots(file: Path) -> None:
    with pytest.raises(InputError, match="access='orthogonal': this planner gives one superposition"):
        inputs_of("liu-simeone", file, ["scheme.0.access=orthogonal"])


@pytest.mark.parametrize("file", ["seif"], indirect=True)
def test_seif_splits_as_the_run_does(file: Path) -> None:
    report, site = both("seif", file)
    plan, info = played(site)
    np.testing.assert_allclose(np.sqrt(report["square"]), plan.rx_scale, rtol=1e-9)
    np.testing.assert_allclose(report["artificial_var"], info.artificial, rtol=1e-6, atol=1e-15)


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
    system = request.node.callspec.params["file"]
    off = ["channel.csi={gain_error=0.3, phase_error=0.0}"]
    if system in ("cares", "orthogonal", "eezofl"):
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
    assert inputs.eps_target == of_run.eps_left < 200.0


@pytest.mark.parametrize("file", ["cdpb"], indirect=True)
def test_what_no_scheme_of_the_file_belongs_to_is_one_line(file: Path) -> None:
    with pytest.raises(InputError, match="no scheme of cares in this experiment"):
        inputs_of("cares", file, [])


@pytest.mark.parametrize("file", ["biasvar"], indirect=True)
def test_own_keys_replace_what_the_blocks_say(file: Path) -> None:
    inputs: Any = inputs_of("biasvar", file, ["plan.rho=2.0", "plan.frontier_points=7"])
    assert (inputs.rho, inputs.frontier_points) == (2.0, 7)
    with pytest.raises(InputError, match="unknown"):
        inputs_of("biasvar", file, ["plan.rhoo=2.0"])
