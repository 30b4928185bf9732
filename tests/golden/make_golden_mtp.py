#!/usr/bin/env python3
"""Writes mtp.golden and mtp_moe.golden of this folder: what the layer for drafting of Qwen3.5's files computes (mtp.*;
equations: infer/drafter/mtp.h), in double and in float32: its states and logits for the rows of a text behind the
target's features, then ahead from its own states. The layer is transformers' model of one layer with full attention,
which reads what fc gives in place of embeddings. Format and numbers from names: make_golden.py, make_golden_delta.py.

Needs: make_golden.py's packages."""
import torch
import transformers

from make_golden import Golden, coarse, computing_in, config_json, in_all_precisions, int32
from make_golden_delta import SMALL, ids, listed, value

TOKENS, STARTS, STEPS = 20, (0, 5, 12), 4


def of_drafter(name):
    """The name in files of a parameter of the model of one layer."""
    if name.startswith("model.layers.0."):
        return "mtp." + name[len("model."):]
    return "mtp.norm.weight" if name == "model.norm.weight" else name


def alone(config, dtype):
    one = type(config)(**(config.to_dict() | dict(num_hidden_layers=1, layer_types=["full_attention"])))
    one._attn_implementation, one._experts_implementation = "eager", "eager"
    model = getattr(transformers, config.architectures[0])(one).to(dtype).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(value(of_drafter(name), tuple(p.shape)).to(dtype))
    return model


def run(dtype, config, tokens):
    d, out = config.hidden_size, {}
    with computing_in(dtype), torch.no_grad():
        model, states = alone(config, dtype), []
        model.model.norm.register_forward_hook(lambda m, i, o: states.append(o))
        fc = value("mtp.fc.weight", (d, 2 * d)).to(dtype)
        gain = {n: 1 + value(f"mtp.pre_fc_norm_{n}.weight", (d,)).to(dtype) for n in ("embedding", "hidden")}
        features = torch.from_numpy(coarse("mtp/features", TOKENS * d, 7).reshape(TOKENS, d)).to(dtype)

        def norm(x, n):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps) * gain[n]

        for t in STARTS:
            hidden, ys, zs = features[:t + 1], [], []
            for k in range(STEPS):
                e = model.model.embed_tokens(torch.tensor(tokens[1:t + 2 + k]))
                x = torch.cat([norm(e, "embedding"), norm(hidden, "hidden")], -1) @ fc.T
                zs.append(model(inputs_embeds=x[None], use_cache=False).logits[0, -1])
                ys.append(states[-1].reshape(-1, d)[-1])
                hidden = torch.cat([hidden, ys[-1][None]])
            out[f"{t}/hidden"], out[f"{t}/logits"] = torch.stack(ys), torch.stack(zs)
    assert out["0/logits"].dtype == dtype
    return (out,)


def drafter_lines(config):
    """Lines of the files' tensors: name and sizes."""
    d = config.hidden_size
    shapes = {"mtp.fc.weight": (d, 2 * d), "mtp.pre_fc_norm_embedding.weight": (d,), "mtp.pre_fc_norm_hidden.weight": (d,)}
    for name, p in alone(config, torch.float32).named_parameters():
        if of_drafter(name) != name:
            shapes[of_drafter(name)] = tuple(p.shape)
    return "".join(f"{name} {' '.join(map(str, shape))}\n" for name, shape in shapes.items()).encode()


def case(name, kind, architecture, **more):
    sizes = SMALL | dict(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)) | more
    if "num_experts" in sizes:
        del sizes["intermediate_size"]
    config = getattr(transformers, kind)(**sizes)
    config.architectures = [architecture]
    config._experts_implementation = "eager"
    g, tokens = Golden(), ids(f"{name}/tokens", TOKENS)
    runs = in_all_precisions(run, config, tokens)[0]
    g.put("config.json", config_json(config))
    g.put("tensors", listed(config) + drafter_lines(config))
    g.put("tokens", int32(tokens))
    for k in runs[0]:
        g.put_tensors(k, [r[k] for r in runs])
    g.write(name)


if __name__ == "__main__":
    case("mtp", "Qwen3_5TextConfig", "Qwen3_5ForCausalLM", tie_word_embeddings=True)
    case("mtp_moe", "Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", num_experts=4, num_experts_per_tok=2,
         moe_intermediate_size=16, shared_expert_intermediate_size=24)
