#!/usr/bin/env python3
"""Writes dflash.golden, dflash2.golden, xpress.golden and, for each form of its Markov head, dspark-FORM.golden of this
folder: what speculators' DFlashDraftModel, DFlash2DraftModel, XPressDraftModel and DSparkDraftModel compute for small drafters, in double and in float32: normed states of the blocks'
rows, losses, gradients; the weights of D-PACE; the selector's loss, choices and overlap with the target; confidence and
what it learns. Format, numbers from names and documents: make_golden.py.

The model's own forward runs, one document at a time, with anchors given instead of drawn and the rows behind a document
masked. Its losses are their eager ones; their sum is taken with weights rounded to float32, as rows have them here.

Needs: make_golden.py's packages and pip install speculators==0.9.0."""
import math
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from speculators.losses import compound_loss, dflash_loss_decay, dpace_loss_decay, eager
from speculators.models.dflash import DFlashSpeculatorConfig
from speculators.models.dflash import core
from speculators.models.dflash2 import DFlash2SpeculatorConfig
from speculators.models.dflash2 import core as dflash2_core
from speculators.models.dflash2.metrics import compute_selector_loss, selector_training_candidates
from speculators.models.dspark import DSparkSpeculatorConfig
from speculators.models.dspark import core as dspark_core
from speculators.models.dspark.metrics import compute_metrics as dspark_metrics
from speculators.models.xpress import XPressSpeculatorConfig
from speculators.models.xpress import core as xpress_core

from make_golden import (D, DECAY, EPS, HEADS, NH, NKV, HD, SMALL, TAPS, THETA, V, Golden, computing_in, config_json,
                         documents, in_all_precisions, int32, llama_config, weight)

BLOCK, LAYERS, MASK, ALPHA, RANK = 5, 2, 7, 0.5, 6
FORMS = ("vanilla", "gated", "rnn")
GROUP, LISTED, SELECTS = 8, 5, 0.5  # channels of a group, candidates, weight of the selector's loss


def drafter(dtype, head):
    """head: "target", "lowrank", a form of DSpark's Markov head, with confidence, or DFlash 2's "selector", with
    convolutions."""
    layer = transformers.Qwen3Config(
        vocab_size=V, hidden_size=D, intermediate_size=40, num_hidden_layers=LAYERS, num_attention_heads=NH,
        num_key_value_heads=NKV, head_dim=HD, max_position_embeddings=64, rms_norm_eps=EPS, attention_bias=False,
        rope_parameters=dict(rope_type="default", rope_theta=THETA), tie_word_embeddings=False)
    layer._attn_implementation = "eager"
    common = dict(transformer_layer_config=layer, draft_vocab_size=V, block_size=BLOCK, mask_token_id=MASK,
                  aux_hidden_state_layer_ids=list(range(TAPS)))
    if head in FORMS:
        model = dspark_core.DSparkDraftModel(DSparkSpeculatorConfig(markov_rank=RANK, markov_head_type=head, **common))
    elif head == "xpress":
        model = xpress_core.XPressDraftModel(XPressSpeculatorConfig(xpress_rank=RANK, **common))
    elif head == "selector":
        model = dflash2_core.DFlash2DraftModel(DFlash2SpeculatorConfig(
            conv_kernel_size=2, conv_group_size=GROUP, selector_rank=RANK, selector_top_k=LISTED, **common))
    else:
        model = core.DFlashDraftModel(DFlashSpeculatorConfig(**common))
    model = model.to(dtype).train()
    if head == "lowrank":
        down, up = ((n, s) for n, s in reversed(HEADS["lowrank"].items()))
        model.lm_head = torch.nn.Sequential(*(torch.nn.Linear(s[1], s[0], bias=False) for _, s in (down, up))).to(dtype)
    target = {"embed_tokens.weight": "model.embed_tokens.weight", "verifier_lm_head.weight": "lm_head.weight",
              "lm_head.weight": "lm_head.weight"}
    own = {"lm_head.0.weight": "efficient_lm_head_down_proj.weight", "lm_head.1.weight": "efficient_lm_head.weight"}
    named = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name == "verifier_norm.weight":
                continue
            if name in target:
                p.copy_(weight("target", target[name], tuple(p.shape)).to(dtype))
            else:
                vector = "base_kernel" in name or "mix_l" in name  # as one is held here
                v = weight("dflash", own.get(name, name), (p.numel(),) if vector else tuple(p.shape)).view_as(p)
                large = "markov_w1" in name or "codebook" in name  # an embedding's scale
                p.copy_((4 * v if large else v).to(dtype))
                named[own.get(name, name)] = p.requires_grad_()
    model.verifier_norm = torch.nn.Identity()  # last hiddens are normed
    return model, named


def anchors_of(d):
    """Positions whose first draft counts: the token behind the anchor is an answer's, its teacher in the document."""
    return [a for a in range(1, d["n"]) if d["mask"][min(a + 1, d["n"] - 1)]]


def dflash_run(dtype, docs, head, objective):
    rows = sum(d["n"] for d in docs)
    out = {"loss": torch.zeros(BLOCK - 1, rows, dtype=dtype)}
    pace, best, states = np.zeros((BLOCK - 1, rows), np.float32), np.full((BLOCK - 1, rows), -1), []
    chosen, second = best.copy(), head == "selector"
    if second:
        out |= {k: torch.zeros(BLOCK - 1, rows, dtype=dtype) for k in ("selector_loss", "accept")}
    first, total = 0, 0
    with computing_in(dtype):
        model, named = drafter(dtype, head)
        for d in docs:
            n, at = d["n"], torch.tensor(anchors_of(d))
            behind = BLOCK  # rows of no document: blocks at its end reach into them
            mask = torch.tensor([d["mask"] + [d["mask"][-1]] + [0] * (behind - 1)])
            features = torch.cat((d["features"], torch.zeros(behind, TAPS * D))).to(dtype)[None]
            last = torch.cat((d["last"], torch.zeros(behind, D))).to(dtype)[None]
            ids = torch.tensor([list(d["tokens"]) + [0] * behind])
            doc = torch.tensor([[0] * n + [-1] * behind])
            with mock.patch.object(core, "select_anchors", lambda *_: (at, torch.ones(len(at), dtype=torch.bool))):
                hidden, logits, targets, counts, indices = model._backbone_forward(
                    features, ids, mask, last, doc, max_anchors=len(at))
            if head == "xpress":
                logits = logits + refinement(model, hidden, ids, indices, at)
            place = (torch.arange(logits.shape[1]) % BLOCK)[None]
            elementwise = {"kl": eager.kl_div_loss, "hard-ce": eager.ce_loss}[objective](logits, targets)
            decay = dflash_loss_decay(place.to(dtype), gamma=-1 / math.log(DECAY), sample_from_anchor=False)
            theirs, _ = compound_loss(logits, targets, counts, place,
                                      {"": (lambda *_: elementwise, 1.0)},
                                      lambda p, **k: dflash_loss_decay(p, gamma=-1 / math.log(DECAY)))
            weights = decay.float().to(dtype) if objective == "kl" else dpace_loss_decay(
                place, counts, BLOCK, ALPHA, elementwise).to(dtype)
            weights = torch.from_numpy(weights.detach().numpy().astype(np.float32)).to(dtype) * counts
            if objective == "kl":  # the sum below is theirs
                ours = (elementwise * weights).sum() / counts.sum()
                assert torch.allclose(ours.double(), theirs.double(), rtol=1e-5), (ours, theirs)
            total = total + (elementwise * weights).sum()
            if second:
                select = selection(model, hidden, logits, targets, counts, place, ids, indices, objective)
                total = total + SELECTS * (select["selector_loss"] * select["weights"]).sum()
            states.append(hidden[0])
            for i, a in enumerate(at.tolist()):
                for k in range(BLOCK - 1):
                    j = i * BLOCK + k + 1
                    if counts[0, j]:
                        out["loss"][k, first + a - 1] = elementwise[0, j]
                        pace[k, first + a - 1] = weights[0, j].item()
                        best[k, first + a - 1] = logits[0, j].argmax().item()
                        if second:
                            out["selector_loss"][k, first + a - 1] = select["selector_loss"][0, j]
                            out["accept"][k, first + a - 1] = select["accept"][0, j]
                            chosen[k, first + a - 1] = select["chosen"][0, j].item()
            first += n
        out["hidden"] = torch.cat(states)
        total.backward()
    grad = {n: p.grad.flatten() if "base_kernel" in n or "mix_l" in n else p.grad for n, p in named.items()}
    return out, grad, pace, int32(best), int32(chosen)


def refinement(model, hidden, ids, indices, at):
    """What the refiner adds behind the text, as forward computes it."""
    tokens = ids[0, indices].view(len(at), BLOCK)
    before = torch.cat([ids[0, at - 1].unsqueeze(1), tokens[:, :-1]], dim=1)
    head = model.refiner_head
    bias = head.block_bias(before, hidden_states=hidden.view(len(at), BLOCK, -1).to(head.down_h.weight.dtype))
    return bias.view(1, len(at) * BLOCK, -1)


def selection(model, hidden, logits, targets, counts, place, ids, indices, objective):
    """The selector's loss and its weights, as forward and compute_metrics have them; what it drafts."""
    dtype, selector = logits.dtype, model.candidate_selector
    before = model._predecessor_ids(ids, indices).reshape(1, -1)
    candidates = logits.topk(LISTED, dim=-1).indices
    learned, label, _ = selector_training_candidates(candidates, targets.argmax(-1))
    scores = selector.score_candidates(logits, hidden, before, learned)
    loss = F.cross_entropy(scores.flatten(0, -2), label.flatten(), reduction="none").view_as(label)
    decay = dflash_loss_decay(place.to(dtype), gamma=-1 / math.log(DECAY), sample_from_anchor=False)
    weights = decay.float().to(dtype) if objective == "kl" else dpace_loss_decay(
        place, counts, BLOCK, ALPHA, loss).to(dtype)
    weights = torch.from_numpy(weights.detach().numpy().astype(np.float32)).to(dtype) * counts
    theirs = compute_selector_loss(scores, label, counts, BLOCK, gamma=-1 / math.log(DECAY), dpace_alpha=ALPHA,
                                   per_position_loss_weight="dpace" if objective == "hard-ce" else "fixed-exp-decay")
    assert torch.allclose(((loss * weights).sum() / counts.sum()).double(), theirs.double(), rtol=1e-5)
    _, own = selector.select(logits, hidden, before)
    accept = torch.minimum(own.softmax(-1), targets.softmax(-1).gather(-1, candidates)).sum(-1)
    chosen = candidates.gather(-1, own.argmax(-1, keepdim=True))[..., 0]
    return {"selector_loss": loss, "weights": weights, "accept": accept.detach(), "chosen": chosen}


def dspark_run(dtype, docs, form):
    """KL and the confidence's cross-entropy, each by decay. Their mask is of the slot's own position, one before the
    token that it drafts: they are given it moved by one."""
    rows = sum(d["n"] for d in docs)
    out = {k: torch.zeros(BLOCK, rows, dtype=dtype) for k in ("loss", "confidence_loss", "confidence")}
    best, states, first, total = np.full((BLOCK, rows), -1), [], 0, 0
    with computing_in(dtype):
        model, named = drafter(dtype, form)
        for d in docs:
            n, at = d["n"], torch.tensor(anchors_of(d))
            mask = torch.tensor([d["mask"][1:] + [d["mask"][-1]] + [0] * BLOCK])
            features = torch.cat((d["features"], torch.zeros(BLOCK, TAPS * D))).to(dtype)[None]
            last = torch.cat((d["last"], torch.zeros(BLOCK, D))).to(dtype)[None]
            ids = torch.tensor([list(d["tokens"]) + [0] * BLOCK])
            doc = torch.tensor([[0] * n + [-1] * BLOCK])
            seen = {}

            def look(logits, targets, sure, counts, *_, **__):
                seen.update(logits=logits, targets=targets, sure=sure, counts=counts)
                return logits.sum() * 0, {}

            norm = model.norm.register_forward_hook(lambda m, i, o: seen.update(hidden=o))
            with (mock.patch.object(core, "select_anchors", lambda *_: (at, torch.ones(len(at), dtype=torch.bool))),
                  mock.patch.object(dspark_core, "compute_metrics", look)):
                model(features, ids, mask, last, doc, max_anchors=len(at))
            norm.remove()
            logits, targets, sure, counts = (seen[k] for k in ("logits", "targets", "sure", "counts"))
            accept = (1 - eager.tv_loss(logits, targets)).detach().numpy().astype(np.float32)  # as it is kept here
            accept = torch.from_numpy(accept).to(dtype)
            kl = eager.kl_div_loss(logits, targets)
            bce = F.binary_cross_entropy_with_logits(sure, accept, reduction="none")
            place = torch.arange(logits.shape[1]) % BLOCK
            weights = torch.from_numpy((DECAY ** place.numpy()).astype(np.float32)).to(dtype)[None] * counts
            theirs, _ = dspark_metrics(logits, targets, sure, counts, BLOCK, {"kl": (eager.kl_div_loss, 1.0)},
                                       tv_loss_fn=eager.tv_loss, gamma=-1 / math.log(DECAY))
            ours = ((kl + bce) * weights).sum() / counts.sum()
            assert torch.allclose(ours.double(), theirs.double(), rtol=1e-5), (ours, theirs)
            total = total + ((kl + bce) * weights).sum()
            states.append(seen["hidden"][0])
            for i, a in enumerate(at.tolist()):
                for k in range(BLOCK):
                    j = i * BLOCK + k
                    if counts[0, j]:
                        for name, value in (("loss", kl), ("confidence_loss", bce), ("confidence", sure)):
                            out[name][k, first + a - 1] = value[0, j]
                        best[k, first + a - 1] = logits[0, j].argmax().item()
            first += n
        out["hidden"] = torch.cat(states)
        total.backward()
    return out, {n: p.grad for n, p in named.items()}, int32(best)


def dspark_case(form):
    g, docs = documents_of()
    out, grad, best = in_all_precisions(dspark_run, docs, form)
    assert all(np.array_equal(best[0], b) for b in best)
    g.put("student_argmax", best[0])
    for k in ("loss", "confidence_loss", "hidden"):
        g.put_tensors(k, [o[k] for o in out])
    for k in grad[0]:
        g.put_matrices(f"grad/{k}", [o[k] for o in grad])
    g.write(f"dspark-{form}")


def documents_of():
    g, docs = Golden(), documents()
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    for i, d in enumerate(docs):
        for k in ("tokens", "mask", "argmax"):
            g.put(f"doc/{i}/{k}", int32(d[k]))
    first, rows = 0, []
    for d in docs:
        rows += [first + a - 1 for a in anchors_of(d)]
        first += d["n"]
    g.put("anchor_rows", int32(rows))
    return g, docs


def dflash_case():
    g, docs = documents_of()
    for head in ("target", "lowrank"):
        for objective in ("kl", "hard-ce"):
            out, grad, pace, best, _ = in_all_precisions(dflash_run, docs, head, objective)
            assert all(np.array_equal(best[0], b) for b in best)
            g.put(f"{head}/{objective}/student_argmax", best[0])
            g.put_tensors(f"{head}/{objective}/loss", [o["loss"] for o in out])
            for k in grad[0]:
                g.put_matrices(f"{head}/{objective}/grad/{k}", [o[k] for o in grad])
            if objective == "hard-ce":
                g.put(f"{head}/pace", pace[0].astype(np.float64), [p.astype(np.float64) for p in pace[1:]])
        if head == "target":
            g.put_tensors("hidden", [o["hidden"] for o in out])
    g.write("dflash")


def xpress_case():
    g, docs = documents_of()
    out, grad, _, best, _ = in_all_precisions(dflash_run, docs, "xpress", "kl")
    assert all(np.array_equal(best[0], b) for b in best)
    g.put("xpress/kl/student_argmax", best[0])
    g.put_tensors("xpress/kl/loss", [o["loss"] for o in out])
    for k in grad[0]:
        g.put_matrices(f"xpress/kl/grad/{k}", [o[k] for o in grad])
    g.put_tensors("hidden", [o["hidden"] for o in out])
    g.write("xpress")


def dflash2_case():
    g, docs = documents_of()
    for objective in ("kl", "hard-ce"):
        out, grad, pace, best, chosen = in_all_precisions(dflash_run, docs, "selector", objective)
        for name, ids in (("argmax", best), ("chosen", chosen)):
            assert all(np.array_equal(ids[0], b) for b in ids)
            g.put(f"{objective}/{name}", ids[0])
        for k in ("loss", "selector_loss", "accept"):
            g.put_tensors(f"{objective}/{k}", [o[k] for o in out])
        for k in grad[0]:
            g.put_matrices(f"{objective}/grad/{k}", [o[k] for o in grad])
        if objective == "hard-ce":
            g.put("pace", pace[0].astype(np.float64), [p.astype(np.float64) for p in pace[1:]])
    g.put_tensors("hidden", [o["hidden"] for o in out])
    g.write("dflash2")


if __name__ == "__main__":
    dflash_case()
    dflash2_case()
    xpress_case()
    for form in FORMS:
        dspark_case(form)
