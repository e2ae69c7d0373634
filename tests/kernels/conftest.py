"""Batches over a poisoned pool, and how exact each dtype must be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass
class Case:
    """A batch over a poisoned pool: every slot that no sequence owns is NaN, unused table columns name no block."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    max_query_len: int
    max_seq_len: int

    def args(self, device: str = "cpu") -> tuple[Any, ...]:
        fields = vars(self).values()
        return tuple(f.to(device) if isinstance(f, torch.Tensor) else f for f in fields)


def build_case(
    query_lens: Sequence[int],
    seq_lens: Sequence[int],
    *,
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 64,
    dim_v: int | None = None,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    head_major: bool = False,
    seed: int = 0,
) -> Case:
    g = torch.Generator().manual_seed(seed)
    dim_v = dim if dim_v is None else dim_v
    widths = [-(-n // block_size) for n in seq_lens]
    num_blocks = sum(widths) + 3  # three canaries that belong to nobody

    def pool(d: int) -> torch.Tensor:
        if head_major:
            return torch.full((num_blocks, kv_heads, block_size, d), float("nan"), dtype=dtype).transpose(1, 2)
        return torch.full((num_blocks, block_size, kv_heads, d), float("nan"), dtype=dtype)

    k_cache, v_cache = pool(dim), pool(dim_v)
    free = torch.randperm(num_blocks, generator=g).tolist()
    table = torch.full((len(seq_lens), max([1, *widths])), 2**30, dtype=torch.int32)
    for r, n in enumerate(seq_lens):
        for i in range(widths[r]):
            block, filled = free.pop(), min(block_size, n - i * block_size)
            table[r, i] = block
            k_cache[block, :filled] = torch.randn(filled, kv_heads, dim, generator=g).to(dtype)
            v_cache[block, :filled] = torch.randn(filled, kv_heads, dim_v, generator=g).to(dtype)
    starts = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
    q = torch.randn(int(starts[-1]), heads, dim, generator=g).to(dtype)
    lens = torch.tensor(list(seq_lens), dtype=torch.int32)
    return Case(q, k_cache, v_cache, table, starts, lens, max([0, *query_lens]), max([0, *seq_lens]))


def spread_out(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """The same values in the middle of a larger poisoned tensor with its dimensions, but the last, in another order."""
    g = torch.Generator().manual_seed(seed)
    order = [*torch.randperm(tensor.dim() - 1, generator=g).tolist(), tensor.dim() - 1]
    before, after = torch.randint(0, 3, (2, tensor.dim()), generator=g).tolist()
    size = [before[d] + tensor.shape[d] + after[d] for d in order]
    poison = float("nan") if tensor.is_floating_point() else -128
    whole = torch.full(size, poison).to(tensor.dtype)
    part = whole.permute([order.index(d) for d in range(tensor.dim())])
    for d in range(tensor.dim()):
        part = part.narrow(d, before[d], tensor.shape[d])
    return part.copy_(tensor)


def assert_agree(
    actual: tuple[torch.Tensor, torch.Tensor | None],
    expected: tuple[torch.Tensor, torch.Tensor | None],
    dtype: torch.dtype = torch.float32,
) -> None:
    tolerance = TOLERANCE[dtype]
    out, lse = actual[0].cpu().float(), actual[1]
    assert torch.isfinite(out).all()
    torch.testing.assert_close(out, expected[0], atol=tolerance, rtol=tolerance)
    if expected[1] is not None:
        assert lse is not None
        torch.testing.assert_close(lse.cpu(), expected[1], atol=tolerance, rtol=tolerance)


@pytest.fixture(scope="session")
def device() -> str:
    return DEVICE


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    return build_case


@pytest.fixture(scope="session")
def spread() -> Callable[[torch.Tensor, int], torch.Tensor]:
    return spread_out


@pytest.fixture(scope="session")
def agree() -> Callable[..., None]:
    return assert_agree


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "dtype" in metafunc.fixturenames:
        dtypes = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else [])]
        metafunc.parametrize("dtype", dtypes, ids=lambda d: str(d).removeprefix("torch."))
