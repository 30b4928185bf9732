#!/usr/bin/env python3
"""Writes qwen3_next.golden, qwen3_next_moe.golden, qwen3_5.golden and qwen3_5_moe.golden of this folder: what transformers' models with
gated delta nets compute, in double and in float32: hidden states and logits of the last rows of a text that is longer
than one chunk of its chunked form, logits of a tree's nodes, each as the end of a text of its own, and a text continued
greedily. Format and numbers from names: make_golden.py.

"tensors" lists the tensors of a model's files, a line each: name and sizes. Their values: `value` here.

Needs: make_golden.py's packages."""
import math

import numpy as np
import torch
import transformers

from make_golden import (Golden, bits, coarse, computing_in, config_json, in_all_precisions, int32, norm_weights,
                         parameter)

VOCAB, TEXT, KEPT, GREEDY = 61, 72, 12, 200
SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, linear_num_key_heads=2,
             linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4,
             bos_token_id=1, eos_token_id=2, pad_token_id=None, attn_implementation="eager")
CONTEXT, PARENT = 21, [-1, 0, 0, 1, 1, 2, 5, 3, 6]
TAPS = (1, 2, 4)


def value(name, shape):
    """Decays of a few to some dozens of positions; norms whose files hold the gain less 1 begin around 0."""
    key, n = f"delta/{name}", math.prod(shape)
    if name.endswith("A_log"):
        v = norm_weights(key, n) * 8 - 10
    elif name.endswith("conv1d.weight"):
        v = coarse(key, n, 9)
    elif len(shape) == 1:
        v = norm_weights(key, n) - (0 if "linear_attn" in name else 1)
    else:
        v = coarse(key, n, 8 if "embed" in name else 10)
    return torch.from_numpy(v.reshape(shape))


def model_of(config, dtype):
    model = getattr(transformers, config.architectures[0])(config).to(dtype).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            stacked = config.model_type == "qwen3_5_moe_text"
            v = value(name, tuple(p.shape)) if stacked else parameter(config, value, name, tuple(p.shape))
            p.copy_(v.to(dtype))
    return model


def listed(config):
    """Lines of the files' tensors: Qwen3-Next's experts one by one, Qwen3.5's as transformers has them."""
    lines = []
    for name, p in model_of(config, torch.float32).named_parameters():
        if ".experts." not in name or config.model_type == "qwen3_5_moe_text":
            lines.append((name, tuple(p.shape)))
            continue
        layer, of = name.split(".experts.")
        for e in range(p.shape[0]):
            if of == "gate_up_proj":
                lines += [(f"{layer}.experts.{e}.{x}_proj.weight", (p.shape[1] // 2, p.shape[2])) for x in ("gate", "up")]
            else:
                lines.append((f"{layer}.experts.{e}.down_proj.weight", tuple(p.shape[1:])))
    return "".join(f"{name} {' '.join(map(str, shape))}\n" for name, shape in lines).encode()


def run(dtype, config, text, tokens):
    """Rows of a text; logits after each node of a tree."""
    with computing_in(dtype), torch.no_grad():
        model, last = model_of(config, dtype), []
        model.model.layers[-1].register_forward_hook(lambda m, i, o: last.append(o[0] if isinstance(o, tuple) else o))
        r = model(torch.tensor([text]), output_hidden_states=True, use_cache=False)
        out = {"logits": r.logits[0, -KEPT:]}
        for i in TAPS:
            h = last[0] if i == config.num_hidden_layers else r.hidden_states[i]
            out[f"hidden/{i}"] = h.reshape(len(text), -1)[-KEPT:]
        nodes = []
        for node in range(len(tokens)):
            path = []
            while node >= 0:
                path.insert(0, tokens[node])
                node = PARENT[node]
            nodes.append(model(torch.tensor([text[:CONTEXT] + path])).logits[0, -1])
        out["tree/logits"] = torch.stack(nodes)
    assert out["logits"].dtype == dtype
    return (out,)


def greedy_text(config, prompt):
    """What the model says in double, and the least distance of a choice from the next best."""
    text, least = list(prompt), math.inf
    with computing_in(torch.float64), torch.no_grad():
        model = model_of(config, torch.float64)
        for _ in range(GREEDY):
            best = torch.topk(model(torch.tensor([text])).logits[0, -1], 2)
            least = min(least, float(best.values[0] - best.values[1]))
            text.append(int(best.indices[0]))
    return text, least


def ids(name, n):
    return (bits(name, n) % np.uint64(VOCAB)).astype(int).tolist()


def case(name, kind, architecture, **sizes):
    sizes = SMALL | dict(num_hidden_layers=4) | sizes
    if kind == "Qwen3_5MoeTextConfig":
        del sizes["intermediate_size"]
    config = getattr(transformers, kind)(**sizes)
    config.architectures = [architecture]
    config._experts_implementation = "eager"
    g, text, tokens = Golden(), ids(f"{name}/text", TEXT), ids(f"{name}/tree", len(PARENT))
    runs = in_all_precisions(run, config, text, tokens)[0]
    g.put("config.json", config_json(config))
    g.put("tensors", listed(config))
    g.put("text", int32(text))
    g.put("tree/tokens", int32(tokens))
    g.put("tree/parent", int32(PARENT))
    for k in runs[0]:
        g.put_tensors(k, [r[k] for r in runs])
    for i in range(200):
        prompt = ids(f"{name}/prompt/{i}", CONTEXT)
        said, least = greedy_text(config, prompt)
        if len(set(said[len(prompt):])) >= 8 and least > 2e-3:
            break
    else:
        raise AssertionError(f"{name}: no prompt will do")
    print(f"{name}: {len(set(said[len(prompt):]))} different tokens of {GREEDY}, never nearer than {least:.1e}")
    g.put("greedy/prompt", int32(prompt))
    g.put("greedy/text", int32(said))
    g.write(name)


def main():
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    case("qwen3_next", "Qwen3NextConfig", "Qwen3NextForCausalLM", num_experts=0, rope_parameters=rope)
    case("qwen3_next_moe", "Qwen3NextConfig", "Qwen3NextForCausalLM", num_experts=5, num_experts_per_tok=2,
         moe_intermediate_size=16, shared_expert_intermediate_size=24, mlp_only_layers=[1],
         layer_types=["full_attention", "linear_attention", "full_attention", "linear_attention"], rope_parameters=rope)
    case("qwen3_5", "Qwen3_5TextConfig", "Qwen3_5ForCausalLM", tie_word_embeddings=True, linear_num_value_heads=6,
         linear_value_head_dim=18, linear_conv_kernel_dim=3,
         rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 0], mrope_interleaved=True,
                              partial_rotary_factor=0.25))
    case("qwen3_5_moe", "Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", num_experts=4, num_experts_per_tok=2,
         moe_intermediate_size=16, shared_expert_intermediate_size=24, num_hidden_layers=4,
         layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"], rope_parameters=rope)


if __name__ == "__main__":
    main()
