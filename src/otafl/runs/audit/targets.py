"""From an experiment, or a run that was made of it, to what is attacked: plans fixed, rounds as they are charged. Host.

The first seed is audited. An open loop is planned as for a run. A closed loop has no plan in advance: it is trained
once, and the plan that it played is audited under what was charged for it, which the cap bounds.
"""

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
from otafl.privacy.uplink_checks import check_links
from otafl.runs import build
from otafl.runs.audit.both_parts import both_parts
from otafl.runs.audit.canaries import gradient_is_x
from otafl.runs.audit.target import MOST, Records, Target, certified
from otafl.runs.execution import Execution
from otafl.runs.folder.chunks import merge
from otafl.runs.folder.recount import ROUNDING as RECOUNTED
from otafl.runs.folder.recount import check_privacy
from otafl.runs.folder.store import SchemeFolder
from otafl.runs.folder.summaries import by_seed
from otafl.runs.limits import check_kept
from otafl.runs.planning.facts import Facts, facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, options_of

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


def prepare(experiment: Experiment, scheme: Any, place: SchemeFolder | None = None) -> Prepared:
    """What to attack of one scheme; with the folder of a finished run, under what that run's ledger says."""
    one = experiment.model_copy(update={"seeds": experiment.seed_list[:1]})
    check_kept(1, one.horizon(scheme), one.task.clients, one.channel.antennas)
    facts = facts_of(one)
    try:
        planned: Planned = Planned(one, scheme, facts)
        if planned.loop != "open":
            if one.task.num_params is not None:
                return Prepared(planned.label, planned.budget.eps, 0, [], "a closed loop can only be attacked on data")
            planned = Rehearsal(one, scheme, build.build_task(one), SchemeFolder(Path(), planned.label, ""), Reporter())
            planned.rehearse()
    except BudgetExceeded as refusal:
        return Prepared(scheme.label or scheme.name, np.inf, 0, [], str(refusal))
    site, plan = planned.setup.sites[0], planned.plans[0]
    live = np.flatnonzero(plan.live)
    if not live.size:
        why = planned.unaffordable.removeprefix(f"{planned.label}: ")
        return Prepared(planned.label, planned.budget.eps, 0, [], why)
    plan, trace = cut(plan, live), cut(site.trace, live)
    released = planned.released(plan, trace, site)
    recorded, notes, seeds = released, _notes(planned), experiment.seed_list
    if len(seeds) > 1:
        notes = (*notes, FIRST.format(seeds[0], len(seeds)))
    if place is not None:
        _check_norms(place, site.message.bound)
        found = _ledger_of(place, one.seed_list[0])
        if planned.loop == "open":
            recorded = _not_less(place, found, released)
        elif found.amp.shape != released.amp.shape or not np.allclose(found.amp, released.amp, rtol=ROUNDING, atol=0):
            notes = (*notes, ANOTHER)  # the last bits of a training depend on the machine
        check_privacy(place)
    ledger = planned.ledgers[0]
    ledger.spend(recorded, each_round=planned.releases[0])
    if not np.isfinite(ledger.guarantee()) or not np.all(np.isfinite(inverse_square(recorded))):
        return Prepared(planned.label, np.inf, len(live), [], "charged ε = ∞: there is no promise to refute")
    if np.any(recorded.rate < site.message.rate):
        return Prepared(planned.label, ledger.guarantee(), len(live), [], COINS)
    return Prepared(
        planned.label, ledger.guarantee(), len(live), _targets(planned, facts, plan, trace, recorded, notes)
    )


class Rehearsal(Execution):
    """A closed loop that is trained for the plan it plays; nothing is written."""

    def rehearse(self) -> None:
        engine = self._engine()
        chunks = [chunk for _, _, chunk in self._chunks(engine, *self._begin(engine), 0)]
        self.plans = [merge(chunks).of_seed(0)]


def _ledger_of(place: SchemeFolder, seed: int) -> Events:
    """What a finished run was charged for, round by round; PrivacyViolation where its summary says less."""
    ledger = Ledger.from_bytes(place.content(f"ledger-{seed}.bin"))
    if ledger.sums is not None:
        raise InputError(f"{place.label}: its ledger keeps sums and no rounds; audit the experiment file")
    summary = place.json("summary")
    said, counted = by_seed(summary, "final_eps").get(seed, np.nan), ledger.worst()
    if not said >= counted * (1 - RECOUNTED):
        raise PrivacyViolation(f"{place.label}: its summary says ε = {said:.6g}, its ledger {counted:.6g}")
    promised = float(place.json("card")["guarantee"]["eps"])
    if not promised >= ledger.guarantee() * (1 - RECOUNTED):
        raise PrivacyViolation(f"{place.label}: its card says ε = {promised:.6g}, its ledger {ledger.guarantee():.6g}")
    if not ledger.parts:
        raise PrivacyViolation(f"{place.label}: its ledger has no rounds, its plan has")
    return pick(ledger.parts[-1], np.asarray(ledger.parts[-1].live, bool))


def _not_less(place: SchemeFolder, found: Events, planned: Events) -> Events:
    """The recorded charge; PrivacyViolation where that is less than the plan releases."""
    if found.amp.shape != planned.amp.shape:
        raise PrivacyViolation(f"{place.label}: its ledger has {len(found.amp)} rounds, its plan {len(planned.amp)}")
    short = (inverse_square(planned) > inverse_square(found) * (1 + ROUNDING)) | (planned.rate > found.rate)
    if np.any(short):
        round_, client = first_place(short)
        raise PrivacyViolation(
            f"{place.label}: its ledger charges client {client} less in round {round_} than its plan releases"
        )
    return found


def _check_norms(place: SchemeFolder, bound: float) -> None:
    if "devices.parquet" in place.hashes() and np.any(place.read("devices")["norm"] > bound * (1 + NORM_TOLERANCE)):
        raise PrivacyViolation(f"{place.label}: a recorded message is above its declared norm bound {bound:g}")


def _targets(
    planned: Planned, facts: Facts, plan: Plan, trace: Trace, recorded: Events, notes: tuple[str, ...]
) -> list[Target]:
    """The server's view and, where phases are off or antennas many, that of somebody who keeps all that is heard."""
    site, air = planned.setup.sites[0], planned.uplink
    link = air.lower(plan, trace.gain, site.deployment)
    check_links(air, link, plan, recorded)
    accounting = planned.budget.accounting
    spent = account(
        planned.budget.accountant, recorded, planned.budget.delta, adjacency=site.message.adjacency,
        accounting=certified(accounting),
    )  # fmt: skip
    target = Target(
        planned.label, planned.setup.clients, _template(planned, facts), air, link, site.message, recorded,
        _holders(facts.sizes[0]), spent.eps, planned.budget.delta, accounting, notes=notes,
    )  # fmt: skip
    found = [target]
    many = air.release is release_full
    if uplink.is_analog(air) and (many or np.any(leak_of(recorded) > 0)):
        everything, whole, gain, noise = both_parts(plan, trace, site.deployment)
        said = (*notes, ANTENNAS if many else WHOLE)
        found.append(target._replace(uplink=everything, link=whole, gain=gain, noise=noise, notes=said))
    choice = planned.experiment.client_choice(planned.scheme)
    if choice.kind == "per-sample" and site.message.unit == "record":
        return [_of_records(one, choice) for one in found]
    return found


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
