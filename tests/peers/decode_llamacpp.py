#!/usr/bin/env python3
"""Decoding with a target by paceline and by llama.cpp (llama-cpp-python), in turns in one run. Development only.

    python tests/peers/decode_llamacpp.py --target checkpoints/tiny
    python tests/peers/decode_llamacpp.py --target model.gguf --prompts questions.jsonl [--chat]

Writes the target as GGUF (with the gguf package), in bf16 and in fp32, or takes a GGUF file as it is, and prints for
both programs: plain greedy decoding, forwards over 1 to 60 rows of one session, and whether the greedy tokens are the
same up to the first place where llama.cpp's two best logits are closer than 1e-3, of a quantised file 0.02: there
llama.cpp rounds activations to 8 bits, which may part the two before. Medians over rounds; both sides include the
choice of the best token.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

ROWS = (1, 2, 4, 8, 16, 32, 60)
GAP = 1e-3


# ---- the target as GGUF


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    for name, t in header.items():
        if name == "__metadata__":
            continue
        raw = np.frombuffer(data[slice(*t["data_offsets"])], {"BF16": np.uint16, "F32": np.float32}[t["dtype"]])
        raw = raw.reshape(t["shape"])
        yield name, (raw.astype(np.uint32) << 16).view(np.float32) if raw.dtype == np.uint16 else raw


def bf16_bits(x):
    """Round to nearest even; of values that are bf16 already, their bits."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def interleaved(w, heads):
    """Hugging Face's halves of a head as the neighbouring pairs that llama.cpp turns."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)


def gguf_name(name):
    parts = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    name = name.removesuffix(".weight")
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if name in whole:
        return whole[name] + ".weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{parts[rest]}.weight"


def write_gguf(path, target, c, bf16):
    import sentencepiece
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if bf16 else gguf.LlamaFileType.ALL_F32)
    sp = sentencepiece.SentencePieceProcessor(os.path.join(target, "tokenizer.model"))
    kinds = gguf.TokenType
    kind = lambda i: (kinds.UNKNOWN if sp.IsUnknown(i) else kinds.CONTROL if sp.IsControl(i) else
                      kinds.BYTE if sp.IsByte(i) else kinds.NORMAL)
    w.add_tokenizer_model("llama")
    w.add_token_list([sp.IdToPiece(i).encode() for i in range(c["vocab_size"])])
    w.add_token_scores([sp.GetScore(i) for i in range(c["vocab_size"])])
    w.add_token_types([kind(i) for i in range(c["vocab_size"])])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    for name, x in read_safetensors(os.path.join(target, "model.safetensors")):
        if "q_proj" in name:
            x = interleaved(x, c["num_attention_heads"])
        if "k_proj" in name:
            x = interleaved(x, c["num_key_value_heads"])
        if bf16 and x.ndim == 2:
            bits = bf16_bits(x)
            w.add_tensor(gguf_name(name), bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            w.add_tensor(gguf_name(name), np.ascontiguousarray(x, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- llama.cpp


class Peer:
    def __init__(self, path, vocab, context, threads):
        mp, cp = llama_cpp.llama_model_default_params(), llama_cpp.llama_context_default_params()
        cp.n_ctx = cp.n_batch = cp.n_ubatch = context
        cp.n_threads = cp.n_threads_batch = threads
        self.vocab = vocab
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), mp)
        self.ctx = llama_cpp.llama_init_from_model(self.model, cp)
        self.batch = llama_cpp.llama_batch_init(context, 0, 1)
        self.memory = llama_cpp.llama_get_memory(self.ctx)

    def forward(self, ids, first, every=True):
        """Rows `ids` at positions from `first` on; their best tokens (every: of each, else of the last)."""
        n = len(ids)
        self.batch.n_tokens = n
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, first + i
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, 0
            self.batch.logits[i] = every or i == n - 1
        assert llama_cpp.llama_decode(self.ctx, self.batch) == 0
        out = n if every else 1
        logits = np.ctypeslib.as_array(ctypes.cast(llama_cpp.llama_get_logits(self.ctx),
                                                   ctypes.POINTER(ctypes.c_float)), (out, self.vocab))
        return logits

    def forget(self, first):
        llama_cpp.llama_memory_seq_rm(self.memory, 0, first, -1)

    def decode(self, prompt, n):
        """n greedy tokens, the gaps of their two best logits, and seconds a token after the prompt's own."""
        self.forget(0)
        logits, tokens, gaps = self.forward(prompt, 0, False), [], []
        t0 = time.perf_counter()
        for i in range(n):
            tokens.append(int(logits[-1].argmax()))
            if i < n - 1:
                logits = self.forward([tokens[-1]], len(prompt) + i)
        seconds = (time.perf_counter() - t0) / (n - 1)
        self.forget(0)
        logits = self.forward(prompt + tokens[:-1], 0)
        for i in range(n):
            two = np.partition(logits[len(prompt) - 1 + i], -2)[-2:]
            gaps.append(float(two[1] - two[0]))
        return tokens, gaps, seconds

    def rows(self, prompt, n, tries=9):
        """Seconds of a forward over n rows behind a prompt, the best tokens of all of them chosen."""
        self.forget(0)
        self.forward(prompt, 0, False)
        took = []
        for _ in range(tries):
            self.forget(len(prompt))
            t0 = time.perf_counter()
            self.forward([(i + 1) * 7919 % self.vocab for i in range(n)], len(prompt)).argmax(-1)
            took.append(time.perf_counter() - t0)
        return min(took)


# ---- paceline


def paceline(a, *args):
    out = subprocess.run([a.paceline, *args, "--threads", str(a.threads), "--json", "-q"], check=True,
                         capture_output=True, text=True)
    return json.loads(out.stdout)


def compare(a, peer, prompt, args, gap):
    """Returns the first position where the greedy tokens of both programs differ, their number, and the position of the
    first gap below `gap`."""
    out = paceline(a, "decode", "--target", a.target, "-n", str(a.new_tokens), *args)
    ours, prompt = out["tokens"], prompt or out["prompt_tokens"]
    tokens, gaps, _ = peer.decode(prompt, a.new_tokens)
    n = min(len(ours), len(tokens))
    differ = next((i for i in range(n) if ours[i] != tokens[i]), n)
    close = next((i for i in range(n) if gaps[i] < gap), n)
    if differ < close:
        print(f"  tokens part at {differ} of {n}, where llama.cpp's gap is {gaps[differ]:.3f}")
    return differ, n, close


def compare_file(a, peer):
    questions = [json.loads(x) for x in open(a.prompts)][:a.count]
    text = lambda q: q.get("prompt") or q.get("question") or q["turns"][0]
    same = whole = 0
    for q in questions:
        differ, n, close = compare(a, peer, None, ["--prompt", text(q)] + (["--chat"] if a.chat else []), 0.02)
        whole += differ == n
        same += differ >= close
    print(f"greedy tokens of {len(questions)} prompts, {a.new_tokens} each: {whole} equal to the end, {same} up to the first "
          f"gap below 0.02, {len(questions) - same} part before it")


def main():
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--paceline", default=os.path.join(here, "build", "paceline"))
    ap.add_argument("--target", required=True, help="a Llama folder with tokenizer.model and one model.safetensors, or a GGUF file")
    ap.add_argument("--prompts", help="of a GGUF target: JSON lines with turns, question or prompt")
    ap.add_argument("--count", type=int, default=20)
    ap.add_argument("--chat", action="store_true")
    ap.add_argument("--context", type=int, default=32)
    ap.add_argument("--new-tokens", type=int, default=64)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = ap.parse_args()
    whole_file = a.target.endswith(".gguf")
    if whole_file:
        reader = gguf.GGUFReader(a.target)
        c = {"vocab_size": len(reader.get_field("tokenizer.ggml.tokens").data)}
    else:
        c = json.load(open(os.path.join(a.target, "config.json")))
    prompt = [(7 * i + 3) % c["vocab_size"] for i in range(a.context)]  # as paceline bench decode has it
    llama_cpp.llama_log_set(ctypes.cast(None, llama_cpp.llama_log_callback), ctypes.c_void_p(0))
    print(f"llama-cpp-python {llama_cpp.__version__}, {a.threads} threads; {a.target}, {a.context} tokens of prompt, "
          f"{a.new_tokens} new", flush=True)
    same = True
    with tempfile.TemporaryDirectory() as work:
        peers = {}
        if whole_file:
            peers["bf16"] = Peer(a.target, c["vocab_size"], 2048, a.threads)
            if a.prompts:
                compare_file(a, peers["bf16"])
        for weights in () if whole_file else ("bf16", "fp32"):
            path = os.path.join(work, weights + ".gguf")
            write_gguf(path, a.target, c, weights == "bf16")
            peers[weights] = Peer(path, c["vocab_size"], a.context + max(a.new_tokens, ROWS[-1]), a.threads)
            differ, n, close = compare(a, peers[weights], prompt, ["--prompt-ids", ",".join(map(str, prompt)), "--dtype",
                                                                   weights], GAP)
            same &= differ >= close
            print(f"{weights}: greedy tokens equal up to {differ} of {n}; first gap below {GAP} at "
                  f"{close if close < n else 'none'}: {'same' if differ >= close else 'DIFFERENT'}", flush=True)
        speed = {(who, w): [] for who in ("paceline", "llama.cpp") for w in peers}
        rows = {(who, n): [] for who in ("paceline", "llama.cpp") for n in ROWS}
        for _ in range(a.rounds):
            out = paceline(a, "bench", "decode", "--target", a.target, "--context", str(a.context), "--new-tokens",
                           str(a.new_tokens), "--repeats", "3")
            for m in out["decode"]:
                if m["weights"] in peers:
                    speed["paceline", m["weights"]].append(m["tokens_per_second"])
            for r in out["verify"]:
                rows["paceline", r["rows"]].append(r["seconds"])
            for w, peer in peers.items():
                speed["llama.cpp", w].append(1 / min(peer.decode(prompt, a.new_tokens)[2] for _ in range(3)))
            for n in ROWS:
                rows["llama.cpp", n].append(peers["bf16"].rows(prompt, n))
    median = statistics.median
    pairs = lambda x, y: f"{median(p / q for p, q in zip(x, y)):.2f}"
    spread = lambda x: f"{median(x):.0f} ({min(x):.0f} to {max(x):.0f})"
    for w in peers:
        ours, theirs = speed["paceline", w], speed["llama.cpp", w]
        print(f"plain {w}: paceline {spread(ours)} tokens/s, llama.cpp {spread(theirs)}, ratio {pairs(ours, theirs)}")
    for n in ROWS:
        ours, theirs = rows["paceline", n], rows["llama.cpp", n]
        over = lambda who: median(x / y for x, y in zip(rows[who, n], rows[who, 1]))
        print(f"bf16, {n} rows: paceline {1e3 * median(ours):.3f} ms ({over('paceline'):.2f} of one), llama.cpp "
              f"{1e3 * median(theirs):.3f} ms ({over('llama.cpp'):.2f}), ratio {pairs(theirs, ours)}")
    print(f"commit {out['commit']}, {out['machine']['cpu']}, {out['machine']['backend']}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
