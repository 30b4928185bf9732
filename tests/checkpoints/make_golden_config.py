#!/usr/bin/env python3
"""Writes golden_config.jsonl: config.json texts that say RoPE's base and scaling in every place and combination, and
what transformers' classes take of them. Needs: pip install transformers==5.24.0 (torch is not needed).

A line is {"name", "config", "theta", "type", "factor", "original", "partial", "local", "warns"}; factor and original
are 0 where the type has none, local is the base of windowed layers (0: they have the others'), warns says whether
places contradict each other, which the program names in a line."""
import json
import os

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
from transformers import AutoConfig  # noqa: E402

SIZES = {"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 4096}
TYPES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral", "Qwen2ForCausalLM": "qwen2",
         "Qwen3ForCausalLM": "qwen3", "Phi3ForCausalLM": "phi3", "MixtralForCausalLM": "mixtral",
         "Qwen3MoeForCausalLM": "qwen3_moe", "GptOssForCausalLM": "gpt_oss", "Gemma2ForCausalLM": "gemma2",
         "Gemma3ForCausalLM": "gemma3_text"}
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 1024}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LONG = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
# name, members, whether places contradict
FORMS = [
    ("silent", {}, False),
    ("top", {"rope_theta": 500.0}, False),
    ("parameters", {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}, False),
    ("scaling", {"rope_scaling": {"rope_theta": 500.0, "rope_type": "default"}}, False),
    ("scaling without a type", {"rope_scaling": {"rope_theta": 500.0}}, False),
    ("linear in scaling with the base", {"rope_scaling": {"rope_theta": 500.0, **LINEAR}}, False),
    ("linear in scaling, base at the top", {"rope_scaling": LINEAR, "rope_theta": 500.0}, False),
    ("linear in parameters, base at the top", {"rope_parameters": LINEAR, "rope_theta": 500.0}, False),
    ("top against scaling", {"rope_theta": 10000.0, "rope_scaling": {"rope_theta": 500.0, **LINEAR}}, True),
    ("top against parameters", {"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 500.0}}, True),
    ("scaling beside parameters that have the base",
     {"rope_scaling": LINEAR, "rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 2.0}}, True),
    ("two types", {"rope_theta": 500.0, "rope_scaling": LINEAR, "rope_parameters": {"rope_theta": 500.0, **YARN}}, True),
    ("two factors", {"rope_theta": 500.0, "rope_scaling": LINEAR,
                     "rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 3.0}}, True),
    ("all three agree", {"rope_theta": 500.0, "rope_scaling": {"rope_theta": 500.0, **LINEAR},
                         "rope_parameters": {"rope_theta": 500.0, **LINEAR}}, False),
    ("empty scaling", {"rope_scaling": {}, "rope_parameters": {"rope_theta": 500.0, **LINEAR}}, False),
    ("scaling of null", {"rope_scaling": None, "rope_parameters": {"rope_theta": 500.0, **LINEAR}}, False),
    ("the same base in two numbers", {"rope_theta": 500, "rope_scaling": {"rope_theta": 5e2, **LINEAR}}, False),
]
MORE = [
    ("LlamaForCausalLM", "llama3 with the base", {"rope_scaling": {"rope_theta": 500000.0, **LLAMA3}}, False),
    ("LlamaForCausalLM", "llama3, original at the top",
     {"rope_theta": 500.0, "rope_scaling": LLAMA3, "original_max_position_embeddings": 2048}, True),
    ("Qwen2ForCausalLM", "yarn with the base", {"rope_scaling": {"rope_theta": 1e6, **YARN}}, False),
    ("Qwen3ForCausalLM", "yarn, original at the top",
     {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 2048},
     True),
    ("Qwen3ForCausalLM", "yarn, original nowhere", {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0}},
     False),
    ("Phi3ForCausalLM", "part of a head at the top", {"rope_theta": 500.0, "partial_rotary_factor": 0.5}, False),
    ("Phi3ForCausalLM", "part of a head in parameters",
     {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default", "partial_rotary_factor": 0.5}}, False),
    ("Phi3ForCausalLM", "part of a head twice",
     {"partial_rotary_factor": 1.0, "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5}}, True),
    ("Phi3ForCausalLM", "longrope, original at the top",
     {"rope_theta": 500.0, "rope_scaling": LONG, "original_max_position_embeddings": 1024}, False),
    ("Phi3ForCausalLM", "longrope with the base", {"rope_scaling": {"rope_theta": 500.0, **LONG},
                                                   "original_max_position_embeddings": 1024}, False),
    ("Gemma3ForCausalLM", "silent", {}, False),
    ("Gemma3ForCausalLM", "tops", {"rope_theta": 500.0, "rope_local_base_freq": 50.0}, False),
    ("Gemma3ForCausalLM", "by layer types",
     {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}, False),
    ("Gemma3ForCausalLM", "scaling with the base", {"rope_scaling": {"rope_theta": 500.0, **LINEAR}}, False),
    ("Gemma3ForCausalLM", "scaling over layer types",
     {"rope_scaling": LINEAR, "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                                  "sliding_attention": {"rope_type": "default"}}}, True),
    ("Gemma3ForCausalLM", "tops against layer types",
     {"rope_theta": 7.0, "rope_local_base_freq": 9.0,
      "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                          "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}, True),
    ("GptOssForCausalLM", "silent", {}, False),
    ("GptOssForCausalLM", "yarn with the base", {"rope_scaling": {"rope_theta": 500.0, **YARN}}, False),
]


def taken(config):
    """What the class of transformers has of it."""
    c = AutoConfig.for_model(**json.loads(json.dumps(config)))
    rope = c.rope_parameters
    full, local = rope.get("full_attention", rope), rope.get("sliding_attention", {})
    kind = full["rope_type"]
    return {"theta": full["rope_theta"], "type": kind, "factor": full.get("factor", 0) if kind != "default" else 0,
            "original": full.get("original_max_position_embeddings", 0) if kind in ("llama3", "yarn", "longrope") else 0,
            "partial": full.get("partial_rotary_factor") or 1, "local": local.get("rope_theta", 0)}


def main():
    cases = [(a, n, m, w) for n, m, w in FORMS for a in ("LlamaForCausalLM", "Qwen3ForCausalLM")]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_config.jsonl"), "w") as out:
        for architecture, name, members, warns in cases + MORE:
            sizes = {k: v for k, v in SIZES.items() if not (architecture == "Phi3ForCausalLM" and k == "head_dim")}
            config = {"architectures": [architecture], "model_type": TYPES[architecture], **sizes, **members}
            out.write(json.dumps({"name": f"{architecture}: {name}", "config": config, **taken(config),
                                  "warns": warns}) + "\n")


if __name__ == "__main__":
    main()
