"""What every part of the benchmark is from outside: a script with --json and --quick."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def part(about: str | None, measure: Callable[[bool], dict[str, Any]]) -> None:
    """Measure, and leave the numbers where they were asked for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does everything run?")
    args = parser.parse_args()
    found = measure(args.quick)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
