"""The ClientApp of Flower's PyTorch quickstart. The mod is the only line that knows about the air."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from otafl.connect.flower import clip_mod

app = ClientApp(mods=[clip_mod])


@app.train()
def local_training(message: Message, context: Context) -> Message:
    """Train the global model on this node's samples."""
    import torch  # a process is started for every message, and the first only asks who this node is

    from mnist_ota.task import Net, load, train

    torch.set_num_threads(1)
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own, settings = int(context.node_config["partition-id"]), context.run_config
    samples = int(settings["samples"])
    torch.manual_seed(1000 * int(message.content["config"]["server-round"]) + own)
    x, y = load("train", slice(own * samples, (own + 1) * samples))
    loss = train(net, x, y, epochs=int(settings["local-epochs"]), lr=float(settings["lr"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
