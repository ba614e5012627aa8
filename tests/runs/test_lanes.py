"""Schemes side by side: who runs, who stops, and whose error is told. The schemes are stand-ins."""

import threading
from types import SimpleNamespace

import pytest

from otafl.core.errors import Interrupted, PrivacyViolation
from otafl.runs import lanes
from otafl.runs.interrupts import StopFlag


def scheme(label, program="planned", seeds=2, streamed=False, seed_map="threads", params=10, run=None):
    return SimpleNamespace(
        label=label, program=program, streamed=streamed, seed_map=seed_map, run=run,
        task=SimpleNamespace(model=SimpleNamespace(num_params=params)),
        experiment=SimpleNamespace(seed_list=list(range(seeds))),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setenv("NPROC", "2")


@pytest.mark.parametrize("kind", [{"streamed": True}, {"seed_map": "vmap"}, {"params": 200_000}])
def test_large_ones_and_seeds_in_one_batch_have_one_lane(kind):
    assert lanes.lanes_for([scheme("a"), scheme("b")]) == 2
    assert lanes.lanes_for([scheme("a", **kind), scheme("b", **kind)]) == 1


@pytest.mark.parametrize(("devices", "wanted"), [(1, 2), (2, 1)])
def test_an_accelerator_has_a_lane_for_every_program_and_several_wait_for_each_other(monkeypatch, devices, wanted):
    monkeypatch.setattr(lanes, "jax", SimpleNamespace(
        default_backend=lambda: "gpu", local_devices=lambda: [object()] * devices
    ))  # fmt: skip
    three = [scheme(label, program, seed_map="vmap") for label, program in zip("abc", "xyx")]
    assert lanes.lanes_for(three) == wanted
    assert lanes.lanes_for([scheme(label, label, seed_map="vmap", params=200_000) for label in "ab"]) == 1


def test_every_core_has_a_seed():
    assert lanes.lanes_for([scheme(str(n), seeds=1) for n in range(9)]) == 3


def test_each_program_is_compiled_before_any_is_used_again():
    order = [scheme(label, program) for label, program in zip("abcde", ["x", "x", "y", "x", "z"])]
    assert [one.label for one in lanes.programs_first(order)] == ["a", "c", "e", "b", "d"]


def test_two_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=30)
    both = [scheme(program, program, run=lambda stop, engines: meet.wait()) for program in "ab"]
    lanes.run_all(both, StopFlag(), {})


def test_a_failure_stops_the_others_and_is_the_error_that_is_raised():
    failed = threading.Event()

    def bad(stop, engines):
        failed.set()
        raise PrivacyViolation("bad: broken")

    def good(stop, engines):
        assert failed.wait(30)
        while not stop.requested:
            pass
        raise Interrupted("checkpoint 4")

    with pytest.raises(PrivacyViolation, match="broken"):
        lanes.run_all([scheme("good", "x", run=good), scheme("bad", "y", run=bad)], StopFlag(), {})


def test_whoever_is_interrupted_says_where():
    def stopped(number):
        def run(stop, engines):
            stop.requested = True
            raise Interrupted(f"checkpoint {number}")

        return run

    with pytest.raises(Interrupted) as told:
        lanes.run_all([scheme(str(n), str(n), run=stopped(n)) for n in range(4)], StopFlag(), {})
    assert "checkpoint 0" in str(told.value)
    assert str(told.value).endswith("between two schemes")
