"""Numbers in words: signed shares that never read as minus nothing, and nouns that agree with their count.

Knows nothing of what is counted.
"""

from __future__ import annotations


def signed_percent(share: float) -> str:
    """0.123 as "+12%", -0.123 as "−12%", and whatever rounds to nothing as "0%"."""
    text = f"{share:+.0%}"
    return "0%" if text in ("-0%", "+0%") else text.replace("-", "\N{MINUS SIGN}")


def number(count: float, thing: str) -> str:
    """1234, "prompt" as "1,234 prompts"; the plural is that with an s."""
    return f"{count:,.0f} {thing}{'s' * (count != 1)}"
