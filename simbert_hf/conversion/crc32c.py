"""CRC-32C (Castagnoli, RFC 3720) of large arrays, by NumPy.

The state of the sum is 32 bits, and every step of it is linear over them (XOR is the addition). So
stretches of equal length are summed side by side, each result is moved on over the zeros that
stand for the bytes behind it, and the results are added.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]
Step: TypeAlias = tuple[Words, Words]
"""A linear step: where it takes each lower half of a state, and each upper half."""

POLYNOMIAL = 0x82F63B78  # bits reversed
LANES = 4096  # stretches; a power of two


def crc32c(data: bytes) -> int:
    """Sum some bytes.

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    state = 0xFFFFFFFF
    width = len(data) // (4 * LANES)  # words a lane
    if width:
        words = np.frombuffer(data, "<u4", LANES * width).reshape(LANES, width)
        lanes = np.zeros(LANES, dtype=np.uint32)
        lanes[0] = state
        for column in np.ascontiguousarray(words.T):
            lanes = take(over_word(), lanes ^ column)
        step = over_words(width)
        while len(lanes) > 1:
            lanes = take(step, lanes[::2]) ^ lanes[1::2]
            step = then(step, step)
        state = int(lanes[0])
    table = byte_table().tolist()
    for byte in data[4 * LANES * width :]:
        state = table[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def take(step: Step, states: Words) -> Words:
    """Move states one step on."""
    moved: Words = step[0][states & 0xFFFF] ^ step[1][states >> 16]
    return moved


def then(first: Step, second: Step) -> Step:
    """Make two steps one."""
    return take(second, first[0]), take(second, first[1])


@lru_cache(maxsize=1)
def byte_table() -> Words:
    """Where the step over one byte takes each lowest byte of a state."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


@lru_cache(maxsize=1)
def over_word() -> Step:
    """Make the step over four bytes."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    states = np.stack([halves, halves << 16])
    for _ in range(4):
        states = byte_table()[states & 255] ^ (states >> 8)
    return states[0], states[1]


@lru_cache(maxsize=16)  # a checkpoint has few shapes
def over_words(count: int) -> Step:
    """Make the step over ``count`` times four bytes."""
    if count == 1:
        return over_word()
    half = over_words(count // 2)
    whole = then(half, half)
    return then(whole, over_word()) if count % 2 else whole
