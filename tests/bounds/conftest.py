"""CARES' MNIST study, as far as the certifier sees it."""

from cares_setting import arms, paper  # noqa: F401
