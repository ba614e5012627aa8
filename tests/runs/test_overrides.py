"""Overrides of an experiment file: what a name or a default chooses is a table to them."""

import dataclasses
from pathlib import Path

import pytest

from otafl.channels import PUBLISHED
from otafl.core.errors import InputError
from otafl.runs import described
from otafl.runs.schema import Experiment, load

SMALL = 'rounds = 2\nchannel = "{channel}"\n[[scheme]]\nname = "constant"\nrx_scale = 0.3\n'


def read(folder: Path, *overrides: str, channel: str = "cares") -> Experiment:
    file = folder / "small.toml"
    file.write_text(SMALL.format(channel=channel))
    return load(file, list(overrides))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_key_inside_a_named_channel_changes_that_key_alone(tmp_path, name):
    antennas = 1 if PUBLISHED[name].draw_order == "single" else 3  # the published draw order has one
    changed = read(tmp_path, f"channel.antennas={antennas}", channel=name).channel
    assert changed == dataclasses.replace(PUBLISHED[name], antennas=antennas)


def test_a_key_inside_a_default_changes_that_key_alone(tmp_path):
    plain = read(tmp_path)
    task = read(tmp_path, "task.model.hidden=[7]", "task.partition.alpha=0.25", "task.data.train_size=99").task
    assert list(task.model.hidden) == [7] and task.model.name == plain.task.model.name
    assert task.partition.alpha == 0.25 and task.partition.kind == plain.task.partition.kind
    assert task.data.train_size == 99 and task.data.name == plain.task.data.name
    assert read(tmp_path) == plain  # defaults themselves are untouched


def test_a_name_is_a_choice(tmp_path):
    chosen = read(tmp_path, "channel=jakes", "task.model=logistic", "task.partition=iid", "task.data=mnist")
    assert chosen.channel == PUBLISHED["jakes"]
    assert (chosen.task.model.name, chosen.task.partition.kind, chosen.task.data.name) == ("logistic", "iid", "mnist")
    assert read(tmp_path, "clients=per-sample", "clients.clip_norm=2").clients.clip_norm == 2


def test_the_same_names_in_a_sweep_in_python(tmp_path):
    swept = described.changed(read(tmp_path), ["task.model=logistic", "channel=jakes"], "otafl.sweep")
    assert swept.task.model.name == "logistic" and swept.channel == PUBLISHED["jakes"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("channel.antenas=3", "channel.antenas: unknown key; did you mean 'antennas'"),
        ("channel=nowhere", "'nowhere' must be a table or one of cares"),
        ("task.model=perceptron", "task.model.name='perceptron' must be one of"),
        ("rounds.first=3", "rounds is a value, not a table"),
        ("scheme.constant.rx_scale=1", "'constant' must be a position from 0 to 0"),
    ],
)
def test_refusals(tmp_path, override, said):
    with pytest.raises(InputError) as refusal:
        read(tmp_path, override)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "override",
    ["channel={}", "scheme.0.name={}", "task.data={}", "privacy.accountant={}", "clients.kind={}", "rounds={}", "{}",
     "rounds.{}.x=1", "scheme.{}=1", "{}=1", "task.{}=1", "scheme.0.{}=1"],
)  # fmt: skip
def test_a_value_of_many_letters_is_no_long_line(tmp_path, override):
    with pytest.raises(InputError) as refusal:
        read(tmp_path, override.format("z" * 5000))
    assert len(str(refusal.value)) < 1500 + len(str(tmp_path))
