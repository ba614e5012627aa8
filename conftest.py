"""Doctests of bridges are collected where the framework they lead to is installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["src/otafl/connect/flower/*"]
