#!/usr/bin/env python3
"""An export for the speculators library, loaded by that library: its logits beside those of the checkpoint. Development
only.

    build/paceline export CHECKPOINT --to speculators --target TARGET --out EXPORT
    python tests/peers/check_export.py --checkpoint CHECKPOINT --export EXPORT

The checkpoint's own logits come from the equations, by train_step.py's drafter, which its --check proves; both run in
fp32 on the same random features and tokens. A low-rank head is compared with its factors' product, so up to the
rounding to bf16.
"""
import argparse
import json
import os
import sys

import torch
from safetensors.torch import load_file
from speculators.models.eagle3 import Eagle3DraftModel

import train_step

ROWS = 40


def blocks(a, c):
    """A block drafter's export: the class that its config names takes every tensor and misses none, with the bits of the
    checkpoint and, for embeddings and head, of the target; what the class computes from them tests/golden has."""
    from speculators import SpeculatorModel

    model, info = SpeculatorModel.from_pretrained(a.export, output_loading_info=True)
    for wrong in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not [k for k in info[wrong] if not k.startswith("verifier_")], (wrong, info[wrong])
    mine = load_file(os.path.join(a.checkpoint, "model.safetensors"))
    target = {}
    for name in os.listdir(a.target):
        if name.endswith(".safetensors"):
            target |= load_file(os.path.join(a.target, name))
    embed = target["model.embed_tokens.weight"]
    want = {"embed_tokens.weight": embed, "lm_head.weight": target.get("lm_head.weight", embed)} | mine
    theirs = model.state_dict()
    for name, w in want.items():
        assert torch.equal(theirs[name].to(w.dtype), w), name
    f, block = model.config, c["dflash_config"]
    assert f.block_size == c["block_size"] and f.mask_token_id == block["mask_token_id"], "block"
    assert f.aux_hidden_state_layer_ids == [k + 1 for k in block["target_layer_ids"]], "layers"
    assert f.sample_from_anchor == block.get("sample_from_anchor", False), "anchor"
    proposed = f.speculators_config.proposal_methods[0].speculative_tokens
    assert proposed == c["block_size"] - (not f.sample_from_anchor), "tokens"
    print(f"{a.export}: {type(model).__name__} has the bits of all {len(want)} tensors and drafts {proposed} tokens")
    return 0


def ours(path, c, rank):
    """The checkpoint as train_step.py's drafter, in fp32."""
    w = {k: v.float() for k, v in load_file(os.path.join(path, "model.safetensors")).items()}
    layer = lambda name: w[f"midlayer.{name}.weight"]
    train_step.EPS = c["rms_norm_eps"]
    m = train_step.Drafter(c | {"vocab_size": c["draft_vocab_size"]}, rank)
    with torch.no_grad():
        m.fc.copy_(w["fc.weight"])
        m.qkv.copy_(torch.cat([layer(f"self_attn.{p}_proj") for p in "qkv"]))
        m.o.copy_(layer("self_attn.o_proj"))
        m.gate_up.copy_(torch.cat([layer("mlp.gate_proj"), layer("mlp.up_proj")]))
        m.down.copy_(layer("mlp.down_proj"))
        norms = (layer("input_layernorm"), layer("hidden_norm"), layer("post_attention_layernorm"), w["norm.weight"])
        for mine, theirs in zip(m.norms, norms):
            mine.copy_(theirs)
        names = ("efficient_lm_head_down_proj", "efficient_lm_head") if rank else ("lm_head",)
        for mine, name in zip(m.head, names):
            mine.copy_(w[name + ".weight"])
    return m


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--checkpoint", required=True)
    ap.add_argument("--export", required=True)
    ap.add_argument("--target", help="of a block drafter, whose export has copies of its embeddings and head")
    a = ap.parse_args()
    c = json.load(open(os.path.join(a.checkpoint, "config.json")))
    if "dflash_config" in c:
        return blocks(a, c)
    head = c["paceline"]["head"]
    rank = head["rank"] if head["kind"] == "lowrank" else 0
    torch.manual_seed(1)
    theirs = Eagle3DraftModel.from_pretrained(a.export).float().eval()
    taps = c["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert list(theirs.config.eagle_aux_hidden_state_layer_ids) == taps, "layers"
    d, hd = c["target_hidden_size"], c["head_dim"]
    features, ids = torch.randn(1, ROWS, len(taps) * d), torch.randint(c["vocab_size"], (1, ROWS))
    logits = []
    theirs.lm_head.register_forward_hook(lambda module, inputs, out: logits.append(out.detach()))
    with torch.no_grad():
        theirs(features, ids, torch.zeros(1, ROWS, dtype=torch.long), ttt_steps=1)
        m = ours(a.checkpoint, c, rank)
        m.hd = hd
        angle = torch.arange(1, ROWS + 1)[:, None] * c["rope_theta"] ** (-torch.arange(0, hd, 2) / hd)
        cos, sin = (torch.cat((f(angle), f(angle)), -1) for f in (torch.cos, torch.sin))
        _, want = m.step(theirs.embed_tokens(ids).float(), torch.nn.functional.linear(features, m.fc), [], [], cos, sin)
    got = logits[0].float()
    assert got.shape == want.shape, (got.shape, want.shape)
    error, size = (got - want).abs().max().item(), want.abs().max().item()
    limit = (2**-7 if rank else 1e-5) * size
    print(f"{a.export}: {ROWS} rows, {want.shape[-1]} logits up to {size:.2f}, off by {error:.2g} at most "
          f"(limit {limit:.2g}); best tokens equal in {100 * (got.argmax(-1) == want.argmax(-1)).float().mean():.0f} %")
    return 0 if error <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
