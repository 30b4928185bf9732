#!/usr/bin/env python3
"""The same drafter in paceline and, exported as GGUF, in llama.cpp: drafts compared cycle by cycle. Development only.

    python tests/peers/draft_llamacpp.py CHECKPOINT --target checkpoints/tiny --served TARGET.gguf --llama-cpp SOURCES

CHECKPOINT: an EAGLE-3 drafter with three taps, none the last layer's output, or a block drafter, DFlash or DSpark, whose
--chain is as long as its block drafts. TARGET.gguf: the same target in F32, made by llama.cpp's converter. Both programs
decode the same prompt ids greedily in fp32 and draft chains; cycles that the limit clips are left out. Exit code 1 where fewer than 99 % of the cycles drafted the same tokens, where acceptance at a
position differs by more than 0.01, or where texts differ before the first place at which llama.cpp's two best logits are
closer than 1e-3.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
GAP = 1e-3


def build(sources, folder):
    """llama.cpp's libraries and the program that tells of its cycles."""
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF"]
    flags += [f"-DLLAMA_BUILD_{x}=OFF" for x in ("TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP")]
    run = lambda *args: subprocess.run(args, check=True, stdout=sys.stderr)
    run("cmake", "-S", sources, "-B", folder, *flags)
    run("cmake", "--build", folder, "-j", str(os.cpu_count()), "--target", "llama-common")
    libraries = [os.path.join(d, f) for d, _, names in sorted(os.walk(folder)) for f in names if f.endswith(".a")]
    program = os.path.join(folder, "draft_llamacpp")
    include = [f"-I{sources}/{x}" for x in ("common", "include", "ggml/include", "vendor")]
    run("c++", "-std=c++17", "-O2", *include, "-o", program, os.path.join(HERE, "draft_llamacpp.cpp"),
        "-Wl,--start-group", *libraries, "-Wl,--end-group", "-lpthread", "-ldl", "-lssl", "-lcrypto")
    return program


def prompts(files, n):
    texts = [json.loads(line)["prompt"] for f in files for line in open(f)]
    return texts[:n]


def ours(a, text, folder):
    trace = os.path.join(folder, "trace.jsonl")
    subprocess.run([a.paceline, "decode", "--target", a.target, "--drafter", a.checkpoint, "--dtype", "fp32", "--tree",
                    f"chain:{a.chain}", "-n", str(a.new), "--prompt", text, "--trace", trace, "-q"], check=True,
                   stdout=subprocess.DEVNULL)
    prompt, answer = [json.loads(line) for line in open(trace)]
    return prompt["ids"], answer


def theirs(a, ids, folder, program):
    with open(f"{folder}/prompts", "w") as f:
        f.writelines(" ".join(map(str, p)) + "\n" for p in ids)
    subprocess.run([a.paceline, "export", a.checkpoint, "--to", "gguf", "--target", a.served, "--weights", "fp32",
                    "--out", f"{folder}/g", "-q"], check=True, stdout=subprocess.DEVNULL)
    drafter = next(os.path.join(d, f) for d, _, names in os.walk(f"{folder}/g") for f in names if f.endswith(".gguf"))
    config = json.load(open(f"{a.checkpoint}/config.json"))
    head = config.get("paceline", {}).get("head", {}).get("kind")
    kind = "eagle3" if "dflash_config" not in config else "dspark" if head == "markov" else "dflash"
    options = f"--spec-type draft-{kind} --spec-draft-n-max {a.chain} --spec-draft-p-min 0 -t 1 -td 1 -c 1024 -b 1024 "
    options += "-ub 1024 -fa off -ctk f32 -ctv f32 -ctkd f32 -ctvd f32 -lv 0"
    out = subprocess.run([program, f"{folder}/prompts", str(a.new), "-m", a.served, "-md", drafter, *options.split()],
                         check=True, capture_output=True, text=True)
    return [json.loads(line) for line in out.stdout.splitlines() if line.startswith('{"ids"')]


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Side:
    def __init__(self, name, chain):
        self.name, self.chain = name, chain
        self.cycles, self.emitted, self.accepted = 0, 0, [0] * chain

    def add(self, cycle):
        self.cycles += 1
        self.emitted += cycle["emitted"]
        for i in range(cycle["accepted"]):
            self.accepted[i] += 1

    def rates(self):
        return [x / self.cycles for x in self.accepted]

    def __str__(self):
        return (f"{self.name}: {self.cycles} cycles, acceptance length {self.emitted / self.cycles:.3f}, by position "
                + " ".join(f"{x:.3f}" for x in self.rates()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkpoint")
    p.add_argument("--target", required=True)
    p.add_argument("--served", required=True)
    p.add_argument("--llama-cpp", help="its sources")
    p.add_argument("--program", help="draft_llamacpp as it was built already, instead of --llama-cpp")
    p.add_argument("--llama-build", help="a folder to build it in, kept [a temporary one]")
    p.add_argument("--paceline", default=os.path.join(ROOT, "build", "paceline"))
    p.add_argument("--prompts", nargs="+", default=[os.path.join(ROOT, "data", "prompts", f"{x}.jsonl")
                                                    for x in ("heldout", "train")])
    p.add_argument("--n", type=int, default=100)
    p.add_argument("--new", type=int, default=128)
    p.add_argument("--chain", type=int, default=3)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = a.program or build(a.llama_cpp, a.llama_build or f"{folder}/build")
        mine = [ours(a, text, folder) for text in prompts(a.prompts, a.n)]
        yours = theirs(a, [ids for ids, _ in mine], folder, program)
    assert len(mine) == len(yours), f"{len(yours)} answers of {len(mine)}"
    sides = Side("paceline ", a.chain), Side("llama.cpp", a.chain)
    alone = same = other = early = texts = 0
    for (prompt, m), y in zip(mine, yours):
        n = common(m["ids"], y["ids"])
        whole = n == len(m["ids"]) == len(y["ids"])
        near = next((i for i, gap in enumerate(y["gaps"]) if gap < GAP), len(y["ids"]))
        texts += whole
        early += not whole and n < near
        limit = len(prompt) + min(n, a.new)  # up to where the texts are the same
        both = [{c["at"]: c for c in side["cycles"] if c["at"] + a.chain + 1 <= limit} for side in (m, y)]
        for side, cycles in zip(sides, both):
            for c in cycles.values():
                side.add(c)
        alone += len(set(both[0]) ^ set(both[1]))
        for at in set(both[0]) & set(both[1]):
            if both[0][at]["draft"] == both[1][at]["draft"]:
                same += 1
            else:
                other += 1
    total = same + other + alone
    apart = max(abs(x - y) for x, y in zip(sides[0].rates(), sides[1].rates()))
    print(f"{len(mine)} prompts; {texts} texts the same, {early} differ before the first gap below {GAP}")
    print(f"{same} of {total} cycles drafted the same tokens ({100 * same / total:.2f} %); {other} drafted others, "
          f"{alone} are of one side alone")
    print(*sides, sep="\n")
    print(f"largest difference of acceptance at a position: {apart:.4f}")
    sys.exit(early > 0 or same < 0.99 * total or apart > 0.01)


if __name__ == "__main__":
    main()
