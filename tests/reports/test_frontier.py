"""The frontier and the phase diagram as pictures and tables: their numbers are those of the points."""

import numpy as np

from otafl.bounds import merit
from otafl.reports import frontier, phases, phases_trained


def points():
    return [
        {"devices": k, "eps": eps, "label": label, "private": label != "ref", "accuracy": 0.1 * n + 0.001 * k * eps,
         "sd": 0.01, "seeds": 3, "joules": 1e-3 * eps, "efficiency": 0.9}
        for k in (20, 200) for eps in (1.0, 4.0) for n, label in enumerate(("ref", "a", "b"), start=1)
    ]  # fmt: skip


def test_a_band_runs_from_the_worst_scheme_to_the_best():
    told = {"points": points(), "title": "t", "date": "2026-01-01", "preset": "p"}
    rows = [["20", "0.22–0.32", "0.28–0.38"], ["200", "0.40–0.50", "1.00–1.10"]]
    assert frontier.spans(told) == [["devices", "ε = 1", "ε = 4"], *rows]
    svg = frontier.picture(told)
    assert svg.startswith("<svg") and "20 devices" in svg and "without privacy" in svg
    assert svg == frontier.picture(told)  # the same numbers, the same bytes


def test_the_diagram_knows_how_many_devices_are_useful():
    """Devices for Q = 25 with one image each, energy no limit: 1,333, 713 and 215 of the calibration's own table."""
    terms = {"delta": 1e-5, "noise_var": 0.0025, "clip_norm": 1.0, "sensitivity": 2.0, "agreement": 0.14,
             "num_params": 650.0}  # fmt: skip
    told = phases.diagram([1.0, 2.0, 8.0], np.geomspace(1e-5, 10.0, 40), terms)
    useful = [sheet["devices"][f"Q = {merit.USEFUL:g}"][-1] for sheet in told["sheets"]]
    np.testing.assert_allclose(useful, [1333, 713, 215], rtol=0.01)
    for sheet in told["sheets"]:
        assert min(sheet["gain"]) > -0.005 and max(sheet["gain"]) > 0.15  # nobody beats the ridge
    assert phases.picture(told).startswith("<svg") and "alike" in phases.sentence(told["sheets"][0], told["joules"])


def cell(ridge: list[float], other: list[float]) -> dict:
    return {"devices": 200, "joules": 1e-3, "eps": 8.0, "seeds": [0, 1, 2], "ideal": {"dp": [0.95, 0.94, 0.96]},
            "air": {"other": other, "ridge": ridge}}  # fmt: skip


def test_a_trained_cell_names_its_leader_only_beyond_the_paired_interval():
    clear, close = cell([0.9, 0.91, 0.92], [0.8, 0.81, 0.83]), cell([0.9, 0.8, 0.95], [0.85, 0.86, 0.91])
    assert phases_trained.leader(clear) == ("ridge", 0.096667, True)
    assert not phases_trained.leader(close)[2]
    assert "cannot tell" in phases_trained.sentence(close) and "without a radio 0.950" in phases_trained.sentence(clear)
    terms = {"delta": 1e-5, "noise_var": 0.0025, "clip_norm": 1.0, "sensitivity": 2.0, "agreement": 0.14,
             "num_params": 650.0}  # fmt: skip
    told = phases.diagram([8.0], np.geomspace(1e-5, 10.0, 10), terms)
    marked = phases.picture(told, {"cells": [clear, close]})
    assert ">0.91<" in marked and ">0.91<" not in phases.picture(told)
