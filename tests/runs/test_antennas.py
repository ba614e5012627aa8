"""Experiments at a server with several antennas: from the file to ledger, card and audit."""

from pathlib import Path
from typing import Any

import pytest

import otafl
from otafl.core.errors import InputError
from otafl.privacy import Ledger, account, inverse_square, release
from otafl.privacy.antennas import full_charge
from otafl.privacy.array_uplink import array_uplink
from otafl.runs.audit.attack import attack
from otafl.runs.audit.audit import SchemeAudit, audit
from otafl.runs.audit.targets import prepare
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.schema import load

TEXT = """
rounds = 4
seeds = 1
channel = { antennas = 2, beam = "BEAM" }
task = { data = { name = "digits", train_size = 80 }, clients = 4, model = { name = "logistic" } }
radio = { noise_std = 0.05 }
clients = { kind = "gradient", batch = 8 }
privacy = { eps = 300.0 }
[[scheme]]
name = "constant"
rx_scale = 0.1
"""
WEAKEST = ('scheme=[{ name = "weakest", headroom = 0.001 }]', 'task.weights="equal"', "privacy.accountant=rdp")


def experiment(folder: Path, beam: str = "iterated", *overrides: str) -> Any:
    path = folder / f"{beam}.toml"
    path.write_text(TEXT.replace("BEAM", beam))
    return load(path, list(overrides))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("antennas")


def test_a_run_is_charged_for_all_antennas_and_says_so(place: Path) -> None:
    otafl.run(experiment(place), out=place / "run")
    folder = place / "run" / "schemes" / "constant"
    ledger = Ledger.load(folder / "ledger-0.bin")
    planned = Planned(experiment(place), experiment(place).scheme[0], facts_of(experiment(place)))
    site, plan = planned.setup.sites[0], planned.plans[0]
    wanted = full_charge(site.trace.array, plan.tx, plan.noise, 0.05**2, site.message.sensitivity)
    assert inverse_square(ledger.events) == pytest.approx(wanted, rel=1e-12)
    assumed = (folder / "card.md").read_text().split("Assumptions:")[1].split("Outside the guarantee:")[0]
    assert "2 antennas" in assumed and "never the combined gain" in assumed
    certificate = (folder / "certificate.json").read_text()
    assert "does not hold at 2 antennas" in certificate


@pytest.fixture(scope="module")
def targets(place: Path) -> list[Any]:
    wanted = experiment(place, "fixed")
    return prepare(wanted, wanted.scheme[0]).targets


def test_an_attacker_with_all_antennas_comes_near_the_charge_and_not_above(place: Path) -> None:
    found = audit(experiment(place, "fixed"), 120, error=1e-6).schemes[0]
    assert not found.failed and not found.weak
    assert any(canary.pattern.endswith("all 2 antennas") for canary in found.canaries)
    assert any("every antenna" in note for note in found.notes)


def test_a_ledger_that_charged_the_combined_gain_is_refuted(place: Path, targets: list[Any]) -> None:
    """The mistake that the charge is there to avoid, found by the attacker who keeps both antennas."""
    wanted = experiment(place, "fixed")
    planned = Planned(wanted, wanted.scheme[0], facts_of(wanted))
    site, plan = planned.setup.sites[0], planned.plans[0]
    combined = array_uplink(site.deployment.receiver._replace(server="combined"))
    cheap = release(combined, plan, site.trace, site.deployment, site.message)
    eps = account("zcdp", cheap, 1e-5, adjacency=site.message.adjacency).eps
    server, observer = (target._replace(events=cheap, eps=eps) for target in targets)
    verdict = lambda target: [one for one in attack(target, 120, 1e-6) if one.finding.refuted]  # noqa: E731
    assert verdict(observer) and not verdict(server)


@pytest.mark.slow
def test_records_are_attacked_at_every_antenna(place: Path) -> None:
    kind = 'clients={ kind = "per-sample", batch = 8, sampling = "poisson" }'
    scheme: SchemeAudit = audit(experiment(place, "fixed", kind, *WEAKEST), 60, error=1e-6).schemes[0]
    assert not scheme.failed and {canary.pattern.endswith("antennas") for canary in scheme.canaries} == {True, False}


def test_the_loop_of_ones_own_and_the_plan_ask_with_the_same_words() -> None:
    channel = {"antennas": 4, "beam": "iterated"}
    given = {"num_params": 3, "clip_norm": 1.0, "eps": 300.0, "rounds": 3, "noise_std": 0.1, "seed": 1}
    air = otafl.Air(otafl.constant(rx_scale=0.2), site=5, channel=channel, **given)
    one = otafl.Air(otafl.constant(rx_scale=0.2), site=5, **given)
    assert air.affordable_rounds == one.affordable_rounds == 3
    assert any("4 antennas" in text for text in air.job.uplink.assumed) and not one.job.uplink.assumed
    made = otafl.plan(
        task={"num_params": 650, "clients": 5}, schemes=["constant"], channel=channel, eps=300.0, rounds=3, seeds=1
    )
    assert made.rows[0].feasible


def test_bad_words_are_one_line(place: Path) -> None:
    with pytest.raises(InputError, match="beam"):
        experiment(place, "nonsense")
    with pytest.raises(InputError, match=r"channel\.antennas|antennas"):
        experiment(place, "fixed", "channel.antennas=0")
