"""What the certificate of a run says it does not cover."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import otafl
import small
from otafl.bounds.sequence import certify_sequence
from otafl.core.plan import Policy
from otafl.runs.certificates import certificate
from otafl.runs.schema import Server
from otafl.runs.sites import OTHER_LAW

ROW = certify_sequence([0.4], weights=[0.5, 0.5], noise_std=0.1, num_params=3, loss_gap=1.0, delta=1e-5)


@pytest.mark.parametrize(("gain_error", "momentum", "said"), [
    (0.0, 0.0, []), (0.1, 0.0, ["off by 0.1"]), (0.0, 0.9, ["momentum"]), (0.1, 0.9, ["momentum", "off by 0.1"]),
])  # fmt: skip
def test_what_the_bound_does_not_cover_is_said(gain_error: float, momentum: float, said: list[str]) -> None:
    site = SimpleNamespace(
        policy=Policy("any", None, None, "open", "own", "open"),
        deployment=small.deployment(0.1)._replace(gain_error=gain_error),
    )
    found = certificate([ROW], site, SimpleNamespace(classes=10), Server(momentum=momentum), 1e-5, "gradient")
    between = found["notes"][1:-2]  # after the constants, before what is said of subsampling and of one run
    assert len(between) == len(said) and all(words in note for note, words in zip(between, said))


@pytest.mark.parametrize(("kind", "label"), [("rayleigh", "certificate"), ("constant", "realised_bound")])
def test_rounds_under_another_law_than_rayleighs_are_no_certificate(kind: str, label: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    otafl.run(
        schemes=[otafl.constant(rx_scale=0.3)], channel={"fading": {"kind": kind}}, rounds=2, seeds=1, out=folder,
        task={"data": "digits", "clients": 4, "model": {"name": "logistic"}}, clip_norm=1.0, progress=False,
    )  # fmt: skip
    found = json.loads(next(folder.glob("schemes/*/certificate.json")).read_text())
    assert found["label"] == label and (OTHER_LAW in found["notes"]) == (kind != "rayleigh")
