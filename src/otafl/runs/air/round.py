"""One round of a loop: who is asked, the one sending, and what is known of it afterwards."""

import secrets
import warnings
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.plan import Plan
from otafl.core.streams import Seed
from otafl.core.uplink import received_snr
from otafl.runs.air.replies import OF_CONTENT, Fault, Sorted, UnusableWarning, sort
from otafl.runs.air.state import other_messages
from otafl.runs.air.sums import Heard, Shapes, on_grid
from otafl.runs.air.trees import unflatten

if TYPE_CHECKING:
    from otafl.runs.air import Air


class Round:
    """A round that is charged. `send` answers once.

    number : the round, from 0
    asked : clients whose message is wanted; it leaves out only those whose silence is public
    eps : spent by the worst client with this round
    After `send`: `faults`, `failed` (an encrypted round that could not be opened: nothing was applied, the answer is
    zero, and sending again is a new round with its own charge and fresh noise), and what only a simulation knows and
    nobody should publish: `silent` clients, `snr`, `energy` (K,) J.
    """

    def __init__(self, air: "Air", number: int):
        self._air, self.number = air, number
        self.asked: np.ndarray = air.asked(number)
        self.faults: list[Fault] = []
        self.failed = False
        self._heard: Heard | None = None
        self._answered = False
        self._entered: list[Any] = []  # what tells the sum that was sent, until it is answered
        self._link = air.link(number)
        self._noise: tuple[Shapes, Future[Any]] | None = None
        if air._form is not None:  # known from `like` or an earlier round: drawn while the devices compute
            self._draw(air._form.shapes)

    def __repr__(self) -> str:
        asked = f"{len(self.asked)} of {self._air.num_clients} clients asked"
        return f"<round {self.number}: {asked}, {'answered' if self._answered else 'open'}>"

    def send(self, updates: Any) -> Any:
        """Clip, silence, scale, add up, add noise, decode: the server's mean, in the form of the messages.

        Parameters
        ----------
        updates : dict, list
            {client: pytree}, a list in the order of `asked`, or a list of `otafl.Reply`. NumPy, JAX or torch leaves,
            floating point, the same structure for all; a client that did not reply is left out, or None

        Returns
        -------
        pytree
            like one message, the same kind of arrays. Before any usable reply: like `like`, or a flat NumPy vector

        Missing, late, duplicate, malformed and non-finite replies count as zero, oversized ones are clipped: `faults`
        names them. Nothing is renormalised and the charge stays.
        """
        with self._air.alone():
            return self._send(updates)

    def _send(self, updates: Any) -> Any:
        air = self._air
        bound, size = air.job.message.bound, air.settings.num_params
        found = sort(updates, self.asked, self.number, air.num_clients, size, air._form, bound)
        if self._answered or air._current is not self:  # not before: a reply's own code runs while it is read
            why = "was sent before; every" if self._answered else "ended when the next was opened; a"
            raise InputError(f"round {self.number} {why} round is sent once")
        if air.settings.strict:
            self._refuse(found.faults)
        came = [fault for fault in found.faults if fault.kind != "missing"]
        if came and not found.like:  # of their form alone: what the numbers are is nobody's business here
            warnings.warn(f"no reply can be used ({came[0]}); the answer is noise alone", UnusableWarning, stacklevel=3)
        flat = self._answer(found)
        self._answered, self.faults = True, found.faults
        air._form, air._like = found.form, found.like or air._like
        return flat[0] if found.form is None else unflatten(found.form, flat, air._like)

    def _refuse(self, faults: list[Fault]) -> None:
        """Strict: whatever is wrong with a reply that came ends the round before anything is sent."""
        said = [str(fault) for fault in faults if fault.kind != "missing"]
        broken = any(fault.kind in ("clipped", "not finite") for fault in faults)
        if said:
            kind = PrivacyViolation if broken else InputError
            raise kind(f"round {self.number}: {'; '.join(said)}; nothing was sent (strict=True)")

    def _draw(self, shapes: Shapes) -> Future[Any]:
        """The noise of this round, drawn once."""
        if self._noise is None or self._noise[0] != shapes:
            self._noise = shapes, self._air._medium.drawn(self._link, shapes, self.number)
        return self._noise[1]

    def _answer(self, found: Sorted) -> list[np.ndarray]:
        """What the server hears; with a folder it is kept that the round is sent before, the answer after, then given.

        An answer is a function of the sum and of its noise: messages with the same sum are the same release, so that
        the sum will do, or its hash, which costs the same for any number of clients. The folder has that of simulations
        only, and so it is with faults that tell of a message: whoever reads it could learn what is under the noise.
        """
        air, shapes = self._air, ((self._air.settings.num_params,),) if found.form is None else found.form.shapes
        drawn = self._draw(shapes)
        entered = air._medium.add_up(found.messages, found.norms, self._link, shapes, air.job.message.bound)
        if air._folder.path is not None:
            mark = air._medium.mark(found.form, entered)
            if self._entered and not _same(self._entered, mark):
                raise other_messages(self.number)
            kept = "" if air.settings.seed is None else mark[0]
            stored = air._folder.stored(air._state, self.number, kept)
            if stored is not None:
                ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
                return np.split(stored, ends[:-1])
            self._entered = mark
            air._state = air._folder.keep(air._state.sent(self.number, kept))
        heard = None if air._folder.path is None else self._heard  # of the same messages, and perhaps on the disk
        if heard is None:
            heard = air._medium.hear(entered, self._link, shapes, self.number, drawn.result())
        self._heard, self.failed = heard, heard.refused
        told = [fault for fault in found.faults if air.settings.seed is not None or fault.kind not in OF_CONTENT]
        air._state = air._folder.keep_answer(air._state.answered(self.number, told, self.failed), heard.flat)
        self._entered = []
        return heard.flat

    def reward(self, accuracy: float) -> None:
        """Tell a closed loop how good the model is after this round."""
        self._air.reward(accuracy)

    @property
    def eps(self) -> float:
        return float(self._air.ledger_after(self.number + 1).spent().worst)

    @property
    def plan(self) -> Plan:
        return self._air.plan(self.number)

    @property
    def silent(self) -> np.ndarray:
        """Clients that sent no data, asked or not."""
        return np.flatnonzero(~self._after_sending.sent)

    @property
    def energy(self) -> Array:
        """(K,) J radiated."""
        heard = self._after_sending
        return self._air.job.uplink.energy(self.plan, heard.norm, heard.sent, self._air.job.message.dim)

    @property
    def snr(self) -> float:
        """Received signal over noise energy, linear."""
        heard, job = self._after_sending, self._air.job
        return float(received_snr(self.plan, job.trace.gain[self.number], heard.norm, heard.sent, job.deployment))

    @property
    def _after_sending(self) -> Heard:
        if self._heard is None:
            raise InputError(f"round {self.number}: known once it was sent, and not of an answer out of a folder")
        return self._heard


def _same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(np.array_equal, before, now))


def noisy_metric(air: "Air", number: int, accuracy: float) -> float:
    """What the policy is told: the accuracy, plus the noise that is charged where it is of private data."""
    wanted = air.job.policy.feedback
    if air.job.policy.loop != "round" or wanted.data != "private":
        return accuracy
    seed = air.settings.seed
    if seed is None:
        source = np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
        return float(on_grid(accuracy + wanted.noise_std * source.standard_normal(), wanted.noise_std))
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(jnp.uint32(seed)), Seed.FEEDBACK), number)
        return float(accuracy + wanted.noise_std * jax.random.normal(key, (), jnp.float64))
