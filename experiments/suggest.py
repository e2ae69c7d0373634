"""What was probably meant: the known word nearest to a misspelt one, and a short list of all.

Knows nothing of where the words come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CUTOFF = 0.6
MOST_LISTED = 40


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like `word`, if one is; of dotted keys the last part counts, too."""
    known = list(known)
    whole = {name.lower(): name for name in reversed(known)}
    if found := get_close_matches(word.lower(), whole, n=1, cutoff=CUTOFF):
        return whole[found[0]]
    ends = {name.rpartition(".")[2].lower(): name for name in reversed(known)}
    found = get_close_matches(word.rpartition(".")[2].lower(), ends, n=1, cutoff=CUTOFF)
    return ends[found[0]] if found else None


def no_option(group: str, name: str, known: Iterable[str]) -> str:
    """The sentence for an option of a config group that there is not."""
    known = sorted(known)
    meant = nearest(name, known)
    hint = f": did you mean {group}={meant}?" if meant else "."
    return f"there is no {group}={name}{hint} The choices are {listing(known)}."


def listing(known: Iterable[str]) -> str:
    """Names with commas between them, the first of many."""
    known = list(known)
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return ", ".join(known[:MOST_LISTED]) + more
