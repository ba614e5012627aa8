"""What a channel may do beyond its declaration, as part of delta; and what a card says about the channel."""

from otafl.channels import Channel
from otafl.channels.measured import remarks
from otafl.core.errors import InputError
from otafl.runs.planning.prior_spend import read_ledger
from otafl.runs.schema import Experiment, Privacy
from otafl.runs.sites import played_by, rayleigh


def missed(channel: Channel, rounds: int, clients: int) -> float:
    """Probability that any gain of a run passes the declared gain_error: each client's, as others' noise counts."""
    return rounds * clients * channel.miss_prob


def delta_left(privacy: Privacy, channel: Channel, rounds: int, clients: int) -> tuple[float, float]:
    """The delta that accountants may use, and what is missed of the declared one: by this run and an earlier one."""
    earlier = 0.0 if privacy.already_spent is None else read_ledger(privacy.already_spent, clients).budget.missed
    risk = missed(channel, rounds, clients) + earlier
    if risk >= privacy.delta:
        before = f" and {earlier:.3g} in the earlier run" if earlier else ""
        raise InputError(
            f"channel.stale.miss_prob={channel.miss_prob:g} over {rounds} rounds and {clients} clients{before} adds "
            f"{risk:.3g} to delta, all of privacy.delta={privacy.delta:g}; lower it"
        )
    return privacy.delta - risk, risk


def said_of(channel: Channel) -> list[str]:
    """Lines of the card, which tells the chance of a miss by its ledger."""
    if channel.stale is None:
        return []
    return [
        f"channel estimates are {channel.stale.age_rounds} round(s) old: devices below {channel.least_gain:g} of their "
        f"rms gain stay silent, the others are charged for gain_error={channel.gain_error:.4g}"
    ]


def said_of_channel(experiment: Experiment) -> list[str]:
    """The same for an experiment, with what there is to say of its trace."""
    played = played_by(experiment)
    found = [] if played is None else remarks(played, experiment.rounds, len(experiment.seed_list))
    return [*said_of(experiment.channel), *found]


def statistics_known(experiment: Experiment) -> bool:
    """Whether the law of the channel is known and the one that silence is computed by, not estimated or another: only
    then can a plan made in advance be a certificate."""
    return experiment.channel.pilots is None and experiment.channel.stale is None and rayleigh(experiment)
