"""The launch builder: a signature picks from the facts; what is missing or unknown is an error before any launch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernels.arguments import build, strided
from kernels.shipped import shipped
from kernels.tuning import load


def kernel(*names):
    return SimpleNamespace(__name__="some_kernel", arg_names=names)


def test_a_tensor_says_its_pointer_and_the_strides_of_its_leading_dimensions():
    x = torch.zeros(2, 3, 5, 7)
    assert strided("x", x, "block", "slot") == {"x_ptr": x, "stride_x_block": 105, "stride_x_slot": 35}
    assert strided("x", None, "block", "slot") == {"x_ptr": None, "stride_x_block": 0, "stride_x_slot": 0}


def test_a_kernel_gets_what_its_signature_names_in_that_order():
    launch = build(kernel("b", "own", "a"), (1,), {"a": 1, "b": 2, "c": 3}, own=4, num_warps=8)
    assert list(launch.args.items()) == [("b", 2), ("own", 4), ("a", 1)]
    assert (launch.num_warps, launch.num_stages) == (8, 2)


def test_a_parameter_nobody_speaks_of_is_named():
    with pytest.raises(TypeError, match="some_kernel asks for b, c, which no argument gives"):
        build(kernel("a", "b", "c"), (1,), {"a": 1})


def test_an_own_argument_that_no_parameter_asks_for_is_named():
    with pytest.raises(TypeError, match="some_kernel has no parameter TILE_KB"):
        build(kernel("a"), (1,), {"a": 1, "shared": 0}, TILE_KB=64)


def test_every_shipped_launch_gives_its_kernel_exactly_its_parameters():
    for name, make in shipped(load("sm_90")).items():
        launch = make()
        assert list(launch.args) == list(launch.kernel.arg_names), name
