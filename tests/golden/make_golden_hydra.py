#!/usr/bin/env python3
"""Writes hydra.golden of this folder: what Hydra's heads (arXiv 2402.05109) and those of Hydra++ compute for small
drafters, written here from the paper's equations with one whole attention mask for the prefix layer, in double and in
float32: the heads' inputs, losses, gradients. Format, numbers from names and documents: make_golden.py.

Needs: make_golden.py's packages."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import (D, EAGLE1, HD, NH, NKV, RANK, SMALL, STEPS, THETA, V, Golden, config_json, documents,
                         in_all_precisions, int32, llama_config, rms_norm, rotate, rows_of, weight)

PREFIX = {"prefix." + n: s for n, s in EAGLE1.items() if n.startswith("layers.0.")} | {
    "prefix.layers.0.input_layernorm.weight": (D,), "prefix.norm.weight": (D,)}
KINDS = {"hydra": 1, "hydra++": 2}  # layers of each head


def shapes(kind):
    """Hydra has full heads and Hydra++ low-rank ones, so that both are seen."""
    out = dict(PREFIX) if kind == "hydra++" else {}
    for k in range(STEPS):
        out |= {f"blocks.{k}.residual.weight": (D, (k + 2) * D), f"blocks.{k}.residual.bias": (D,)}
        for j in range(KINDS[kind]):
            out |= {f"blocks.{k}.layers.{j}.weight": (D, D if j else (k + 2) * D), f"blocks.{k}.layers.{j}.bias": (D,)}
        own = f"heads.{k}." if k else ""
        if kind == "hydra":
            out[own + "lm_head.weight"] = (V, D)
        else:
            out |= {own + "efficient_lm_head.weight": (V, RANK), own + "efficient_lm_head_down_proj.weight": (RANK, D)}
    return out


def read_prefix(w, last, doc, position):
    """norm(layer(h)) of all rows: each sees its document up to itself."""
    S, at = len(doc), "prefix.layers.0."
    z = rms_norm(last, w[at + "input_layernorm.weight"])
    q, key, value = (F.linear(z, w[f"{at}self_attn.{p}_proj.weight"]).view(S, -1, HD) for p in "qkv")
    q, key = rotate(q, position), rotate(key, position)
    causal = (doc[:, None] == doc[None, :]) & (torch.arange(S)[:, None] >= torch.arange(S)[None, :])
    scores = torch.einsum("shd,thd->hst", q, key.repeat_interleave(NH // NKV, 1)) / math.sqrt(HD)
    p = torch.softmax(scores.masked_fill(~causal, -math.inf), -1)
    o = torch.einsum("hst,thd->shd", p, value.repeat_interleave(NH // NKV, 1)).reshape(S, NH * HD)
    h = last + F.linear(o, w[at + "self_attn.o_proj.weight"])
    z = rms_norm(h, w[at + "post_attention_layernorm.weight"])
    gate, up = (F.linear(z, w[f"{at}mlp.{p}_proj.weight"]) for p in ("gate", "up"))
    return rms_norm(h + F.linear(F.silu(gate) * up, w[at + "mlp.down_proj.weight"]), w["prefix.norm.weight"])


def hydra_run(dtype, docs, kind):
    w = {n: weight("hydra", n, s).to(dtype).clone().requires_grad_() for n, s in shapes(kind).items()}
    embed, target = (weight("target", n, (V, D)).to(dtype) for n in ("model.embed_tokens.weight", "lm_head.weight"))
    token, teacher, weights = rows_of(docs, set(range(V)))
    last = torch.cat([d["last"] for d in docs]).to(dtype)
    doc = torch.cat([torch.full((d["n"],), i) for i, d in enumerate(docs)])
    position = torch.cat([torch.arange(d["n"]) for d in docs])
    log_p = torch.log_softmax(F.linear(last, target), -1)
    u = read_prefix(w, last, doc, position) if kind == "hydra++" else last
    out, losses, best, total = {}, [], [], 0
    for k in range(STEPS):
        x = torch.zeros(len(doc), D, dtype=dtype)
        there = torch.from_numpy(token[k] >= 0)
        x[there] = embed[torch.from_numpy(token[k]).long()[there]]
        u = torch.cat((u, x), -1)
        y = F.linear(u, w[f"blocks.{k}.residual.weight"], w[f"blocks.{k}.residual.bias"])
        for j in range(KINDS[kind]):
            y = y + F.silu(F.linear(y if j else u, w[f"blocks.{k}.layers.{j}.weight"], w[f"blocks.{k}.layers.{j}.bias"]))
        own = f"heads.{k}." if k else ""
        logits = (F.linear(y, w[own + "lm_head.weight"]) if kind == "hydra" else
                  F.linear(F.linear(y, w[own + "efficient_lm_head_down_proj.weight"]), w[own + "efficient_lm_head.weight"]))
        log_q = torch.log_softmax(logits, -1)
        counts = (teacher[k] >= 0) & (teacher[0] >= 0)  # a block counts from its first draft on
        loss = torch.zeros(len(doc), dtype=dtype)
        for t in np.flatnonzero(counts):
            p = log_p[teacher[k][t]]
            loss[t] = (p.exp() * (p - log_q[t])).sum()
            total = total + float(weights[k][t]) * loss[t]
        out[f"hidden/{k}"] = y
        losses.append(loss)
        best.append(np.where(counts, logits.argmax(-1).numpy(), -1))
    out["loss"] = torch.stack(losses)
    total.backward()
    return out, {n: p.grad for n, p in w.items()}, int32(best)


def hydra_case():
    g, docs = Golden(), documents()
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))
    for kind in KINDS:
        out, grad, best = in_all_precisions(hydra_run, docs, kind)
        assert all(np.array_equal(best[0], b) for b in best)
        g.put(f"{kind}/student_argmax", best[0])
        for k in out[0]:
            g.put_tensors(f"{kind}/{k}", [o[k] for o in out])
        for k in grad[0]:
            g.put_matrices(f"{kind}/grad/{k}", [o[k] for o in grad])
    g.write("hydra")


if __name__ == "__main__":
    hydra_case()
