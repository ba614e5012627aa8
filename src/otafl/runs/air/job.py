"""From the settings of a loop to what is planned: trace, deployment, message, policy, budget."""

import secrets
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import numpy as np

from otafl import systems
from otafl.channels import Channel, draw, energy_from_power, load_devices, load_site, receive, with_gains
from otafl.channels.measured import Played, play
from otafl.clients.gradient import NO_ROSTER, clipped_promise
from otafl.core import validate
from otafl.core.draws import check_generator
from otafl.core.errors import BudgetExceeded, Infeasible, InputError
from otafl.core.files import parse
from otafl.core.plan import Adjacency, Context, Deployment, Events, Message, Plan, Policy, Trace, Unit, ours, read_only
from otafl.core.uplink import Uplink, uplink_of
from otafl.privacy import Budget, Ledger, release
from otafl.privacy.participation import credits_coins
from otafl.privacy.uplink_checks import meet
from otafl.runs.air.opening import Settings
from otafl.runs.build import Site
from otafl.runs.feedback import releases_of
from otafl.runs.limits import check_kept, check_message
from otafl.runs.planning.left import budget_of, left_of
from otafl.runs.planning.prior_spend import open_ledger
from otafl.runs.planning.retirement import held, refuse_retirement
from otafl.runs.schema import Privacy, Radio
from otafl.runs.sites import played_by, site_of


class Job(NamedTuple):
    """A loop, ready to be planned."""

    trace: Trace  # (T, K)
    deployment: Deployment
    message: Message
    policy: Policy
    uplink: Uplink
    budget: Budget
    ledger: Ledger  # what an earlier run on the same clients has spent
    releases: tuple[Any, ...]  # that accompany every round
    capped: bool
    retires: bool  # clients at their own cap
    keep_noise: bool  # of those who have retired
    coins_known: bool  # to whoever reads the loop's folder, though the loop protects somebody

    def released(self, plan: Plan, trace: Trace) -> Events:
        """What plans of some rounds (T, K) release; InputError if that is less for coins which are no secret."""
        found = release(self.uplink, plan, trace, self.deployment, self.message)
        if self.coins_known and credits_coins(found, self.message):
            raise InputError(
                f"{self.policy.name}: its charge counts on private coins, and a folder must keep them to go on from; "
                "give no folder, or a scheme that is charged for every round"
            )
        return found


def open_job(settings: Settings, trace_seed: int, kept: bool) -> Job:
    """Draw the trace, build the policy, open the ledger: as an experiment with one seed does.

    Without a seed, coins that no folder has to draw again come from the operating system: whoever knows the channel
    could try out all 2^32 seeds of the trace on it, and would have the coins too.
    """
    check_generator()
    private = systems.SCHEMES[settings.scheme.name].private
    privacy = parse(Privacy, {k: v for k, v in settings.privacy.items() if v is not None or k == "delta"}, "Air")
    channel, deployment, sizes, message, played = _site(settings)
    count = len(deployment.weights)
    check_kept(1, settings.rounds, count, channel.antennas)
    check_message(message.dim)
    trace = draw(channel, count, settings.rounds, trace_seed)
    if played is not None:
        trace = play(played, trace.coin, 0, trace_seed, channel.csi)
    if settings.seed is None and not kept:
        source = np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
        trace = trace._replace(coin=source.random(trace.coin.shape))
    trace, deployment = receive(trace, deployment)
    left = left_of(privacy, channel, settings.rounds, count, private)
    context = Context(
        rounds=settings.rounds, eps=left.target, delta=left.delta, accountant=privacy.accountant,
        step_size=settings.step_size, classes=settings.classes, seed=trace_seed, stop=privacy.stop, trace=trace,
        sizes=None if message.adjacency == "add-remove" else sizes, rayleigh=channel.rayleigh and played is None,
    )  # fmt: skip
    try:
        policy = numerically(settings.scheme.name, systems.make, settings.scheme.name, settings.scheme.config,
                             deployment, message, context)  # fmt: skip
    except Infeasible as refusal:
        if left.eps == privacy.eps:
            raise Infeasible(f"{settings.scheme.name}: {refusal}", refusal.report) from None
        raise BudgetExceeded(f"{settings.scheme.name}: an earlier run left eps={left.eps:.4g}: {refusal}") from None
    uplink = uplink_of(policy)
    trace, deployment = meet(uplink, trace, deployment)
    capped = privacy.eps is not None and private
    budget = budget_of(privacy, capped, left, message, policy.loop != "open")
    ledger = open_ledger(budget, count, message, privacy.already_spent)
    releases = releases_of(Site(trace, deployment, message, policy), sizes)
    retires, keep = capped and privacy.stop == "each", privacy.retired_noise
    if retires:
        refuse_retirement(settings.scheme.name, uplink)
    foreign = not ours(systems.scheme(settings.scheme.name).factory)
    policy = held(policy, foreign, retires, ledger, deployment, message, settings.rounds, releases, keep)
    for shared in (trace, deployment, message):  # the ledger is counted anew from them
        read_only(shared)
    return Job(
        trace, deployment, message, policy, uplink, budget, ledger, releases, capped, retires, keep,
        coins_known=settings.seed is None and kept,
    )  # fmt: skip


def numerically(name: str, function: Any, *args: Any) -> Any:
    """Whatever overflows or does not converge while planning is one line."""
    try:
        return function(*args)
    except (ArithmeticError, np.linalg.LinAlgError) as problem:
        raise InputError(f"{name}: planning failed numerically ({problem}); look for extreme numbers") from None


def _site(settings: Settings) -> tuple[Channel, Deployment, np.ndarray, Message, Played | None]:
    """Channel, limits, records of each client (all equal where nothing is said), what the messages promise, a trace."""
    site = settings.site
    table = isinstance(site, str) and Path(site).suffix.lower() == ".toml"
    devices = None if isinstance(site, int) else load_site(site).devices if table else load_devices(site)
    count = site if isinstance(site, int) else len(devices.names)  # type: ignore[union-attr]
    sizes = _sizes(settings, count, np.ones(count, np.int64) if devices is None else devices.samples)
    adjacency: Any = settings.adjacency
    promise = clipped_promise(settings.num_params, settings.clip_norm, adjacency, "client")
    message = settings.message or promise(sizes)
    validate.shape("message.rate", message.rate, (count,))
    _check_promise(message, "clip_norm" if settings.message is None else "message.bound")
    channel = settings.channel
    if devices is not None:
        channel = with_gains(channel, devices.mean_power_gain, devices.k_factor_db)
    place = SimpleNamespace(
        channel=channel,
        radio=_radio(settings, table, listed=devices is not None and not table),
        devices=Path(str(site)) if table else None,
        task=SimpleNamespace(clients=count, weights=_weights(settings, devices is not None)),
    )
    channel, deployment = site_of(place, message, sizes)  # type: ignore[arg-type]
    if devices is not None and not table:
        deployment = deployment._replace(energy=energy_from_power(devices.power_w, message.dim, 1.0))
    return channel, deployment, sizes, message, played_by(place)  # type: ignore[arg-type]


def _check_promise(message: Message, bound: str) -> None:
    """What is promised must at least be possible, and the bound one that can be enforced; the rest is an assertion."""
    if message.bound != np.inf:
        validate.norm_bound(bound, message.bound)
    for name in ("mean_square", "sensitivity"):
        validate.not_negative(f"message.{name}", getattr(message, name))
    validate.one_of("message.unit", message.unit, get_args(Unit))
    validate.one_of("message.adjacency", message.adjacency, get_args(Adjacency))
    if message.unit == "client" and message.adjacency == "add-remove":
        raise InputError(NO_ROSTER)


def _weights(settings: Settings, listed: bool) -> Any:
    """As an experiment's `task.weights`: a list, by size where sizes are known, else equal."""
    if settings.weights is not None:
        return list(settings.weights)
    return "samples" if listed or settings.sizes is not None else "equal"


def _sizes(settings: Settings, count: int, known: np.ndarray) -> np.ndarray:
    """Records of each client, (K,); stated ones replace those of the site."""
    if settings.weights is not None:
        validate.shape("weights", settings.weights, (count,))
        validate.not_negative("weights", settings.weights)
        validate.sums_to_one("weights", settings.weights, 1e-9)
    sizes = known if settings.sizes is None else np.asarray(settings.sizes)
    validate.shape("sizes", sizes, (count,))
    validate.whole("sizes", sizes)
    return sizes


def _radio(settings: Settings, table: bool, listed: bool) -> Radio:
    """Limits and noise where the site has none of its own."""
    given = {name: value for name, value in settings.radio.items() if value is not None}
    if table and given:
        raise InputError(f"{settings.site}: has a [radio] block of its own; give no {', '.join(given)} besides")
    if listed:
        if "noise_dbm" not in given or set(given) & {"max_energy", "power_dbm", "noise_std"}:
            raise InputError(f"{settings.site}: says each device's power; give noise_dbm, no energy and no noise_std")
        given["power_dbm"] = 0.0  # replaced by the devices' own
    return parse(Radio, given, "Air")
