"""The report shows what the store holds, escapes what users wrote, and survives what runs leave behind."""

import io
import json
import os
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from scipy import stats

from otafl.core.errors import InputError
from otafl.reports import write_report
from otafl.reports.data import collect
from otafl.reports.devices import HEAT_COLUMNS, HEAT_ROWS, groups
from otafl.reports.page import embed, render
from otafl.reports.plots import NAMES_INSIDE, PLOTS, STYLE, _legend, _line, carried, seed_statistics
from otafl.reports.sections import _values, opening
from otafl.reports.tables import comparison, footer
from otafl.runs.comparing.compare import difference
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.store import RunFolder

NASTY = "</script><b>&\"'`$x_1$ {0} \u2028"
TWO = {"one": {}, "two": {"private": False, "noiseless": True, "silence": 0.0}}


def page_of(*runs: Path) -> str:
    """The page alone: plots take most of a report's time."""
    return render(collect(list(runs)))


def embedded(page: str) -> dict:
    """The data block, read as a browser reads it: all text of that one script element."""

    class Reader(HTMLParser):
        inside, found = False, ""

        def handle_starttag(self, tag, attrs):
            self.inside = tag == "script" and dict(attrs).get("id") == "data"

        def handle_endtag(self, tag):
            self.inside = False

        def handle_data(self, data):
            if self.inside:
                self.found += data

    reader = Reader()
    reader.feed(page)
    return json.loads(reader.found)["report"]


def table(run: Path, label: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(run / "schemes" / label / f"{name}.parquet")


def test_a_run_in_a_folder_whose_name_is_no_utf_8_has_its_page(make_run):
    assert (write_report([make_run(os.fsdecode(b"M\xe4rz"), TWO)])[0]).exists()


def test_a_page_leaves_no_file_open(make_run):
    run = make_run("one", {"a": {}})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        assert collect([run])["schemes"][0]["devices"]
    assert not [str(one.message) for one in said if one.category is ResourceWarning]


@pytest.mark.parametrize("name", ["rounds", "evaluations"])
def test_every_figure_equals_the_store(make_run, name):
    run = make_run("r", {"one": {"queue": True, "shorter": 7}, **{"two": TWO["two"]}})
    for scheme in embedded(page_of(run))["schemes"]:
        shown, stored = scheme[name], table(run, scheme["label"], name)
        assert set(shown["columns"]) == set(stored.columns) - {"seed", "round"}
        for column, matrix in shown["columns"].items():
            wide = stored.pivot(index="seed", columns="round", values=column)
            assert shown["seeds"] == wide.index.tolist() and shown["round"] == wide.columns.tolist()
            np.testing.assert_array_equal([numbers(row) for row in matrix], wide.to_numpy(float))


def test_silence_and_energy_equal_the_store(make_run):
    run = make_run("r", {"one": {}})
    devices = collect([run])["schemes"][0]["devices"]
    stored = table(run, "one", "devices")
    stored["silent"] = ~stored.sent
    silent = stored.pivot_table(index="client", columns="round", values="silent", aggfunc="sum")
    assert devices["heat"]["silent"] == silent.to_numpy().tolist()
    assert np.all(np.array(devices["heat"]["total"]) == 3)
    by_client = stored.groupby("client").energy
    np.testing.assert_array_equal(devices["bars"]["max"], by_client.max())
    np.testing.assert_allclose(devices["bars"]["mean"], by_client.mean(), rtol=1e-13)
    assert devices["bars"]["limit"] == [1.0] * 6


def test_differences_are_paired_t_intervals(make_run):
    run = make_run("r", {"one": {}, "two": {}}, seeds=(3, 1, 4, 9))
    data = collect([run])
    a, b = (numbers(scheme["summary"]["final_accuracy"]) for scheme in data["schemes"])
    shown = data["differences"]["final_accuracy"][0][1]
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert shown["mean"] - shown["half_width"] == pytest.approx(interval.low)
    assert shown["mean"] + shown["half_width"] == pytest.approx(interval.high)
    said = "cannot be separated" in page_of(run).split("</table>")[0]
    assert said == (interval.low <= 0 <= interval.high)


def test_pairs_are_matched_by_seed_not_by_position():
    a = {"seeds": [0, 1, 2], "m": [1.0, 2.0, 4.0]}
    b = {"seeds": [2, 1, 7], "m": [3.0, 1.0, 50.0]}
    assert difference(a, b, "m")[:3] == (1.0, 0.0, 2)


def test_what_users_wrote_cannot_break_the_page(make_run):
    how = {"certificate": {NASTY: NASTY}}
    run = make_run("r", {NASTY: how}, title=NASTY, config=f"title = 1 # {NASTY}")
    page = page_of(run)
    assert "<b>&" not in page.replace("<b>Trusted", "").replace("<b>Sampling", "")
    assert page.count("</script>") == 3  # the theme, the data and the code end once each
    data = embedded(page)
    assert data["title"] == NASTY and data["schemes"][0]["label"] == NASTY
    assert data["schemes"][0]["certificate"] == {NASTY: NASTY}


def test_embedded_json_has_no_markup():
    assert not re.search("[<>&]", embed({"</script>": ["<!--", "&amp;"]}))


def test_page_needs_nothing_from_elsewhere(make_run):
    page = page_of(make_run("r", TWO))
    outside = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'<]*|@import[^;]*|\bsrc=", page)
    assert [link for link in outside if "www.w3.org" not in link] == []  # SVG's name is an address, but never fetched


def test_one_scheme_alone_is_first_of_nobody(make_run):
    assert re.search(r'<p class="verdict">one reaches accuracy 0\.\d{3} at ε ≤', page_of(make_run("r", {"one": {}})))


def test_several_runs_are_told_apart_and_paired(make_run):
    runs = [make_run("first", {"one": {}}), make_run("second", {"one": {}}, seeds=(1, 2, 3))]
    data = embedded(page_of(*runs))
    assert [scheme["label"] for scheme in data["schemes"]] == ["first: one", "second: one"]
    assert data["differences"]["final_accuracy"][0][1]["pairs"] == 2  # seeds 1 and 2
    assert data["notes"] == []
    np.testing.assert_array_equal(data["schemes"][1]["rounds"]["seeds"], [1, 2, 3])


def test_a_reference_of_another_run_is_named(make_run):
    """A run of few rounds without privacy stood as what no privacy gives."""
    runs = [make_run("first", {"one": {}}), make_run("second", {"free": {"private": False}}, seeds=(1,))]
    assert re.search(r"Without privacy: 0\.\d{3} \(second: free\)\.", page_of(*runs))
    assert "Mean ± sd over 1–3 paired seeds" in page_of(*runs)
    assert "One seed, no spread; last round." in page_of(runs[1])


def test_runs_on_different_channels_carry_a_warning(make_run):
    runs = [make_run("a", {"x": {}}), make_run("b", {"x": {}}, config="[channel]\nkind = 'rician'")]
    assert any("channel" in note for note in collect(runs)["notes"])


def test_runs_of_one_name_get_different_labels(make_run):
    data = collect([make_run("a/run", {"x": {}}), make_run("b/run", {"x": {}})])
    assert [scheme["label"] for scheme in data["schemes"]] == ["a: x", "b: x"]


def test_unfinished_schemes_are_named_and_left_out(make_run):
    run = make_run("r", {"one": {}, "late": {"finished": False}})
    page = page_of(run)
    assert "late is unfinished (last checkpoint: round 20)" in page
    assert embedded(page)["differences"]["final_loss"][0][1] is None


def test_nothing_finished_is_still_a_page(make_run):
    written = write_report([make_run("r", {"late": {"finished": False}})])
    assert "No scheme has finished" in written[0].read_text(encoding="utf-8") and len(written) == 1


def test_devices_that_were_not_recorded_leave_their_figures_out(make_run):
    page = page_of(make_run("r", {"one": {"devices": False}}))
    assert 'data-chart="silence"' not in page
    assert page.count("<figure") > 0


@pytest.mark.parametrize("missing", ["devices", "rounds", "evaluations"])
def test_a_table_that_was_written_and_is_gone_is_refused(make_run, missing):
    run = make_run("r", {"one": {"queue": True}})
    (run / "schemes" / "one" / f"{missing}.parquet").unlink()
    with pytest.raises(InputError, match=rf"one/{missing}\.parquet: is missing; remove .* --resume"):
        page_of(run)


def test_a_stopped_seed_counts_with_its_last_evaluation(make_run):
    run = make_run("r", {"one": {"shorter": 9}})  # the seeds stop at rounds 30, 21 and 12
    shown = collect([run])["schemes"][0]["evaluations"]
    assert shown["round"] == [10, 12, 20, 21, 30] and shown["end"] == [30, 21, 12]
    stored = table(run, "one", "evaluations").set_index(["seed", "round"]).accuracy
    mean = seed_statistics(carried(shown, "accuracy"))[0]
    assert mean[-1] == pytest.approx(np.mean([stored[0, 30], stored[1, 21], stored[2, 12]]))


def test_no_band_leaves_the_range_of_the_seeds(make_run):
    """Else the plot of what was spent would seem to pass a cap that no seed has passed."""
    scheme = collect([make_run("r", {"one": {"shorter": 9}}, seeds=(0, 1))])["schemes"][0]
    for plot in PLOTS:
        axes = Figure().add_subplot()
        assert _line(axes, plot, scheme)
        heights = axes.collections[0].get_paths()[0].vertices[:, 1]
        seeds = np.array(carried(scheme["evaluations"], plot.column), float)
        assert np.nanmin(seeds) <= heights.min() < heights.max() <= np.nanmax(seeds)


def test_all_seeds_are_one_faint_line_with_gaps_between_them(make_run):
    """An artist for each of a hundred seeds would take seconds to draw."""
    scheme = collect([make_run("r", {"one": {"shorter": 9}})])["schemes"][0]
    axes = Figure().add_subplot()
    assert _line(axes, PLOTS[0], scheme)
    faint, _ = axes.lines
    points = np.ma.filled(faint.get_xydata(), np.nan)
    seeds = np.split(points, np.flatnonzero(np.isnan(points[:, 0])) + 1)[:-1]
    shown = scheme["evaluations"]
    for seed, row in zip(seeds, shown["columns"]["accuracy"], strict=True):
        assert seed[:-1].tolist() == [[at, value] for at, value in zip(shown["round"], row) if value is not None]


def test_one_seed_and_one_evaluation(make_run):
    run = make_run("r", TWO, seeds=(5,), rounds=4)
    page = page_of(run)
    assert "one pair: no interval" in page
    assert collect([run])["schemes"][0]["evaluations"]["round"] == [4]


def test_fused_clients_have_no_norms(make_run):
    run = make_run("r", {"one": {"fused": True}})
    shown = collect([run])["schemes"][0]["rounds"]["columns"]["clipped_share"]
    assert all(value is None for row in shown for value in row)
    assert 'data-chart="clipped_share"' not in page_of(run) and 'data-chart="update_norm"' in page_of(run)


def test_penalty_is_shown_only_where_there_is_one(make_run):
    with_penalty = page_of(make_run("a", {"x": {"penalty": 0.25}}))
    without = page_of(make_run("b", {"x": {}}))
    assert 'data-chart="penalty"' in with_penalty and 'data-chart="penalty"' not in without


def test_policy_and_certificate_sections(make_run):
    how = {"queue": True, "certificate": {"feasible": True, "targets": {"eps": 12.5}}}
    page = page_of(make_run("a", {"x": how}))
    assert 'data-chart="info_queue"' in page and "targets.eps" in page and "12.5" in page
    assert 'id="certificate"' not in page_of(make_run("b", {"x": {}}))


def test_many_devices_are_grouped_and_the_page_stays_small(make_run):
    run = make_run("r", {"one": {}, "two": {}}, seeds=(0,), rounds=40, clients=10_000)
    assert len(page_of(run).encode()) < 1_500_000
    devices, stored = collect([run])["schemes"][0]["devices"], table(run, "one", "devices")
    heat = devices["heat"]
    assert len(heat["silent"]) <= HEAT_ROWS and sum(map(sum, heat["silent"])) == int((~stored.sent).sum())
    assert sum(map(sum, heat["total"])) == len(stored)
    assert max(devices["bars"]["max"]) == stored.energy.max()


def test_long_runs_are_thinned_exactly_and_stay_small(make_run):
    run = make_run("r", {str(n): {"devices": False} for n in range(6)}, seeds=range(10), rounds=3000)
    page = page_of(run)
    assert len(page.encode()) < 5_000_000
    data = embedded(page)
    shown, stored = data["schemes"][0]["rounds"], table(run, "0", "rounds")
    assert shown["of"] == 3000 and shown["round"][0] == 0 and shown["round"][-1] == 2999
    wide = stored.pivot(index="seed", columns="round", values="snr")[shown["round"]]
    np.testing.assert_array_equal(shown["columns"]["snr"], wide)
    assert "of 3000 rounds" in data["thinned"]


def test_many_schemes_stay_small(make_run):
    run = make_run("r", {f"scheme {n}": {} for n in range(40)}, seeds=range(5), rounds=80, clients=80)
    page = page_of(run)
    assert len(page.encode()) < 5_000_000
    assert len(embedded(page)["schemes"]) == 40


def test_groups_cover_everything_in_order():
    for count in (1, 79, 80, 81, 10_000):
        group = groups(count, HEAT_ROWS)
        assert len(group) == count and group[0] == 0 and set(np.diff(group)) <= {0, 1} and group[-1] < HEAT_ROWS
    assert groups(HEAT_COLUMNS, HEAT_COLUMNS)[-1] == HEAT_COLUMNS - 1


def test_a_scheme_without_privacy_has_no_value_at_a_target(make_run):
    run = make_run("r", TWO)
    place = RunFolder.open(run).scheme("two")
    contents = {name: place.content(name) for name in place.hashes()}
    contents["summary.json"] = json.dumps({**place.json("summary"), "accuracy_at_eps": [0.5] * 3})
    place.finish(contents, 30, {"seconds": 1.5, "rounds": 90})
    assert collect([run])["schemes"][1]["summary"]["accuracy_at_eps"] == [None] * 3


def test_no_page_without_its_plots(make_run, monkeypatch):
    """A sweep that was killed while it drew draws again: it looks for the page."""
    monkeypatch.setattr("otafl.reports.plots.draw", lambda data, folder: 1 / 0)
    run = make_run("r", {"one": {}})
    with pytest.raises(ZeroDivisionError):
        write_report([run])
    assert not (run / "report.html").exists()


def test_where_the_page_goes(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("otafl.reports.plots.draw", lambda data, folder: [folder / "a.png"])
    run = make_run("r", {"one": {}})
    assert write_report([run, make_run("other", {"one": {}})])[0] == run / "report.html"
    assert write_report([run], tmp_path)[0] == tmp_path / "report.html"
    assert write_report([run], tmp_path / "new")[0] == tmp_path / "new" / "report.html"
    named = write_report([run], tmp_path / "mine.html")
    assert named[0] == tmp_path / "mine.html" and named[1].parent == tmp_path / "mine-plots"
    with pytest.raises(InputError, match=r"page.*\.html"):
        write_report([run], tmp_path / "report.pdf")
    with pytest.raises(InputError, match="not a run folder"):
        write_report([tmp_path / "nowhere"])


def test_a_comparison_at_several_targets_is_one_page_over_all_of_them(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("otafl.reports.plots.draw", lambda data, folder: [])
    for place in ("both/eps-10", "both/eps-2", "one"):
        (tmp_path / place).mkdir(parents=True)
        make_run("r", {"a": {}}).rename(tmp_path / place / "run")
    assert write_report([tmp_path / "both"]) == [tmp_path / "both" / "report.html"]
    page = (tmp_path / "both" / "report.html").read_text()
    assert page.index("eps-2: a") < page.index("eps-10: a"), "in the order of the targets"
    assert write_report([tmp_path / "one"]) == [tmp_path / "one" / "run" / "report.html"]
    assert "one: a" in write_report([tmp_path / "both", tmp_path / "one"])[0].read_text()


def test_plots_are_pictures_and_the_same_run_gives_the_same_bytes(make_run, plots):
    run = make_run("r", {"_under": {}, NASTY: {"private": False}})
    first = {path: path.read_bytes() for path in write_report([run])}
    names = {"report", "accuracy", "accuracy_over_eps", "worst_client", "loss", "eps", "energy"}
    assert {path.stem for path in first} == names and len(first) == 13
    for path, content in first.items():
        assert content.startswith({".html": b"<!doctype", ".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix])
    for path in write_report([run]):
        assert path.read_bytes() == first[path], path


def test_console_table_still_reads_the_store(make_run):
    shown, said = comparison(make_run("r", TWO))
    assert shown.row_count == 2 and "cap ε=50" in said


def test_eps_stands_beside_what_an_attacker_finds(make_run):
    """On a narrow screen, and on the page."""
    console = Console(width=64, file=io.StringIO())
    run = make_run("r", TWO)
    console.print(comparison(run)[0])
    assert "TPR@1 %" in console.file.getvalue()
    ranking = page_of(run).partition("id=comparison")[2].partition("</thead>")[0]
    assert '>ε</th><th scope="col">μ</th><th scope="col">TPR@1 %</th>' in ranking


def test_the_footer_says_that_a_closed_loop_is_guaranteed_its_cap_alone() -> None:
    terms = {"unit": "client", "adjacency": "replace", "accountant": "zcdp", "delta": 1e-5, "target_eps": 8.0}
    terms |= {"capped": True, "private": True, "seeds": [0], "rounds": [3.0]}
    entries = [{**terms, "label": loop, "loop": loop} for loop in ("open", "round")]
    told = "round: closed loop, ε is what was spent; its guarantee is the cap, of which μ and TPR@1 % tell."
    assert told in footer(entries) and "open: closed" not in footer(entries)


def test_no_page_tells_a_design_value_as_a_guarantee() -> None:
    """An eps that averages over who takes part: it opened the report as "at ε ≤ 38.45"."""
    for accounting, told in (("none", "ε ≤ 38.45 (client level)"), ("hidden", "ε ≤ ∞ (client level)")):
        entry = {"label": "a", "private": True, "accounting": accounting, "unit": "client", "rounds": [3.0]}
        entry |= {"seeds": [0], "final_eps": [38.441], "final_accuracy": [0.5], "capped": True, "target_eps": 50.0}
        entry |= {"adjacency": "replace", "delta": 1e-5, "accountant": "rdp"}
        scheme = {"label": "a", "summary": entry, "finished": True}
        assert told in opening({"schemes": [scheme], "runs": ["r"], "metric": "accuracy"})


def test_one_seed_is_no_pair_and_has_no_spread() -> None:
    about = dict(label="a", unit="client", adjacency="replace", accountant="zcdp", delta=1e-5, target_eps=8.0,
                 capped=True, private=True, rounds=[3.0])  # fmt: skip
    assert footer([{**about, "seeds": [4]}]).endswith("One seed, no spread; last round.")
    assert "Mean ± sd over 2 paired seeds" in footer([{**about, "seeds": [0, 1], "rounds": [3.0, 3.0]}])


def test_no_picture_shows_the_source_of_mathematics(tmp_path):
    """Figures set no mathematics, so that labels with $ and _ are literal: log axes must not write it either."""
    from otafl.reports.plots import as_svg

    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none"}):
        figure = Figure()
        figure.subplots().loglog([1e-5, 1e3], [1e-3, 1e6])
        drawn = as_svg(figure)
    assert "mathdefault" not in drawn and "$" not in drawn and ">0.001<" in drawn


@pytest.mark.parametrize("names", [NAMES_INSIDE, 12])
def test_a_legend_of_many_names_lies_over_no_curve(names):
    with matplotlib.rc_context(STYLE):
        figure = Figure()
        axes = figure.subplots()
        for n in range(names):
            axes.plot([0, 1], [n, 0], label=f"a scheme with a name, {n}")
        _legend(axes)
        figure.draw_without_rendering()
    found, around = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert (found.x0 >= around.x1) == (names > NAMES_INSIDE) and found.x1 <= figure.bbox.x1


def test_seeds_without_a_round_are_told_beside_the_means_that_count_them():
    about = dict(label="a", unit="client", adjacency="replace", accountant="zcdp", delta=1e-5, target_eps=8.0,
                 capped=True, private=True, seeds=[0, 1, 2])  # fmt: skip
    assert "a: not one round affordable in 2 of 3 seeds" in footer([{**about, "rounds": [0.0, 1.0, 0.0]}])
    assert "affordable" not in footer([{**about, "rounds": [3.0, 1.0, 2.0]}])


def test_a_page_has_no_nan_where_a_seed_has_no_silent_weight():
    entry = {"energy_per_round": [None, 0.1], "silent_weight": [None, 0.5], "worst_client": [0.0, 0.1],
             "uplink": "analog", "private": True, "final_eps": [0.0, 1.0], "accuracy_at_eps": [None, 0.2],
             "final_loss": [2.3, 2.2], "rounds": [0.0, 1.0], "radio": True}  # fmt: skip
    shown = _values({"summary": entry, "seconds": 1.0}, "accuracy")
    assert (shown["silent weight"], shown["energy/round"], shown["rounds"]) == ("50.0%", "0.1 J", "0.5")
