"""`OverTheAir` on a grid in this process: the round of the air, its faults, its record. Messages and apps are real."""

import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grids import LocalGrid

import otafl
from otafl.connect.flower import OverTheAir, clip_mod
from otafl.connect.flower.record import row_of
from otafl.core.errors import BudgetExceeded, InputError
from otafl.privacy import Ledger

pytestmark = pytest.mark.flower
DEVICES, SEED = 4, 5
MODEL = {"weight": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3, np.float32)}
SITE = dict(site=DEVICES, clip_norm=1.0, channel="cares", eps=20.0, rounds=3, noise_std=0.2, seed=SEED)
SCHEME = otafl.constant(rx_scale=0.3)


def record(leaves) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in leaves.items()})


def leaves(arrays: ArrayRecord):
    return {name: array.numpy() for name, array in arrays.items()}


def update(device: int, server_round: int) -> dict[str, np.ndarray]:
    """What a device adds to any model: other numbers in every round, of norm below one."""
    rng = np.random.default_rng([device, server_round])
    return {name: (0.1 * rng.standard_normal(leaf.shape)).astype(np.float32) for name, leaf in MODEL.items()}


def in_order(tree: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Leaves in the model's order: a dict would be sorted by name."""
    return [tree[name] for name in MODEL]


def app(change=update, mods=(clip_mod,)) -> ClientApp:
    client = ClientApp(mods=list(mods))

    @client.train()
    def train(message: Message, context) -> Message:
        own = change(context.node_config["partition-id"], message.content["config"]["server-round"])
        model = leaves(message.content["arrays"])
        trained = record({name: leaf + own[name] if name in own else leaf for name, leaf in model.items()})
        metrics = MetricRecord({"num-examples": 10, "train_loss": 0.5})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return client


def strategy(folder, scheme=SCHEME, model=None, **other) -> OverTheAir:
    return OverTheAir(scheme, record(model or MODEL), folder, **{"patience_s": 0.1, **SITE, **other})


def run(folder, client=None, tamper=None, **other):
    """All affordable rounds: the strategy, Flower's result and the grid."""
    made, grid = strategy(folder, **other), LocalGrid(client or app(), DEVICES, tamper)
    result = made.start(grid, record(MODEL), num_rounds=made.affordable_rounds)
    return made, result, grid


def own_loop(left_out=lambda device, number: False, **other):
    """The same rounds without Flower: `left_out` devices send nothing."""
    air = otafl.Air(other.pop("scheme", SCHEME), num_params=9, **{**SITE, **other})
    model = {name: leaf.copy() for name, leaf in MODEL.items()}
    for r in air:
        sent = {int(k): in_order(update(int(k), r.number + 1)) for k in r.asked if not left_out(int(k), r.number + 1)}
        model = {name: leaf + heard for (name, leaf), heard in zip(model.items(), r.send(sent))}
    return air, model


def of_round(replies: list[Message], number: int) -> bool:
    return bool(replies) and replies[0].metadata.group_id == str(number)


def from_device(reply: Message, device: int) -> bool:
    return reply.metadata.src_node_id == 100 + device


def assert_same(arrays: ArrayRecord, model, tolerance=1e-6):
    for name, leaf in leaves(arrays).items():
        np.testing.assert_allclose(leaf, model[name], atol=tolerance, rtol=0)


# --- the round -------------------------------------------------------------------------------------------------------


def test_federation_is_a_loop_of_ones_own(tmp_path):
    _, result, _ = run(tmp_path)
    air, model = own_loop()
    assert_same(result.arrays, model)
    assert (tmp_path / "ledger.bin").read_bytes() == air.ledger_bytes()


def test_replies_in_another_order_give_the_same_bits(tmp_path):
    _, first, _ = run(tmp_path / "a")
    _, second, _ = run(tmp_path / "b", tamper=lambda replies: replies[::-1])
    assert leaves(first.arrays)["weight"].tobytes() == leaves(second.arrays)["weight"].tobytes()


def test_metrics_of_a_round(tmp_path):
    made, result, _ = run(tmp_path)
    last = result.train_metrics_clientapp[3]
    assert last["eps"] == pytest.approx(made.air.eps)
    assert len(last["energy-j"]) == DEVICES and last["silent"] == [] and np.isfinite(last["snr-db"])
    assert "train_loss" not in last


def test_mu_is_that_of_the_gaussian_mechanism(tmp_path):
    """eps of mu by the closed form of GDP is what the ledger's own Gaussian accountant says."""
    from otafl.privacy import gaussian

    made, result, _ = run(tmp_path)
    mu = result.train_metrics_clientapp[3]["mu"]
    assert float(gaussian.eps(mu, 1e-5)) == pytest.approx(made.air.ledger.spent("gaussian").worst, rel=1e-6)


def test_devices_whose_silence_is_public_are_not_asked(tmp_path):
    _, result, grid = run(tmp_path, max_energy=1e-3)
    silent = {number: metrics["silent"] for number, metrics in result.train_metrics_clientapp.items()}
    assert any(silent.values())
    for message in grid.received[DEVICES:]:
        device = message.metadata.dst_node_id - 100
        assert device not in silent[int(message.metadata.group_id)]


@pytest.mark.parametrize("scheme", [otafl.cdpb_is(), otafl.constant(rx_scale=2.0, silence="norm")], ids=str)
def test_private_silence_does_not_show_in_who_is_asked(tmp_path, scheme):
    """Coins and gates that look at the message act inside the air."""
    _, result, _ = run(tmp_path, scheme=scheme, eps=1000.0, max_energy=1e-2)
    rounds = result.train_metrics_clientapp.values()
    assert any(set(metrics["asked"]) & set(metrics["silent"]) for metrics in rounds)


def test_rounds_beyond_the_budget_are_refused_before_the_first(tmp_path):
    made = strategy(tmp_path, eps=20.0, rounds=50)
    beyond = made.affordable_rounds + 1
    assert beyond < 50
    grid = LocalGrid(app(), DEVICES)
    for rounds in (50, beyond):
        said = f"num_rounds={rounds}: eps=20 at delta=1e-05 allows {beyond - 1} of the 50 rounds that were planned"
        with pytest.raises(BudgetExceeded, match=said):
            made.start(grid, record(MODEL), num_rounds=rounds)
    for rounds, said in ((51, "was planned for rounds=50"), (-1, "must be a whole number"), ("3", "must be a number")):
        with pytest.raises(InputError, match=f"num_rounds={rounds!r}:? .*{said}"):
            made.start(grid, record(MODEL), num_rounds=rounds)
    assert not grid.received


def without_bias(message: Message, context, call_next) -> Message:
    reply = call_next(message, context)
    if "arrays" in reply.content:
        reply.content = RecordDict({"arrays": record({"weight": MODEL["weight"]})})
    return reply


def test_a_strict_federation_stops_at_a_malformed_reply(tmp_path):
    """Nothing was sent before, so that this is no lost round after which the next could go on."""
    made = strategy(tmp_path, strict=True)
    with pytest.raises(InputError, match="malformed"):
        made.start(LocalGrid(app(mods=(without_bias, clip_mod)), DEVICES), record(MODEL), num_rounds=2)
    assert made.folder.rows == []


@pytest.mark.parametrize(("snr", "decibels", "failed"), [(100.0, 20.0, False), (0.0, -np.inf, True)])
def test_a_round_is_remembered_in_decibels_and_with_its_failure(snr, decibels, failed, tmp_path):
    current = SimpleNamespace(
        snr=snr, asked=np.arange(2), silent=np.arange(0), eps=1.0, energy=np.ones(2), faults=[], failed=failed
    )
    row = row_of(current, strategy(tmp_path).air)
    assert row["snr-db"] == decibels and row.get("failed", 0) == failed


def test_nobody_is_asked_to_evaluate(tmp_path):
    _, _, grid = run(tmp_path)
    assert {message.metadata.message_type for message in grid.received} == {"train"}


def test_closed_loop_learns_from_the_apps_accuracy(tmp_path):
    made = strategy(tmp_path, scheme="cares-adaptive", eps=100.0)
    grid, seen = LocalGrid(app(), DEVICES), []

    def evaluate(server_round, arrays):
        seen.append(server_round)
        return MetricRecord({"accuracy": 0.5})

    made.start(grid, record(MODEL), num_rounds=2, evaluate_fn=evaluate)
    assert seen == [0, 1, 2] and made.air.state.metrics == (0.5, 0.5)


def test_closed_loop_without_accuracy_is_refused(tmp_path):
    made = strategy(tmp_path, scheme="cares-adaptive", eps=100.0)
    with pytest.raises(InputError, match="evaluate_fn"):
        made.start(LocalGrid(app(), DEVICES), record(MODEL), num_rounds=2)


# --- faults: reported, charged, never renormalised -------------------------------------------------------------------


def faults_of(result, number: int, kind: str) -> list[int]:
    return result.train_metrics_clientapp[number].get(kind, [])


def test_missing_reply_keeps_its_charge_and_its_weight(tmp_path):
    def lose(replies):
        return [r for r in replies if not (of_round(replies, 2) and from_device(r, 1))]

    _, result, _ = run(tmp_path, tamper=lose)
    _, model = own_loop(lambda device, number: (device, number) == (1, 2))
    assert_same(result.arrays, model)
    assert faults_of(result, 2, "missing") == [1]
    assert (tmp_path / "ledger.bin").read_bytes() == own_loop()[0].ledger_bytes()


def test_error_of_a_client_counts_as_missing(tmp_path):
    def fails(device, server_round):
        if device == 2:
            raise RuntimeError("out of memory")
        return update(device, server_round)

    _, result, _ = run(tmp_path, client=app(fails))
    assert [faults_of(result, number, "missing") for number in (1, 2, 3)] == [[2]] * 3


def test_late_reply_is_left_out_and_reported(tmp_path):
    kept = []

    def delay(replies):
        if of_round(replies, 1):
            kept.extend(r for r in replies if from_device(r, 3))
            return [r for r in replies if not from_device(r, 3)]
        return [*kept, *replies] if of_round(replies, 2) else replies

    _, result, _ = run(tmp_path, tamper=delay)
    _, model = own_loop(lambda device, number: (device, number) == (3, 1))
    assert_same(result.arrays, model)
    assert faults_of(result, 1, "missing") == [3] and faults_of(result, 2, "late") == [3]


def test_second_reply_of_a_device_is_left_out_and_reported(tmp_path):
    _, result, _ = run(tmp_path, tamper=lambda replies: [*replies, *replies[:1]])
    assert_same(result.arrays, own_loop()[1])
    assert faults_of(result, 1, "duplicate") == [0]


def test_reply_of_a_stranger_is_left_out_and_reported(tmp_path):
    def forge(replies):
        for reply in replies if of_round(replies, 2) else []:
            if from_device(reply, 0):
                reply.metadata.__dict__["_src_node_id"] = 999
        return replies

    _, result, _ = run(tmp_path, tamper=forge)
    assert faults_of(result, 2, "missing") == [0] and faults_of(result, 2, "unknown") == [-1]


def test_reply_that_is_not_finite_counts_as_zero(tmp_path):
    def breaks(device, server_round):
        own = update(device, server_round)
        return {**own, "bias": np.full(3, np.nan, np.float32)} if device == 1 else own

    _, result, _ = run(tmp_path, client=app(breaks))
    assert_same(result.arrays, own_loop(lambda device, number: device == 1)[1])
    assert faults_of(result, 1, "not-finite") == [1]


def test_reply_of_another_shape_counts_as_zero(tmp_path):
    def forge(replies):
        for reply in replies if of_round(replies, 1) else []:
            if from_device(reply, 1):
                reply.content = RecordDict({"arrays": record({**MODEL, "bias": np.zeros(4, np.float32)})})
        return replies

    _, result, _ = run(tmp_path, tamper=forge)
    assert_same(result.arrays, own_loop(lambda device, number: (device, number) == (1, 1))[1])
    assert faults_of(result, 1, "malformed") == [1]


def npy(shape: tuple[int, ...], **other) -> Array:
    """A leaf whose header promises a shape and whose data never come."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return Array(**{"dtype": "float32", "shape": (2, 3), "stype": "numpy.ndarray", "data": content.getvalue(), **other})


@pytest.mark.parametrize("leaf", [npy((2, 3)), npy((10**13,)), npy((2, 3), data=b""), npy((2, 3), stype="other")])
def test_reply_that_cannot_be_read_counts_as_zero(tmp_path, leaf):
    def tamper(replies):
        if of_round(replies, 2):
            replies[1].content = RecordDict({"arrays": ArrayRecord({"weight": leaf, "bias": Array(MODEL["bias"])})})
        return replies

    made, _, _ = run(tmp_path, tamper=tamper)
    assert [row["faults"] for row in made.folder.rows] == [[], ["client 1: malformed (holds no arrays)"], []]


@pytest.mark.parametrize("said", ["²", "9" * 5000, "", "one"])
def test_reply_to_a_round_that_is_no_number_is_late(tmp_path, said):
    def tamper(replies):
        if of_round(replies, 1):
            replies[2].metadata.__dict__["_group_id"] = said
        return replies

    made, _, _ = run(tmp_path, tamper=tamper)
    assert made.folder.rows[0]["late"] == [2]


def test_oversized_reply_is_clipped_and_reported(tmp_path):
    """A device whose mod was left out, or tampered with: the bound is enforced where it is charged."""

    def forge(replies):
        for reply in replies if of_round(replies, 1) else []:
            if from_device(reply, 1):
                reply.content = RecordDict({"arrays": record({n: leaf + 7 for n, leaf in MODEL.items()})})
        return replies

    _, result, _ = run(tmp_path / "simulated", tamper=forge)
    assert faults_of(result, 1, "clipped") == [1]
    assert "client 1: clipped (norm 21" in (tmp_path / "simulated/report.md").read_text()
    _, result, _ = run(tmp_path / "real", tamper=forge, seed=None)
    assert faults_of(result, 1, "clipped") == [1]
    assert "client 1: clipped" in (tmp_path / "real/report.md").read_text()
    for file in (tmp_path / "real").iterdir():  # how large it was is no business of who reads the folder
        assert b"clipped (" not in file.read_bytes(), file.name


def test_honest_devices_are_never_reported_as_oversized(tmp_path):
    _, result, _ = run(tmp_path, client=app(lambda d, t: {n: np.float32(50) + leaf for n, leaf in MODEL.items()}))
    assert not any(faults_of(result, number, "clipped") for number in (1, 2, 3))


def test_round_without_any_reply_is_noise_and_stays_charged(tmp_path):
    _, result, _ = run(tmp_path, tamper=lambda replies: [] if of_round(replies, 1) else replies)
    assert faults_of(result, 1, "missing") == [0, 1, 2, 3]
    assert (tmp_path / "ledger.bin").read_bytes() == own_loop()[0].ledger_bytes()


# --- who is who ------------------------------------------------------------------------------------------------------


def start(folder, grid, **other):
    made = strategy(folder, **other)
    return made.start(grid, record(MODEL), num_rounds=1)


def test_devices_are_found_whatever_the_node_ids(tmp_path):
    grid = LocalGrid(app(), DEVICES)
    grid.contexts = dict(reversed([(node * 7919, context) for node, context in grid.contexts.items()]))
    assert_same(start(tmp_path, grid).arrays, own_loop_of_one_round())


def own_loop_of_one_round():
    air = otafl.Air(SCHEME, num_params=9, **SITE)
    answer = next(air).send({k: in_order(update(k, 1)) for k in range(DEVICES)})
    return {name: leaf + heard for (name, leaf), heard in zip(MODEL.items(), answer)}


def test_waits_for_every_device(tmp_path):
    with pytest.raises(InputError, match="devices 4 of 5 did not connect"):
        start(tmp_path, LocalGrid(app(), DEVICES), site=5)


def test_two_nodes_of_one_device_are_refused(tmp_path):
    grid = LocalGrid(app(), DEVICES)
    grid.contexts[103].node_config["partition-id"] = 0
    with pytest.raises(InputError, match="both have partition-id=0"):
        start(tmp_path, grid)


def test_node_outside_the_site_is_refused(tmp_path):
    grid = LocalGrid(app(), DEVICES)
    grid.contexts[103].node_config["partition-id"] = 4
    with pytest.raises(InputError, match="partition-id=4"):
        start(tmp_path, grid)


@pytest.mark.parametrize("said", ["two", [1, 2], b"\xff", np.nan, True])
def test_node_that_names_no_device_is_refused(tmp_path, said):
    def tamper(replies):
        replies[0].content = RecordDict({"otafl": ConfigRecord({"device": said})})
        return replies

    with pytest.raises(InputError, match=r"node 100: partition-id=.* must lie in"):
        run(tmp_path, tamper=tamper)


def test_a_federation_that_ends_in_its_first_round_leaves_its_papers(tmp_path):
    def tamper(replies):
        if of_round(replies, 1):
            raise ConnectionError("gone")
        return replies

    with pytest.raises(ConnectionError):
        run(tmp_path, tamper=tamper)
    assert "ε" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_app_without_the_mod_is_named(tmp_path):
    with pytest.raises(InputError, match="clip_mod"):
        start(tmp_path, LocalGrid(app(mods=()), DEVICES))


def test_device_that_came_back_as_another_node_goes_on(tmp_path):
    grid = LocalGrid(app(), DEVICES)

    def reboot(replies):
        if of_round(replies, 1):
            grid.contexts[555] = grid.contexts.pop(102)
        return replies

    grid.tamper = reboot
    made = strategy(tmp_path)
    result = made.start(grid, record(MODEL), num_rounds=3)
    assert_same(result.arrays, own_loop()[1])


def test_device_that_has_left_is_missing(tmp_path):
    grid = LocalGrid(app(), DEVICES)

    def leave(replies):
        if of_round(replies, 1):
            grid.contexts.pop(102)
        return replies

    grid.tamper = leave
    result = strategy(tmp_path).start(grid, record(MODEL), num_rounds=3)
    assert [faults_of(result, number, "missing") for number in (1, 2, 3)] == [[], [2], [2]]


# --- what is left behind ---------------------------------------------------------------------------------------------


def test_folder_holds_card_ledger_and_report(tmp_path):
    made, _, _ = run(tmp_path)
    card, report = (tmp_path / "card.md").read_text(), (tmp_path / "report.md").read_text()
    assert "sees every update in the clear" in card and "modelled uplink" in card
    assert "a missing device adds none" in card
    assert report.count("\n| ") > 3 and card in report
    assert re.search(rf"\n\| 1 \| \d+ of {DEVICES} \|", report)
    assert Ledger.load(tmp_path / "ledger.bin").spent().worst == made.air.eps


def test_folder_holds_the_page_that_every_run_has(tmp_path):
    """The numbers of the record are those on the page: eps and accuracy of every round, card and energies."""
    made = strategy(tmp_path)
    evaluate = lambda n, arrays: MetricRecord({"accuracy": 0.5 + 0.1 * n})  # noqa: E731
    made.start(LocalGrid(app(), DEVICES), record(MODEL), num_rounds=3, evaluate_fn=evaluate)
    page = (tmp_path / "report.html").read_text()
    told = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])["report"]
    (scheme,) = told["schemes"]
    assert scheme["summary"]["final_eps"] == pytest.approx([made.air.eps], rel=1e-12)
    assert scheme["summary"]["final_accuracy"] == [0.8]
    remembered = [row["eps"] for row in made.folder.rows]
    assert scheme["evaluations"]["columns"]["eps"][0] == pytest.approx(remembered, rel=1e-12)
    assert scheme["devices"]["count"] == DEVICES and "modelled uplink" in page


def test_mistakes_of_who_comes_from_fedavg_are_one_line(tmp_path):
    with pytest.raises(InputError, match="arrays is a list; give an ArrayRecord"):
        OverTheAir(SCHEME, [np.zeros(3)], tmp_path / "a", **SITE)
    with pytest.raises(InputError, match="OverTheAir: fraction_train: unknown key"):
        strategy(tmp_path / "b", fraction_train=0.5)
    model = {**MODEL, "bn.running_mean": np.ones(3, np.float32)}
    assert strategy(tmp_path / "c", model=model, exclude="bn.*").names == list(MODEL)


def test_excluded_leaves_keep_their_values(tmp_path):
    model = {**MODEL, "bn.running_mean": np.ones(3, np.float32), "bn.num_batches_tracked": np.zeros((), np.int64)}
    made = strategy(tmp_path, model=model, exclude=["bn.*"])
    change = lambda device, t: {**update(device, t), "bn.running_mean": np.float32(9)}  # noqa: E731
    result = made.start(LocalGrid(app(change), DEVICES), record(model), num_rounds=3)
    assert np.array_equal(result.arrays["bn.running_mean"].numpy(), np.ones(3))
    assert_same(result.arrays, {**own_loop()[1], **{name: model[name] for name in list(model)[2:]}})
