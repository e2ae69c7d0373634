"""What the cache itself costs, `radix` beside `hash_chain` in the same run, on one core.

    python -m experiments.bench_cache
    python -m experiments.bench_cache --requests 2000 --only serving lookup
    python -m experiments.bench_cache --only policies --workload stdlib_agent --num-blocks 5% --allocators radix
    python -m experiments.bench_cache --figure experiments/figures/cache_cost.png

Processor time, best of several repeats, garbage collection off. Ratios of one run compare; absolute times belong to the
machine named beside them. The last line is one JSON object. Knows nothing of models: what a block is worth is another
bench.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.bench import policies as bench
from experiments.bench.blocks import measure
from experiments.bench.growth import ALLOCATORS, LOOKUPS, cost_by_pool, lookup, make_allocator
from experiments.bench.memory import bytes_per_block
from experiments.bench.serving import BLOCK_SIZE, NUM_BLOCKS, allocators, packed_prompts
from experiments.bench.traces import TRACES, replay_seconds
from experiments.cli import cli
from experiments.environment import environment

LONG = 32_768
MOST_REQUESTS = 4000
"""Under every policy."""
Results = dict[str, Any]
Options = argparse.Namespace


def serving(console: Console, options: Options) -> Results:
    """Requests per second of every allocator."""
    figures = allocators(packed_prompts(options.requests))
    table = _table("workload=zipf_system_prompts, block size 16, 20,000 blocks, LRU", "allocator")
    for name in ("requests/s", "µs per request", "x hash_chain", "token hit rate"):
        table.add_column(name, justify="right")
    for name, figure in figures.items():
        reference = figures["hash_chain from lists" if "lists" in name else "hash_chain"]
        rate = figure.requests_per_second
        ratio = rate / reference.requests_per_second
        table.add_row(name, f"{rate:,.0f}", f"{1e6 / rate:.1f}", f"{ratio:.1f}", f"{figure.token_hit_rate:.4f}")
    console.print(table)
    return {name: round(figure.requests_per_second) for name, figure in figures.items()}


def policies(console: Console, options: Options) -> Results:
    """Requests per second of every policy, over the tree and over the chain."""
    limit = min(options.requests, MOST_REQUESTS)
    traffic = bench.traffic(options.workload, options.block_size, options.num_blocks, limit)
    names = list(dict.fromkeys(["lru", *options.policies]))
    by_allocator = {name: bench.costs(traffic, name, names) for name in options.allocators}
    table = _table(
        f"workload={options.workload}, {len(traffic.requests):,} requests, block size {traffic.block_size}, "
        f"{traffic.num_blocks:,} blocks",
        "evictor",
    )
    for name in by_allocator:
        table.add_column(f"{name}\nrequests/s", justify="right")
        table.add_column("cost\nx lru", justify="right")
    table.add_column("token\nhit rate", justify="right")
    result: Results = {}
    for policy in sorted(names):
        cells = []
        for name, figures in by_allocator.items():
            rate = figures[policy].requests_per_second
            ratio = figures["lru"].requests_per_second / rate
            cells += [f"{rate:,.0f}", f"{ratio:.1f}"]
            result[f"{policy} on {name}, x lru"] = round(ratio, 2)
        table.add_row(policy, *cells, f"{figures[policy].token_hit_rate:.4f}")
    console.print(table)
    return result


def lookups(console: Console, options: Options) -> Results:
    """Microseconds to find a resident prompt of 32k tokens."""
    result = {
        "radix, one run": lookup("radix", LONG),
        "radix, 2,048 runs": lookup("radix", LONG, LONG // 16),
        "hash_chain": lookup("hash_chain", LONG),
    }
    table = _table("lookup of 32,768 resident tokens (2,048 blocks)", "allocator")
    table.add_column("µs", justify="right")
    for name, micros in result.items():
        table.add_row(name, f"{micros:,.0f}")
    console.print(table)
    return {name: round(micros, 1) for name, micros in result.items()}


def memory(console: Console, options: Options) -> Results:
    """Bytes per cached block beyond its token ids, the pool full."""
    prompts = packed_prompts(min(options.requests, 2000))
    result = {name: bytes_per_block(partial(make_allocator, name, NUM_BLOCKS), prompts) for name in ALLOCATORS}
    table = _table("memory per cached block of 16 tokens beyond the tokens' 64 bytes, pool full", "allocator")
    table.add_column("bytes", justify="right")
    for name, size in result.items():
        table.add_row(name, f"{size:.0f}")
    console.print(table)
    return {name: round(size, 1) for name, size in result.items()}


def blocks(console: Console, options: Options) -> Results:
    """Nanoseconds per block, what is done to it apart."""
    figures = measure()
    table = _table("per block, prompts that share nothing", "what")
    table.add_column("ns per block", justify="right")
    table.add_column("x builtin hash", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.0f}", f"{value / figures['hash builtin']:.2f}")
    console.print(table)
    return {name: round(value, 1) for name, value in figures.items()}


def growth(console: Console, options: Options) -> Results:
    """Cost of a request against the pool, of a lookup against the prompt: what the figure draws."""
    by_pool = {name: cost_by_pool(name) for name in ALLOCATORS}
    by_prompt = {name: {tokens: lookup(name, tokens) for tokens in LOOKUPS} for name in ALLOCATORS}
    by_prompt["radix, a run per block"] = {tokens: lookup("radix", tokens, tokens // 16) for tokens in LOOKUPS}
    table = _table("µs per request, pool full", "blocks of the pool")
    for name in by_pool:
        table.add_column(name, justify="right")
    for num_blocks in by_pool["radix"]:
        table.add_row(f"{num_blocks:,}", *(f"{costs[num_blocks]:.1f}" for costs in by_pool.values()))
    console.print(table)
    return {"µs per request by pool": _rounded(by_pool), "µs per lookup by prompt tokens": _rounded(by_prompt)}


def traces(console: Console, options: Options) -> Results:
    """Seconds to replay the public traces in small blocks, and whether both allocators counted the same."""
    table = _table("instant replay of a whole trace, LRU: seconds, reading included", "trace")
    for name in ("blocks", *ALLOCATORS, "same hits and evictions"):
        table.add_column(name, justify="right")
    result: Results = {}
    for trace in TRACES:
        name = f"{trace.workload}, block size {trace.block_size}"
        runs = replay_seconds(trace)
        if runs is None:
            table.add_row(name, "not in PAGELAB_DATA")
            continue
        counts = {(metrics["hit_blocks"], metrics["evictions"]) for _, metrics in runs.values()}
        blocks = runs["radix"][1]["full_blocks"]
        cells = [f"{seconds:.2f}" for seconds, _ in runs.values()]
        table.add_row(name, f"{blocks:,}", *cells, "yes" if len(counts) == 1 else "NO")
        result[name] = {allocator: round(seconds, 2) for allocator, (seconds, _) in runs.items()}
    console.print(table)
    return result


SECTIONS: dict[str, Callable[[Console, Options], Results]] = {
    "serving": serving, "policies": policies, "lookup": lookups, "memory": memory, "growth": growth, "blocks": blocks,
    "traces": traces,
}  # fmt: skip


def main() -> None:
    """Print the tables; the last line is JSON."""
    names = bench.policy_names()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="these parts alone")
    parser.add_argument("--requests", type=_at_least_one, default=20_000, help="of the workload (20,000)")
    only = parser.add_argument_group("of `policies` alone")
    only.add_argument("--workload", default="zipf_system_prompts", help="a yaml of conf/workload")
    only.add_argument("--block-size", type=_at_least_one, default=BLOCK_SIZE, help=f"tokens ({BLOCK_SIZE})")
    only.add_argument("--num-blocks", default=str(NUM_BLOCKS), help="a count, or a share of the workload: 5%%")
    only.add_argument("--policies", nargs="+", choices=names, default=names, metavar="NAME", help="of conf/evictor")
    only.add_argument("--allocators", nargs="+", choices=bench.ALLOCATORS, default=list(bench.ALLOCATORS))
    parser.add_argument("--figure", type=Path, help="draw the growth of cost into this png; includes `growth`")
    options = parser.parse_args()
    console = Console(stderr=True)
    asked = [name for name in SECTIONS if name in options.only or (name == "growth" and options.figure)]
    result: Results = {name: SECTIONS[name](console, options) for name in asked}
    if options.figure:
        from experiments.plots.cache_cost import draw_cache_cost
        from experiments.plots.style import render

        options.figure.write_bytes(render(draw_cache_cost(*result["growth"].values()))["png"])
        console.print(f"drawn: {options.figure}")
    place = environment()
    print(json.dumps(result | {"requests": options.requests, "environment": place}))


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", min_width=len(title) + 2)
    table.add_column(first, no_wrap=True)
    return table


def _rounded(curves: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    return {name: {x: round(y, 2) for x, y in curve.items()} for name, curve in curves.items()}


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {value}")
    return value


if __name__ == "__main__":
    cli(main)
