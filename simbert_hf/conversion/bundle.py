"""Read TensorFlow checkpoints (``Saver``'s V2 format, a "tensor bundle") without TensorFlow.

``NAME.index`` is a table in LevelDB's format: blocks of sorted keys, each of which leaves out the
prefix it shares with the previous key. It gives each variable's type, shape and place in the files
``NAME.data-00000-of-0000N``, which hold raw numbers. Nothing in a checkpoint is ever executed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simbert_hf.utils.extras import require

crc32c = require("google_crc32c", "convert").value
MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48  # bytes: two block handles, padding, the magic number
FLOATS = {1: "<f4", 2: "<f8", 14: "<u2", 19: "<f2"}  # TensorFlow's numbers of types
BFLOAT16 = 14  # the upper half of a float32


@dataclass(frozen=True)
class Variable:
    """Where a variable is stored, according to the index.

    Attributes:
        dtype: TensorFlow's number for the type.
        shape: Its shape.
        shard: Number of its data file.
        offset: Where it begins there, in bytes.
        size: Its length in bytes.
        checksum: Masked CRC-32C of these bytes.
        sliced: Whether it is stored in parts.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class TensorBundle:
    """The variables of one checkpoint, read one at a time.

    Args:
        prefix: Path of the checkpoint without ``.index`` and ``.data-...``.

    Attributes:
        variables: By name.

    Raises:
        OSError: If the index, or a data file that it names, is missing.
        ValueError: If the index is damaged, or of another kind.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(f"{prefix.name}.index")
        try:
            records = dict(table_records(self.index.read_bytes()))
            header = fields(records.pop(b""))
            whole = {key: v for key, v in records.items() if not key.startswith(b"\0")}  # no slices
            self.variables = {key.decode(): parse_variable(v) for key, v in whole.items()}
            self.shards = number(header, 1)
        except (ValueError, LookupError, OverflowError, TypeError, struct.error) as error:
            raise ValueError(
                f"{self.index} is not a complete index of a TensorFlow checkpoint ({error}); copy "
                "the checkpoint's files again."
            ) from error
        if header.get(2):
            raise ValueError(f"{self.index} was written by a big-endian machine; save it again.")
        for shard in range(self.shards):
            if not self._data(shard).is_file():
                raise FileNotFoundError(
                    f"{self._data(shard)} is missing: {self.index.name} names {self.shards} data "
                    "file(s); copy them all."
                )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables."""
        return {name: variable.shape for name, variable in self.variables.items()}

    def _data(self, shard: int) -> Path:
        name = f"{self.prefix.name}.data-{shard:05d}-of-{self.shards:05d}"
        return self.prefix.with_name(name)

    def read(self, name: str) -> np.ndarray:
        """Read a variable as float32.

        Raises:
            KeyError: If there is no variable of this name.
            ValueError: If it is stored in parts, its type is not floating-point, or its file is
                truncated or damaged.
        """
        variable = self.variables[name]
        if variable.sliced or variable.dtype not in FLOATS:
            raise ValueError(
                f"{name} in {self.index} is "
                + ("stored in parts" if variable.sliced else f"of type {variable.dtype}")
                + "; only complete floating-point variables (types 1, 2, 14, 19) can be read."
            )
        path = self._data(variable.shard)
        dtype = np.dtype(FLOATS[variable.dtype])
        if variable.size != math.prod(variable.shape) * dtype.itemsize:
            raise ValueError(
                f"{name} in {self.index} has {variable.size} bytes, too few or many for its shape."
            )
        with path.open("rb") as file:
            file.seek(variable.offset)
            data = file.read(variable.size)
        if len(data) < variable.size or masked(crc32c(data)) != variable.checksum:
            raise ValueError(
                f"{path} is {'truncated' if len(data) < variable.size else 'damaged'} at {name}: "
                "copy it again."
            )
        values = np.frombuffer(data, dtype).reshape(variable.shape)
        if variable.dtype == BFLOAT16:
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)


def masked(checksum: int) -> int:
    """Return a checksum as it is stored: rotated and shifted, to be safe for sums of sums."""
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def table_records(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a LevelDB table.

    Raises:
        ValueError: If it is not one, damaged or compressed.
    """
    if len(table) < FOOTER or not table.endswith(MAGIC):
        raise ValueError("its end is missing")
    footer, at = table[-FOOTER:], 0
    for _ in range(2):  # offset and size of a block that describes others, which is skipped
        _, at = varint(footer, at)
    for _, handle in block_records(block(table, footer[at:])):
        yield from block_records(block(table, handle))


def block(table: bytes, handle: bytes) -> bytes:
    """Cut out the block that a handle (its offset and size) points to."""
    start, at = varint(handle, 0)
    size, _ = varint(handle, at)
    end = start + size
    compression, checksum = struct.unpack_from("<BI", table, end)
    if compression:
        raise ValueError("its blocks are compressed")
    if masked(crc32c(table[start : end + 1])) != checksum:
        raise ValueError(f"the block at byte {start} is damaged")
    return table[start:end]


def block_records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of one block."""
    (restarts,) = struct.unpack_from("<I", content, len(content) - 4)
    end, at, key = len(content) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = varint(content, at)
        own, at = varint(content, at)
        size, at = varint(content, at)
        key = key[:shared] + content[at : at + own]
        at += own
        yield key, content[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number with seven bits per byte; return it and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(message: bytes) -> dict[int, Any]:
    """Read a protocol buffer: numbers and bytes by field; the last one of a repeated field."""
    return dict(all_fields(message))


def all_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers and values of a protocol buffer."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        if tag & 7 == 0:
            value, at = varint(message, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size
        elif tag & 7 == 5:
            yield tag >> 3, int.from_bytes(message[at : at + 4], "little")
            at += 4
        else:
            raise ValueError(f"an entry has a field of kind {tag & 7}")


def number(message: Mapping[int, Any], field: int) -> int:
    """Return a field that holds a number, 0 if it is not set; raise a ValueError if it does not.

    Example:
        >>> number({1: 5}, 1), number({1: 5}, 2)
        (5, 0)
    """
    found = message.get(field, 0)
    if not isinstance(found, int) or found >= 2**63:
        raise ValueError(f"the field {field} is {found!r:.40}")
    return found


def parse_variable(message: bytes) -> Variable:
    """Read a ``BundleEntryProto``."""
    found = fields(message)
    dims = (fields(dim) for field, dim in all_fields(found.get(2, b"")) if field == 2)
    shape = tuple(number(dim, 1) for dim in dims)
    dtype, shard, offset, size, checksum = (number(found, i) for i in (1, 3, 4, 5, 6))
    return Variable(dtype, shape, shard, offset, size, checksum, sliced=7 in found)
