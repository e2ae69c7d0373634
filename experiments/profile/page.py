"""A profile as one HTML page.

Knows nothing of how anything was found.
"""

from __future__ import annotations

from experiments.html.render import count, percent, render_page
from experiments.profile.report import Profile, Row
from experiments.wording import number

SHADES = ((0.999, "all"), (0.5, "most"), (0.25, "half"), (0.1, "few"), (0.0, "rare"))


def page(profile: Profile) -> str:
    """The whole page. Texts of prompts appear as text, whatever markup they hold."""
    return render_page("token_profile", profile=profile, shade=shade, tip=tip)


def shade(share: float) -> str:
    """The colour class of a share of all prompts."""
    return next(name for least, name in SHADES if share >= least)


def tip(row: Row) -> str:
    """What a token says when pointed at."""
    lines = [
        f"token {row['position']}, id {row['token']}",
        f"{number(row['prompts'], 'prompt')} agree ({percent(row['share'])})",
    ]
    lines += [f"{count(other['prompts'])} have {other['text']} instead" for other in row["others"]]
    if row["ended"]:
        lines.append(f"{count(row['ended'])} end in front of it")
    return "\n".join(lines)
