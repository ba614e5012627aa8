"""Keys and values of experiment files: shown, replaced, mistaken."""

import tomllib
from pathlib import Path

import pytest

from command_line import Call
from otafl.runs.presets import packaged
from otafl.runs.schema import load, resolved


def test_what_is_shown_reads_back_to_the_same_experiment(otafl: Call, tmp_path: Path) -> None:
    for number, file in enumerate([tmp_path / "small.toml", *packaged().values()]):
        try:
            before = load(file)
        except Exception:  # presets of pure analysis hold no experiment
            assert "scheme" not in tomllib.loads(file.read_text())
            continue
        code, out, _ = otafl("run", str(file), "--show")
        assert code == 0
        again = tmp_path / f"shown-{number}.toml"
        again.write_text(out)
        assert load(again) == before.model_copy(update={"preset": None})
        assert resolved(load(again)) == out


def test_overrides_reach_every_depth(otafl: Call) -> None:
    sets = (
        "rounds=7",
        "task.model={name='mlp',hidden=[5]}",
        "task.data=digits",
        "scheme.0.rx_scale=0.25",
        "privacy.delta=1e-6",
        "title=a b",
    )
    _, out, _ = otafl("run", "small.toml", "--show", *[part for one in sets for part in ("--set", one)])
    shown = tomllib.loads(out)
    assert (shown["rounds"], shown["task"]["model"]["hidden"], shown["scheme"][0]["rx_scale"]) == (7, [5], 0.25)
    assert (shown["privacy"]["delta"], shown["title"], shown["task"]["data"]["name"]) == (1e-6, "a b", "digits")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rouns=1", "rouns: unknown key; did you mean 'rounds'?"),
        ("channel={fading={knid='rician'}}", "channel.fading.knid: unknown key; did you mean 'kind'?"),
        ("channel={shadowing=1}", "channel.shadowing: unknown key; did you mean 'shadowing_db'?"),
        (
            "task.data={name='digits',pca={component=3}}",
            "task.data.pca.component: unknown key; did you mean 'components'?",
        ),
        ("task.model={name='mlp',hiden=[3]}", "task.model.hiden: unknown key; did you mean 'hidden'?"),
        ("scheme.0.rx_scal=1", "scheme.0.rx_scal: unknown key; did you mean 'rx_scale'?"),
        ("scheme.0.clients={kind='gradient',clip=1}", "scheme.0.clients.clip: unknown key; did you mean 'clip_norm'?"),
        ("scheme.0.server={step=1}", "scheme.0.server.step: unknown key; did you mean 'step_size'?"),
        ("task.model=[1]", "task.model must be a table"),
        ("scheme=['fedavg']", "scheme.0='fedavg' must be a table: { name = 'fedavg' }"),
        (
            "clients.kind='per-sample'",
            "constant: gate='bound' needs a finite norm bound, but these messages have none (Poisson batches); use "
            "clients.sampling='without-replacement', or a scheme with gate='open', e.g. weakest or ridge",
        ),
        ("clients={clip_norm=1}", "clients.kind is required: one of gradient, per-sample, "),
        ("clients.kind='gradiant'", "clients.kind='gradiant' must be one of "),
        ("scheme.0.name='carres'", "scheme.0.name='carres' must be one of "),
        ("task.data=minst", "task.data: data set 'minst' must be one of "),
        ("channel=carres", "channel: 'carres' must be a table or one of "),
        ("radio={power_dbm=10,noise_std=1}", "radio: give max_energy with noise_std"),
        (
            "scheme=[{name='constant',label='A b'},{name='weakest',label='a_b'}]",
            "scheme labels 'A b' and 'a_b' share a folder",
        ),
        ("scheme=[{name='constant'},{name='constant'}]", "scheme labels 'constant' and 'constant' share a folder"),
    ],
)
def test_a_mistake_is_told_by_its_key_with_the_nearest_known_one(override: str, said: str, otafl: Call) -> None:
    code, _, err = otafl("run", "small.toml", "--set", override)
    assert code == 2
    assert err.startswith(f"otafl: small.toml: {said}")


def test_a_misspelt_name_is_told_with_the_one_that_was_meant(otafl: Call) -> None:
    names = {"clients.kind": "gradient", "scheme.0.name": "weakest", "task.data": "digits", "channel": "cares"}
    for key, name in names.items():
        _, _, err = otafl("run", "small.toml", "--set", f"{key}='{name[:-2]}{name[-1]}'")
        assert err.endswith(f"; did you mean '{name}'?\n")
