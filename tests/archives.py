"""Archives of arrays that cannot be read, each in a way that zipfile, zlib or NumPy tells by another error."""

import io
import zipfile

import numpy as np


def harmed(archive: bytes, harm: str) -> bytes:
    """An archive with its first member encrypted, packed by a method nobody has, torn, or larger than any memory."""
    if harm == "endless array":
        content, header = io.BytesIO(), io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
        with zipfile.ZipFile(io.BytesIO(archive)) as whole, zipfile.ZipFile(content, "w") as file:
            for number, name in enumerate(whole.namelist()):
                file.writestr(name, whole.read(name) if number else header.getvalue())
        return content.getvalue()
    changed, local, central = bytearray(archive), archive.index(b"PK\x03\x04"), archive.index(b"PK\x01\x02")
    if harm == "torn stream":
        changed[local + 8 : local + 10] = changed[central + 10 : central + 12] = b"\x08\x00"  # deflated, it says
        start = local + 30 + changed[local + 26] + changed[local + 28]
        changed[start : start + 2] = b"\xff\xff"
    for place, flag, method in ((local, 6, 8), (central, 8, 10)):
        if harm == "encrypted":
            changed[place + flag] |= 1
        if harm == "unknown method":
            changed[place + method] = 97
    return bytes(changed)
