import pytest

from otafl.core import kernels


@pytest.mark.parametrize(
    ("capability", "has"),
    [("9.0", True), ("8.6", True), ("12.0", True), ("7.5", False), ("gfx90a", False), ("", False)],
)
def test_other_makes_and_older_gpus_have_no_kernel(capability, has):
    assert kernels.tensor_cores(capability) == has
