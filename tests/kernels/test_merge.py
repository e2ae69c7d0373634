"""Partial results over disjoint keys merge into what one pass gives."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import merge, naive


@pytest.mark.parametrize(("num_parts", "dim"), [(1, 80), (2, 64), (7, 80), (64, 16)], ids=["1", "2", "7", "64 parts"])
def test_merge_gives_the_reference(num_parts, dim, dtype, device, agree):
    torch.manual_seed(num_parts)
    outs = torch.randn(num_parts, 2, 5, dim).to(dtype)
    lses = torch.randn(num_parts, 2, 5) * 4
    lses[0, 0] = lses[-1, 1, 2] = float("-inf")
    outs[lses == float("-inf")] = float("nan")  # whatever an empty part holds is not looked at
    sinks = torch.randn(5)
    for sink in (None, sinks):
        actual = merge.merge(
            outs.to(device), lses.to(device), sinks=None if sink is None else sink.to(device), return_lse=True
        )
        agree(actual, naive.merge(outs, lses, sinks=sink, return_lse=True), dtype)


def test_parts_that_saw_nothing_merge_to_nothing(device):
    out, lse = merge.merge(
        torch.full((3, 2, 4, 16), float("nan"), device=device),
        torch.full((3, 2, 4), float("-inf"), device=device),
        return_lse=True,
    )
    assert torch.equal(out.cpu(), torch.zeros(2, 4, 16))
    assert torch.isneginf(lse).all()


def test_an_empty_part_changes_no_bit(device):
    outs, lses = torch.randn(3, 2, 4, 16, device=device), torch.randn(3, 2, 4, device=device)
    lses[1] = float("-inf")
    with_it, _ = merge.merge(outs, lses)
    without, _ = merge.merge(outs[[0, 2]], lses[[0, 2]])
    assert torch.equal(with_it, without)


@pytest.mark.parametrize("name", ["outs", "lses"])
def test_merge_names_the_argument_it_refuses(name, device):
    args = {"outs": torch.zeros(2, 3, 4, 16, device=device), "lses": torch.zeros(2, 3, 4, device=device)}
    args[name] = args[name].transpose(1, 2)
    with pytest.raises(ValueError, match=f"^{name}"):
        merge.merge(**args)
