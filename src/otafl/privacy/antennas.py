"""What a server with M antennas learns of one client: the charge of the whole array. Host, float64.

Per coordinate the server receives, as 2M real numbers (real parts first),

    y = sum_k g_k x_k + sum_j q_j r_j + n,   g_k = (Re h_k b_k, Im h_k b_k),  q_j = (Re h_j a_j, Im h_j a_j)       (A1)
    C = v0 I + sum over j who keep their noise secret of q_j q_j'                                                  (A2)

with h_k the gains to its antennas, b_k = `tx`, a_j = `noise`, r_j real standard normal, v0 the trusted noise per real
dimension and antenna. A change of client k's message by at most `sensitivity` is a Gaussian shift whose square is

    1/z_k^2 = sensitivity_k^2  g_k' C^-1 g_k                                                                       (A3)

Whatever beam the server learns by, it holds all of y: the combined gain is never what is charged. A client's own noise
protects it for any number of antennas (at most |b/a|^2); the noise of others only along its own direction.
"""

from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Complexes, Floats

GRID = 65  # shares tried before the search narrows
NARROW = 48  # golden sections: the best share to 1e-9 of the whole


def received(array: Array, scale: Array) -> Floats:
    """g of (A1), (..., K, 2M): gains `array` (..., K, M) times a transmit scale (..., K)."""
    arriving = np.asarray(array, np.complex128) * np.asarray(scale, np.complex128)[..., None]
    return np.concatenate([arriving.real, arriving.imag], axis=-1)


def covariance(array: Array, noise: Array, noise_var: float, colluders: Array = None, circular: bool = False) -> Floats:
    """C of (A2), (..., 2M, 2M). `circular`: artificial noise fills both quadratures and costs twice the energy."""
    directions = _directions(array, noise, colluders, circular)
    return noise_var * np.eye(directions.shape[-1]) + np.swapaxes(directions, -1, -2) @ directions


def full_charge(
    array: Array,
    tx: Array,
    noise: Array,
    noise_var: float,
    sensitivity: Array,
    colluders: Array = None,
    circular: bool = False,
) -> Floats:
    """1/z^2 of every client, (..., K), against a server that keeps all antennas (A3); inf where nothing hides.

    Two antennas, one client: without artificial noise the charge is |tx|^2 |h|^2 / noise_var.

    >>> round(float(full_charge([[3.0, 4.0j]], [0.1], [0.0], noise_var=0.5, sensitivity=[2.0])[0]), 12)
    2.0
    """
    validate.not_negative("noise_var", noise_var)
    spectrum = _spectrum(_directions(array, noise, colluders, circular))
    parts = _parts(received(array, tx), spectrum)
    return np.asarray(sensitivity, np.float64) ** 2 * _weighted(parts, noise_var + spectrum.squares)


def combined_charge(
    array: Array, beam: Array, tx: Array, noise: Array, noise_var: float, sensitivity: Array, colluders: Array = None
) -> Floats:
    """1/z^2, (..., K), against a server that throws all away but Re f^H y: a weaker adversary, never above (A3).

    `beam` f (..., M) of norm one.
    """
    amplitude, artificial = (np.real(combined(array, beam) * np.asarray(scale)) for scale in (tx, noise))
    if colluders is not None:
        artificial = np.where(np.asarray(colluders, bool), 0.0, artificial)
    variance = noise_var + np.sum(artificial**2, axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amplitude == 0, 0.0, (amplitude * np.asarray(sensitivity)) ** 2 / variance)


def uncertain_charge(
    array: Array,
    tx: Array,
    noise: Array,
    noise_var: float,
    sensitivity: Array,
    error: float,
    colluders: Array = None,
    share: float | None = None,
) -> Floats:
    """Upper bound of 1/z^2, (..., K), where the true gains lie within `error` |array_k| of `array` (..., K, M) (A4).

    `share` is the s of (A4), at which the bound is returned alone; None searches it for every client and round, with
    s = 1 (no artificial noise counts) and the bound by the client's own noise among the choices.
    """
    validate.not_negative("error", error)
    if share is not None:
        validate.in_left_open("share", share, 0, 1)
    if error == 0 and share is None:
        return full_charge(array, tx, noise, noise_var, sensitivity, colluders)
    directions = _directions(array, noise, colluders, False)
    bound = _Uncertain(received(array, tx), directions, noise_var, error)
    root = bound.best() if share is None else bound.at(np.asarray(share, np.float64))
    charge = root**2
    if share is None:
        charge = np.minimum(charge, _own_noise(array, tx, noise, noise_var, error, colluders))
    return np.asarray(sensitivity, np.float64) ** 2 * charge


def combined(array: Array, beam: Array) -> Complexes:
    """f^H h, (..., K): what a beam (..., M) makes of gains (..., K, M)."""
    return np.asarray(np.einsum("...m,...km->...k", np.conj(beam), np.asarray(array, np.complex128)))


class _Spectrum(NamedTuple):
    """Axes of the artificial noise: C = noise_var I + vectors' diag(squares) vectors."""

    vectors: Floats  # (..., 2M, 2M), rows
    squares: Floats  # (..., 2M), not negative


def _directions(array: Array, noise: Array, colluders: Array, circular: bool) -> Floats:
    """q of everybody who keeps its noise secret, (..., J, 2M)."""
    kept = np.asarray(noise, np.complex128)
    if colluders is not None:
        kept = np.where(np.asarray(colluders, bool), 0.0, kept)
    along = received(array, kept)
    return np.concatenate([along, received(array, 1j * kept)], axis=-2) if circular else along


def _spectrum(directions: Floats) -> _Spectrum:
    """By the singular values of q itself: squaring first would lose what lies 1e-16 below the loudest noise."""
    size = directions.shape[-1]
    if not np.any(directions):
        shape = directions.shape[:-2]
        return _Spectrum(np.broadcast_to(np.eye(size), (*shape, size, size)), np.zeros((*shape, size)))
    small = np.linalg.qr(directions, mode="r")  # q'q = r'r, at most 2M rows
    _, values, vectors = np.linalg.svd(small, full_matrices=True)
    values = np.concatenate([values, np.zeros((*values.shape[:-1], size - values.shape[-1]))], axis=-1)
    values = np.where(values > size * np.finfo(np.float64).eps * values[..., :1], values, 0.0)
    return _Spectrum(vectors, values**2)


def _parts(signal: Floats, spectrum: _Spectrum) -> Floats:
    """Squared components of g along the axes, (..., K, 2M); what rounding leaves across all of them is zero."""
    parts = np.einsum("...ij,...kj->...ki", spectrum.vectors, signal) ** 2
    rounding = (signal.shape[-1] * np.finfo(np.float64).eps) ** 2
    return np.where(parts > rounding * np.sum(parts, axis=-1, keepdims=True), parts, 0.0)


def _weighted(parts: Floats, variances: Floats) -> Floats:
    """sum_i parts_i / variances_i, (..., K), with 0/0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = parts / variances[..., None, :]
    return np.asarray(np.where(parts > 0, ratio, 0.0).sum(-1))


class _Uncertain:
    """(A4) of all clients as a function of s."""

    def __init__(self, signal: Floats, directions: Floats, noise_var: float, error: float):
        spectrum = _spectrum(directions)
        self.parts, self.squares = _parts(signal, spectrum), spectrum.squares
        self.size = np.sqrt(np.sum(signal**2, axis=-1))
        self.noise_var, self.error = noise_var, error
        self.energy = np.sum(directions**2, axis=(-2, -1))[..., None]  # sum_j |q_j|^2, (..., 1)

    def at(self, share: Floats) -> Floats:
        """1/(z sensitivity), (..., K), at s () or (..., K); inf where `floor` is not positive."""
        floor = self.noise_var - (1 / share - 1) * self.error**2 * self.energy
        variances = floor[..., None] + (1 - share)[..., None] * self.squares[..., None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            along = np.where(self.parts > 0, self.parts / variances, 0.0).sum(-1)
            beside = np.where(self.size > 0, self.error * self.size / np.sqrt(variances[..., -1]), 0.0)
            found = np.sqrt(along) + beside
        return np.where(floor > 0, found, np.where(self.size > 0, np.inf, 0.0))

    def best(self) -> Floats:
        """The least bound over s, each client and round by itself: a grid, then golden sections around its best."""
        least = self.error**2 * self.energy / (self.noise_var + self.error**2 * self.energy)
        least = np.where(np.isfinite(least), least, 1.0)

        def share(part: Array) -> Floats:
            return np.asarray(np.minimum(least + (1 - least) * part, 1.0))

        grid = np.linspace(0, 1, GRID) ** 2  # good shares are small where errors are
        shape = self.size.shape
        found = np.full(shape, np.inf)
        low, high = np.zeros(shape), np.ones(shape)
        for before, here, after in zip(grid[:-1], grid[1:], [*grid[2:], 1.0]):
            value = self.at(np.broadcast_to(share(here), shape))
            better = value < found
            found = np.where(better, value, found)
            low, high = np.where(better, before, low), np.where(better, after, high)
        golden = (np.sqrt(5) - 1) / 2
        for _ in range(NARROW):
            left, right = high - golden * (high - low), low + golden * (high - low)
            at_left, at_right = self.at(share(left)), self.at(share(right))
            found = np.minimum(found, np.minimum(at_left, at_right))
            low, high = np.where(at_left > at_right, left, low), np.where(at_left > at_right, high, right)
        return found


def _own_noise(array: Array, tx: Array, noise: Array, noise_var: float, error: float, colluders: Array) -> Floats:
    """|b|^2 n / (v0 + |a|^2 n), n = ((1 + error) |h|)^2, (..., K): others' noise counts nothing.

    It holds where a and b have one phase; where they have not, or the client colludes, its noise counts nothing either.
    """
    sent, own = np.asarray(tx, np.complex128), np.asarray(noise, np.complex128)
    if colluders is not None:
        own = np.where(np.asarray(colluders, bool), 0.0, own)
    turned = sent * np.conj(own)
    own = np.where(np.abs(turned.imag) <= 32 * np.finfo(np.float64).eps * np.abs(turned), own, 0.0)
    power = (1 + error) ** 2 * np.sum(np.abs(array) ** 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        charge = np.abs(sent) ** 2 * power / (noise_var + np.abs(own) ** 2 * power)
    return np.where(np.abs(sent) ** 2 * power == 0, 0.0, charge)
