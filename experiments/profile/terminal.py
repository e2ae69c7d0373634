"""A profile in the terminal, on standard error: the fields first, since they are what one came for.

Knows nothing of how anything was found.
"""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from experiments.profile.report import Profile, Row
from experiments.profile.shown import BOUNDARY
from experiments.wording import number

MOST_FORKS, MOST_GROUPS = 6, 14
STYLES = ((0.999, "bold green"), (0.5, "yellow"), (0.1, "dark_orange"), (0.0, "red"))


def show(profile: Profile, console: Console | None = None) -> None:
    """Print all of it."""
    console = console or Console(stderr=True, highlight=False)
    summary = profile.summary
    console.print(Text(f"{profile.title}", style="bold"))
    console.print(
        f"{number(summary['prompts'], 'prompt')}, {number(summary['prompt_tokens'], 'token')}; "
        f"{summary['shared_rate']:.1%} of them were seen before by an earlier prompt "
        "with the same beginning; all agree on the first "
        f"{number(summary['agreed_tokens'], 'token' if summary['granularity'] == 1 else 'block')}"
    )
    for note in profile.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    for part in (_path(profile), _forks(profile), _fixes(profile), _groups(profile), _block_sizes(profile)):
        if part is not None:
            console.print()
            console.print(part)


def _path(profile: Profile) -> Group | None:
    if not profile.positions:
        return None
    line = Text()
    for row in profile.positions:
        line.append(BOUNDARY, style="dim")
        style = next(style for least, style in STYLES if row["share"] >= least)
        line.append(row["text"], style=f"{style} reverse" if row["special"] else style)
    legend = Text("most prompts begin (colour: how many still agree: ", style="bold")
    for text, (_, style) in zip(("all", "half", "a tenth", "fewer"), STYLES, strict=True):
        legend.append(text, style=style).append(", " if text != "fewer" else "; special tokens reversed)")
    return Group(legend, line)


def _forks(profile: Profile) -> Table | None:
    forks = [row for row in profile.positions if row["num_others"] or row["ended"]]
    if not forks:
        return None
    unit = "token" if profile.summary["granularity"] == 1 else "block"
    table = Table(
        unit, "of", "go on with", "part to", title="where they part", title_justify="left", title_style="bold"
    )
    for row in sorted(forks, key=lambda row: -sum(o["prompts"] for o in row["others"]))[:MOST_FORKS]:
        others = "  ".join(f"{BOUNDARY}{o['text']}{BOUNDARY} {o['prompts']:,}" for o in row["others"])
        more = (
            f"  and {row['num_others'] - len(row['others']):,} more" if row["num_others"] > len(row["others"]) else ""
        )
        total = row["prompts"] + row["ended"] + sum(o["prompts"] for o in row["others"])
        table.add_row(
            f"{row['position']}",
            f"{total:,}{'' if not more else '+'}",
            Text(f"{BOUNDARY}{row['text']}{BOUNDARY} {row['prompts']:,}"),
            Text(others + more + (f"  {row['ended']:,} end here" if row["ended"] else "")),
        )
    return table


def _fixes(profile: Profile) -> Table | Text | None:
    summary = profile.summary
    if summary["token_hit_rate"] is None:
        return None
    where = f"blocks of {summary['block_size']}, pool of {summary['num_blocks']}"
    before = f"token hit rate now {summary['token_hit_rate']:.1%} ({where})"
    if not profile.fixes:
        return Text(f"{before}; no changing field was found whose mending would raise it", style="bold")
    title = f"{before}; what mending each field would give, by replay"
    columns = ("field", "where", "token", "values", "alone", "with those above", "left to compute")
    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in profile.fixes:
        table.add_row(
            Text(row["kind"], style="bold"),
            Text(_where(row)),
            f"{row['token']:,}",
            Text(", ".join(row["examples"][:2])[:48]),
            f"{row['token_hit_rate_alone']:.1%}",
            f"{row['token_hit_rate_with_those_above']:.1%}",
            f"{row['computed_tokens_with_those_above'] / row['computed_tokens_before']:.0%}",
        )
    return table


def _where(row: Row) -> str:
    context = row["context"].strip().replace("\n", "↵")
    return f"{row['where']}, behind “{context}”" if context else row["where"]


def _groups(profile: Profile) -> Tree | None:
    if not profile.groups:
        return None
    root = Tree(Text("groups that share a beginning (2 % of the prompts or more)", style="bold"))
    nodes: dict[int | None, Tree] = {None: root}
    for row in profile.groups[:MOST_GROUPS]:
        who, what = number(row["prompts"], "prompt"), number(row["shared_tokens"], "token")
        label = Text(f"{who} ({row['share']:.0%}) share {what} ")
        label.append(row["ends"], style="dim")
        nodes[row["group"]] = nodes[row["parent"]].add(label)
    if len(profile.groups) > MOST_GROUPS:
        root.add(Text(f"and {len(profile.groups) - MOST_GROUPS} more in the record", style="dim"))
    return root


def _block_sizes(profile: Profile) -> Table:
    table = Table("block size", "token hit rate", "shared, but lost to a partial block", "in last partial blocks",
                  title="by block size, with an infinite cache", title_justify="left", title_style="bold")  # fmt: skip
    for column in table.columns:
        column.justify = "right"
    for row in profile.block_sizes:
        table.add_row(
            f"{row['block_size']}",
            f"{row['token_hit_rate']:.2%}",
            f"{row['lost_tokens']:,} ({row['lost_rate']:.2%})",
            f"{row['tail_tokens']:,} ({row['tail_rate']:.2%})",
        )
    return table
