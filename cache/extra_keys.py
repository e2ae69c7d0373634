"""What besides token ids decides whether two K and V are the same: adapter, tenant, weights, the caller's own.

Every part is written as (kind, length, bytes), so no two kinds and no two splits of one string can ever read alike:
a salt equal to an adapter's name is another key.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """Extra parts of a cache key. A part left None takes no part; an empty string is a part of its own.

    `lora` names an adapter and `lora_version` its content (a hash), so that the same name with new content misses.
    `tenant` is a salt: equal salts share, different ones never do. `caller` is free.
    """

    lora: str | None = None
    lora_version: str | None = None
    tenant: str | None = None
    caller: str | None = None

    def encode(self, weights_version: str = "") -> bytes:
        """The parts and the version of the weights, typed and length-delimited; injective."""
        parts = (
            (b"w", weights_version or None),
            (b"l", self.lora),
            (b"v", self.lora_version),
            (b"t", self.tenant),
            (b"c", self.caller),
        )
        return b"".join(_field(kind, value) for kind, value in parts if value is not None)


def _field(kind: bytes, value: str) -> bytes:
    payload = value.encode("utf-8", "surrogatepass")
    return kind + len(payload).to_bytes(8, "little") + payload


NO_EXTRA_KEYS = ExtraKeys()


PARTS = {"w": "weights", "l": "adapter", "v": "adapter version", "t": "salt", "c": "caller"}
"""What people call the parts of a key, by the letter each is written with."""


def decode(encoded: bytes) -> dict[str, str]:
    """The inverse of `ExtraKeys.encode`: part → value, without the parts that were left out."""
    parts, start = {}, 0
    while start < len(encoded):
        end = start + 9 + int.from_bytes(encoded[start + 1 : start + 9], "little")
        parts[PARTS[chr(encoded[start])]] = encoded[start + 9 : end].decode("utf-8", "surrogatepass")
        start = end
    return parts


def differing_parts(a: bytes, b: bytes) -> tuple[str, ...]:
    """Names of the parts in which two encoded keys differ."""
    ours, theirs = decode(a), decode(b)
    return tuple(name for name in PARTS.values() if ours.get(name) != theirs.get(name))
