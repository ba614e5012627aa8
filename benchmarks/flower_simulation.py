"""Flower's own simulation (Ray) of the federation that `engine.py` calls "mlp": one step of 20 clients a round.

    python benchmarks/flower_simulation.py --threads 1      as many clients at a time as there are cores
    python benchmarks/flower_simulation.py --threads 2      one client at a time, on two cores

Run in an environment with flwr[simulation] and torch. The same model, data, batches, clipping and evaluation; FedAvg
adds up; nothing is wireless or private. Data and model stay in each worker between messages: as fast as Flower goes.
Prints one line of JSON: seconds until the first round, and of every round.
"""

import argparse
import itertools
import json
import logging
import os
import time
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))  # where Ray's workers find the apps

from flwr.simulation import run_simulation

from flower_federation import client_app, server_app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    began, ends = time.perf_counter(), []
    cores = len(os.sched_getaffinity(0))
    backend: Any = {
        "init_args": {"num_cpus": cores, "include_dashboard": False, "log_to_driver": False},
        "client_resources": {"num_cpus": args.threads, "num_gpus": 0.0},
    }
    run_simulation(server_app(args.clients, args.rounds, ends), client_app(args.clients, args.threads),
                   num_supernodes=args.clients, backend_config=backend)  # fmt: skip
    if len(ends) != args.rounds + 1:
        raise SystemExit(f"{len(ends) - 1} of {args.rounds} rounds were run")
    rounds = [after - before for before, after in itertools.pairwise(ends)]
    print(json.dumps({"start_s": ends[0] - began, "rounds_s": rounds, "whole_s": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
