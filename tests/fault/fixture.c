#define _GNU_SOURCE 1 // open_memstream
#include "fixture.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

const char fixture_target[] =
    "kind: target\n"
    "seed: 3\n"
    "target:\n"
    "  new: {hidden_size: 16, layers: 2, heads: 2, kv_heads: 1, intermediate: 24, positions: 160, tie: true}\n"
    "data:\n"
    "  text: [books]\n"
    "  chunk_bytes: 512\n"
    "  holdout: {names: [2.txt]}\n"
    "  tokenizer: {vocab_size: 300, type: bpe}\n"
    "train: {steps: 4, batch: 2, seq_len: 32, lr: 2e-2, warmup: 1, checkpoint_every: 2, eval_every: 2}\n";

#define ALONG(loss)                                                                                                    \
    "seed: 1\n"                                                                                                        \
    "target: {path: target}\n"                                                                                         \
    "data: {prompts: prompts.jsonl, max_new_tokens: 6, samples: 1, sessions: 2, rows_per_shard: 80}\n"                 \
    "train: {steps: 2, slots: 2, slot_rows: 32, " loss "lr: 2e-3, warmup: 1, checkpoint_every: 1,"                     \
    " holdout: 3, eval_every: 1}\n"                                                                                    \
    "eval: {prompts: heldout.jsonl, max_new_tokens: 4, tree: 'chain:2', plain_fp32: false}\n"
#define DRAFTER ALONG("unroll: 2, ")

const char fixture_drafter[] = DRAFTER "drafter: {head: {kind: lowrank, rank: 4}}\n";
const char fixture_routed[] = ALONG("") "traces: {tree: 'chain:2', top: 3}\n"
                                        "drafter:\n"
                                        "  start: full/checkpoints/best\n"
                                        "  head: {kind: dynaspec, clusters: 4, width: 4, top: 2}\n";
const char fixture_both[] = DRAFTER "vocabularies: [{name: said, dataset: true, size: bcl, min_coverage: 0.5}]\n"
                                    "drafters:\n"
                                    "  - name: full\n"
                                    "    head: {kind: full}\n"
                                    "  - name: low\n"
                                    "    head: {kind: lowrank, rank: 4, vocab: said}\n";

const char fixture_prompts[] = "{\"prompt\": \"the cat sat on\", \"category\": \"a\"}\n"
                               "{\"prompt\": \"the dog ran to\", \"category\": \"b\"}\n"
                               "{\"prompt\": \"a small red bird\", \"category\": \"a\"}\n";
const char fixture_heldout[] = "{\"prompt\": \"the fish saw a\", \"category\": \"a\"}\n"
                               "{\"prompt\": \"then it was\", \"category\": \"b\"}\n";

char *fixture_text(int number) {
    static const char *const words[] = {"the", "cat",  "dog", "sat",  "on",    "mat", "ran",  "to",   "house", "and",
                                        "it",  "was",  "big", "very", "small", "red", "blue", "sun",  "moon",  "saw",
                                        "a",   "bird", "in",  "fish", "tree",  "of",  "then", "long", "day",   "night"};
    char                    *text = NULL;
    size_t                   n;
    unsigned                 x = 17u + (unsigned)number;
    FILE                    *f = open_memstream(&text, &n);
    for (int paragraph = 0; paragraph < 6; paragraph++) {
        for (int i = 0; i < 50; i++) {
            x = x * 1664525u + 1013904223u;
            fprintf(f, "%s%s", i ? " " : "", words[(x >> 16) % (sizeof words / sizeof *words)]);
        }
        fprintf(f, ".\n\n");
    }
    fclose(f);
    return text;
}
