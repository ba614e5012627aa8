"""The paper's symbols in a file of `otafl plan eezofl`, turned into its tables: N, mu, Omega, n, Lambda."""

import math
from typing import Any

from otafl.core.errors import InputError

DEVICES = {"N": "count", "mu": "mu", "sigma": "sigma", "Omega": "Omega", "fourth_moment": "fourth_moment"}
RING = {"n": "custom_ring.n", "primes": "custom_ring.primes"}
STANDARD_DEGREES = (4096, 8192)


def describe(schema: dict[str, Any]) -> None:
    """Add the symbols to the JSON schema of a file."""
    keys, devices = schema["properties"], "another place for the entry of [devices]"
    number = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}], "description": devices}
    keys |= {"N": {"type": "integer", "description": devices}} | dict.fromkeys(("mu", "sigma", "Omega"), number)
    keys["n"] = {"type": "integer", "description": "ring degree: 4096, 8192, or another one with primes"}
    keys["primes"] = {"type": "array", "items": {"type": "integer"}, "description": "whose product is q"}
    keys["Lambda"] = {"type": "number", "description": "2^Lambda_log2"}
    schema["required"] = [key for key in schema["required"] if key != "devices"]


def tables(data: Any) -> Any:
    """`data` with N, mu, sigma, Omega under [devices], n as ring and Lambda as a power of two."""
    if not isinstance(data, dict):
        return data
    data = dict(data)
    listed = {key: data.pop(symbol) for symbol, key in DEVICES.items() if data.get(symbol) is not None}
    if listed and data.get("devices") is not None:
        raise InputError("N, mu, sigma and Omega stand at the top or under [devices], not in both places")
    if listed:
        data["devices"] = listed
    _ring(data)
    if (Lambda := data.pop("Lambda", None)) is not None:
        if data.get("Lambda_log2") is not None:
            raise InputError("Lambda and Lambda_log2 are two names of one thing; give one of them")
        data["Lambda_log2"] = _log2(Lambda)
    return data


def _ring(data: dict[str, Any]) -> None:
    degree, primes = data.pop("n", None), data.pop("primes", None)
    if degree is not None or primes is not None:
        if data.get("ring") is not None or data.get("custom_ring") is not None:
            raise InputError("give n (with primes), ring or [custom_ring], one of them")
        if primes is None and degree not in STANDARD_DEGREES:
            raise InputError(f"n={degree!r} needs primes; without them n must be 4096 (109 bit) or 8192 (218 bit)")
        if primes is None:
            data["ring"] = str(degree)
        else:
            data["custom_ring"] = {"n": degree, "primes": primes}
    elif type(data.get("ring")) is int:
        data["ring"] = str(data["ring"])


def _log2(Lambda: Any) -> int:
    number = isinstance(Lambda, int | float) and not isinstance(Lambda, bool)
    if not (number and math.isfinite(Lambda) and Lambda >= 1 and math.frexp(Lambda)[0] == 0.5):
        raise InputError(f"Lambda={Lambda!r} must be a power of two >= 1; or give Lambda_log2")
    return math.frexp(Lambda)[1] - 1
