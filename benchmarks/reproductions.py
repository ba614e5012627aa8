"""How long reproductions take on two cores: the CPU time of one round, by short runs, times the rounds they train.

    python benchmarks/reproductions.py cares-table1 40 biasvar-fig2:2,5 5

A number after a name is the length of the shorter run; the longer one has three times as many rounds. Numbers behind
a colon are those of the schemes, from 0, that stand for all of a long preset. Both runs are made twice and the
second, for which everything is compiled, counts. CPU time is that of all threads, so it may be measured on a busy
machine; two cores are taken to halve it. Prints a Markdown table; the minutes stand in the presets. Where the record
has more seeds than the preset (docs/results/index.md names them) its rounds are counted, not the preset's.
"""

import sys
import tempfile
import time
from pathlib import Path

from otafl.core.markdown import table
from otafl.reproductions.reproduction import trained_in
from otafl.reproductions.verdicts import recorded
from otafl.runs.presets import find, read_preset
from otafl.runs.runner import run_in
from otafl.runs.schema import Experiment, load


def cpu_of_round(name: str, rounds: int, chosen: list[int]) -> float:
    """CPU seconds of one round of one seed, mean over the schemes of a preset, or over those of these numbers."""
    whole = load(find(name))
    schemes = [whole.scheme[number].model_copy(update={"rounds": None}) for number in chosen] or whole.scheme
    few = whole.model_copy(update={"seeds": whole.seed_list[:2], "scheme": schemes})
    (less, short), (more, long) = (spent(few.model_copy(update={"rounds": count})) for count in (rounds, 3 * rounds))
    return (long - short) / (more - less)


def spent(experiment: Experiment) -> tuple[int, float]:
    """Rounds that were trained, all seeds and schemes together, and their CPU seconds."""
    for _ in range(2):
        folder, start = Path(tempfile.mkdtemp()), time.process_time()
        run_in(folder, experiment, None)
        seconds = time.process_time() - start
    return int(trained_in(folder)["rounds"]), seconds


def rounds_of(name: str) -> int:
    """Rounds of all seeds, schemes and trials: those on record, else what the file asks for."""
    told = recorded().get(name, {}).get("trained")
    if told:
        return int(told["rounds"])
    experiment, settings = load(find(name)), read_preset(find(name)).settings
    once = sum(experiment.horizon(scheme) for scheme in experiment.scheme) * len(experiment.seed_list)
    return once * max(1, len(settings.get("eps", [])))


def main(asked: list[str]) -> None:
    rows = []
    for told, rounds in zip(asked[::2], asked[1::2]):
        name, _, numbers = told.partition(":")
        each, count = cpu_of_round(name, int(rounds), [int(n) for n in numbers.split(",") if n]), rounds_of(name)
        rows.append([name, f"{count:,}", f"{1e3 * each:.3g}", f"{count * each / 2 / 60:.0f}"])
        print(*rows[-1], flush=True, file=sys.stderr)
    print("\n".join(table(("preset", "rounds trained", "CPU ms a round", "minutes on two cores"), rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
