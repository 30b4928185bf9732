#!/usr/bin/env python3
"""Writes dflash-window.golden and dflash-causal.golden of this folder: what DFlash drafters (arXiv 2602.06036) with a
sliding window in their first layer compute, written here from the equations of infer/drafter/dflash.h with one whole
attention mask, in double and in float32: normed states of the blocks' rows, losses, gradients. The mask is that of
z-lab's reference (dflash/model.py, _attention_mask): a layer with a window is causal unless the config says otherwise;
query - key < window, and in layers that see both ways key - query < window. Without a window the states are those of
dflash.golden, which speculators computed. Format, numbers from names and documents: make_golden.py.

Needs: make_golden.py's packages."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import (D, DECAY, HD, NH, NKV, SMALL, TAPS, THETA, V, Golden, config_json, documents,
                         in_all_precisions, int32, llama_config, rms_norm, rotate, weight)

BLOCK, LAYERS, MASK = 5, 2, 7  # as in make_golden_blocks.py
WINDOW, INTER = 5, SMALL["intermediate_size"]


def shapes():
    out = {"fc.weight": (D, TAPS * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    for i in range(LAYERS):
        at = f"layers.{i}."
        out |= {at + "input_layernorm.weight": (D,), at + "self_attn.q_proj.weight": (NH * HD, D),
                at + "self_attn.k_proj.weight": (NKV * HD, D), at + "self_attn.v_proj.weight": (NKV * HD, D),
                at + "self_attn.q_norm.weight": (HD,), at + "self_attn.k_norm.weight": (HD,),
                at + "self_attn.o_proj.weight": (D, NH * HD), at + "post_attention_layernorm.weight": (D,),
                at + "mlp.gate_proj.weight": (INTER, D), at + "mlp.up_proj.weight": (INTER, D),
                at + "mlp.down_proj.weight": (D, INTER)}
    return out


def anchors_of(d):
    """Positions whose first draft counts."""
    return [a for a in range(1, d["n"]) if d["mask"][min(a + 1, d["n"] - 1)]]


def visible(query, key, window, causal):
    ahead = query[:, None] - key[None, :]
    see = torch.ones_like(ahead, dtype=torch.bool)
    if causal:
        see &= ahead >= 0
    if window:
        see &= ahead < window
        if not causal:
            see &= -ahead < window
    return see


def block_states(w, embed, d, a, dtype, causal, window):
    """States of the block whose anchor is token a of a document."""
    context = rms_norm(F.linear(d["features"][:a].to(dtype), w["fc.weight"]), w["hidden_norm.weight"])
    ids = torch.tensor([int(d["tokens"][a])] + [MASK] * (BLOCK - 1))
    h, at, before = embed[ids], torch.arange(a, a + BLOCK), torch.arange(a)
    for i in range(LAYERS):
        p = f"layers.{i}."
        z = rms_norm(h, w[p + "input_layernorm.weight"])
        both = torch.cat((context, z))
        q = rms_norm(F.linear(z, w[p + "self_attn.q_proj.weight"]).view(-1, NH, HD), w[p + "self_attn.q_norm.weight"])
        k = rms_norm(F.linear(both, w[p + "self_attn.k_proj.weight"]).view(-1, NKV, HD),
                     w[p + "self_attn.k_norm.weight"])
        v = F.linear(both, w[p + "self_attn.v_proj.weight"]).view(-1, NKV, HD)
        keys = torch.cat((before, at))
        q, k = rotate(q, at), rotate(k, keys)
        scores = torch.einsum("shd,thd->hst", q, k.repeat_interleave(NH // NKV, 1)) / math.sqrt(HD)
        see = visible(at, keys, window if i == 0 else 0, causal and i == 0)
        share = torch.softmax(scores.masked_fill(~see, -math.inf), -1)
        o = torch.einsum("hst,thd->shd", share, v.repeat_interleave(NH // NKV, 1)).reshape(BLOCK, NH * HD)
        h = h + F.linear(o, w[p + "self_attn.o_proj.weight"])
        z = rms_norm(h, w[p + "post_attention_layernorm.weight"])
        gate, up = (F.linear(z, w[f"{p}mlp.{n}_proj.weight"]) for n in ("gate", "up"))
        h = h + F.linear(F.silu(gate) * up, w[p + "mlp.down_proj.weight"])
    return rms_norm(h, w["norm.weight"])


def window_run(dtype, docs, causal, window=WINDOW):
    w = {n: weight("dflash", n, s).to(dtype).clone().requires_grad_() for n, s in shapes().items()}
    embed, head = (weight("target", n, (V, D)).to(dtype) for n in ("model.embed_tokens.weight", "lm_head.weight"))
    rows = sum(d["n"] for d in docs)
    loss, best, states, total, first = torch.zeros(BLOCK - 1, rows, dtype=dtype), \
        np.full((BLOCK - 1, rows), -1), [], 0, 0
    for d in docs:
        log_p = torch.log_softmax(F.linear(d["last"].to(dtype), head), -1)
        for a in anchors_of(d):
            y = block_states(w, embed, d, a, dtype, causal, window)
            log_q = torch.log_softmax(F.linear(y[1:], head), -1)
            states.append(y)
            for k in range(BLOCK - 1):
                if a + k >= d["n"] or not d["mask"][min(a + k + 1, d["n"] - 1)]:
                    continue
                p, at = log_p[a + k], first + a - 1
                loss[k, at] = (p.exp() * (p - log_q[k])).sum()
                total = total + float(np.float32(DECAY**k)) * loss[k, at]
                best[k, at] = log_q[k].argmax().item()
        first += d["n"]
    total.backward()
    return {"hidden": torch.cat(states), "kl/loss": loss}, {n: p.grad for n, p in w.items()}, int32(best)


def window_case(name, causal):
    g, docs = Golden(limit=1e-4), documents()
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    first, rows = 0, []
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))
        rows += [first + a - 1 for a in anchors_of(d)]
        first += d["n"]
    g.put("anchor_rows", int32(rows))
    out, grad, best = in_all_precisions(window_run, docs, causal)
    assert all(np.array_equal(best[0], b) for b in best)
    g.put("kl/student_argmax", best[0])
    for k in out[0]:
        g.put_tensors(k, [o[k] for o in out])
    for k in grad[0]:
        g.put_matrices(f"kl/grad/{k}", [o[k] for o in grad])
    g.write(name)


if __name__ == "__main__":
    window_case("dflash-window", False)
    window_case("dflash-causal", True)
