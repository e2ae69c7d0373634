"""What the cache can refuse. Every one of these leaves it exactly as it was."""


class CacheError(Exception):
    """Base of all refusals."""


class OutOfBlocks(CacheError):
    """Not enough free or evictable blocks now; later, after something was freed, there may be."""


class SequenceTooLarge(CacheError):
    """More blocks than the whole pool has: waiting will not help."""


class CacheInUse(CacheError):
    """Something that needs an idle cache was asked for while sequences hold blocks."""


class MisuseError(CacheError):
    """A caller broke the protocol: freed twice, appended to a sequence that holds nothing, shrank what is cached."""


class PolicyError(CacheError):
    """An eviction policy broke its contract: chose a block in use, one with a resident child, or none at all."""
