"""The server of a scheme: descent on what was received, its numbers in the optimizer's state."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.runs.schema import Experiment, Server

if TYPE_CHECKING:
    import optax


def server_of(experiment: Experiment, scheme: Any) -> Server:
    """The experiment's server with what the scheme overrides."""
    own = {key: value for key, value in scheme.server.model_dump().items() if value is not None}
    return experiment.server.model_copy(update=own)


def optimizer_of(server: Server) -> "optax.GradientTransformation":
    """Descent on what was received; weight decay acts on the model, after the air, and costs no privacy.

    Numbers live in the optimizer's state, so that schemes with other step sizes share one compiled program.
    """
    import optax  # not before something is trained: plans do without it

    def descent(step_size: Any, momentum: Any, weight_decay: Any) -> optax.GradientTransformation:
        decay = [optax.add_decayed_weights(weight_decay)] if server.weight_decay else []
        trace = [optax.trace(momentum)] if server.momentum else []
        fade = lambda count: (1 + count.astype(jnp.float32)) ** np.float32(-server.step_decay)  # noqa: E731
        schedule = [optax.scale_by_schedule(fade)] if server.step_decay else []
        return optax.chain(*decay, *trace, *schedule, optax.scale(-step_size))

    return optax.inject_hyperparams(descent, hyperparam_dtype=jnp.float32)(**numbers_of(server))


def numbers_of(server: Server) -> dict[str, float]:
    """What the optimizer keeps in its state."""
    return {"step_size": server.step_size, "momentum": server.momentum, "weight_decay": server.weight_decay}


def with_numbers(state: Any, server: Server) -> Any:
    """An optimizer's state, all seeds, with this server's numbers: a shared program was started with another's."""
    return state._replace(
        hyperparams={
            name: jax.device_put(np.full(state.hyperparams[name].shape, value, np.float32))
            for name, value in numbers_of(server).items()
        }
    )
