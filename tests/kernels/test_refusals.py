"""A launcher that cannot do what it is asked says which argument is wrong, and touches nothing."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import merge, split_kv, varlen
from kernels.launch import Launch
from kernels.write import rope_scatter, scatter, scatter_quantised

NAMES = (
    "q",
    "k_cache",
    "v_cache",
    "block_table",
    "query_start_loc",
    "seq_lens",
    "max_query_len",
    "max_seq_len",
)


def call(make_case, device, change, **options):
    args = dict(zip(NAMES, make_case([2, 1], [20, 9]).args(device), strict=True))
    change(args)
    return varlen.attention(**args, validate=True, **options)


REFUSED = {
    "q of two dimensions": ("q", lambda a: a.update(q=a["q"][0])),
    "q of integers": ("q", lambda a: a.update(q=a["q"].int())),
    "q not contiguous in its last dimension": ("q", lambda a: a.update(q=a["q"].mT.contiguous().mT)),
    "heads that do not group": ("q", lambda a: a.update(q=a["q"][:, :3])),
    "k_cache of another dtype": ("k_cache", lambda a: a.update({n: a[n].half() for n in ("k_cache", "v_cache")})),
    "k_cache of another head dim": ("k_cache", lambda a: a.update(k_cache=a["k_cache"][..., :32])),
    "v_cache of another block size": ("v_cache", lambda a: a.update(v_cache=a["v_cache"][:, :8])),
    "block_table of floats": ("block_table", lambda a: a.update(block_table=a["block_table"].float())),
    "block_table of another batch": ("block_table", lambda a: a.update(block_table=a["block_table"][:1])),
    "block_table too narrow": ("block_table", lambda a: a.update(block_table=a["block_table"][:, :1])),
    "block_table out of range": ("block_table", lambda a: a["block_table"].fill_(10**6)),
    "query_start_loc too short": ("query_start_loc", lambda a: a.update(query_start_loc=a["query_start_loc"][:2])),
    "query_start_loc that falls": ("query_start_loc", lambda a: a["query_start_loc"].copy_(torch.tensor([0, 5, 3]))),
    "seq_lens below the query lengths": ("seq_lens", lambda a: a["seq_lens"].fill_(0)),
    "max_query_len too small": ("max_query_len", lambda a: a.update(max_query_len=1)),
    "max_seq_len too small": ("max_seq_len", lambda a: a.update(max_seq_len=10)),
    "a cache without heads": ("k_cache", lambda a: a.update({n: a[n][:, :, :0] for n in ("k_cache", "v_cache")})),
    "blocks of no tokens": ("k_cache", lambda a: a.update({n: a[n][:, :0] for n in ("k_cache", "v_cache")})),
    "a head dim of 0": ("k_cache", lambda a: a.update(q=a["q"][..., :0], k_cache=a["k_cache"][..., :0])),
    "values of no dimensions": ("v_cache", lambda a: a.update(v_cache=a["v_cache"][..., :0])),
    "a negative max_seq_len": ("max_seq_len", lambda a: a.update(max_seq_len=-1)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_attention_names_the_argument_it_refuses(what, make_case, device):
    name, change = REFUSED[what]
    with pytest.raises(ValueError, match=rf"^{name} "):
        call(make_case, device, change)


OPTIONS = {
    "window": ({"window": 0}, {"window": 3, "causal": False}),
    "softcap": ({"softcap": 0.0}, {"softcap": -1.0}),
    "sinks": ({"sinks": torch.zeros(3)},),
    "alibi_slopes": ({"alibi_slopes": torch.zeros(2, 2)},),
    "k_scale": ({"k_scale": torch.ones(1), "v_scale": torch.ones(1)},),
    "v_scale": ({"k_scale": torch.ones(1)},),
    "kv_starts": ({"kv_starts": torch.tensor([-1, 0])}, {"kv_starts": torch.tensor([0.0, 0.0])}),
}


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, each in OPTIONS.items() for o in each])
def test_attention_names_the_option_it_refuses(name, options, make_case, device):
    moved = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    with pytest.raises(ValueError, match=rf"^{name} "):
        call(make_case, device, lambda a: None, **moved)


def test_a_split_count_of_zero_is_refused(make_case, device):
    with pytest.raises(ValueError, match=r"^num_splits "):
        split_kv.attention(*make_case([1], [5]).args(device), num_splits=0)


def test_an_int8_pool_without_scales_is_refused(make_case, device):
    with pytest.raises(ValueError, match=r"^k_scale "):
        call(
            make_case, device, lambda a: a.update({n: a[n].nan_to_num().to(torch.int8) for n in ("k_cache", "v_cache")})
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU bf16 is right")
def test_bf16_arithmetic_in_the_interpreter_is_refused_in_a_clear_sentence(make_case, device):
    what = "is bfloat16, whose products and roundings are silently wrong in Triton's interpreter"
    with pytest.raises(ValueError, match=f"^q {what}"):
        varlen.attention(*make_case([1], [5], dtype=torch.bfloat16).args(device))
    with pytest.raises(ValueError, match=f"^outs {what}"):
        merge.merge(torch.zeros(2, 1, 1, 16).bfloat16(), torch.zeros(2, 1, 1))
    args = {name: t.bfloat16() if t.is_floating_point() else t for name, t in write_args(device).items()}
    angles, positions = torch.zeros(5, 8), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=f"^q {what}"):
        rope_scatter.rope_scatter(q=args["k"], cos=angles, sin=angles, positions=positions, **args)


def write_args(device):
    return {
        "k": torch.zeros(3, 2, 16, device=device),
        "v": torch.zeros(3, 2, 16, device=device),
        "k_cache": torch.zeros(4, 8, 2, 16, device=device),
        "v_cache": torch.zeros(4, 8, 2, 16, device=device),
        "slot_mapping": torch.tensor([0, 1, 2], device=device),
    }


@pytest.mark.parametrize("name", ["v", "k_cache", "v_cache", "slot_mapping"])
@pytest.mark.parametrize("how", ["dtype", "shape"])
def test_scatter_names_the_argument_it_refuses(name, how, device):
    args = write_args(device)
    args[name] = args[name][:1] if how == "shape" and name in ("v", "slot_mapping") else args[name]
    args[name] = args[name][..., :8] if how == "shape" and "cache" in name else args[name]
    args[name] = args[name].double() if how == "dtype" else args[name]
    blamed = "v_cache" if (name, how) == ("k_cache", "shape") else name
    with pytest.raises(ValueError, match=rf"^({name}|{blamed}) "):
        scatter.scatter(**args)


@pytest.mark.parametrize("slots", [[0, 1, 32], [0, 1, 1]], ids=["past the pool", "twice"])
def test_validated_slots_lie_in_the_pool_and_apart(slots, device):
    args = write_args(device) | {"slot_mapping": torch.tensor(slots, device=device)}
    with pytest.raises(ValueError, match=r"^slot_mapping "):
        scatter.scatter(**args, validate=True)


def test_quantised_writes_refuse_plain_pools_and_int8_without_its_scales(device):
    one, args = torch.ones(1, device=device), write_args(device)
    slots = args.pop("slot_mapping")
    with pytest.raises(ValueError, match=r"^k_cache .*fp8 or int8"):
        scatter_quantised.scatter_quantised(**args, k_scale=one, v_scale=one, slot_mapping=slots)
    args |= {name: args[name].to(torch.int8) for name in ("k_cache", "v_cache")}
    with pytest.raises(ValueError, match=r"^k_scale "):
        scatter_quantised.scatter_quantised(**args, k_scale=one, v_scale=one, slot_mapping=slots)


@pytest.mark.parametrize("name", ["cos", "sin", "positions", "q"])
def test_rope_scatter_names_the_argument_it_refuses(name, device):
    args = write_args(device)
    angles = torch.zeros(5, 8, device=device)
    args |= {"q": torch.zeros(3, 4, 16, device=device), "cos": angles, "sin": angles}
    args["positions"] = torch.tensor([0, 1, 2], device=device)
    bad = {
        "cos": torch.zeros(5, 9, device=device),
        "sin": torch.zeros(5, 7, device=device),
        "positions": torch.tensor([0, 1, 5], device=device),
        "q": torch.zeros(3, 4, 32, device=device),
    }
    args[name] = bad[name]
    if name == "cos":
        args["sin"] = bad["cos"]
    with pytest.raises(ValueError, match=rf"^{name} "):
        rope_scatter.rope_scatter(**args, validate=True)


def test_an_empty_grid_launches_nothing():
    Launch(kernel=None, grid=(0, 3), args={}).run()
