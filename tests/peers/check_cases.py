#!/usr/bin/env python3
"""Inputs that were rewritten from public reports, each with its right value. Development only.

    python3 tests/peers/check_cases.py CASES build/paceline [NN...]

CASES holds a folder a case (NN-name: a README that names the report, make.py or the files themselves) and common/kit.py,
with the standard library alone; beside CASES stands data/models/TinyStories-656K, or SHARED names the folder that has
it. Each case is made anew in a temporary folder. A line an input: OK or WRONG, the right value, what came. Exit code 1
if one is WRONG. Right values are transformers 5.24's, tokenizers', or vLLM's where the case says so.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROMPT = ["--prompt", "Once upon a time"]
CASES = {}
wrong = 0


def case(function):
    CASES[function.__name__[1:]] = function
    return function


def short(value, n=150):
    text = value if isinstance(value, str) else repr(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= n else text[:n - 3] + "..."


def line(name, right, came, ok=None):
    """A line of the table; without `ok` both must be equal."""
    global wrong
    ok = right == came if ok is None else ok
    wrong += not ok
    print("%-5s %s | right: %s | came: %s" % ("OK" if ok else "WRONG", name, short(right), short(came)), flush=True)


class Run:
    """What a command printed; `text` joins both streams."""

    def __init__(self, *args, timeout=300):
        p = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, timeout=timeout)
        self.rc, self.bytes = p.returncode, p.stdout
        self.out, self.err = (s.decode("utf-8", "replace") for s in (p.stdout, p.stderr))
        self.text = self.out + self.err

    def json(self):
        return json.loads(self.out) if self.rc == 0 else {}

    def warning(self, *words):
        """The first line of stderr with all the words, in either case."""
        for l in self.err.splitlines():
            if all(w.lower() in l.lower() for w in words):
                return l
        return ""


def refused(name, run, *words):
    """The run ends with 2 and one line that has all the words."""
    l = run.warning(*words)
    line(name, "exit 2, " + " ".join(words), "exit %d, %s" % (run.rc, l or run.err.strip()), run.rc == 2 and l != "")


def warned(name, run, *words):
    """The run goes on, and one line has all the words."""
    l = run.warning(*words)
    line(name, "exit 0, " + " ".join(words), "exit %d, %s" % (run.rc, l or run.err.strip()), run.rc == 0 and l != "")


def decode(target, *args, n=24):
    return Run("decode", "--target", target, "-n", n, "--json", *(args or PROMPT))


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(l) for l in f]


def answers(name, target, prompts, form="chat", n=8):
    """The records of `generate --texts`, and its run."""
    r = Run("generate", "../common/texts.yaml", "--texts", "--out", "out/t-" + name, "--set", "target.path=" + target, "--set",
            "data.prompts=" + prompts, "--set", "eval.prompts=" + prompts, "--set", "data.form=" + form, "--set",
            "data.samples=0", "--set", "data.max_new_tokens=%d" % n)
    return (lines_of("out/t-%s/texts.jsonl" % name) if r.rc == 0 else []), r


def prompts_of(records):
    return [(r.get("turn", 0), r["prompt"]) for r in records]


def rendered(target, conversations, *args):
    r = Run("tokenize", "--tokenizer", target, "--chat", conversations, "--json", *args)
    return [c["text"] for c in r.json().get("conversations", [])], r


@case
def _01():
    history = {
        "a": "<|start|>user<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>OK<|end|>"
             "<|start|>user<|message|>two<|end|><|start|>assistant",
        "b": "[INST]one[/INST][TOOL_CALLS]{x}</s>[INST]two[/INST]"}
    for m, right in history.items():
        records, r = answers(m, "out/" + m, "conv.jsonl", n=16)
        line(m, right, next((p for t, p in prompts_of(records) if t == 1), r.err))


@case
def _02():
    ids = {m: decode("out/" + m, n=40).json().get("tokens")
           for m in ("a-top", "b-parameters", "c-scaling", "d-both", "e-linear", "f-linear-top")}
    plain = decode(TINY, n=40).json()["tokens"]
    line("a-top starts as transformers, another than the model's", [313, 598, 303, 512], ids["a-top"][:4],
         ids["a-top"][:4] == [313, 598, 303, 512] and ids["a-top"] != plain)
    for m in ("b-parameters", "c-scaling", "d-both"):
        line(m + " = a-top", ids["a-top"], ids[m])
    line("e-linear = f-linear-top", ids["f-linear-top"], ids["e-linear"])
    for h in ("a-top", "c-scaling"):
        r = Run("import", "out/head-" + h, "--target", TINY, "--out", "out/imported-" + h)
        config = json.load(open("out/imported-%s/config.json" % h)) if r.rc == 0 else {}
        line("head-%s writes" % h, 500, config.get("rope_theta"))
        warned("head-%s, base of the target" % h, r, "500", "10000")


@case
def _03():
    plain = decode(TINY).json()["tokens"]
    same, other = decode("out/a-same"), decode("out/b-other")
    line("a-same: the model's ids", plain, same.json().get("tokens"))
    line("a-same: no warning", "", same.warning("lm_head"))
    warned("b-other", other, "lm_head.weight", "tie_word_embeddings")
    # What samples is what teaches: the loss of the foreign matrix on the target's own greedy answers is the target's.
    records, r = answers("b", "out/b-other", "p.jsonl", form="text", n=24)
    line("b-other: generate = decode", other.json().get("text"), records[0]["answer"] if records else r.err)


@case
def _04():
    for m in ("a-config-stale", "b-generation-stale", "c-agree"):
        j = decode("out/" + m, "--chat", "--prompt", "hi", n=40).json()
        line(m, ("ok", "stop"), (j.get("text"), j.get("finish")))
        records, _ = answers(m, "out/" + m, "prompts.jsonl", n=40)
        line(m + ", generate", [("ok", "stop")], sorted({(r["answer"], r["finish"]) for r in records}))


@case
def _06():
    for f in ("a-tool", "b-two-tools", "c-ipython", "d-function"):
        records, r = answers(f, "out/model", "out/%s.jsonl" % f)
        p = [x for x in prompts_of(records) if "Lyon" in x[1]]
        last = p[-1][1] if p else r.err
        line(f, "3 turns; the call, its results, an answer, Thanks", "%d turns; %s" % (len(p), last),
             [t for t, _ in p] == [0, 1, 2] and re.fullmatch(
                 r"\[user\]Rain in Lyon\?\[assistant\]CALL weather(\[\w+\]RESULT \d of Lyon)+\[assistant\].*"
                 r"\[user\]Thanks\[assistant\] ", last, re.S) is not None)


@case
def _07():
    right = "[system] Answer in verse.\n[user] What is rain?\n[assistant] "
    for f in ("a-inside", "b-system", "c-system_prompt"):
        records, r = answers(f, "out/model", f + ".jsonl", n=4)
        line(f, right, records[0]["prompt"] if records else r.err)


@case
def _08():
    a = Run("tokenize", "--tokenizer", "out/a-in-both", "--chat", "conv.jsonl", "--add-generation-prompt")
    line("a-in-both starts with", "2048", a.out.split()[0].strip("[,"))
    for m in ("b-in-config", "c-eos-in-config"):
        line(m + " = a", a.out, Run("tokenize", "--tokenizer", "out/" + m, "--chat", "conv.jsonl", "--add-generation-prompt").out)


@case
def _10():
    pathlib.Path("nul.txt").write_bytes(b"a\0b")
    for m in ("a-in-vocab", "b-as-added-token"):
        m = "out/" + m
        line(m + ": ids", *(Run("tokenize", "--tokenizer", t, "--text", "Once upon a time").out for t in (TINY, m)))
        line(m + ": text", *(decode(t, n=12).json().get("text") for t in (TINY, m)))
        line(m + ": a NUL has its id", "2048", Run("tokenize", "--tokenizer", m, "--file", "nul.txt").out,
             "2048" in Run("tokenize", "--tokenizer", m, "--file", "nul.txt").out)
        line(m + ": its id is a NUL", b"\0", Run("tokenize", "--tokenizer", m, "--decode", 2048).bytes.rstrip(b"\n"))


@case
def _11():
    plain = decode(TINY, n=12).json()["text"]
    for m in ("a-plain", "b-unnamed", "c-overlay", "d-overlay-alone", "f-both"):
        r = decode("out/" + m, n=12)
        line(m, plain, r.json().get("text", r.err))
    refused("e-missing-shard", decode("out/e-missing-shard"), "model-00002-of-00002.safetensors")
    warned("f-both", r, "model.safetensors", "index")


@case
def _13():
    for t in ("json", "items", "guarded"):
        of = {f: rendered("out/" + t, "out/%s.jsonl" % f) for f in ("object", "string", "broken")}
        text = {f: "".join(x[0]) for f, x in of.items()}
        line(t + ": a string is its object", text["object"], text["string"])
        if t == "items":
            refused("items: broken", of["broken"][1], "broken.jsonl:1", "no mapping")
        else:
            line(t + ": broken stays a string", '{"town": "Zür', text["broken"], "Zür" in text["broken"])


@case
def _14():
    def ids(f):
        r = decode(TINY, "--prompt-file", f + ".txt", n=1)
        return r.json().get("prompt_tokens", r.err)

    for f, like in (("lf", "none"), ("bom", "none"), ("crlf", "none"), ("crlf-two", "lf-two")):
        line("%s.txt = %s.txt" % (f, like), ids(like), ids(f))
    refused("utf16.txt", decode(TINY, "--prompt-file", "utf16.txt"), "UTF-16")
    text = Run("tokenize", "--tokenizer", TINY, "--file", "crlf.txt").out
    line("tokenize --file is as it stands", "another text than lf.txt's", text,
         text != Run("tokenize", "--tokenizer", TINY, "--file", "lf.txt").out)
    for f in ("bom-crlf.jsonl", "bom-crlf-paragraphs.txt"):
        records, r = answers(f, TINY, f, form="text", n=2)
        line(f, "no mark and no carriage return", [p for _, p in prompts_of(records)] or r.err,
             bool(records) and records[0]["prompt"].startswith("Once") and not any("\r" in x["prompt"] for x in records))
    refused("utf16.jsonl", answers("utf16", TINY, "utf16.jsonl", form="text", n=2)[1], "UTF-16")


@case
def _15():
    for form in ("chat", "text"):
        a, b = (answers(f + form, "out/model", f + ".jsonl", form=form, n=4) for f in ("messages", "prompt-list"))
        line(form, prompts_of(a[0]) or "records", prompts_of(b[0]) or b[1].err)


@case
def _17():
    for h in sorted(os.listdir("out")):
        r = Run("import", "out/" + h, "--target", TINY, "--out", "imported/" + h)
        check = Run("check", "out/" + h, "--for", "vllm", "--target", TINY)
        flags = re.findall(r"^broken +(map-\w+)", check.out, re.M)
        if h in ("b-zeros-alone", "d-first-n"):
            warned(h, r, "warning", "1024")
            line(h + ", check", "broken: its map", flags, flags != [])
        elif h in ("c-zeros-and-no-mark", "i-no-map", "k-out-of-range"):
            refused(h, r, "d2t")
            line(h + ", check", "broken: its map", flags, flags != [])
        elif h in ("g-t2d-int64", "h-d2t-float"):
            line(h, "imported, or the type by its name", "exit %d, %s" % (r.rc, r.err.strip()),
                 r.rc == 0 or r.warning("I64" if h[0] == "g" else "F32") != "")
        else:
            line(h, "imported without a warning of its map", "exit %d, %s" % (r.rc, r.err.strip()),
                 r.rc == 0 and not r.warning("d2t"))


@case
def _18():
    Run("import", "out/head", "--target", "out/a-512", "--out", "out/imported")
    for name, more in (("plain", []), ("drafter", ["--drafter", "out/imported"])):
        a, b, c = (decode("out/" + m, *PROMPT, *more, n=16).json() for m in ("a-512", "b-131072", "c-4194304"))
        for m, j in (("b-131072", b), ("c-4194304", c)):
            line("%s, %s: text" % (name, m), a["text"], j.get("text"))
            line("%s, %s: memory" % (name, m), "at most 8 MB above %.1f MB" % (a["peak_memory_bytes"] / 1e6),
                 "%.1f MB" % (j["peak_memory_bytes"] / 1e6), j["peak_memory_bytes"] <= a["peak_memory_bytes"] + 8e6)


@case
def _22():
    # vLLM joins the texts of parts by line ends for templates that take text; a template that reads parts has them.
    for m in ("adds", "prints", "knows"):
        end = "" if m == "knows" else "\n"  # trim_blocks takes the line end behind its last tag
        right = "[user] Name a %sbird.%s[assistant] Wren.%s[assistant] " % (end, end, end)
        text, r = rendered("out/" + m, "parts.jsonl", "--add-generation-prompt")
        line(m + ": parts", right, text[0] if text else r.err)
        refused(m + ": image", rendered("out/" + m, "image.jsonl", "--add-generation-prompt")[1], "image")
        text, r = rendered("out/" + m, "null.jsonl", "--add-generation-prompt")
        if m == "adds":
            line(m + ": null", "a line, or an empty content", text or r.err, bool(text) or r.warning("content") != "")
        else:
            line(m + ": null", "[user] %s[assistant] ?%s[assistant] " % (end, end), text[0] if text else r.err)
    for f, words in (("parts", ()), ("image", ("image",)), ("null", ("null",))):
        records, r = answers("plain-" + f, "out/prints", f + ".jsonl", form="text", n=2)
        ok = bool(records) and not any("{'type'" in x["prompt"] or "None" in x["prompt"] for x in records)
        line("plain form, " + f, "texts, or a line", prompts_of(records) or r.err,
             (ok or r.rc == 2) and (not words or r.warning("jsonl:1") != ""))


@case
def _24():
    recipe = [ROOT / "recipes/any-target.yaml"]
    for s in ("target.path=out/model", "data.samples=1", "data.max_new_tokens=8", "eval.max_new_tokens=8", "train.steps=20",
              "train.warmup=2", "train.eval_every=10", "train.checkpoint_every=10", "train.slot_rows=64"):
        recipe += ["--set", s]
    number = re.compile(r"\b(nan|inf)\b", re.I)
    for d in ([], ["--drafter", "lookup"]):
        r = decode("out/model", "--prompt", "Question?", *d, n=8)
        line("decode " + " ".join(d), ("", "stop"), (r.json().get("text"), r.json().get("finish")))
        line("decode, figures", "no nan", number.findall(r.text), not number.search(r.text))
    refused("all-empty", Run("run", *recipe, "--set", "data.prompts=out/all-empty.jsonl", "--set", "eval.holdout=2", "--out",
                             "out/run-all"), "answer")
    for holdout in (2, 10):
        out = "out/run-%d" % holdout
        r = Run("run", *recipe, "--set", "data.prompts=out/most-empty.jsonl", "--set", "eval.holdout=%d" % holdout, "--out", out)
        found = {f: number.findall(pathlib.Path(out, f).read_text()) for f in ("metrics.jsonl", "results.json", "report.html")
                 if os.path.exists(out + "/" + f)}
        found["printed"] = number.findall(r.text)
        line("most-empty, holdout %d" % holdout, "exit 0, no nan", "exit %d, %s" % (r.rc, found),
             r.rc == 0 and "results.json" in found and not any(found.values()))
    refused("eval, all-empty", Run("eval", *recipe, "--set", "data.prompts=out/all-empty.jsonl", "--set", "eval.holdout=2",
                                   "--out", "out/eval-only"), "drafter")


@case
def _28():
    plain = decode(TINY).json()["tokens"]
    for h in sorted(os.listdir("out")):
        to = "imported/" + h
        r = Run("import", "out/" + h, "--target", TINY, "--out", to)
        if h[0] in "dfg" and r.rc != 0:
            refused(h, r, {"d": "lm_head", "f": "layer", "g": "auto"}[h[0]])
            continue
        tied = json.load(open(to + "/config.json")).get("tie_word_embeddings") if r.rc == 0 else r.err
        line(h + ": tie flag", False, tied)
        line(h + ": text", plain, decode(TINY, *PROMPT, "--drafter", to, "--tree", "chain:3").json().get("tokens"))
        for e in ("vllm", "sglang", "trtllm"):
            Run("export", to, "--to", e, "--target", TINY, "--out", "exported/%s-%s" % (e, h))
            try:
                flag = json.load(open("exported/%s-%s/config.json" % (e, h))).get("tie_word_embeddings", False)
            except OSError as x:
                flag = str(x)
            line("%s: %s" % (h, e), False, flag)
        if h[0] in "ab":
            c = Run("check", "out/" + h, "--for", "vllm", "--target", TINY)
            line(h + ": check of the original", "broken, tie_word_embeddings", c.out,
                 re.search(r"broken.*tie_word_embeddings", c.out) is not None)
        if h[0] == "c":
            line(h + ": says whose matrix", "the target's", r.text, "target" in r.text and "lm_head" in r.text)


@case
def _32():
    plain = decode(TINY, n=40).json()["tokens"]
    words = {"b-on": ("window",), "b2-layer_types": ("sliding_attention",), "c-use_swa": ("use_swa",), "d3-differ": ("block_size", "4", "8"),
             "e-no-mask": ("mask_token_id",), "e2-mask-behind": ("mask_token_id",), "f-no-layers": ("target_layer_ids",),
             "f2-empty": ("target_layer_ids",), "f3-too-deep": ("target_layer_ids",), "g-causal": ("causal",),
             "h-block-1": ("block_size",), "i-llama": ("model_type",)}
    for h in sorted(os.listdir("out")):
        to = "imported/" + h
        r = Run("import", "out/" + h, "--target", TINY, "--out", to)
        if h in words and not (h == "i-llama" and r.rc == 0):
            refused(h, r, *words[h])
            continue
        c = json.load(open(to + "/config.json")) if r.rc == 0 else {}
        c = {**c, **c.get("dflash_config", {})}
        came = (c.get("block_size"), c.get("sliding_window"), c.get("rope_theta")) if c else r.err
        line(h, (4, None, 10000), came)
        line(h + ": text", plain, decode(TINY, *PROMPT, "--drafter", to, n=40).json().get("tokens"))


def main():
    global PROGRAM, TINY
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    cases, PROGRAM = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
    os.environ.setdefault("SHARED", str(cases.parent))
    TINY = os.path.join(os.environ["SHARED"], "data/models/TinyStories-656K")
    folders = {f.name[:2]: f for f in sorted(cases.iterdir()) if re.match(r"\d\d-", f.name)}
    if set(folders) != set(CASES):
        sys.exit("%s has the cases %s, this script those of %s" % (cases, sorted(folders), sorted(CASES)))
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(cases / "common", work + "/common")
        for n in sys.argv[3:] or sorted(folders):
            at = pathlib.Path(work, folders[n].name)
            shutil.copytree(folders[n], at)
            for p in [at, *at.rglob("*"), *pathlib.Path(work, "common").rglob("*")]:
                p.chmod(0o755)
            os.chdir(at)
            (at / "p.jsonl").write_text('{"prompt": "Once upon a time"}\n')
            if (at / "make.py").exists():
                subprocess.run([sys.executable, "make.py"], check=True)
            print("== " + folders[n].name)
            CASES[n]()
            os.chdir(work)
            shutil.rmtree(at)
    print("%d wrong" % wrong)
    sys.exit(wrong > 0)


main()
