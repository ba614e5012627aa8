"""Which schemes run at a server with several antennas, and what carries their rounds there."""

from typing import Any

from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Policy
from otafl.systems.system import Scheme


def refuse(name: str, entry: Scheme, deployment: Deployment) -> None:
    """Before a policy is made: a scheme that cannot plan for this receiver is refused by name."""
    receiver = deployment.receiver
    if receiver.antennas == 1:
        return
    if entry.antennas == "one":
        raise InputError(f"{name}: channel.antennas={receiver.antennas} must be 1: {entry.array_note}")
    if entry.antennas == "fixed" and receiver.follows:
        raise InputError(
            f"{name}: channel.beam={receiver.beam!r} must be 'fixed': it plans by the law of the gains, which a beam "
            "that follows the fading changes"
        )


def fitted(name: str, entry: Scheme, policy: Policy, deployment: Deployment) -> Policy:
    """The policy on the uplink to this receiver: its own round, the charge of all antennas."""
    receiver = deployment.receiver
    if receiver.antennas == 1 or policy.uplink == "perfect":
        return policy
    from otafl.core.uplink import Uplink  # not before it is needed: certifiers and planners run without JAX
    from otafl.privacy.array_uplink import array_uplink, is_array

    if policy.uplink == "analog":
        uplink = array_uplink(receiver)
    elif isinstance(policy.uplink, Uplink) and is_array(policy.uplink):
        uplink = policy.uplink
    else:
        kind: Any = policy.uplink
        raise InputError(
            f"{name}: channel.antennas={receiver.antennas} must be 1: its uplink {kind.name!r} does not carry an array"
        )
    if not deployment.trusted_noise_var > 0:
        raise InputError(
            f"{name}: channel.antennas={receiver.antennas} needs trusted receiver noise: artificial noise alone leaves "
            "directions without any; raise radio.trusted_share"
        )
    if policy.loop != "open":
        raise InputError(
            f"{name}: channel.antennas={receiver.antennas} must be 1: a closed loop counts its own cost, by one antenna"
        )
    note = (f"{name} at {receiver.antennas} antennas: {entry.array_note}",) if entry.array_note else ()
    return policy._replace(uplink=uplink._replace(remarks=(*uplink.remarks, *note)))
