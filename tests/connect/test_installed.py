"""What a bridge leads to must be there, and its absence is said in one line."""

from importlib.util import find_spec

import pytest

from otafl.core.errors import InputError


@pytest.mark.flower
def test_flower_is_installed():
    """Skipped where it is not, and with it all tests of the bridge."""
    pytest.importorskip("flwr", reason="Flower is not installed: make test-flower does that in a place of its own")


@pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is installed")
def test_missing_flower_is_one_clear_line():
    with pytest.raises(InputError, match=r"pip install 'otafl\[flower\]'"):
        import otafl.connect.flower  # noqa: F401
