"""Why a looked-up block hit or missed: the words, one for each block.

Knows nothing of how a reason is found; that is the ledger's.
"""

from __future__ import annotations

HIT = "hit"
FIRST_SEEN = "first_seen"
EVICTED = "evicted"
SHORT_SHARE = "short_share"
KEY_DIFFERS = "key_differs"
AFTER_GAP = "after_gap"
SKIPPED = "skipped"
LAST_TOKEN = "last_token"
NOT_CACHED = "not_cached"
RESET = "reset"

MEANING = {
    HIT: "resident and reached: nothing to compute",
    FIRST_SEEN: "no earlier request had this prefix",
    EVICTED: "was cached, and made room for others",
    SHORT_SHARE: "an earlier request had its beginning, but not the whole block",
    KEY_DIFFERS: "an earlier request had the same tokens under another adapter, salt, weights version or caller's key",
    AFTER_GAP: "resident, but a block before it was missing",
    SKIPPED: "the request asked for no lookup",
    LAST_TOKEN: "known, but holds the last token of the prompt, which is always computed",
    NOT_CACHED: "an earlier request had it, but it was not kept: still computed, given up, or its key is taken",
    RESET: "was cached once, and the cache has been reset since",
}
"""Every reason, in the order in which people want to see them."""
REASONS = tuple(MEANING)
