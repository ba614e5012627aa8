"""What CARES chooses for a site and a privacy target: one arm that spends the budget, judged by its certificate."""

from typing import Any

from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Context, Deployment, Message, Trace, first_look
from otafl.systems.baselines.settings import best_scale
from otafl.systems.cares.certifier import certify
from otafl.systems.cares.policy import problem_of
from otafl.systems.simulated import Bench, Options, Refusal, on_bench, planned

ARMS_AROUND = (0.7, 0.85, 1.0, 1.2, 1.4)  # of the bandit


@on_bench
def settings(at: Bench) -> Options | Refusal:
    """`diagnostic` where no certificate is given for the arm: the plan then goes on without one and says so."""
    arm: Options = {"arms": (best_scale(at),), "silence": "bound" if at.message.unit == "record" else "norm"}
    try:
        planned("cares-static", arm, at)
    except Infeasible:
        return {**arm, "diagnostic": True}
    except InputError as refusal:
        return Refusal(str(refusal))
    return arm


def around(options: Options) -> Options:
    """The bandit's arms, around the scaling that spends the budget in the horizon."""
    (arm,) = options["arms"]
    return {**options, "arms": tuple(arm * factor for factor in ARMS_AROUND), "diagnostic": True}


def informative(config: Any, trace: Trace, deployment: Deployment, message: Message, context: Context) -> bool:
    """Whether the certificate of the planned arm says more than clipping alone."""
    answer = certify(
        problem_of(config, first_look(trace), deployment, message, context), config.arms, config.conv_target
    )
    return answer.init is not None and bool(answer.arms.informative[answer.init])
