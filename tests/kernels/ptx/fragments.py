"""Where the PTX ISA places matrix elements in the registers of a warp; formats of elements."""

import numpy as np

LANES = np.arange(32)
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8}
BITS |= {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}

# Error bounds for an element of A * B + C by its type, relative to the sum of all |a * b| and |c|
# that contribute to it.
BOUNDS = {"f16": 2.0**-10, "f32": 2.0**-20, "f64": 2.0**-50}


def random_integers(random: np.random.Generator, item: str, shape: tuple[int, int]) -> np.ndarray:
    """Random integers from the whole range of the format."""
    top = 1 << BITS[item]
    low = -top // 2 if item[0] == "s" else 0
    return random.integers(low, low + top, shape)


def places(matrix: str, item: str, m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of matrix elements, by lane, register, and place in the register.

    `matrix` is "a", "b" or "c"; d has the layout of c. b has 8 columns.
    """
    width = 64 if item == "f64" else 32
    count = width // BITS[item]  # number of elements in a register
    items = {"a": m * k, "b": 8 * k, "c": 8 * m}[matrix]
    lane, reg, i = np.ix_(LANES, np.arange(items // (32 * count)), np.arange(count))
    group, member = lane // 4, lane % 4
    if matrix == "c":
        number = reg * count + i
        return group + 8 * (number // 2), 2 * member + number % 2
    if matrix == "b":
        return member * count + i + 4 * count * reg, group + 0 * (reg + i)
    upper = m // 8  # this many registers differ only in the row
    return group + 8 * (reg % upper) + 0 * i, member * count + i + 4 * count * (reg // upper)


def quad_places(matrix: str, item: str, layout: str) -> tuple[np.ndarray, ...]:
    """For mma.m8n8k4 with f16: the index of the matrix, and rows and columns of elements."""
    items = 8 if matrix == "c" else 4
    count = 32 // BITS[item]
    lane, reg, i = np.ix_(LANES, np.arange(items // count), np.arange(count))
    number, half = reg * count + i, lane // 16 * 4
    if matrix == "c" and item == "f32":
        row, column = lane % 2 + (number & 2) + half, (number & 4) + (lane & 2) + number % 2
    elif matrix == "c":
        row, column = lane % 4 + half, number
    elif matrix == "a":
        row, column = (lane % 4 + half, number) if layout == "row" else (number + half, lane % 4)
    else:
        row, column = (lane % 4, number + half) if layout == "row" else (number, lane % 4 + half)
    return np.broadcast_arrays(lane // 4 % 4, row, column)


def encode(values: np.ndarray, item: str) -> np.ndarray:
    """The bits of values, which must be exact in the format."""
    if item in ("f16", "f32", "f64"):
        return values.astype(f"f{BITS[item] // 8}").view(f"u{BITS[item] // 8}").astype("u8")
    if item in ("bf16", "tf32"):
        return values.astype("f4").view("u4").astype("u8") >> (16 if item == "bf16" else 0)
    if item in ("e4m3", "e5m2"):
        table = decode(np.arange(256), item)
        order = np.argsort(np.where(np.isnan(table), np.inf, table), kind="stable")
        return order[np.searchsorted(table[order][:254], values)].astype("u8")
    return values.astype("i8").view("u8") & np.uint64((1 << BITS[item]) - 1)


def decode(bits: np.ndarray, item: str) -> np.ndarray:
    if item in ("f16", "f32", "f64"):
        return bits.astype(f"u{BITS[item] // 8}").view(f"f{BITS[item] // 8}").astype("f8")
    if item in ("bf16", "tf32"):
        return (bits.astype("u4") << (16 if item == "bf16" else 0)).view("f4").astype("f8")
    if item == "e5m2":
        return (bits.astype("u2") << 8).view("f2").astype("f8")
    if item == "e4m3":
        fraction, exponent = bits & 7, bits >> 3 & 15
        size = np.where(exponent, (8 + fraction) * 2.0 ** (exponent - 10.0), fraction / 512)
        size = np.where(bits & 127 == 127, np.nan, size)
        return np.where(bits & 128, -size, size)
    top = 1 << (BITS[item] - 1) if item[0] == "s" else 0
    return (bits.astype("i8") ^ top) - top


def pack(values: np.ndarray, where: tuple[np.ndarray, np.ndarray], item: str) -> np.ndarray:
    """Pack elements into the registers of all lanes: an array with the axes (lane, register)."""
    bits = encode(values, item)[where]
    shifts = (np.arange(bits.shape[2]) * BITS[item]).astype("u8")
    return np.bitwise_or.reduce(bits << shifts, axis=2)


def unpack(registers, where, item: str, shape: tuple[int, int]) -> np.ndarray:
    count = where[0].shape[2] if where[0].ndim == 3 else 1
    shifts = (np.arange(count) * BITS[item]).astype("u8")
    mask = np.uint64((1 << BITS[item]) - 1)
    found = np.zeros(shape, "f8" if item[0] in "fbte" else "i8")
    found[where] = decode(registers.astype("u8")[:, :, None] >> shifts & mask, item)
    return found
