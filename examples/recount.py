"""Recount a run's privacy with somebody else's code: dp_accounting, from the events in the run folder.

Usage: `python examples/recount.py RUN`
"""

import sys
from pathlib import Path

from dp_accounting.rdp import RdpAccountant

from otafl.privacy import Ledger
from otafl.runs.folder.store import RunFolder


def main(path: Path) -> None:
    run = RunFolder.open(path)
    for label in run.labels():
        for file in sorted(run.scheme(label).path.glob("ledger-*.bin")):
            ledger = Ledger.load(file)
            ours = ledger.spent("rdp")
            worst = int(ours.eps.argmax())
            accountant = RdpAccountant()
            accountant.compose(ledger.export_dp_events()[worst])
            theirs = accountant.get_epsilon(ledger.budget.delta)
            print(f"{label}, {file.stem}: client {worst}, ours {ours.worst:.4f}, dp_accounting {theirs:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
