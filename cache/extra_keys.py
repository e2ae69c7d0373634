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
