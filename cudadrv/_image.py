"""Images: recognizes PTX, cubins and fatbins, and checks that they are complete.

The driver is given an address without a length, so it would read past the end of a truncated image.
"""

import struct
from typing import NamedTuple

ELF = b"\x7fELF"
FATBIN = b"\x50\xed\x55\xba"
FATBIN_WRAPPER = b"\xb1\x43\x62\x46"  # the structure in a program that points to a fatbin
ELF_64_LITTLE = b"\x02\x01"  # the class and the byte order in an ELF header
ELF_HEADER = 64
ELF_PROGRAM = 56
ELF_SECTION = 64
ELF_OF_CUDA = 190  # the machine in an ELF header
ELF_NOT_IN_FILE = 8  # the kind of a section that takes no bytes of the file
FATBIN_HEADER = 16
KINDS = "PTX text, or the bytes of a cubin or a fatbin"


class Image(NamedTuple):
    """A checked image. ``data`` goes to the driver; ``text`` is the PTX as a str, or None."""

    data: bytes
    kind: str
    text: str | None


def checked_image(image: object) -> Image:
    """Check an image: PTX as str or bytes, with or without a final NUL; cubin or fatbin as bytes.

    Raises TypeError or ValueError.
    """
    if isinstance(image, str):
        data = str.encode(image)
    else:
        try:
            data = bytes(memoryview(image))  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"image must be {KINDS}, not {type(image).__name__}") from None
    if not data.rstrip(b"\0"):
        raise ValueError(f"the image is empty; it must be {KINDS}")
    if data.startswith(ELF):
        _check_cubin(data)
        return Image(data, "a cubin", None)
    if data.startswith(FATBIN):
        _check_fatbin(data)
        return Image(data, "a fatbin", None)
    if data.startswith(FATBIN_WRAPPER):
        raise ValueError(
            "the image is the wrapper of a fatbin, which only points to it; pass the bytes that it"
            " points to, or the file that nvcc -fatbin writes"
        )
    return _ptx(data.rstrip(b"\0"))


def _ptx(data: bytes) -> Image:
    text = data.decode(errors="replace")
    if b"\0" in data or ".version" not in text:
        seen = repr(data[:16]) + ("..." if len(data) > 16 else "")
        raise ValueError(
            f"the image is neither PTX (it would be text with .version in it) nor a cubin or a"
            f" fatbin: its {len(data)} bytes begin with {seen}{_advice(text)}"
        )
    return Image(data + b"\0", "PTX", text)


def _advice(text: str) -> str:
    """Return what to do with a text that is not PTX, if that can be guessed."""
    if "__global__" in text:
        return "; CUDA C has to be compiled first: cudadrv.toolkit.compile(source)"
    if text.endswith((".ptx", ".cubin", ".fatbin")):
        return "; a file is loaded by Module.from_file(path)"
    return ""


def _refuse_truncated(what: str, needed: int, data: bytes) -> None:
    if needed > len(data):
        raise ValueError(
            f"the image is {what} that was cut off: it has {len(data)} bytes, and needs {needed}"
        )


def _check_cubin(data: bytes) -> None:
    """Raise for an ELF file that is not for CUDA, and for one that is damaged or cut off."""
    _refuse_truncated("a cubin", ELF_HEADER, data)
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine != ELF_OF_CUDA:
        raise ValueError(f"the image is an ELF file for another machine ({machine}), not a cubin")
    if data[4:6] != ELF_64_LITTLE:
        raise ValueError("the image is an ELF file, but not of 64 bits and little-endian: no cubin")
    programs, sections = struct.unpack_from("<QQ", data, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<4H", data, 54)
    if (program_count and program_size != ELF_PROGRAM) or (
        section_count and section_size != ELF_SECTION
    ):
        raise ValueError(
            f"the image is a cubin with a damaged header: its tables have entries of"
            f" {program_size} and {section_size} bytes, not of {ELF_PROGRAM} and {ELF_SECTION}"
        )
    _refuse_truncated("a cubin", programs + ELF_PROGRAM * program_count, data)
    _refuse_truncated("a cubin", sections + ELF_SECTION * section_count, data)
    for at in range(sections, sections + ELF_SECTION * section_count, ELF_SECTION):
        (kind,) = struct.unpack_from("<I", data, at + 4)
        offset, size = struct.unpack_from("<QQ", data, at + 24)
        if kind != ELF_NOT_IN_FILE:
            _refuse_truncated("a cubin", offset + size, data)


def _check_fatbin(data: bytes) -> None:
    _refuse_truncated("a fatbin", FATBIN_HEADER, data)
    header, size = struct.unpack_from("<HQ", data, 6)
    _refuse_truncated("a fatbin", header + size, data)
