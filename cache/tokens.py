"""Token ids as they travel: packed int32, or ids of a trace that become tokens only when somebody asks.

A cache never needs the token ids of a block one by one; it needs to know whether two blocks hold the *same* ones.
So a sequence of tokens offers `contents(block_size)`: one hashable per full block, equal exactly when the token ids
are equal. Two encodings never alias: mixing them in one cache costs hits, never correctness.

Knows nothing of positions, prefixes or keys.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

INT32_MAX = 2**31 - 1
TOKEN_BYTES = 4
TOKEN_BITS = 8 * TOKEN_BYTES
MOST_UNPACKED = 64
"""Blocks cut out of packed tokens in one call."""


Segment = tuple[bytes, int, int, int]
"""(contents of blocks first … stop - 1, bytes per block, first, stop)"""


class Tail(NamedTuple):
    """The partly filled last block, written as full ones are (`packed_contents`) as far as it goes."""

    content: bytes
    num_tokens: int
    stride: int
    """Bytes of a full block."""


class TokenIds(ABC):
    """An immutable sequence of token ids."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of tokens."""

    @abstractmethod
    def packed(self, start: int = 0, stop: int | None = None) -> bytes:
        """Tokens `start` to `stop` as little-endian int32."""

    @abstractmethod
    def contents(self, block_size: int, start: int = 0, stop: int | None = None) -> Sequence[Hashable]:
        """One content per *full* block of `block_size` tokens, front to back; of blocks `start` to `stop` alone."""

    def packed_contents(self, block_size: int) -> tuple[bytes, int]:
        """The contents of the full blocks as bytes, one after another, and how many bytes each takes.

        Within one block size, contents of equal width are equal exactly when the token ids are. Bytes behind the last
        full block mean nothing.
        """
        return self.packed(0, len(self) // block_size * block_size), block_size * TOKEN_BYTES

    def tail(self, block_size: int) -> Tail | None:
        """The partly filled last block; None for a prompt that ends on a block boundary."""
        rest = len(self) % block_size
        return Tail(self.packed(len(self) - rest), rest, block_size * TOKEN_BYTES) if rest else None

    def segments(self, block_size: int) -> list[Segment]:
        """`packed_contents` as one segment."""
        return [(*self.packed_contents(block_size), 0, len(self) // block_size)]

    def tolist(self) -> list[int]:
        """The token ids as Python integers."""
        return unpack(self.packed())


class PackedTokens(TokenIds):
    """Token ids held as little-endian int32 bytes; the content of a block is its slice of them."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        if len(data) % TOKEN_BYTES:
            raise ValueError(f"packed token ids take {TOKEN_BYTES} bytes each, got {len(data)} bytes")
        _check_signs(data)
        self.data = data

    @classmethod
    def of(cls, token_ids: Iterable[int]) -> PackedTokens:
        """Pack integers. Raises ValueError for an id that is negative or does not fit int32."""
        return cls(_packed(token_ids))

    def __len__(self) -> int:
        return len(self.data) // TOKEN_BYTES

    def packed(self, start: int = 0, stop: int | None = None) -> bytes:
        return self.data[start * TOKEN_BYTES : None if stop is None else stop * TOKEN_BYTES]

    def contents(self, block_size: int, start: int = 0, stop: int | None = None) -> Sequence[Hashable]:
        step, num_full = block_size * TOKEN_BYTES, len(self) // block_size
        end = num_full if stop is None else min(stop, num_full)
        contents: list[Hashable] = []
        while start < end:  # so many at once that slicing them by themselves takes longer, and no format is long
            count = min(end - start, MOST_UNPACKED)
            contents += struct.unpack_from(f"{step}s" * count, self.data, start * step)
            start += count
        return contents

    def packed_contents(self, block_size: int) -> tuple[bytes, int]:
        return self.data, block_size * TOKEN_BYTES


class TraceTokens(TokenIds):
    """Tokens of a trace that only names blocks: id `b` stands for the tokens b·unit, b·unit + 1, … b·unit + unit − 1.

    Consecutive made-up tokens are fully told by the first of them, so wherever the block size divides the trace's
    unit (or the unit divides it) a block's content is that one token (or a tuple of them) and no other is ever made.
    Where that would be every token anyway it is written as packed tokens are.
    """

    __slots__ = ("ids", "num_tokens", "unit")

    def __init__(self, ids: Sequence[int], num_tokens: int, unit: int) -> None:
        """`ids`: block ids front to back, the last one possibly partial; `unit`: tokens per id.

        Raises ValueError where the count of ids contradicts `num_tokens`, or an id's tokens do not fit int32.
        """
        if unit < 1 or num_tokens < 0:
            raise ValueError(f"a trace has 0 or more tokens in units of 1 or more, got {num_tokens} in units of {unit}")
        if len(ids) != -(-num_tokens // unit):
            raise ValueError(f"{num_tokens} tokens need {-(-num_tokens // unit)} ids of {unit} tokens, got {len(ids)}")
        if ids and (min(ids) < 0 or (max(ids) + 1) * unit - 1 > INT32_MAX):
            raise ValueError(f"block ids must lie in 0..{(INT32_MAX + 1) // unit - 1} for their tokens to fit int32")
        self.ids = ids
        self.num_tokens = num_tokens
        self.unit = unit

    def __len__(self) -> int:
        return self.num_tokens

    def packed(self, start: int = 0, stop: int | None = None) -> bytes:
        stop = self.num_tokens if stop is None else min(stop, self.num_tokens)
        unit, tokens = self.unit, array("i")
        for index in range(start // unit, -(-stop // unit)):
            first = self.ids[index] * unit
            low, high = max(start - index * unit, 0), min(stop - index * unit, unit)
            tokens.extend(range(first + low, first + high))
        return little_endian(tokens)

    def contents(self, block_size: int, start: int = 0, stop: int | None = None) -> Sequence[Hashable]:
        unit, num_full = self.unit, self.num_tokens // block_size
        stop = num_full if stop is None else min(stop, num_full)
        if unit > 1 and block_size > 1:
            if block_size == unit:
                return [b * unit for b in self.ids[start:stop]]
            if unit % block_size == 0:
                k = unit // block_size
                first = start // k
                ids = self.ids[first : -(-stop // k)]
                heads = [h for b in ids for h in range(b * unit, (b + 1) * unit, block_size)]
                return heads[start - first * k : stop - first * k]
            if block_size % unit == 0:
                k = block_size // unit
                return [tuple(b * unit for b in self.ids[i * k : (i + 1) * k]) for i in range(start, stop)]
        return PackedTokens(self.packed(start * block_size, stop * block_size)).contents(block_size)

    def packed_contents(self, block_size: int) -> tuple[bytes, int]:
        unit = self.unit
        if unit == 1 or block_size == 1 or (block_size % unit and unit % block_size):
            return super().packed_contents(block_size)
        heads = np.array(self.ids, dtype="<i4") * unit
        if block_size < unit:
            heads = (heads[:, None] + np.arange(0, unit, block_size, dtype="<i4")).reshape(-1)
        return heads.tobytes(), max(block_size // unit, 1) * TOKEN_BYTES

    def tail(self, block_size: int) -> Tail | None:
        unit, rest = self.unit, self.num_tokens % block_size
        if not rest or unit == 1 or (unit % block_size and block_size % unit):
            return super().tail(block_size)
        start = self.num_tokens - rest
        if block_size < unit:
            return Tail(_word(self.ids[start // unit] * unit + start % unit), rest, TOKEN_BYTES)
        heads = b"".join(_word(b * unit) for b in self.ids[start // unit :])
        return Tail(heads, rest, block_size // unit * TOKEN_BYTES)


def num_common_words(a: bytes, b: bytes | bytearray) -> int:
    """Leading int32 that two packed pieces have in common."""
    length = min(len(a), len(b))
    differing = int.from_bytes(a[:length], "little") ^ int.from_bytes(b[:length], "little")
    return ((differing & -differing).bit_length() - 1) // TOKEN_BITS if differing else length // TOKEN_BYTES


def int32(token_ids: Iterable[int]) -> array[int]:
    """Token ids as an int32 array, the same one where they are one already.

    Raises ValueError for an id that is negative or does not fit; nothing ever wraps.
    """
    if isinstance(token_ids, array) and token_ids.typecode == "i":
        tokens = token_ids
    else:
        try:
            tokens = array("i", token_ids)
        except OverflowError as error:
            raise ValueError(f"token ids must lie in 0..{INT32_MAX} (int32): {error}") from None
    _check_signs(little_endian(tokens))
    return tokens


def pack(token_ids: Iterable[int]) -> bytes:
    """Integers as little-endian int32. Raises ValueError as `int32` does."""
    data = _packed(token_ids)
    _check_signs(data)
    return data


def little_endian(tokens: array[int]) -> bytes:
    """The bytes of an int32 array."""
    if sys.byteorder == "big":
        tokens = tokens[:]
        tokens.byteswap()
    return tokens.tobytes()


def unpack(data: bytes) -> list[int]:
    """The inverse of `pack`."""
    tokens = array("i", data)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens.tolist()


def _word(value: int) -> bytes:
    return value.to_bytes(TOKEN_BYTES, "little")


def _packed(token_ids: Iterable[int]) -> bytes:
    if isinstance(token_ids, list):
        try:
            return struct.pack(f"<{len(token_ids)}i", *token_ids)  # four times as fast as an array from a list
        except struct.error:
            pass  # the same again, for an error that names the id
    return little_endian(int32(token_ids))


def _check_signs(data: bytes) -> None:
    if not data[TOKEN_BYTES - 1 :: TOKEN_BYTES].isascii():  # a sign bit somewhere
        raise ValueError(f"token ids must lie in 0..{INT32_MAX} (int32), got {min(unpack(data))}")
