"""A ledger as bytes with a checksum, and as dp_accounting events. Host."""

import hashlib
import io
import json
import zipfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.core.archives import arrays_of
from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import participation
from otafl.privacy.budget import Budget
from otafl.privacy.events import checked
from otafl.privacy.spend import Release
from otafl.privacy.sums import Sums, check_sums

if TYPE_CHECKING:
    from otafl.privacy.ledger import Ledger

FORMAT = "otafl-ledger-2"
WITH_SUMS = "otafl-ledger-3"  # the same, and besides one exact sum per client of rounds that were not kept
READABLE = ("otafl-ledger-1", FORMAT, WITH_SUMS)  # the first knew no leak_angle: its phases were taken as exact


def pack(ledger: "Ledger") -> bytes:
    """One JSON line (budget, releases, checksum) and then the events as npz."""
    arrays = {
        f"{n}_{name}": np.asarray(value, order="C")  # one ledger, one file: however its arrays lie in memory
        for n, part in enumerate(ledger.parts)
        for name, value in part._asdict().items()
    }
    arrays |= {f"sums_{name}": value for name, value in _sums_of(ledger).items() if isinstance(value, np.ndarray)}
    payload = io.BytesIO()
    with zipfile.ZipFile(payload, "w") as file:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            # Amplitudes hardly shrink, whatever is spent on it; a fixed date, so that one ledger is one file.
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getbuffer(), zipfile.ZIP_DEFLATED, compresslevel=1)
    head: dict[str, Any] = {
        "format": FORMAT if ledger.sums is None else WITH_SUMS,
        "clients": ledger.clients,
        "parts": len(ledger.parts),
        "budget": asdict(ledger.budget),
        "releases": [r._replace(sensitivity=np.asarray(r.sensitivity).tolist())._asdict() for r in ledger.releases],
    }
    if ledger.sums is not None:
        plain = {name: value for name, value in _sums_of(ledger).items() if not isinstance(value, np.ndarray)}
        head["sums"] = {name: value if np.isfinite(value) else "inf" for name, value in plain.items()}
    head["sha256"] = _checksum(head, payload.getvalue())
    return json.dumps(head, sort_keys=True).encode() + b"\n" + payload.getvalue()


def unpack(content: bytes) -> "Ledger":
    """The ledger that `pack` wrote; InputError if a single byte changed."""
    line, _, payload = content.partition(b"\n")
    try:
        head = json.loads(line)
        stated = head.pop("sha256")
    except Exception:  # JSON of another thing, or of a depth without end
        raise InputError("not a ledger: no readable header") from None
    if head.get("format") not in READABLE:
        raise InputError(f"ledger format {head.get('format')!r} must be one of {', '.join(READABLE)}")
    if stated != _checksum(head, payload):
        raise InputError("ledger is damaged: its checksum does not match")
    try:
        return _ledger_of(head, payload)
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy have an exception of their own for every damage
        raise InputError(f"ledger is damaged: {type(error).__name__} under a checksum that matches") from None


def _ledger_of(head: dict[str, Any], payload: bytes) -> "Ledger":
    from otafl.privacy.ledger import Ledger

    arrays = arrays_of(payload)
    parts = [_part(arrays, n) for n in range(head["parts"])]
    kept = {name.removeprefix("sums_"): array for name, array in arrays.items() if name.startswith("sums_")}
    budget = Budget(**{**head["budget"], "colluders": tuple(head["budget"]["colluders"])})
    ledger = Ledger(budget, head["clients"])
    ledger.releases.extend(Release(**release) for release in head["releases"])
    for release in ledger.releases:
        release.square(ledger.clients)  # refuses what is no release
    if "sums" in head:
        plain: dict[str, Any] = {name: float(v) if v == "inf" else v for name, v in head["sums"].items()}
        ledger.sums = Sums(**{**kept, **plain})
        check_sums(ledger.sums, ledger.clients)
    ledger.parts.extend(checked(part, ledger.clients) for part in parts)
    return ledger


def _sums_of(ledger: "Ledger") -> dict[str, Any]:
    return {} if ledger.sums is None else ledger.sums._asdict()


def _part(arrays: Any, n: int) -> Events:
    found = {name: arrays[f"{n}_{name}"] for name in Events._fields if f"{n}_{name}" in arrays}
    return Events(**found)


def _checksum(head: dict[str, Any], payload: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + b"\n" + payload).hexdigest()


def dp_events(ledger: "Ledger") -> list[Any]:
    """One composed DpEvent per client.

    Noise multipliers are relative to the declared sensitivity, so rounds without sampling are to be recounted under
    ADD_OR_REMOVE_ONE whatever the adjacency. With sampling and adjacency 'replace' they are relative to one
    contribution (twice as large), as dp_accounting's PLD accountant under REPLACE_ONE wants them; its recount takes
    opposed contributions as the worst pair, the ledger's own eps is certified and a little larger.
    """
    try:
        import dp_accounting
    except ImportError:
        raise InputError("the export needs the package dp-accounting") from None
    budget = ledger.budget
    if budget.accounting not in participation.CERTIFIED:
        raise InputError(f"accounting={budget.accounting!r} has no counterpart among dp_accounting's events")
    if ledger.sums is not None and ledger.sums.sampled:
        raise InputError("sums of sampled rounds have no counterpart among dp_accounting's events")
    summed = np.zeros(ledger.clients) if ledger.sums is None else ledger.sums.zcdp()
    out = []
    for k in range(ledger.clients):
        events: list[Any] = []
        if summed[k] > 0:  # Gaussian rounds are one
            events.append(dp_accounting.GaussianDpEvent(float(1 / np.sqrt(2 * summed[k]))))
        for part in ledger.parts:
            rate = float(part.rate[k])
            sampled_replace = budget.adjacency == "replace" and rate < 1
            square = participation.charged(part, budget.accounting, ledger.colluders)[:, k]
            for value, count in zip(*np.unique(square[square > 0], return_counts=True)):
                gaussian = dp_accounting.GaussianDpEvent(float(1 / np.sqrt(value)) * (2 if sampled_replace else 1))
                one = gaussian if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, gaussian)
                events.append(dp_accounting.SelfComposedDpEvent(one, int(count)))
        for release in ledger.releases:
            if (square_one := float(release.square(ledger.clients)[k])) > 0:
                one = dp_accounting.GaussianDpEvent(square_one**-0.5)
                events.append(dp_accounting.SelfComposedDpEvent(one, release.times))
        out.append(dp_accounting.ComposedDpEvent(events) if events else dp_accounting.NoOpDpEvent())
    return out
