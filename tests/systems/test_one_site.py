"""One deployment file reaches the planners of all five systems with the same numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl.channels import load_site, to_deployment
from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.systems import planning
from otafl.systems.adascale import planner_inputs as adascale
from otafl.systems.biasvar import planner_inputs as biasvar
from otafl.systems.cares import planner_inputs as cares
from otafl.systems.cdpb import planner_inputs as cdpb
from otafl.systems.eezofl import planner_inputs as eezofl

EXAMPLES = Path(__file__).parents[2] / "examples"
SITE = load_site(EXAMPLES / "deployment.toml")
ROUND = to_deployment(SITE, dim=100)
BIASVAR = {"devices": "deployment.toml", "d": 100, "G": 1.0, "eta": 0.1, "rho": 0.3}
ADASCALE = {"devices": "deployment.toml", "d": 100, "G": 1.0, "T": 3, "q": 0.1, "nu": 1e3}
EEZOFL = {"devices": "deployment.toml", "ring": "8192", "tau": 0.01}


def inputs(module: Any, data: dict[str, Any]) -> Any:
    return parse(module.Inputs, data, "file.toml")


def test_biasvar_takes_noise_bandwidth_trust_and_samples() -> None:
    made = biasvar.site(inputs(biasvar, BIASVAR), EXAMPLES)
    np.testing.assert_allclose(made.radio.E_s * 100, ROUND.energy)
    np.testing.assert_allclose(made.radio.N0, 2 * ROUND.noise_var)
    assert made.trusted_noise == pytest.approx(ROUND.trusted_noise_var / ROUND.noise_var)
    np.testing.assert_allclose(made.par.weights, ROUND.weights)
    with pytest.raises(InputError, match=r"deployment\.toml has a \[radio\] of its own; leave out bandwidth_hz"):
        biasvar.site(inputs(biasvar, {**BIASVAR, "bandwidth_hz": 1e5}), EXAMPLES)


def test_adascale_takes_the_bandwidth() -> None:
    setting = adascale.read_site(inputs(adascale, ADASCALE), EXAMPLES).setting
    assert setting.bandwidth_hz == 1e6
    assert setting.noise_power == SITE.radio.noise_w
    with pytest.raises(InputError, match=r"bandwidth_hz=100000 but deployment\.toml says 1e\+06; give it in one place"):
        adascale.read_site(inputs(adascale, {**ADASCALE, "bandwidth_hz": 1e5}), EXAMPLES)


def test_eezofl_takes_the_path() -> None:
    """Levelled Rayleigh gains: moments of abs(h) by simulation; the weakest device sets the SNR."""
    result = planning.load("eezofl").plan(inputs(eezofl, EEZOFL), EXAMPLES)
    assert result["N"] == len(SITE.devices.names)
    draws = np.abs(np.random.default_rng(0).normal(size=(2, 200_000)).T @ [1, 1j]) / np.sqrt(2)
    assert result["mu"][0] == pytest.approx(np.mean(draws), abs=4 * np.std(draws) / np.sqrt(200_000))
    assert result["Omega"][0] == pytest.approx(np.mean(draws**2), abs=4 / np.sqrt(200_000))
    assert eezofl.levelled(EXAMPLES / "deployment.toml").devices.fourth_moment[0] == pytest.approx(
        np.mean(draws**4), abs=4 * np.std(draws**4) / np.sqrt(200_000)
    )
    snr = np.min(SITE.devices.power_w * SITE.devices.mean_power_gain) / SITE.radio.noise_w
    assert result["site"]["snr_db"] == pytest.approx(10 * np.log10(snr))


def test_cares_and_cdpb_take_energy_noise_and_samples() -> None:
    data = {"devices": "deployment.toml", "num_params": 100}
    found, _ = cares._from_devices(cares.Inputs.model_construct(**data, noise_std=None), EXAMPLES)
    np.testing.assert_allclose(found["max_power"], ROUND.energy)
    np.testing.assert_allclose(found["noise_std"], np.sqrt([ROUND.trusted_noise_var, ROUND.noise_var]))
    np.testing.assert_allclose(found["weights"], ROUND.weights)
    asked = cdpb.Inputs.model_construct(devices="deployment.toml", d=100, sz2=None, trust_receiver_noise=False)
    clients = cdpb._clients(asked, EXAMPLES)
    np.testing.assert_allclose(clients["P"], ROUND.energy)
    assert clients["sz2"] == pytest.approx(ROUND.noise_var)


@pytest.mark.parametrize(
    ("module", "symbols", "words"),
    [
        (adascale, ADASCALE, {"d": "num_params", "G": "clip_norm", "T": "rounds"}),
        (biasvar, BIASVAR, {"d": "num_params", "G": "clip_norm", "eta": "step_size"}),
        (cdpb, {"K": 3, "sigma2": 0.5, "d": 100, "W": 2.0, "tau_cap": 7},
         {"K": "clients", "d": "num_params", "W": "clip_norm", "tau_cap": "rounds"}),
    ],
)  # fmt: skip
def test_the_words_of_experiment_files_are_second_names(module: Any, symbols: dict[str, Any], words: Any) -> None:
    spelled = {words.get(key, key): value for key, value in symbols.items()}
    assert inputs(module, spelled) == inputs(module, symbols)
    symbol, word = next(iter(words.items()))
    with pytest.raises(InputError, match="two names of one thing"):
        inputs(module, {**symbols, word: symbols[symbol]})
