"""Trace files: bit-exact round trips, what MATLAB does to them, and one line for every mistake."""

import warnings

import numpy as np
import pytest
from scipy.io import savemat

from otafl.channels import PrecisionWarning, TraceFile, UnitWarning, read_trace, write_trace
from otafl.channels.rows import IgnoredWarning
from otafl.core.errors import InputError

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return 1e-5 * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))


FULL = TraceFile(
    normal(5, 3),
    "TK",
    normal(5, 3),
    np.full((5, 3), 1.1e-5),
    ("gate", "yard", "Tür"),
    None,
    np.array([1.0, 2.0, 3.0]),
    1e-13,
)
BLOCKS = TraceFile(normal(4, 3, 2), "TKB", block_sizes=np.array([30, 20]))


@pytest.mark.parametrize("ending", ["npz", "mat"])
@pytest.mark.parametrize(
    "trace",
    [FULL, TraceFile(normal(4, 3, 2), "TKM"), BLOCKS, TraceFile(normal(1, 1)), TraceFile(np.zeros((2, 2), complex))],
)
def test_what_is_written_is_read_back_bit_for_bit(tmp_path, trace, ending):
    path = tmp_path / f"trace.{ending}"
    write_trace(path, trace)
    back = read_trace(path)
    for name in TraceFile._fields:
        one, other = getattr(trace, name), getattr(back, name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes(), name
        else:
            assert one == other, name


def stored(tmp_path, ending="npz", **arrays):
    path = tmp_path / f"trace.{ending}"
    if ending == "npz":
        np.savez(path, **arrays)
    else:
        savemat(path, arrays)
    return path


G = normal(4, 3)


@pytest.mark.parametrize("ending", ["npz", "mat"])
def test_real_and_imaginary_parts_may_stand_apart(tmp_path, ending):
    path = stored(tmp_path, ending, gain_re=G.real, gain_im=G.imag)
    np.testing.assert_array_equal(read_trace(path).gain, G)


@pytest.mark.parametrize(
    ("unit", "value"), [("amplitude", np.abs(G)), ("power", np.abs(G) ** 2), ("db", 20 * np.log10(np.abs(G)))]
)
def test_real_gains_say_their_unit_and_phase(tmp_path, unit, value):
    path = stored(tmp_path, gain=value)
    with pytest.raises(InputError, match=r"gain is real: say unit = amplitude \| power \| db and phase"):
        read_trace(path)
    np.testing.assert_allclose(read_trace(path, unit=unit, phase="zero").gain, np.abs(G), rtol=1e-12)
    turned = read_trace(stored(tmp_path, gain=value, unit=unit, phase="uniform"), seed=1).gain
    np.testing.assert_allclose(np.abs(turned), np.abs(G), rtol=1e-12)
    assert np.ptp(np.angle(turned)) > 1


def test_a_log_of_levels_in_csv_says_its_unit_and_may_name_its_devices(tmp_path):
    path = tmp_path / "levels.csv"
    path.write_text("\ufeff# site A\ngate, yard\n-90,-80\n-91,-inf\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"levels\.csv: gain is real: say unit"):
        read_trace(path)
    trace = read_trace(path, unit="db", phase="zero")
    assert trace.names == ("gate", "yard")
    np.testing.assert_allclose(trace.gain, [[10**-4.5, 1e-4], [10**-4.55, 0]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "gain has shape"),
        ("gate,yard\n", "gain has shape"),
        ("gate,yard\n-90,\n", "line 2: '' must be a number"),
        ("-90,\n-90,-80\n", "line 1: '' must be a number"),
        ("# site A\n-90,-80\n\n-90,1+2k\n", r"line 4: '1\+2k' must be a number: 1e-5, 1e-5-2e-6j$"),
        ("-90,-80\n-90\n", "line 2 has 1 cells, the first row 2$"),
        ("gate;yard\n-90;-80\n", "its cells are separated by ';'; write commas, and points in numbers$"),
    ],
)
def test_no_row_of_a_csv_is_lost(tmp_path, text, said):
    (tmp_path / "levels.csv").write_text(text)
    with pytest.raises(InputError, match=rf"levels\.csv: {said}"):
        read_trace(tmp_path / "levels.csv", unit="db", phase="zero")


def test_complex_gains_of_a_csv_are_as_python_or_as_matlab_writes_them(tmp_path):
    """`writematrix` and `savetxt`; Inf has an i of its own."""
    (tmp_path / "gain.csv").write_text("gate,mill-i\n1e-05+2e-06i,1.5e-3-0.2i\n0.5j, (1.e-01-2.e-01j)\n0+1i ,.5i\n")
    trace = read_trace(tmp_path / "gain.csv")
    np.testing.assert_array_equal(trace.gain, [[1e-5 + 2e-6j, 1.5e-3 - 0.2j], [0.5j, 0.1 - 0.2j], [1j, 0.5j]])
    assert trace.names == ("gate", "mill-i")
    (tmp_path / "gain.csv").write_text("-Inf,-90\n")
    assert read_trace(tmp_path / "gain.csv", unit="db", phase="zero").gain[0, 0] == 0


def test_a_single_array_is_the_gain(tmp_path):
    np.save(tmp_path / "gain.npy", G)
    np.testing.assert_array_equal(read_trace(tmp_path / "gain.npy").gain, G)


def test_no_path_in_db_is_minus_infinity(tmp_path):
    value = np.array([[-90.0, -np.inf], [-80.0, -np.inf]])
    trace = read_trace(stored(tmp_path, gain=value, unit="db", phase="zero"))
    assert trace.without_path.tolist() == [False, True] and trace.gain[0, 1] == 0


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"gain": np.where(np.arange(3) == 1, np.nan, G)}, r"gain at \(1, 2\) is .*nan.*; it must be finite"),
        ({"gain": np.where(np.arange(3) == 1, np.inf, G)}, r"gain at \(1, 2\) is .*inf.*; it must be finite"),
        ({"gain": np.array([["a"]])}, "has dtype <U1 but must be numbers"),
        ({"gain": G[0]}, r"gain has shape \(3,\) but must have shape \(rounds, devices\)"),
        ({"gain": normal(2, 2, 2)}, r"gain has shape \(2, 2, 2\); say axes = TKM \(antennas\) or TKB \(blocks\)"),
        ({"gain": normal(2, 2, 2), "axes": "KTM"}, "axes=KTM must be one of TK, TKM, TKB"),
        ({"gain": G, "axes": "TKM"}, "MATLAB drops a last axis of 1: declare antennas=1"),
        ({"gain": G, "gain_re": G.real, "gain_im": G.imag}, "give 'gain', or 'gain_re' and 'gain_im'"),
        ({"gain_re": G.real}, "give 'gain', or 'gain_re' and 'gain_im'; found gain_re"),
        ({"gain": G, "estimates": G}, "unknown array 'estimates'; did you mean 'estimate'"),
        ({"gain": G, "estimate": G[:2]}, r"estimate has shape \(2, 3\) but gain \(4, 3\)"),
        ({"gain": G, "names": np.array(["a", "b"])}, "names must be 3 different printable texts"),
        ({"gain": G, "energy": np.array([1.0, 2.0, -1.0])}, r"energy\[2\]=-1.0 must be finite and > 0"),
        ({"gain": G, "block_sizes": np.array([3])}, "block_sizes belong to axes = TKB"),
        ({"gain": normal(2, 2, 2), "axes": "TKB", "block_sizes": np.array([3])}, "1 block_sizes for 2 blocks"),
        ({"gain": G, "unit": "db"}, "unit and phase are for real gains"),
        ({"gain": -np.abs(G), "unit": "power", "phase": "zero"}, "negative entries"),
        ({"gain": G, "rms_gain": np.zeros(3)}, "rms_gain must be > 0 wherever a gain is not 0"),
    ],
)
def test_every_mistake_is_one_line(tmp_path, arrays, why):
    with pytest.raises(InputError, match=why) as caught:
        read_trace(stored(tmp_path, **arrays))
    assert "\n" not in str(caught.value)


def test_objects_and_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds Python objects"):
        read_trace(stored(tmp_path, gain=np.array([{}], object)))
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.npz")
    letters = np.full((3, 1), 0x7FFFFFFF, np.uint32).view("U1")[:, 0]
    with pytest.raises(InputError, match=r"trace.npz: cannot be read as gains"):
        read_trace(stored(tmp_path, gain=G, names=letters))
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    (tmp_path / "bad.mat").write_bytes(b"no matlab either")
    for name in ("bad.npz", "bad.mat"):
        with pytest.raises(InputError, match=name):
            read_trace(tmp_path / name)
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512)
    (tmp_path / "new.mat").write_bytes(header)
    with pytest.raises(InputError, match="save with -v7"):
        read_trace(tmp_path / "new.mat")


def test_nothing_is_transposed(tmp_path):
    path = stored(tmp_path, gain=G)
    assert read_trace(path, clients=3).gain.shape == (4, 3)
    with pytest.raises(InputError, match=r"has shape \(4, 3\), 3 devices \(the second axis\), but 4 are listed"):
        read_trace(path, clients=4)


def test_the_axis_that_matlab_drops_comes_back_where_declared(tmp_path):
    path = stored(tmp_path, "mat", gain=G, axes="TKM")
    trace = read_trace(path, clients=3, antennas=1)
    assert trace.axes == "TKM" and trace.gain.shape == (4, 3, 1)
    with pytest.raises(InputError, match="gain has 2 antennas but antennas=4"):
        read_trace(stored(tmp_path, "mat", gain=normal(4, 3, 2), axes="TKM"), antennas=4)


@pytest.mark.parametrize("kind", [np.complex64, np.float32])
def test_single_precision_is_used_and_said(tmp_path, kind):
    extra = {} if kind == np.complex64 else {"unit": "amplitude", "phase": "zero"}
    path = stored(tmp_path, gain=np.abs(G).astype(kind), **extra)
    with pytest.warns(PrecisionWarning, match="came in single precision"):
        trace = read_trace(path)
    assert trace.gain.dtype == np.complex128 and "single precision" in trace.notes[0]


def test_amplification_is_doubted(tmp_path):
    with pytest.warns(UnitWarning, match=r"abs\(gain\) > 1 at \(1, 1\)"):
        read_trace(stored(tmp_path, gain=2 + G))


def test_a_workspace_may_hold_more(tmp_path):
    with pytest.warns(IgnoredWarning, match="not used: 'carrier', 'zz'"):
        read_trace(stored(tmp_path, "mat", gain=G, zz=1.0, carrier=3.5))


def test_zeros_in_single_rounds_are_gains(tmp_path):
    zero = np.where(np.arange(4)[:, None] == 2, 0, G)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = read_trace(stored(tmp_path, gain=zero))
    assert not np.any(trace.without_path) and np.all(trace.gain[2] == 0)


def test_names_of_a_cell_array(tmp_path):
    path = stored(tmp_path, "mat", gain=G, names=np.array(["gate", "yard", "far"], object))
    assert read_trace(path).names == ("gate", "yard", "far")
