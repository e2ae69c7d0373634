"""Shared prefixes read once give what one pass gives, over random forests; and a planner that knows when not to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.attention import cascade, naive
from kernels.attention.forest import CascadePlan, PrefixNode, check_forest, plan_cascade, suffix_starts
from kernels.attention.parts import Parts
from kernels.attention.prefix_work import lay_out
from kernels.tuning import AttentionConfig

TILES = AttentionConfig(32, 32)


def build(make_case, nodes, query_lens, suffix_lens, block_size=8, **shape):
    """A batch whose requests hold the forest's tokens and then some of their own; only nodes name shared blocks."""
    starts = suffix_starts(nodes, len(query_lens))
    lens = [a + q + b for a, q, b in zip(starts, query_lens, suffix_lens, strict=True)]
    case = make_case(query_lens, lens, block_size=block_size, **shape)
    own = case.block_table.clone()
    placed = []
    for node in nodes:  # the node's tokens are those its first request already has
        first, count = node.start // block_size, node.num_tokens // block_size
        blocks = own[node.requests[0], first : first + count]
        placed.append(PrefixNode(node.start, node.num_tokens, tuple(blocks.tolist()), node.requests))
        for r in node.requests:
            case.block_table[r, first : first + count] = -7  # a node's columns are not read
    return case, placed


def forest(tree, block_size=8):
    """(start block, blocks, requests) → nodes without blocks yet."""
    return [PrefixNode(a * block_size, n * block_size, (), tuple(rs)) for a, n, rs in tree]


TREES = {
    "none": [],
    "one root": [(0, 3, [0, 1, 2, 3])],
    "some share": [(0, 2, [1, 3])],
    "two roots": [(0, 2, [0, 2]), (0, 5, [1, 3])],
    "a tree": [(0, 3, [0, 1, 2, 3]), (3, 2, [0, 1]), (3, 1, [2, 3]), (5, 4, [0])],
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("num_splits", [1, 3], ids=lambda n: f"splits{n}")
def test_cascade_gives_the_reference(tree, num_splits, make_case, agree, device):
    case, nodes = build(make_case, forest(TREES[tree]), [1, 4, 2, 1], [3, 0, 20, 0], heads=6)
    actual = cascade.cascade(
        *case.args(device), nodes, return_lse=True, validate=True, config=TILES, num_splits=num_splits
    )
    agree(actual, naive.cascade(*case.args(), nodes, return_lse=True))


OPTIONS = {
    "window": {"window": 12},
    "softcap and alibi": {"softcap": 3.0, "alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 1.0])},
    "sinks": {"sinks": torch.tensor([0.5, -3.0, 4.0, 0.0])},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_reach_both_halves(name, make_case, agree, device):
    case, nodes = build(make_case, forest(TREES["a tree"]), [1, 4, 2, 1], [3, 0, 20, 0])
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in OPTIONS[name].items()}
    actual = cascade.cascade(*case.args(device), nodes, return_lse=True, config=TILES, **moved)
    agree(actual, naive.cascade(*case.args(), nodes, return_lse=True, **OPTIONS[name]))


@pytest.mark.parametrize("tree", ["some share", "a tree"])
def test_workspace_garbage_is_never_read(tree, make_case, agree, device, monkeypatch):
    def poisoned(problem, num_parts):
        return Parts(*(t.fill_(float("nan")) for t in original(problem, num_parts)))

    original = cascade.new_parts
    monkeypatch.setattr(cascade, "new_parts", poisoned)
    case, nodes = build(make_case, forest(TREES[tree]), [1, 4, 2, 1], [3, 0, 20, 0])
    actual = cascade.cascade(*case.args(device), nodes, return_lse=True, config=TILES)
    agree(actual, naive.cascade(*case.args(), nodes, return_lse=True))


@pytest.mark.parametrize("block_size", [1, 24, 64], ids=lambda b: f"bs{b}")
def test_any_block_size_and_fp16(block_size, dtype, make_case, agree, device):
    nodes = forest([(0, 3, [0, 1]), (3, 1, [1])], block_size)
    case, nodes = build(make_case, nodes, [1, 2], [0, 5], block_size, dtype=dtype, heads=3, kv_heads=1)
    actual = cascade.cascade(*case.args(device), nodes, return_lse=True, config=TILES)
    agree(actual, naive.cascade(*case.args(), nodes, return_lse=True), dtype)


def test_long_nodes_are_cut_into_key_ranges(make_case, agree, device):
    case, nodes = build(make_case, forest([(0, 16, [0, 1]), (16, 5, [0])]), [1, 2], [0, 5])
    work = lay_out(
        nodes, case.query_start_loc.tolist(), case.seq_lens.tolist(), num_heads=4, num_kv_heads=2, block_size=8,
        device=torch.device(device), processors=8, config=TILES,
    )  # fmt: skip
    assert work.num_parts > 2
    actual = cascade.cascade(*case.args(device), work, return_lse=True, config=TILES)
    agree(actual, naive.cascade(*case.args(), nodes, return_lse=True))


@settings(deadline=None, max_examples=12, derandomize=True)
@given(data=st.data())
def test_random_forests_give_one_pass(data, make_case, agree, device):
    num = data.draw(st.integers(1, 5), "requests")
    nodes, frontier = [], [(0, list(range(num)))]
    while frontier:
        start, members = frontier.pop()
        size = data.draw(st.integers(1, len(members)), "members")
        chosen = members[:size]
        blocks = data.draw(st.integers(0, 4), "blocks")
        if blocks:
            nodes.append((start, blocks, chosen))
            if len(nodes) < 5 and data.draw(st.booleans(), "deeper"):
                frontier.append((start + blocks, chosen))
        if members[size:] and start == 0:
            frontier.append((0, members[size:]))
    queries = [data.draw(st.integers(0, 4), "query_len") for _ in range(num)]
    suffixes = [data.draw(st.integers(0, 12), "suffix") for _ in range(num)]
    case, placed = build(make_case, forest(nodes), queries, suffixes, dim=32)
    actual = cascade.cascade(*case.args(device), placed, return_lse=True, config=TILES, validate=True)
    agree(actual, naive.cascade(*case.args(), placed, return_lse=True))


@pytest.mark.parametrize(
    ("tree", "what"),
    [
        ([(1, 2, [0])], "prefix ends at 0"),
        ([(0, 2, [0]), (0, 2, [0])], "prefix ends at 16"),
        ([(0, 2, [0]), (3, 2, [0])], "prefix ends at 16"),
        ([(0, 2, [0, 0])], "each of its requests once"),
        ([(0, 2, [7])], "request 7"),
        ([(0, 0, [0, 1])], "one or more whole blocks"),
    ],
    ids=["gap at the root", "overlap", "gap", "twice", "unknown", "no blocks"],
)
def test_forests_that_are_none_are_refused(tree, what):
    nodes = [PrefixNode(n.start, n.num_tokens, tuple(range(n.num_tokens // 8)), n.requests) for n in forest(tree)]
    with pytest.raises(ValueError, match=rf"^plan: .*{what}"):
        check_forest(nodes, 8, 2)


def test_a_prefix_that_reaches_past_a_query_is_refused(make_case, device):
    case = make_case([5], [20], block_size=8)
    node = PrefixNode(0, 16, tuple(case.block_table[0, :2].tolist()), (0,))
    with pytest.raises(ValueError, match=r"^plan: .*past request 0's first query"):
        cascade.cascade(*case.args(device), [node])


def test_a_node_over_blocks_outside_the_pool_is_refused_where_asked_and_left_out_otherwise(make_case, agree, device):
    case = make_case([1, 1], [20, 20], block_size=8)
    node = PrefixNode(0, 16, (int(case.block_table[0, 0]), 10**6), (0, 1))
    with pytest.raises(ValueError, match=r"^plan names a block outside"):
        cascade.cascade(*case.args(device), [node], validate=True)
    actual = cascade.cascade(*case.args(device), [node], return_lse=True)
    agree(actual, naive.cascade(*case.args(), [node], return_lse=True))


def plan_for(num_tokens, batch):
    node = PrefixNode(0, num_tokens, tuple(range(num_tokens // 16)), tuple(range(batch)))
    llama = {"num_heads": 32, "num_kv_heads": 8, "head_dim_k": 128, "head_dim_v": 128, "element_bytes": 2}
    return plan_cascade([node], [1] * batch, **llama)


def test_the_planner_takes_long_shared_prefixes():
    plan = plan_for(8192, 64)
    assert plan.pays
    assert plan.bytes_each > 5 * plan.bytes_once


@pytest.mark.parametrize(("num_tokens", "batch"), [(1024, 8), (16, 64), (8192, 1)])
def test_the_planner_knows_when_not_to(num_tokens, batch):
    plan = plan_for(num_tokens, batch)
    assert plan == CascadePlan((), plan.bytes_each, plan.bytes_each)


def test_a_child_is_kept_only_below_a_kept_parent():
    shape = {"num_heads": 32, "num_kv_heads": 8, "head_dim_k": 128, "head_dim_v": 128, "element_bytes": 2}
    root = PrefixNode(0, 4096, tuple(range(256)), tuple(range(32)))
    pair = PrefixNode(4096, 16, (300,), (0, 1))  # 16 tokens shared by two: not worth their partial results
    below = PrefixNode(4112, 8192, tuple(range(400, 912)), (0, 1))
    plan = plan_cascade([below, pair, root], [512] * 2 + [1] * 30, **shape)
    assert plan.nodes == (root,)
