#!/usr/bin/env python3
"""Writes lilicorr.golden of this folder: the vectors that LiLiCorr's network (arXiv 2608.20530) gives to the candidates
of small blocks, and their scores, written here from the published equations with PyTorch's own multi-head attention,
layer norm and normalisation, in double and in float32. Format, numbers from names: make_golden.py.

Needs: make_golden.py's packages."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from make_golden import (D, EPS, SMALL, THETA, V, Golden, bits, coarse, computing_in, config_json, in_all_precisions,
                         int32, llama_config, weight)

BLOCKS, SLOTS, K, WIDTH, HEADS, LAYERS, RANK, WIDE, SCALE, VECTOR_EPS = 3, 4, 6, 16, 2, 2, 5, 24, 10.0, 1e-6


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.mlp_norm = torch.nn.RMSNorm(WIDTH, EPS), torch.nn.RMSNorm(WIDTH, EPS)
        self.attn = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDE), torch.nn.SiLU(), torch.nn.Linear(WIDE, WIDTH))

    def forward(self, x, bias):
        y = self.attn_norm(x)
        x = x + self.attn(y, y, y, attn_mask=bias, need_weights=False)[0]
        return x + self.mlp(self.mlp_norm(x))


class Lattice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        linear = torch.nn.Linear
        self.token_proj, self.pass_hidden_proj, self.context_proj = (linear(D, WIDTH) for _ in range(3))
        self.feature_mlp = torch.nn.Sequential(torch.nn.LayerNorm(5), linear(5, WIDTH), torch.nn.SiLU(),
                                               linear(WIDTH, WIDTH))
        self.slot_embedding = torch.nn.Parameter(torch.zeros(SLOTS, WIDTH))
        self.rank_embedding = torch.nn.Parameter(torch.zeros(K, WIDTH))
        self.relative_slot_bias = torch.nn.Parameter(torch.zeros(HEADS, 2 * SLOTS + 1))
        self.same_slot_bias = torch.nn.Parameter(torch.zeros(HEADS))
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm, self.anchor_norm = torch.nn.RMSNorm(WIDTH, EPS), torch.nn.RMSNorm(WIDTH, EPS)
        self.factor_input_proj = linear(3 * WIDTH, WIDTH)
        self.out_head, self.in_head, self.anchor_out_head = (linear(WIDTH, RANK) for _ in range(3))

    def forward(self, token, log_p, hidden, context):
        """token [n, slots, K, d], log_p [n, slots, K], hidden [n, slots, d], context [n, d]."""
        n = len(token)
        rank = torch.arange(K, dtype=log_p.dtype)
        features = torch.stack((log_p, log_p.exp(), log_p - log_p[..., :1], (rank / (K - 1)).expand_as(log_p),
                                (rank == 0).to(log_p.dtype).expand_as(log_p)), -1)
        x = self.token_proj(token) + self.pass_hidden_proj(hidden)[:, :, None] + self.feature_mlp(features)
        x = (x + self.slot_embedding[:, None] + self.rank_embedding).reshape(n, SLOTS * K, WIDTH)
        slot = torch.arange(SLOTS).repeat_interleave(K)
        apart = slot[:, None] - slot[None, :]
        bias = self.relative_slot_bias[:, apart + SLOTS] + (apart == 0) * self.same_slot_bias[:, None, None]
        for layer in self.layers:
            x = layer(x, bias.repeat(n, 1, 1))
        x = self.output_norm(x).view(n, SLOTS, K, WIDTH)
        c = self.anchor_norm(self.context_proj(context))
        each = c[:, None, None].expand_as(x)
        f = F.silu(self.factor_input_proj(torch.cat((x, each, x * each), -1)))
        unit = [F.normalize(v, dim=-1, eps=VECTOR_EPS) for v in (self.in_head(f), self.out_head(f),
                                                                 self.anchor_out_head(c))]
        return unit


def lilicorr_run(dtype, ids, values, lse):
    with computing_in(dtype), torch.no_grad():
        model = Lattice().to(dtype).eval()
        for name, p in model.named_parameters():
            own = weight("dflash", "lilicorr." + name, tuple(p.shape))
            p.copy_((4 * own if name == "relative_slot_bias" else own).to(dtype))  # as large as embeddings are
        embed = weight("target", "model.embed_tokens.weight", (V, D)).to(dtype)
        hidden = torch.from_numpy(coarse("lilicorr/hidden", BLOCKS * SLOTS * D, 7).reshape(SLOTS, BLOCKS, D))
        context = torch.from_numpy(coarse("lilicorr/context", BLOCKS * D, 7).reshape(BLOCKS, D))
        log_p = (torch.from_numpy(values) - torch.from_numpy(lse)[..., None]).to(dtype)
        into, out, start = model(embed[torch.from_numpy(ids).long()].transpose(0, 1), log_p.transpose(0, 1),
                                 hidden.transpose(0, 1).to(dtype), context.to(dtype))
        into, out, start = (math.sqrt(SCALE) * v for v in (into, out, start))
        scores = [(start[:, None] * into[:, 0]).sum(-1)]  # behind candidate (slot + block) % K of the slot before
        for s in range(1, SLOTS):
            before = torch.stack([out[b, s - 1, (s + b) % K] for b in range(BLOCKS)])
            scores.append((before[:, None] * into[:, s]).sum(-1))
    return {"in": into, "out": out, "start": start, "scores": torch.stack(scores)},


def lilicorr_case():
    g = Golden()
    g.put("config.json", config_json(llama_config(dict(rope_type="default", rope_theta=THETA), **SMALL)))
    # Draft after draft, block after block: candidates in falling order of their logits.
    ids = np.stack([np.argsort(bits(f"lilicorr/ids/{i}", V))[:K] for i in range(SLOTS * BLOCKS)])
    values = -np.sort(-coarse("lilicorr/values", SLOTS * BLOCKS * K, 7).reshape(-1, K), axis=-1)
    lse = values[:, 0] + 1 + (bits("lilicorr/lse", SLOTS * BLOCKS) >> np.uint64(60)).astype(np.float64) / 8
    g.put("ids", int32(ids))
    g.put("values", values)
    g.put("lse", lse)
    out, = in_all_precisions(lilicorr_run, ids.reshape(SLOTS, BLOCKS, K), values.reshape(SLOTS, BLOCKS, K),
                             lse.reshape(SLOTS, BLOCKS))
    for k in out[0]:
        g.put_tensors(k, [o[k] for o in out])
    g.write("lilicorr")


if __name__ == "__main__":
    lilicorr_case()
