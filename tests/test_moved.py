"""tools/moved.json leads from every public name of version 0.1.0 that still exists to where it is now."""

import json
from importlib import import_module
from pathlib import Path

MOVED = json.loads((Path(__file__).parents[1] / "tools/moved.json").read_text(encoding="utf-8"))


def test_every_new_place_exists():
    wrong = []
    for old, new in MOVED.items():
        module, _, name = new.rpartition(".")
        try:
            found = hasattr(import_module(module), name)
        except ImportError:
            found = False
        if not found:
            try:
                import_module(new)
            except ImportError:
                wrong.append(f"{old} -> {new}")
    assert not wrong, "\n".join(wrong)


def test_the_five_systems_are_on_the_map():
    for old in ("otafl.certify.Problem", "otafl.designs.cdpb.solver", "otafl.policies.register", "otafl.plan.Plan"):
        assert old in MOVED
