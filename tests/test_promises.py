"""Policies that promise one thing and do another, in both loops."""

import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl import systems
from otafl.core.errors import InputError, OtaflError, PrivacyViolation, RunError
from otafl.core.plan import Feedback, Policy, check_silence, ours
from otafl.core.rounds import plan_ahead
from otafl.privacy.filters import filtered
from otafl.runs.streamed import choice
from otafl.systems.adascale.odometer import Odometer
from otafl.systems.adascale.refusals import with_odometer
from outsiders import MESSAGE, RECORDS, Nothing, plan_of, planned, policy, run

# --- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", ["open", "bound"])
@pytest.mark.parametrize("norm", [0.5, 1.0, 7.0, np.nan])
def test_a_gate_that_looks_at_the_message_must_be_declared(gate, norm):
    plan = planned(max_norm=np.where(np.arange(12).reshape(3, 4) == 6, norm, np.inf))
    with pytest.raises(PrivacyViolation, match=r"mine: max_norm=.* of client 2 in round 1 breaks gate="):
        check_silence(policy(gate=gate), MESSAGE, plan)
    check_silence(policy(gate=gate), MESSAGE, plan._replace(live=np.array([True, False, False])))


def test_the_three_gates_allow_what_they_name():
    for gate in ("open", "bound", "message"):
        check_silence(policy(gate=gate), MESSAGE, planned(max_norm=np.array([np.inf, -1.0, -1.0, np.inf])))
    check_silence(policy(gate="message"), MESSAGE, planned(max_norm=0.5))
    with pytest.raises(PrivacyViolation, match="max_norm=nan"):
        check_silence(policy(gate="message"), MESSAGE, planned(max_norm=np.nan))
    with pytest.raises(InputError, match="record-level"):
        check_silence(policy(gate="message"), RECORDS, planned())


@pytest.mark.parametrize("loop", ["open", "round"])
def test_a_run_refuses_an_undeclared_gate(tmp_path, loop):
    def made(config, deployment, message, context):
        step = lambda state, obs: (state, plan_of(obs, max_norm=0.5 + 0 * obs.coin), ())  # noqa: E731
        return policy(step, loop=loop)._replace(init=lambda key: () if loop == "open" else np.zeros(1))

    with pytest.raises(PrivacyViolation, match=r"^mine: max_norm=0.5 of client 0 in round 0 breaks gate='open'"):
        run(tmp_path, made)


def test_who_plans_otherwise_when_rounds_go_by_is_held_to_its_gate(tmp_path):
    """Rounds that go by are planned twice: before the run, and when they are run."""
    asked = []

    def step(state, obs):
        asked.append(obs.round)
        return state, plan_of(obs, max_norm=(np.inf if len(asked) <= 3 else 0.5) + 0 * obs.coin), ()

    with pytest.raises(PrivacyViolation, match=r"max_norm=0.5 of client 0 in round 0 breaks gate='open'"):
        run(tmp_path, lambda *told: policy(step), stream=True)


@pytest.mark.parametrize(("stream", "block"), [(False, 1), (True, 1), (True, 9)])
def test_who_has_stopped_does_not_begin_again(tmp_path, monkeypatch, stream, block):
    monkeypatch.setattr(choice, "BLOCK", block)
    step = lambda state, obs: (state, plan_of(obs, live=np.asarray(obs.round) != 1), ())  # noqa: E731
    folder = run(tmp_path, lambda *told: policy(step), stream=stream)
    assert json.loads((folder / "schemes/mine/summary.json").read_text())["rounds"] == [1]


@pytest.mark.parametrize(("wrong", "error", "said"), [
    ({"max_norm": 0.5}, PrivacyViolation, r"max_norm=0.5 of client 0 in round 0 breaks gate='open'"),
    ({"tx": 1e6 + 0j}, RunError, r"round 0: client 0 would radiate"),
])  # fmt: skip
def test_what_breaks_a_promise_is_refused_before_rounds_that_go_by_are_run(tmp_path, wrong, error, said):
    asked = []

    def step(state, obs):
        asked.append(obs.round)
        return state, plan_of(obs, **{name: value + 0 * obs.coin for name, value in wrong.items()}), ()

    with pytest.raises(error, match=said):
        run(tmp_path, lambda *told: policy(step), stream=True)
    assert len(asked) == 3 and not (tmp_path / "run").exists()  # planned once, not again to be run


def test_a_gate_by_the_message_is_an_alarm_on_the_card(tmp_path):
    def made(config, deployment, message, context):
        step = lambda state, obs: (state, plan_of(obs, max_norm=0.5 + 0 * obs.coin), ())  # noqa: E731
        return policy(step, gate="message")

    folder = run(tmp_path, made)
    top = (folder / "schemes/mine/card.md").read_text().split("##")[0]
    assert "silence is visible" in top and "not covered by eps" in top


# --- what a policy may see -----------------------------------------------------------------------------------------


def reach(value: Any, seen: set[int] | None = None) -> list[np.ndarray]:
    """Every array that can be reached from a value, through fields and through `base`."""
    if isinstance(value, np.ndarray):
        return [value, *(reach(value.base) if value.base is not None else [])]
    return [array for item in value for array in reach(item)] if isinstance(value, tuple) else []


@pytest.mark.parametrize("csi", ["none", "statistical", "own"])
def test_no_path_leads_to_the_gains_or_the_future(csi):
    kept: list[Any] = []

    def made(config, deployment, message, context):
        kept[:] = [deployment, message, context]
        return policy(lambda state, obs: (kept.append(obs), (state, plan_of(obs), ()))[1], csi=csi)

    trace = small.trace(5)
    estimate = trace.gain * 1.25
    trace = trace._replace(estimate=estimate, rms_estimate=np.full((5, 4), 3.5))
    systems.register("mine", made, Nothing)
    built = systems.make("mine", Nothing(), small.deployment(), MESSAGE, small.CONTEXT._replace(trace=trace))
    told = [array for value in kept for array in reach(value)]
    assert not any(np.isin(array, trace.gain).any() or np.isin(array, estimate).any() for array in told)
    assert any(np.any(array == 3.5) for array in told) == (csi != "none")
    plan_ahead(built, (), trace)
    seen = reach(kept[-1])
    assert not any(np.isin(array, trace.gain).any() for array in seen)
    assert any(np.isin(array, estimate).any() for array in seen) == (csi == "own")
    assert not any(np.shares_memory(array, leaf) for array in [*told, *seen] for leaf in trace)


@pytest.mark.parametrize("keeps", [(), np.zeros(0)])
def test_nobody_reads_later_rounds_off_the_rows_below(keeps):
    """A plan from the best channel of all rounds is one from the channel of this round."""
    trace = small.trace(5)
    step = lambda state, obs: (state, plan_of(obs, rx_scale=np.max(np.abs(obs.estimate))), ())  # noqa: E731
    plan = plan_ahead(policy(step), keeps, trace)[1]
    assert np.array_equal(plan.rx_scale, np.abs(trace.estimate).max(-1))


def greedy(*told: Any) -> Policy:
    """Scales by the best channel that it is shown; without a state, and said to span rounds."""
    step = lambda state, obs: (state, plan_of(obs, rx_scale=np.max(np.abs(obs.estimate))), ())  # noqa: E731
    return policy(step, spans=True)


def a_device_without_a_path(trace: Any) -> Any:
    reached = np.arange(trace.gain.shape[1]) > 0
    own = {"gain", "estimate", "rms_gain", "rms_estimate", "rms_low", "rms_high"}
    return trace._replace(**{name: np.where(reached, getattr(trace, name), 0) for name in own})


def a_gain_of_zero(trace: Any) -> Any:
    gain = trace.gain.copy()
    gain[-1, 1] = 0
    return trace._replace(gain=gain, estimate=gain)


@pytest.mark.parametrize(
    "worse", [a_device_without_a_path, a_gain_of_zero, lambda x: a_gain_of_zero(a_device_without_a_path(x))]
)
def test_nobody_reads_later_rounds_behind_what_keeps_devices_silent(worse):
    systems.register("mine", greedy, Nothing)
    trace = worse(small.trace(5))
    context = small.CONTEXT._replace(trace=trace)
    made = systems.make("mine", Nothing(), small.deployment(), MESSAGE, context)
    whole = plan_ahead(made, (), trace)[1].rx_scale
    for t in range(5):
        alone = plan_ahead(made, (), type(trace)(*(leaf[t : t + 1] for leaf in trace)), t)[1].rx_scale
        assert whole[t] == alone[0]


@pytest.mark.parametrize("wrap", [
    lambda inner: with_odometer(inner, Odometer(1.0, 2), small.deployment(), MESSAGE),
    lambda inner: filtered(inner, None, small.deployment(), MESSAGE, "none"),
])  # fmt: skip
def test_a_policy_from_outside_stays_one_behind_a_wrapper(wrap):
    assert not ours(wrap(greedy()).step)
    context = small.CONTEXT._replace(trace=small.trace(5))
    weakest = systems.make("weakest", systems.scheme("weakest").config(), small.deployment(), MESSAGE, context)
    assert ours(wrap(weakest).step)


def test_info_that_changes_its_fields_is_refused():
    step = lambda state, obs: (state, plan_of(obs), {"a": 1.0} if obs.round else {})  # noqa: E731
    with pytest.raises(InputError, match="mine: info of round 1 has other fields"):
        plan_ahead(policy(step), (), small.trace(3))


@pytest.mark.parametrize("name", ["estimate", "rms", "coin"])
def test_what_a_policy_sees_is_read_only(name):
    def step(state, obs):
        getattr(obs, name)[...] = 0
        return state, plan_of(obs), ()

    with pytest.raises(ValueError, match="read-only"):
        plan_ahead(policy(step), (), small.trace(3))


def test_a_plan_does_not_change_after_it_was_handed_over():
    tx = np.ones(4, complex)
    plan = plan_ahead(policy(lambda state, obs: (state, plan_of(obs, tx=tx), ())), (), small.trace(3))[1]
    tx *= 1e6
    assert np.all(plan.tx == 1)


def test_only_a_scheme_labelled_hindsight_gets_the_trace():
    told = []
    made = lambda config, deployment, message, context: told.append(context) or policy()  # noqa: E731
    for label in (False, True):
        systems.register("mine", made, Nothing, "best", hindsight=label)
        systems.make("mine", Nothing(), small.deployment(), MESSAGE, small.CONTEXT._replace(trace=small.trace(3)))
        assert (told[-1].trace is not None) == label
        assert ("hindsight" in systems.SCHEMES["mine"].summary) == label
    assert systems.in_hindsight("adascale-optimal", None)
    config = systems.scheme("adascale").config
    assert [systems.in_hindsight("adascale", config(0.1, tuning=t)) for t in ("hindsight", "calibrated")] == [
        True,
        False,
    ]


def test_hindsight_and_undeclared_silence_are_said(tmp_path):
    """One client never sends, though its plan says that it does so surely: its weight is dropped in the certificate."""
    silent = lambda obs: np.where(np.arange(3) == 0, -1.0, np.inf)  # noqa: E731
    step = lambda state, obs: (state, plan_of(obs, max_norm=silent(obs)), ())  # noqa: E731
    folder = run(tmp_path, lambda *told: policy(step), hindsight=True)
    certified = json.loads((folder / "schemes/mine/certificate.json").read_text())
    assert certified["dropped_weight"][0] > 0.2
    said = (folder / "schemes/mine/summary.json").read_text()
    assert '"csi": "hindsight"' in said and "told the whole channel" in (folder / "schemes/mine/card.md").read_text()


def test_somebody_elses_word_on_silence_is_no_certificate(tmp_path):
    """All but surely they send, says the plan, and two of three never do."""
    silent = np.array([-1.0, -1.0, np.inf])
    step = lambda state, obs: (state, plan_of(obs, max_norm=silent, send_prob=1 - 1e-6), ())  # noqa: E731
    folder = run(tmp_path, lambda *told: policy(step))
    said = json.loads((folder / "schemes/mine/certificate.json").read_text())
    assert said["label"] == "realised_bound" and said["dropped_weight"][0] > 0.5


# --- plans that are no plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("tx", np.ones((3, 5)), r"plan.tx has shape \(5,\) but must broadcast to \(4,\)"),
        ("max_norm", np.ones((2, 4)), r"plan.max_norm has shape \(2, 4\)"),
        ("rx_scale", np.ones(2), r"plan.rx_scale has shape \(2,\) but must broadcast to \(\)"),
        ("rx_scale", 1 + 1j, "plan.rx_scale has dtype complex128 but must be real"),
        ("max_norm", 1j, "plan.max_norm has dtype complex128"),
        ("send_prob", "often", "plan.send_prob has dtype <U5"),
        ("max_norm", np.ma.masked_less([1.0, 2.0, 3.0, 4.0], 2), "plan.max_norm has masked values; fill them"),
        ("live", 1.0, "plan.live has dtype float64 but must be bool"),
    ],
)
def test_a_wrong_plan_is_refused_with_policy_and_field(field, value, text):
    with pytest.raises(InputError, match=f"mine: {text}"):
        planned(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("tx", np.nan, "for client 0 in round 0 must be finite"),
        ("noise", -np.inf, "for client 0 in round 0 must be finite"),
        ("rx_scale", np.nan, "in round 0 must be > 0"),
        ("rx_scale", 0.0, "in round 0 must be > 0"),
    ],
)
def test_a_number_that_is_none_is_named(field, value, text):
    """Not as numbers that left their range while planning: the way out of that is another."""
    with pytest.raises(InputError, match=f"^mine: plan.{field}=.*{text}$"):
        planned(**{field: value})


def test_a_step_without_a_plan_is_refused():
    with pytest.raises(InputError, match=r"mine: step must return \(state, Plan, info\)"):
        plan_ahead(policy(lambda state, obs: plan_of(obs)), (), small.trace(2))


def test_ragged_numbers_are_refused():
    step = lambda state, obs: (state, plan_of(obs)._replace(max_norm=[[1.0], [1.0, 2.0]]), ())  # noqa: E731
    with pytest.raises(InputError, match=r"mine: plan.max_norm has dtype object but must be real"):
        plan_ahead(policy(step), (), small.trace(2))


def test_an_open_loop_may_carry_an_array():
    step = lambda state, obs: (state + 1, plan_of(obs, rx_scale=state[0]), ())  # noqa: E731
    assert plan_ahead(policy(step), np.ones(2), small.trace(3))[1].rx_scale.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("field", "value"), [("gate", "opne"), ("csi", "all"), ("loop", "closed")])
def test_an_unknown_declaration_is_refused(field, value):
    systems.register("mine", lambda *told: policy(**{field: value}), Nothing)
    with pytest.raises(InputError, match=f"mine: {field}={value!r} must be one of"):
        systems.make("mine", Nothing(), small.deployment(), MESSAGE, small.CONTEXT)


def test_a_reward_of_unknown_data_is_refused_and_not_free():
    """Whoever wrote "Private" told the exact number, for which no noise was drawn and nothing charged."""
    systems.register("mine", lambda *told: policy()._replace(feedback=Feedback("Private", 1.0)), Nothing)
    with pytest.raises(InputError, match=r"mine: feedback\.data='Private' must be one of"):
        systems.make("mine", Nothing(), small.deployment(), MESSAGE, small.CONTEXT)


def test_a_closed_loop_may_plan_plain_numbers_under_its_filter(tmp_path):
    """Constants of NumPy's, which its filter silences where the cap is reached."""
    step = lambda state, obs: (state, plan_of(obs, tx=np.full(3, 0.01 + 0j)), ())  # noqa: E731
    folder = run(
        tmp_path, lambda *told: policy(step, loop="round")._replace(init=lambda key: np.zeros(1)), privacy={"eps": 4.0}
    )
    assert json.loads((folder / "schemes/mine/summary.json").read_text())["final_eps"][0] <= 4.0


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"loop": "open"}, {"loop": "round"}),
        ({"gate": "open"}, {"gate": "message"}),
        ({"uplink": "analog"}, {"uplink": "perfect"}),
        ({"feedback": Feedback("private", 1e-3)}, {"feedback": Feedback("private", 1e3)}),
    ],
)
def test_a_policy_promises_the_same_under_every_seed(tmp_path, first, then):
    """The noise of the first seed's reward is drawn for all, and the first seed's uplink tells whose energy counts."""
    (name,) = first
    with pytest.raises(InputError, match=f"mine: {name}=.* under seed 1 but .* under seed 0"):
        run(tmp_path, lambda *told: policy(**(then if told[-1].seed else first)), seeds=2)


def test_a_wrong_plan_inside_the_loop_is_refused(tmp_path):
    def made(config, deployment, message, context):
        step = lambda state, obs: (state, plan_of(obs, tx=jnp.ones(7, complex)), ())  # noqa: E731
        return policy(step, loop="round")._replace(init=lambda key: np.zeros(1))

    with pytest.raises(OtaflError, match=r"mine: plan.tx has shape \(7,\)"):
        run(tmp_path, made)
