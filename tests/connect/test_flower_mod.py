"""What leaves a device: an update within the bound, and nothing else."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grids import call

from otafl.connect.flower import clip_mod, num_params
from otafl.connect.flower.leaves import norm, replaced, update_of
from otafl.connect.flower.mod import CLIP_NORM, DEVICE, NAMES, RECORD, clipped
from otafl.core.errors import InputError

pytestmark = pytest.mark.flower
MODEL = {"weight": np.linspace(-3, 3, 12, dtype=np.float32).reshape(4, 3), "bias": np.ones(3, np.float32)}


def record(leaves):
    from flwr.app import Array

    return ArrayRecord({name: Array(np.asarray(leaf)) for name, leaf in leaves.items()})


def app_that_sends(leaves, **more) -> ClientApp:
    app = ClientApp(mods=[clip_mod])

    @app.train()
    def train(message, context):
        content = {"arrays": record(leaves), "metrics": MetricRecord({"train_loss": 0.5}), **more}
        return Message(RecordDict(content), reply_to=message)

    return app


def asked(model=MODEL, bound=1.0, names=None) -> Message:
    told = ConfigRecord({CLIP_NORM: bound, NAMES: "\n".join(names or model)})
    content = RecordDict({"arrays": record(model), "config": ConfigRecord({"lr": 0.1}), RECORD: told})
    return Message(content, dst_node_id=7, message_type=MessageType.TRAIN)


def moved(reply: Message, model=MODEL) -> np.ndarray:
    (arrays,) = reply.content.array_records.values()
    return np.concatenate([(arrays[name].numpy() - model[name]).ravel() for name in model])


def shifted(by: float, model=MODEL):
    return {name: leaf + np.asarray(by, leaf.dtype) for name, leaf in model.items()}


@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_long_update_is_shortened_in_its_direction(offset):
    """Beside a large model too, where float32 sums lose most: never above the bound, as the server will measure it."""
    model = shifted(offset)
    sent = moved(call(app_that_sends(shifted(0.7, model)), asked(model)), model)
    assert np.linalg.norm(sent.astype(np.float64)) <= 1.0
    np.testing.assert_allclose(sent, np.full(15, 1 / np.sqrt(15)), rtol=2e-4)


MIXED = {"wide": np.linspace(-3, 3, 40), "narrow": np.linspace(1, 2, 40, dtype=np.float16)}


@pytest.mark.parametrize("model", [{"zero": np.zeros(40, np.float32)}, MIXED], ids=["zero", "of two precisions"])
def test_no_rounding_takes_an_update_above_its_bound(model):
    rng = np.random.default_rng(0)
    for bound in rng.uniform(0.5, 5, 50):
        trained = {name: leaf + 9 * rng.normal(size=40).astype(leaf.dtype) for name, leaf in model.items()}
        own = update_of(record(trained), model)
        sent = replaced(record(model), clipped(trained, own, model, bound))
        assert [sent[name].numpy().dtype for name in model] == [leaf.dtype for leaf in model.values()]
        assert 0.9 * bound < norm(update_of(sent, model)) <= bound


@pytest.mark.parametrize(("kind", "size"), [(np.float16, 300), (np.float32, 1e25)])
def test_an_update_whose_square_overflows_is_shortened(kind, size):
    model = {"weight": np.zeros(4, kind)}
    sent = moved(call(app_that_sends({"weight": np.full(4, size, kind)}), asked(model)), model)
    np.testing.assert_allclose(sent, np.full(4, 0.5), rtol=5e-3)


def test_short_update_is_sent_as_it_is():
    trained = shifted(1e-3)
    (arrays,) = call(app_that_sends(trained), asked()).content.array_records.values()
    assert all(np.array_equal(arrays[name].numpy(), trained[name]) for name in trained)


def test_metrics_stay_on_the_device():
    assert list(call(app_that_sends(MODEL), asked()).content) == ["arrays"]


def test_of_an_update_that_is_not_finite_no_number_leaves():
    """One NaN beside a model that no bound was ever held against."""
    sent = moved(call(app_that_sends({**shifted(50.0), "bias": np.full(3, np.nan, np.float32)}), asked()))
    assert np.all(np.isnan(sent))


@pytest.mark.parametrize("raised", [True, False])
def test_words_of_an_error_stay_on_the_device(raised):
    """They may quote the data: "could not convert string to float: '1987-04-02'"."""
    app = ClientApp(mods=[clip_mod])

    @app.train()
    def train(message, context):
        if raised:
            raise ValueError("secret")
        return Message(Error(1, "secret"), reply_to=message)

    assert call(app, asked()).error.reason == "clip_mod: the app failed; this node's log says why"


def test_leaves_that_are_not_sent_go_back_as_they_came():
    reply = call(app_that_sends(shifted(0.1)), asked(names=["weight"]))
    assert np.array_equal(reply.content["arrays"]["bias"].numpy(), MODEL["bias"])


def test_app_sees_no_record_of_ours():
    app, seen = ClientApp(mods=[clip_mod]), []

    @app.train()
    def train(message, context):
        seen.extend(message.content)
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    call(app, asked())
    assert seen == ["arrays", "config"]


def test_node_says_which_device_it_is():
    question = Message(RecordDict({RECORD: ConfigRecord({})}), dst_node_id=7, message_type=MessageType.TRAIN)
    reply = call(app_that_sends(MODEL), question, **{"partition-id": 4})
    assert reply.content[RECORD][DEVICE] == 4


def test_node_without_a_number_says_so():
    question = Message(RecordDict({RECORD: ConfigRecord({})}), dst_node_id=7, message_type=MessageType.TRAIN)
    assert "partition-id" in call(app_that_sends(MODEL), question).error.reason


def test_reply_of_another_shape_is_refused_on_the_device():
    other = {**MODEL, "bias": np.ones(4, np.float32)}
    assert "bias" in call(app_that_sends(other), asked()).error.reason


def test_reply_of_another_precision_is_refused_on_the_device():
    other = {**MODEL, "bias": np.ones(3)}
    assert "float64" in call(app_that_sends(other), asked()).error.reason


@pytest.mark.parametrize("bound", [1e-7, 6e-7])
def test_bound_below_the_rounding_of_the_model_is_refused(bound):
    assert "rounding" in call(app_that_sends(shifted(0.7)), asked(bound=bound)).error.reason


def test_a_reply_without_arrays_is_refused():
    app = ClientApp(mods=[clip_mod])
    app.train()(lambda message, context: Message(RecordDict({}), reply_to=message))
    assert "0 ArrayRecords" in call(app, asked()).error.reason


def test_two_records_of_arrays_are_refused():
    assert "2 ArrayRecords" in call(app_that_sends(MODEL, more=record(MODEL)), asked()).error.reason


# --- which leaves are sent -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bn.running_mean", "bn.running_var", "bn/moving_variance", "batch_stats/bn/mean"])
def test_statistics_of_batch_norm_are_refused_by_name(name):
    with pytest.raises(InputError, match=f"'{name}' looks like"):
        num_params(record({**MODEL, name: np.zeros(3, np.float32)}))


def test_integer_leaf_is_refused():
    with pytest.raises(InputError, match="int64"):
        num_params(record({**MODEL, "steps": np.zeros((), np.int64)}))


def test_excluded_leaves_are_not_counted():
    extra = {"bn.running_mean": np.zeros(3, np.float32), "bn.num_batches_tracked": np.zeros((), np.int64)}
    assert num_params(record({**MODEL, **extra}), exclude=["bn.*"]) == 15


def test_excluding_what_is_not_there_is_a_mistake():
    with pytest.raises(InputError, match="bnn"):
        num_params(record(MODEL), exclude=["bnn.*"])
