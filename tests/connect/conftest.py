"""Without Flower the tests of the bridge are left out; `test_installed` says so."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["grids.py", "test_flower_*.py"]
