#!/usr/bin/env python3
"""Writes eagle3_deep.golden, eagle3_each.golden and eagle3_whole.golden of this folder: what speculators' Eagle3DraftModel
computes with several layers and with EAGLE-3.1's norms, in double and in float32: what a step hands on, logits, losses,
gradients; peagle.golden, of its PEagleDraftModel; and peagle_own.golden, of the same with embeddings of its own that
learn, narrower than its target: fc, the masks' state and the verifier's head are made for the target's width, all else
is the model's. Format, numbers from names and documents: make_golden.py, whose
eagle3.golden is of one layer without norms.

The models' own forwards run, one document at a time, P-EAGLE's with all depths of all rows instead of drawn ones; the
loss is taken from their logits as eagle3.golden's is.

Needs: make_golden.py's packages and pip install speculators==0.9.0."""
from unittest import mock

import numpy as np
import torch
import transformers
from speculators.models.eagle3 import Eagle3SpeculatorConfig
from speculators.models.eagle3 import core
from speculators.models.peagle import PEagleSpeculatorConfig
from speculators.models.peagle import core as peagle_core

from make_golden import (D, EPS, HD, NH, NKV, SMALL, STEPS, TAPS, THETA, V, Golden, computing_in, config_json, documents,
                         in_all_precisions, int32, llama_config, rows_of, weight)

MASK = 7
WIDTH = 36  # of the drafter that is narrower than its target
INTER = SMALL["intermediate_size"]
VERSIONS = {
    "deep": (3, {}),
    "each": (2, dict(fc_norm=True, norm_output=True)),
    "whole": (1, dict(norm_before_fc=True, norm_output=True, norm_before_residual=True)),
}


def layer_config(layers, width=D):
    """Of plain layers of Llama's: heads and MLP in proportion to the width, by whole groups and to 16."""
    nkv = (2 * NKV * width + D) // (2 * D)  # a number of heads that divides the width
    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=width, intermediate_size=INTER if width == D else -(-INTER * width // D) + 15 & ~15,
        num_hidden_layers=layers, num_attention_heads=nkv * NH // NKV, num_key_value_heads=nkv, head_dim=HD, max_position_embeddings=64, rms_norm_eps=EPS, attention_bias=False,
        rope_parameters=dict(rope_type="default", rope_theta=THETA), tie_word_embeddings=False)
    config._attn_implementation = "eager"
    return config


def named_weights(model, dtype, layers, own=False):
    """Sets the model's weights by the names that they have here; returns those that learn."""
    named = {}
    target = {"embed_tokens.weight": "model.embed_tokens.weight", "verifier_lm_head.weight": "lm_head.weight"}
    if own:
        del target["embed_tokens.weight"]
    with torch.no_grad():
        for theirs, p in model.named_parameters():
            name = theirs.replace("layers.0.", "midlayer.") if layers == 1 else theirs
            if name == "verifier_norm.weight":
                continue
            if name in target:
                p.copy_(weight("target", target[name], tuple(p.shape)).to(dtype))
            else:
                v = weight("drafter", name, tuple(p.shape))
                p.copy_((4 * v if name == "mask_hidden" else v).to(dtype))  # an embedding's scale
                named[name] = p.requires_grad_()
    model.verifier_norm = torch.nn.Identity()  # last hiddens are normed
    return named


def eagle3_version(dtype, docs, layers, norms):
    token, teacher, weights = rows_of(docs, set(range(V)))
    rows = sum(d["n"] for d in docs)
    out = {k: torch.zeros(STEPS, rows, dtype=dtype) for k in ("loss", "accept")}
    out |= {f"hidden/{k}": [] for k in range(STEPS)} | {f"logits/{k}": [] for k in range(STEPS)} | {"fused": []}
    best, first, total = np.full((STEPS, rows), -1), 0, 0
    with computing_in(dtype):
        model = core.Eagle3DraftModel(Eagle3SpeculatorConfig(
            transformer_layer_config=layer_config(layers), draft_vocab_size=V,
            eagle_aux_hidden_state_layer_ids=list(range(TAPS)), **norms)).to(dtype).train()
        named = named_weights(model, dtype, layers)
        for d in docs:
            n, seen = d["n"], {k: [] for k in ("hidden", "logits", "targets", "normed")}

            def look(logits, targets, *_, **__):
                seen["logits"].append(logits[0])
                seen["targets"].append(targets[0])
                return logits.sum() * 0, {}

            hooks = [model.fc.register_forward_hook(lambda m, i, o: seen.update(fused=o[0])),
                     model.layers[-1].register_forward_hook(lambda m, i, o: seen["hidden"].append(o[0])),
                     model.norm.register_forward_hook(lambda m, i, o: seen["normed"].append(o[0]))]
            ids = torch.tensor([list(d["tokens"][1:]) + [0]])
            last = torch.cat((d["last"][1:], torch.zeros(1, D))).to(dtype)[None]
            with mock.patch.object(core, "compute_metrics", look):
                model(d["features"].to(dtype)[None], ids, torch.zeros(1, n, dtype=torch.long),
                      torch.tensor([d["mask"]]), verifier_last_hidden_states=last, ttt_steps=STEPS)
            for h in hooks:
                h.remove()
            out["fused"].append(seen["fused"])
            for k in range(STEPS):
                out[f"hidden/{k}"].append(seen["normed" if norms.get("norm_output") else "hidden"][k])
                out[f"logits/{k}"].append(seen["logits"][k])
                log_q = torch.log_softmax(seen["logits"][k], -1)
                for t in range(n):
                    row = first + t
                    if teacher[k][row] < 0:
                        continue
                    log_p = torch.log_softmax(seen["targets"][0][t + k], -1)  # of row t + k the token consumed is t's
                    out["loss"][k, row] = (log_p.exp() * (log_p - log_q[t])).sum()
                    out["accept"][k, row] = torch.minimum(log_p.exp(), log_q[t].exp()).sum().detach()
                    best[k, row] = log_q[t].argmax().item()
                    total = total + float(weights[k][row]) * out["loss"][k, row]
            first += n
        total.backward()
    out = {k: torch.cat(v) if isinstance(v, list) else v for k, v in out.items()} | {"total": total.reshape(1)}
    return out, {n: p.grad for n, p in named.items()}, int32(best)


def for_target(model, dtype):
    """What reads or is the target's, in the target's width."""
    model.fc = torch.nn.Linear(TAPS * D, WIDTH, bias=False, dtype=dtype)
    model.mask_hidden = torch.nn.Parameter(torch.zeros(1, 1, TAPS * D, dtype=dtype))
    model.verifier_lm_head = torch.nn.Linear(D, V, bias=False, dtype=dtype)


def peagle_run(dtype, docs, own):
    """Two layers and fc_norm, or one of another width; rows as eagle3's: depth k of row t is step k."""
    layers = 1 if own else 2
    _, teacher, weights = rows_of(docs, set(range(V)))
    rows = sum(d["n"] for d in docs)
    out = {k: torch.zeros(STEPS, rows, dtype=dtype) for k in ("loss", "accept")}
    out |= {f"logits/{k}": torch.zeros(rows, V, dtype=dtype) for k in range(STEPS)}
    best, first, total = np.full((STEPS, rows), -1), 0, 0
    with computing_in(dtype):
        model = peagle_core.PEagleDraftModel(PEagleSpeculatorConfig(
            transformer_layer_config=layer_config(layers, WIDTH if own else D), draft_vocab_size=V, mask_token_id=MASK,
            fc_norm=not own, eagle_aux_hidden_state_layer_ids=list(range(TAPS)), embed_requires_grad=own)).to(dtype).train()
        if own:
            for_target(model, dtype)
        named = named_weights(model, dtype, layers, own)
        for d in docs:
            n, seen = d["n"], {}
            anchor = torch.cat([torch.arange(n - k) for k in range(STEPS)])
            depth = torch.cat([torch.full((n - k,), k) for k in range(STEPS)])

            def look(logits, targets, **_):
                seen.update(logits=logits[0], targets=targets[0])
                return logits.sum() * 0, {}

            ids = torch.tensor([list(d["tokens"][1:]) + [0]])
            last = torch.cat((d["last"][1:], torch.zeros(1, D))).to(dtype)[None]
            with (mock.patch.object(peagle_core, "generate_cod_sample_indices", lambda **_: (anchor, depth)),
                  mock.patch.object(peagle_core, "compute_metrics", look)):
                model(d["features"].to(dtype)[None], ids, torch.zeros(1, n, dtype=torch.long),
                      loss_mask=torch.tensor([d["mask"]]), verifier_last_hidden_states=last)
            log_q = torch.log_softmax(seen["logits"], -1)
            for i, (t, k) in enumerate(zip(anchor.tolist(), depth.tolist())):
                row = first + t
                out[f"logits/{k}"][row] = seen["logits"][i]
                if teacher[k][row] < 0:
                    continue
                log_p = torch.log_softmax(seen["targets"][i], -1)
                out["loss"][k, row] = (log_p.exp() * (log_p - log_q[i])).sum()
                out["accept"][k, row] = torch.minimum(log_p.exp(), log_q[i].exp()).sum().detach()
                best[k, row] = log_q[i].argmax().item()
                total = total + float(weights[k][row]) * out["loss"][k, row]
            first += n
        total.backward()
    grad = {n: p.grad.flatten()[None] if n == "mask_hidden" else p.grad for n, p in named.items()}
    return out | {"total": total.reshape(1)}, grad, int32(best)


def written(g, docs):
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))


def results(g, out, grad, best):
    assert all(np.array_equal(best[0], b) for b in best)
    g.put("full/all/student_argmax", best[0])
    for k in ("loss", "accept", "total"):
        g.put_tensors(f"full/all/{k}", [o[k] for o in out])
    for k in grad[0]:
        g.put_matrices(f"full/all/grad/{k}", [o[k] for o in grad])
    for k in range(STEPS):
        g.put_tensors(f"full/logits/{k}", [o[f"logits/{k}"] for o in out])


def peagle_case(own):
    g, docs = Golden(), documents()
    written(g, docs)
    results(g, *in_all_precisions(peagle_run, docs, own))
    g.write("peagle_own" if own else "peagle")


def eagle3_case(name):
    g, docs = Golden(), documents()
    written(g, docs)
    out, grad, best = in_all_precisions(eagle3_version, docs, *VERSIONS[name])
    results(g, out, grad, best)
    for k in range(STEPS):
        g.put_tensors(f"hidden/{k}", [o[f"hidden/{k}"] for o in out])
    g.write(f"eagle3_{name}")


if __name__ == "__main__":
    for version in VERSIONS:
        eagle3_case(version)
    peagle_case(False)
    peagle_case(True)
