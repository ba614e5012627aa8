"""From an experiment, or a run that was made of it, to what is attacked: plans fixed, rounds as they are charged. Host.

The first seed is audited. An open loop is planned as for a run. A closed loop has no plan in advance: it is trained
once, and the plan that it played is audited under what was charged for it, which the cap bounds. Where rounds go by in
blocks (`runs.streamed`) they are planned again for every look at them; of very many clients canaries alone are kept.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl import clients as client_kinds
from otafl.core import uplink
from otafl.core.errors import BudgetExceeded, InputError, PrivacyViolation
from otafl.core.messages import NORM_TOLERANCE, Seed
from otafl.core.plan import Events, Plan, Trace, cut
from otafl.core.validate import first_place
from otafl.privacy import Ledger, account, inverse_square
from otafl.privacy.array_uplink import release_full
from otafl.privacy.events import leak_of, pick
from otafl.privacy.participation import certified
from otafl.privacy.uplink_checks import check_links
from otafl.runs import build
from otafl.runs.audit.both_parts import both_parts
from otafl.runs.audit.canaries import gradient_is_x
from otafl.runs.audit.target import (
    MOST,
    Records,
    Target,
    canaries_do,
    chosen,
    joined,
    kept_of,
    narrowed,
    totals,
    width_of,
)
from otafl.runs.execution import Execution
from otafl.runs.folder.chunks import merge
from otafl.runs.folder.recount import ROUNDING as RECOUNTED
from otafl.runs.folder.recount import check_privacy
from otafl.runs.folder.store import SchemeFolder
from otafl.runs.folder.summaries import by_seed
from otafl.runs.limits import BYTES_PER_DEVICE_ROUND, check_kept
from otafl.runs.planning.facts import Facts, facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, options_of
from otafl.runs.streamed.choice import goes_by, rounds_at_once
from otafl.runs.streamed.planned import StreamedPlanned

ROUNDING = 1e-9  # of a charge that is computed again
REALISED = (
    "closed loop: the plan that one training played is attacked, under its own charge; the ε of the card is the cap"
)
FIRST = "seed {}, the first of {}, is attacked, under its own charge"
ANOTHER = "the training was repeated for this audit and played another plan than the run; that plan is attacked"
DECODED = "what the server has after decoding is attacked, not what it received (votes, energies, ciphertexts)"
SILENCE = "silence looks at the message here; canaries stay below the gate, and what silence tells is outside ε"
COINS = "its charge averages over private coins; an attack on one plan would know them"
DESIGN = "accounting={!r} is a design value, no certificate: the attack is held against every round charged in full"
NO_PROMISE = "charged ε = ∞: there is no promise to refute"
WHOLE = "observer keeps the imaginary part"
ANTENNAS = "observer keeps both parts of every antenna"
SMALLER = "record canaries are sent in {} coordinates: noise is drawn for each coordinate alone"


class Prepared(NamedTuple):
    """One scheme: its targets, or why there is nothing to attack."""

    label: str
    eps: float  # what the card of its first seed would say
    rounds: int
    targets: list[Target]
    reason: str = ""
    delta: float = np.nan  # at which that eps holds


def prepare(experiment: Experiment, scheme: Any, place: SchemeFolder | None = None) -> Prepared:
    """What to attack of one scheme; with the folder of a finished run, under what that run's ledger says."""
    seeds = experiment.seed_list
    one = experiment.model_copy(update={"seeds": seeds[:1]})
    check = functools.partial(check_kept, 1, clients=one.task.clients, antennas=one.channel.antennas)
    horizon = one.horizon(scheme)
    if goes_by(one):
        rest = horizon * kept_of(one.task.clients) * BYTES_PER_DEVICE_ROUND
        check(min(rounds_at_once(one), horizon), besides=rest, of=horizon)
    else:
        check(horizon)
    facts = facts_of(one)
    try:
        planned: Planned = (StreamedPlanned if goes_by(one) else Planned)(one, scheme, facts)
        if planned.loop != "open":
            if one.task.num_params is not None:
                return Prepared(planned.label, planned.budget.eps, 0, [], "a closed loop can only be attacked on data")
            check(horizon)
            planned = Rehearsal(one, scheme, build.build_task(one), SchemeFolder(Path(), planned.label, ""), Reporter())
            planned.rehearse()
    except BudgetExceeded as refusal:
        return Prepared(scheme.label or scheme.name, np.inf, 0, [], str(refusal))
    rounds = planned.ran[0] if planned.loop == "open" else int(np.sum(planned.plans[0].live))
    if not rounds:
        why = planned.unaffordable.removeprefix(f"{planned.label}: ")
        return Prepared(planned.label, planned.budget.eps, 0, [], why)
    notes = (*_notes(planned), *([FIRST.format(seeds[0], len(seeds))] if len(seeds) > 1 else []))
    record = None if place is None else _ledger_of(place, seeds[0], planned)
    played: Callable[[], Iterable[Played]] = functools.partial(_played, planned)
    if not planned.streamed:
        [(plan, trace, released)] = played()
        charged, more = (released, ()) if record is None else _recorded(planned, record, released)
        kept, notes = [(plan, trace, charged)], (*notes, *more)
        played = lambda: kept  # noqa: E731
    ledger, leaks = planned.ledgers[0], False
    for _, _, charged in played():
        planned.spend(ledger, charged)
        if not np.all(np.isfinite(inverse_square(charged))):
            return Prepared(planned.label, np.inf, rounds, [], NO_PROMISE)
        leaks |= bool(np.any(leak_of(charged) > 0))
    if record is not None and planned.streamed:
        _check_sums(planned.label, record, ledger)
    if not np.isfinite(eps := ledger.guarantee()):
        return Prepared(planned.label, np.inf, rounds, [], NO_PROMISE)
    if np.any(charged.rate < planned.setup.sites[0].message.rate):
        return Prepared(planned.label, eps, rounds, [], COINS)
    targets = _targets(planned, facts, played, leaks, notes)
    return Prepared(planned.label, eps, rounds, targets, delta=planned.budget.holds_at)


Played = tuple[Plan, Trace, Events]  # some rounds, and what they are charged for


def _played(planned: Planned) -> Iterator[Played]:
    """The live rounds of the first seed, in blocks."""
    site = planned.setup.sites[0]
    for trace, plan in planned.blocks(0):
        live = np.flatnonzero(plan.live)
        plan, trace = cut(plan, live), cut(trace, live)
        yield plan, trace, planned.released(plan, trace, site)


class Rehearsal(Execution):
    """A closed loop that is trained for the plan it plays; nothing is written."""

    def rehearse(self) -> None:
        engine = self._engine()
        chunks = [chunk for _, _, chunk in self._chunks(engine, *self._begin(engine), 0)]
        self.plans = [merge(chunks).of_seed(0)]


def _ledger_of(place: SchemeFolder, seed: int, planned: Planned) -> Ledger:
    """What a finished run was charged for; PrivacyViolation where its summary says less or its messages were louder."""
    if "devices.parquet" in place.hashes():
        bound = planned.setup.sites[0].message.bound
        if np.any(place.read("devices")["norm"] > bound * (1 + NORM_TOLERANCE)):
            raise PrivacyViolation(f"{place.label}: a recorded message is above its declared norm bound {bound:g}")
    ledger = Ledger.from_bytes(place.content(f"ledger-{seed}.bin"))
    if ledger.sums is not None and not planned.streamed:
        raise InputError(f"{place.label}: its ledger keeps sums and no rounds; audit the experiment file")
    summary = place.json("summary")
    said, counted = by_seed(summary, "final_eps").get(seed, np.nan), ledger.worst()
    if not said >= counted * (1 - RECOUNTED):
        raise PrivacyViolation(f"{place.label}: its summary says ε = {said:.6g}, its ledger {counted:.6g}")
    promised = float(place.json("card")["guarantee"]["eps"])
    if not promised >= ledger.guarantee() * (1 - RECOUNTED):
        raise PrivacyViolation(f"{place.label}: its card says ε = {promised:.6g}, its ledger {ledger.guarantee():.6g}")
    if not ledger.rounds():
        raise PrivacyViolation(f"{place.label}: its ledger has no rounds, its plan has")
    check_privacy(place)
    return ledger


def _recorded(planned: Planned, record: Ledger, released: Events) -> tuple[Events, tuple[str, ...]]:
    """What the last run of a ledger was charged for, round by round; and what must be said of it."""
    found = pick(record.parts[-1], np.asarray(record.parts[-1].live, bool))
    if planned.loop == "open":
        return _not_less(planned.label, found, released), ()
    alike = found.amp.shape == released.amp.shape and np.allclose(found.amp, released.amp, rtol=ROUNDING, atol=0)
    return released, () if alike else (ANOTHER,)  # the last bits of a training depend on the machine


def _check_sums(label: str, record: Ledger, planned: Ledger) -> None:
    """PrivacyViolation where the sums of a run's ledger are less than what its plan releases, client by client."""
    short = planned.zcdp() > record.zcdp() * (1 + ROUNDING)
    if record.rounds() != planned.rounds() or np.any(short):
        client, rounds = int(np.argmax(short)), f"{record.rounds()} rounds than its plan releases in {planned.rounds()}"
        raise PrivacyViolation(f"{label}: its ledger charges client {client} less in {rounds}")


def _not_less(label: str, found: Events, planned: Events) -> Events:
    """The recorded charge; PrivacyViolation where that is less than the plan releases."""
    if found.amp.shape != planned.amp.shape:
        raise PrivacyViolation(f"{label}: its ledger has {len(found.amp)} rounds, its plan {len(planned.amp)}")
    short = (inverse_square(planned) > inverse_square(found) * (1 + ROUNDING)) | (planned.rate > found.rate)
    if np.any(short):
        round_, client = first_place(short)
        raise PrivacyViolation(
            f"{label}: its ledger charges client {client} less in round {round_} than its plan releases"
        )
    return found


def _targets(
    planned: Planned, facts: Facts, played: Callable[[], Iterable[Played]], leaks: bool, notes: tuple[str, ...]
) -> list[Target]:
    """The server's view and, where phases are off or antennas many, that of somebody who keeps all that is heard."""
    about = _about(planned, facts, notes)
    views, found = [_heard_by_server], []
    if uplink.is_analog(planned.uplink) and (leaks or planned.uplink.release is release_full):
        views.append(_heard_by_all)
    for view in views:
        hears = functools.partial(view, about, planned)
        if canaries_do(about):
            seen = (0.0, 0.0)
            for rounds in played():
                seen = totals(hears(*rounds), seen)
            who = chosen(*seen, width_of(about))
            target = joined([narrowed(hears(*rounds), who) for rounds in played()])
        else:
            target = joined([hears(*rounds) for rounds in played()])
        spent = account(
            planned.budget.accountant, target.events, about.delta, adjacency=about.message.adjacency,
            accounting=certified(about.accounting),
        )  # fmt: skip
        found.append(target._replace(eps=spent.eps))
    return found


def _heard_by_server(about: Target, planned: Planned, plan: Plan, trace: Trace, recorded: Events) -> Target:
    link = planned.uplink.lower(plan, trace.gain, planned.setup.sites[0].deployment)
    check_links(planned.uplink, link, plan, recorded)
    return about._replace(link=link, events=recorded)


def _heard_by_all(about: Target, planned: Planned, plan: Plan, trace: Trace, recorded: Events) -> Target:
    everything, link, gain, noise = both_parts(plan, trace, planned.setup.sites[0].deployment)
    said = ANTENNAS if planned.uplink.release is release_full else WHOLE
    notes = (*about.notes, said)
    return about._replace(uplink=everything, link=link, events=recorded, gain=gain, noise=noise, notes=notes)


def _about(planned: Planned, facts: Facts, notes: tuple[str, ...]) -> Target:
    """All of a target but its rounds."""
    message, budget = planned.setup.sites[0].message, planned.budget
    later: Any = None
    target = Target(
        planned.label, planned.setup.clients, _template(planned, facts), planned.uplink, later, message, later,
        _holders(facts.sizes[0]), None, budget.delta, budget.accounting, notes=notes,
    )  # fmt: skip
    choice = planned.experiment.client_choice(planned.scheme)
    by_record = choice.kind == "per-sample" and message.unit == "record"
    return _of_records(target, choice) if by_record else target


def _template(planned: Planned, facts: Facts) -> Any:
    """Shapes of one message: a gradient's, or a vector."""
    choice, message = planned.experiment.client_choice(planned.scheme), planned.setup.sites[0].message
    if choice.kind == "zero-order" or planned.experiment.task.num_params is not None:
        return jax.ShapeDtypeStruct((message.dim,), jnp.float32)
    return jax.eval_shape(facts.model.init, jax.random.key(0))


def _holders(sizes: np.ndarray) -> Seed:
    """Who holds how many records; which ones does not matter to an audit."""
    starts = np.cumsum([0, *sizes[:-1]])[:, None]
    rows = starts + np.minimum(np.arange(int(sizes.max())), sizes[:, None] - 1)
    return Seed(jax.random.key(0), jnp.asarray(rows, jnp.int32), jnp.asarray(sizes, jnp.int32))


def _of_records(target: Target, choice: Any) -> Target:
    """The same target with clients whose records have the gradients that the audit gives them."""
    options, factory = client_kinds.KINDS[choice.kind]
    config, sizes = options_of(choice, options), np.asarray(target.seed.sizes)
    width = min(len(sizes), MOST) + 1
    least = int(sizes.min()) - (target.message.adjacency == "add-remove")
    if least < 1:
        raise InputError(f"{target.label}: a client with one record has none left to be removed; give it more")
    return target._replace(
        clients=factory(config, gradient_is_x(width), least),
        template=jax.ShapeDtypeStruct((width,), jnp.float32),
        records=Records(config.clip_norm, config.sampling == "poisson"),
        notes=(*target.notes, SMALLER.format(width)),
    )


def _notes(planned: Planned) -> tuple[str, ...]:
    """What a reader must know of the attack."""
    own = planned.uplink.decode is uplink.ANALOG.decode
    accounting = planned.budget.accounting
    return (
        *([] if planned.loop == "open" else [REALISED]),
        *([] if own else [DECODED]),
        *([SILENCE] if planned.setup.sites[0].policy.gate == "message" else []),
        *([] if certified(accounting) == accounting else [DESIGN.format(accounting)]),
    )
