// kind: drafter from a recipe: a small target, its answers, EAGLE-3 and EAGLE-1 drafters that learn to foresee them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/counts/counts.h"
#include "data/counts/tally.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/drafter/backbone.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "infer/generate/generator.h"
#include "infer/head/draft_vocab.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "tests/train/small.h"
#include "train/keys.h"
#include "train/run/run.h"
#include "train/source/source.h"
#include "train/source/teacher.h"
#include "train/source/vocabularies.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void learns(const char *out, const char *extra, const pl_backbone_kind *kind, const char *head) {
    pl_err err = {0};
    double first, last, tau_first, tau_last, sampled_first, sampled_last;
    if (small_run(out, extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    small_metric(out, "loss", &first, &last);
    small_metric(out, "eval_acceptance_length", &tau_first, &tau_last);
    small_metric(out, "eval_acceptance_length_sampled", &sampled_first, &sampled_last);
    assert_true(last < 0.6 * first);
    assert_true(tau_last > 1.5 && tau_last <= 4 && sampled_last > 1.5 && sampled_last <= 4);
    assert_true(tau_last > tau_first && sampled_last > sampled_first);

    // It opens beside its target for decoding.
    char        *dir = pl_path_join(small_base, out), *best = pl_path_join(dir, "checkpoints/best");
    char        *target = pl_path_join(small_base, "target/checkpoints/last");
    pl_llama     m;
    pl_backbone *e;
    assert_int_equal(pl_llama_open(&m, target, PL_BF16, pl_backend_cpu(), &err), PL_OK);
    if (pl_backbone_open(&e, best, &m, PL_BF16, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_ptr_equal(e->kind, kind);
    assert_string_equal(e->head.kind->name, head);
    pl_backbone_destroy(e);
    pl_llama_fini(&m);
    pl_free(dir), pl_free(best), pl_free(target);
}

static void learns_full(void **state) {
    (void)state;
    learns("full", "train.eval_steps=3", &pl_backbone_eagle3, "full");
}

static void learns_lowrank(void **state) {
    (void)state;
    learns("lowrank", "drafter.head.kind=lowrank\ndrafter.head.rank=16\ntrain.eval_steps=3", &pl_backbone_eagle3,
           "lowrank");
}

#define DEEP                                                                                                           \
    "drafter.layers=2\ndrafter.window=16\ndrafter.fc_norm=true\ndrafter.norm_output=true\ntrain.learn_rows=70\n"

// The last held-out figure of the first depth.
static double last_step(const char *out, const char *figure) {
    uint8_t *text;
    size_t   n;
    char    *key = pl_sprintf("\"eval_step_%s\":[", figure);
    double   last = NAN;
    small_read(out, "metrics.jsonl", &text, &n);
    for (const char *at = (const char *)text; (at = strstr(at, key)); at++)
        last = atof(at + strlen(key));
    assert_false(isnan(last));
    pl_free(key);
    pl_free(text);
    return last;
}

// A prediction of acceptance, which changes nothing of what the drafter learns and is no constant.
static void learns_acceptance(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_run("unforeseen", "train.steps=60\ntrain.clip=0\n", 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    learns("foreseen", "train.steps=60\ntrain.clip=0\ndrafter.head.acceptance=true\ndrafter.head.max_rejection=950\n",
           &pl_backbone_eagle3, "full");
    learns("foreseen-eagle1",
           "drafter.kind=eagle1\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n"
           "drafter.head.acceptance=true\n",
           &pl_backbone_eagle1, "lowrank");
    // Beside a prediction of one half everywhere, of which rejections count six times.
    double accepted = last_step("foreseen", "acceptance"), loss = last_step("foreseen", "acceptance_loss");
    if (!(loss < 0.9 * log(2) * (6 - 5 * accepted))) fail_msg("%g of drafts accepted, loss %g", accepted, loss);
    char             *of[2] = {pl_path_join(small_base, "unforeseen/checkpoints/last"),
                               pl_path_join(small_base, "foreseen/checkpoints/last")};
    pl_weight_source *a, *b;
    int               same = 0, more = 0;
    assert_int_equal(pl_weight_source_open(&a, of[0], &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, of[1], &err), PL_OK);
    for (int64_t i = 0; i < pl_weight_source_count(b); i++) {
        const pl_weight_entry *y = pl_weight_source_at(b, i), *x = pl_weight_source_find(a, y->name);
        if (x) {
            assert_true(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0);
            same++;
            continue;
        }
        assert_int_equal(strncmp(y->name, "acceptance_head.", 16), 0);
        int other = 0;
        for (size_t k = 0; k < y->bytes; k++)
            other += ((const uint8_t *)y->data)[k] != 0;
        assert_true(other > 0);
        more++;
    }
    assert_true(same > 10 && more == 2);
    pl_weight_source_close(a), pl_weight_source_close(b);
    pl_free(of[0]), pl_free(of[1]);
}

// Several layers with a window; EAGLE-3.1's norms; slots that are learned from in several passes.
static void learns_deep(void **state) {
    (void)state;
    pl_err err = {0};
    learns("deep", DEEP, &pl_backbone_eagle3, "full");
    learns("normed", "drafter.norm_before_fc=true\ndrafter.norm_before_residual=true\n", &pl_backbone_eagle3, "full");
    small_run("other-norms", "drafter.start=BASE/deep/checkpoints/best\ndrafter.layers=2\n", 1, NULL, &err);
    assert_non_null(strstr(err.msg, "was trained with fc_norm; give drafter.fc_norm"));
    small_run("other-window",
              "drafter.start=BASE/deep/checkpoints/best\ndrafter.layers=2\ndrafter.fc_norm=true\n"
              "drafter.norm_output=true\ndrafter.window=20\n",
              1, NULL, &err);
    assert_non_null(strstr(err.msg, "trained with a window of 16; give drafter.window 16"));
    small_run("other-depth", "drafter.start=BASE/deep/checkpoints/best\n", 1, NULL, &err);
    assert_non_null(strstr(err.msg, "has 2 layers; give them as drafter.layers"));
}

#define PEAGLE "drafter.kind=peagle\ndrafter.block=4\ntrain.unroll=0\n"
#define NARROW "drafter.width=24\ntrain.steps=150\n"

// Embeddings of its own, in which what is learned is another than where they start, and another width.
static void learns_own(void **state) {
    (void)state;
    pl_err err = {0};
    learns("narrow", NARROW, &pl_backbone_eagle3, "full");
    learns("own", PEAGLE "drafter.own_embeddings=true\n", &pl_backbone_peagle, "full");
    char             *target = pl_path_join(small_base, "target/checkpoints/last"), *best, *last;
    pl_weight_source *of, *is;
    best = pl_path_join(small_base, "own");
    last = pl_path_join(best, "checkpoints/last");
    assert_int_equal(pl_weight_source_open(&of, target, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&is, last, &err), PL_OK);
    const pl_weight_entry *x = pl_weight_source_find(of, "model.embed_tokens.weight"),
                          *y = pl_weight_source_find(is, PL_BACKBONE_EMBED);
    assert_non_null(y);
    assert_true(x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1]);
    double far = 0, size = 0;
    for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++) {
        float a, b;
        pl_to_f32(&a, (const uint8_t *)x->data + (size_t)i * pl_dtype_size(x->dtype), x->dtype, 1);
        pl_to_f32(&b, (const uint8_t *)y->data + (size_t)i * pl_dtype_size(y->dtype), y->dtype, 1);
        far += (double)(a - b) * (double)(a - b);
        size += (double)a * (double)a;
    }
    assert_true(far > 1e-6 * size && far < size); // it began as the target's, and moved
    pl_weight_source_close(of), pl_weight_source_close(is);
    pl_free(target), pl_free(best), pl_free(last);
    small_run("other", "drafter.start=BASE/narrow/checkpoints/best\n", 1, NULL, &err);
    assert_non_null(strstr(err.msg, "give its drafter.width"));
    small_run("other", PEAGLE "drafter.start=BASE/own/checkpoints/best\n", 1, NULL, &err);
    assert_non_null(strstr(err.msg, "with embeddings of its own; give drafter.own_embeddings: true"));
    small_run("other", "drafter.kind=dflash\ntrain.unroll=0\ndrafter.width=24\n", 1, NULL, &err);
    assert_non_null(strstr(err.msg, "dflash has the target's width and embeddings"));
}

// The scorer learns onto a trained drafter; what it reads and the rows that rescore are the trained drafter's to the
// end.
static void learns_specvocab(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_run("start", "drafter.head.kind=full\ntrain.steps=30", 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    learns("specvocab",
           "drafter.start=BASE/start/checkpoints/last\ndrafter.freeze=backbone\ndrafter.head.kind=specvocab\n"
           "drafter.head.rank=16\ndrafter.head.candidates=4\ndrafter.head.init=random\ntrain.eval_steps=3\n"
           "train.lr=3e-2",
           &pl_backbone_eagle3, "specvocab");
    // Estimates are of the exact logits over what is listed: never far from the full head's, whose list is everything.
    double first, full, listed;
    small_metric("start", "eval_acceptance_length", &first, &full);
    small_metric("specvocab", "eval_acceptance_length", &first, &listed);
    assert_true(listed > 0.9 * full && listed < 1.1 * full);
    char             *from = pl_path_join(small_base, "start/checkpoints/last");
    char             *to = pl_path_join(small_base, "specvocab/checkpoints/last");
    pl_weight_source *a, *b;
    int               same = 0, other = 0;
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, to, &err), PL_OK);
    for (int64_t i = 0; i < pl_weight_source_count(b); i++) {
        const pl_weight_entry *y = pl_weight_source_at(b, i), *x = pl_weight_source_find(a, y->name);
        if (strncmp(y->name, "efficient_lm_head", 17) == 0) {
            assert_null(x);
            other++;
            continue;
        }
        assert_non_null(x);
        assert_true(x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0);
        same++;
    }
    assert_true(same > 10 && other == 2);
    pl_weight_source_close(a), pl_weight_source_close(b);
    pl_free(from), pl_free(to);
}

#define EAGLE1 "drafter.kind=eagle1\ntrain.unroll=0\ntrain.eval_steps=3\n"

static void learns_eagle1(void **state) {
    (void)state;
    learns("eagle1", EAGLE1, &pl_backbone_eagle1, "full");
    double first, last;
    small_metric("eagle1", "eval_loss", &first, &last);
    assert_true(last < first);
}

static void learns_eagle1_lowrank(void **state) {
    (void)state;
    learns("eagle1-lowrank",
           "drafter.kind=eagle2\ntrain.unroll=2\ntrain.eval_steps=3\ndrafter.bias=true\n"
           "drafter.head.kind=lowrank\ndrafter.head.rank=16",
           &pl_backbone_eagle1, "lowrank");
}

#define DFLASH "drafter.kind=dflash\ndrafter.layers=2\ntrain.unroll=0\n"

static void learns_dflash(void **state) {
    (void)state;
    learns("dflash", DFLASH "train.steps=120\ndrafter.block=4\n", &pl_backbone_dflash, "full");
    learns("dflash-window", DFLASH "train.steps=120\ndrafter.block=4\ndrafter.window=12\n", &pl_backbone_dflash,
           "full");
    learns("pace", DFLASH "train.steps=120\ndrafter.block=4\ntrain.draft_weights=d-pace\ntrain.objective=hard-ce\n",
           &pl_backbone_dflash, "full");
}

// All depths at once from masks, whose state is learned; rows that learn at a depth are drawn.
static void learns_peagle(void **state) {
    (void)state;
    learns("peagle", PEAGLE "drafter.layers=2\n", &pl_backbone_peagle, "full");
    learns("peagle-all", PEAGLE "train.depth_ratio=1\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n",
           &pl_backbone_peagle, "lowrank");
}

// Anchor first, with the token before and a confidence.
static void learns_dspark(void **state) {
    (void)state;
    learns("dspark",
           DFLASH "drafter.block=3\ndrafter.anchor_first=true\ndrafter.head.kind=markov\ndrafter.head.rank=16\n"
                  "drafter.head.confidence=true\n",
           &pl_backbone_dflash, "markov");
    learns("gated", DFLASH "drafter.block=3\ndrafter.head.kind=markov\ndrafter.head.rank=16\ndrafter.head.form=gated\n",
           &pl_backbone_dflash, "markov");
    learns("rnn",
           DFLASH "drafter.block=3\ndrafter.anchor_first=true\ndrafter.head.kind=markov\ndrafter.head.rank=16\n"
                  "drafter.head.form=rnn\ndrafter.head.confidence=true\n",
           &pl_backbone_dflash, "markov");
}

#define XPRESS DFLASH "drafter.block=4\ndrafter.head.kind=xpress\ndrafter.head.rank=16\n"
#define LILICORR DFLASH "drafter.block=4\ndrafter.selector.candidates=4\ndrafter.selector.kind=lattice\n"

// A refiner of the block, behind the text alone and in rounds of its own tokens.
static void learns_xpress(void **state) {
    (void)state;
    learns("xpress", XPRESS "train.rounds.count=0\ntrain.steps=110\n", &pl_backbone_dflash, "xpress");
    learns("xpress-rounds", XPRESS "train.steps=110\ntrain.rounds.count=2\ndrafter.head.passes=2\n",
           &pl_backbone_dflash, "xpress");
}

// A network over all candidates of a block.
static void learns_lilicorr(void **state) {
    (void)state;
    learns("lilicorr", LILICORR "drafter.selector.width=32\n", &pl_backbone_dflash, "full");
    learns("lilicorr-drawn", LILICORR "train.selector_objective=kl\ndrafter.conv.taps=2\ndrafter.conv.group=8\n",
           &pl_backbone_dflash, "full");
}

// Starts from a drafter and makes no step: every weight is that drafter's.
static void starts_as(const char *out, const char *of, const char *extra) {
    char   more[512], name[96];
    pl_err err = {0};
    size_t n, m;
    snprintf(more, sizeof more, "%sdrafter.start=BASE/%s/checkpoints/last\ntrain.steps=0\ntrain.warmup=0\n", extra, of);
    if (small_run(out, more, 0, NULL, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
    char             *from = pl_sprintf("%s/%s/checkpoints/last", small_base, of);
    char             *to = pl_sprintf("%s/%s/checkpoints/last", small_base, out);
    pl_weight_source *a, *b;
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, to, &err), PL_OK);
    n = (size_t)pl_weight_source_count(a), m = (size_t)pl_weight_source_count(b);
    assert_true(n == m && n > 5);
    for (size_t i = 0; i < n; i++) {
        const pl_weight_entry *x = pl_weight_source_at(a, (int64_t)i), *y = pl_weight_source_find(b, x->name);
        snprintf(name, sizeof name, "%.90s", x->name);
        if (!y || x->bytes != y->bytes || memcmp(x->data, y->data, x->bytes) != 0) fail_msg("%s: %s", out, name);
    }
    pl_weight_source_close(a), pl_weight_source_close(b);
    pl_free(from), pl_free(to);
}

#define MEDUSA "drafter.kind=medusa\ndrafter.block=4\ntrain.unroll=0\n"

// Heads on the last hidden state, that start as the target's.
static void learns_medusa(void **state) {
    (void)state;
    learns("medusa", MEDUSA "train.steps=120\n", &pl_backbone_medusa, "full");
    learns("medusa-lowrank", MEDUSA "train.steps=120\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n",
           &pl_backbone_medusa, "lowrank");
    starts_as("medusa-again", "medusa", MEDUSA);
    pl_err err = {0};
    assert_int_equal(small_run("medusa-markov", MEDUSA "drafter.head.kind=markov\ndrafter.head.rank=4", 0, NULL, &err),
                     PL_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "medusa has no heads of kind \"markov\"; take full or lowrank"));
    starts_as("medusa-lowrank-again", "medusa-lowrank", MEDUSA "drafter.head.kind=lowrank\ndrafter.head.rank=16\n");
}

#define HYDRA "drafter.kind=hydra\ndrafter.block=4\ntrain.unroll=0\n"
#define HYDRAPP "drafter.kind=hydra++\ndrafter.block=4\ntrain.unroll=0\n"

// Heads that read the tokens before; a layer before them, which reads the text.
static void learns_hydra(void **state) {
    (void)state;
    learns("hydra", HYDRA "train.steps=120\ntrain.objective=hard-ce\n", &pl_backbone_hydra, "full");
    learns("hydrapp", HYDRAPP "train.steps=120\ndrafter.layers=2\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n",
           &pl_backbone_hydrapp, "lowrank");
    starts_as("hydra-again", "hydra", HYDRA);
    starts_as("hydrapp-again", "hydrapp",
              HYDRAPP "drafter.layers=2\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n");
}

#define DSPARK DFLASH "drafter.block=3\ndrafter.head.kind=markov\ndrafter.head.rank=16\n"
#define RNN "drafter.anchor_first=true\ndrafter.head.form=rnn\ndrafter.head.confidence=true\n"

// Every kind of drafter, whose head and selector are taken over as well.
static void starts_from_itself(void **state) {
    (void)state;
    starts_as("full-again", "full", "");
    starts_as("lowrank-again", "lowrank", "drafter.head.kind=lowrank\ndrafter.head.rank=16\n");
    starts_as("gated-again", "gated", DSPARK "drafter.head.form=gated\n");
    starts_as("rnn-again", "rnn", DSPARK RNN);
    starts_as("xpress-again", "xpress", XPRESS);
    starts_as("lilicorr-again", "lilicorr", LILICORR "drafter.selector.width=32\n");
    starts_as("picks-again", "picks", "drafter.selector.candidates=8\ndrafter.selector.rank=8\n");
    starts_as("specvocab-again", "specvocab-picks",
              "drafter.head.kind=specvocab\ndrafter.head.rank=16\ndrafter.head.candidates=12\n"
              "drafter.selector.candidates=8\ndrafter.selector.rank=8\n");
    starts_as("dflash2-again", "dflash2",
              DFLASH "drafter.block=4\ndrafter.conv.taps=2\ndrafter.conv.group=8\ndrafter.selector.candidates=16\n");
}

static double counted(const char *out) {
    uint8_t *text;
    size_t   n;
    small_read(out, "metrics.jsonl", &text, &n);
    const char *at = strstr((const char *)text, "\"eval_rows_counted\":");
    double      rows = at ? atof(at + strlen("\"eval_rows_counted\":")) : 0;
    pl_free(text);
    return rows;
}

// However few anchors a step learns from, held-out figures are of all rows, as other drafters' are.
static void held_out_rows_all_count(void **state) {
    (void)state;
    starts_as("few-anchors", "dflash2",
              DFLASH "drafter.block=4\ndrafter.conv.taps=2\ndrafter.conv.group=8\ndrafter.selector.candidates=16\n"
                     "train.anchors=2\n");
    assert_true(counted("few-anchors") > 20);
    assert_true(counted("few-anchors") == counted("full-again"));
}

// The same with a selector, which the start has and which goes on learning, over the exact rows; it is over its own list
// while decoding.
static void learns_specvocab_selected(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_run("picks", "drafter.selector.candidates=8\ndrafter.selector.rank=8\ntrain.steps=30", 0, NULL, &err) !=
        PL_OK)
        fail_msg("%s", err.msg);
    learns("specvocab-picks",
           "drafter.start=BASE/picks/checkpoints/last\ndrafter.freeze=backbone\ndrafter.head.kind=specvocab\n"
           "drafter.head.rank=16\ndrafter.head.candidates=12\ndrafter.head.init=random\n"
           "drafter.selector.candidates=8\ndrafter.selector.rank=8\ntrain.lr=3e-2",
           &pl_backbone_eagle3, "specvocab");
    char             *from = pl_path_join(small_base, "picks/checkpoints/last");
    char             *to = pl_path_join(small_base, "specvocab-picks/checkpoints/last");
    pl_weight_source *a, *b;
    assert_int_equal(pl_weight_source_open(&a, from, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&b, to, &err), PL_OK);
    int same = 0, learned = 0;
    for (int64_t i = 0; i < pl_weight_source_count(b); i++) {
        const pl_weight_entry *y = pl_weight_source_at(b, i), *x = pl_weight_source_find(a, y->name);
        if (!x) continue;
        bool equal = x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
        bool selects = strncmp(y->name, "candidate_selector.", 19) == 0;
        assert_true(selects != equal);
        if (selects)
            learned++;
        else
            same++;
    }
    assert_true(same > 10 && learned == 3);
    pl_weight_source_close(a), pl_weight_source_close(b);
    pl_free(from), pl_free(to);
}

// Convolutions, and a selector beside whatever head; weights by place and by D-PACE.
static void learns_dflash2(void **state) {
    (void)state;
    learns("dflash2",
           DFLASH "drafter.block=4\ndrafter.conv.taps=2\ndrafter.conv.group=8\ndrafter.selector.candidates=16\n",
           &pl_backbone_dflash, "full");
    learns("pace2",
           DFLASH "drafter.block=4\ndrafter.conv.taps=2\ndrafter.conv.group=8\ndrafter.selector.candidates=16\n"
                  "train.draft_weights=d-pace\ntrain.objective=hard-ce\n",
           &pl_backbone_dflash, "full");
    learns("drawn2",
           DFLASH "drafter.block=4\ndrafter.selector.candidates=16\ntrain.draft_weights=d-pace\n"
                  "train.objective=hard-ce\ntrain.selector_objective=ce\n",
           &pl_backbone_dflash, "full");
    learns("selected", "drafter.selector.candidates=16\ndrafter.selector.rank=8\n", &pl_backbone_eagle3, "full");
    learns(
        "selected-slim",
        "drafter.selector.candidates=16\ndrafter.selector.law=list\ndrafter.head.kind=lowrank\ndrafter.head.rank=16\n"
        "train.selector_objective=lk-lambda\n",
        &pl_backbone_eagle3, "lowrank");
}

// The target answers while EAGLE-1 learns; a dataset without taps serves it as one with them does.
static void eagle1_sources(void **state) {
    (void)state;
    pl_err err = {0};
    pl_env env = small_env(NULL);
    char   lines[4096];
    char  *bare = pl_path_join(small_base, "bare");
    assert_int_equal(small_run("online1", EAGLE1 "data.mode=online", 3, NULL, &err), PL_E_INTERRUPTED);
    snprintf(lines, sizeof lines, "%sdata.taps=false", small_data_lines);
    pl_recipe *r = small_recipe(lines);
    if (pl_generate_run(r, NULL, bare, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    assert_int_equal(small_run("bare1", EAGLE1 "data.dataset=BASE/bare/dataset", 20, NULL, &err), PL_E_INTERRUPTED);
    assert_int_equal(small_run("taps1", EAGLE1, 20, NULL, &err), PL_E_INTERRUPTED);
    small_same("bare1", "taps1", "checkpoints/last/model.safetensors");
    assert_int_equal(small_run("bare3", "data.dataset=BASE/bare/dataset", 0, NULL, &err),
                     PL_E_INPUT); // EAGLE-3 needs taps
    pl_free(bare);
}

// Some of a dataset's layers, in another order, are those of a dataset that was made with them.
static void some_taps(void **state) {
    (void)state;
    pl_err     err = {0};
    pl_env     env = small_env(NULL);
    char      *dir = pl_path_join(small_base, "turned");
    pl_recipe *r = small_recipe(small_data_lines);
    if (pl_generate_run(r, &(pl_taps){.n = 2, .layer = {3, 1}}, dir, &env, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_recipe_close(r);
    const char *own = "drafter.taps=3,1\ndata.dataset=BASE/turned/dataset";
    if (small_run("own_taps", own, 20, NULL, &err) != PL_E_INTERRUPTED) fail_msg("%s", err.msg);
    if (small_run("some_taps", "drafter.taps=3,1", 20, NULL, &err) != PL_E_INTERRUPTED) fail_msg("%s", err.msg);
    small_same("own_taps", "some_taps", "checkpoints/last/model.safetensors");
    small_same("own_taps", "some_taps", "checkpoints/last/config.json");
    pl_free(dir);
}

// Writes the base's dataset again with changed attributes. mask: 0 and 1 for all rows, -1 as it is; turn: of every
// document, in its conversation.
static void write_changed(const char *name, const char *template, const char *tokenizer, const char *generation,
                          int mask, int turn) {
    pl_err             err = {0};
    pl_dataset        *ds;
    pl_dataset_writer *w;
    char              *from = pl_path_join(small_base, "data/dataset"), *to = pl_path_join(small_base, name);
    pl_columns         doc = {0};
    if (pl_dataset_open(&ds, from, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    pl_dataset_attrs attrs = *pl_dataset_get_attrs(ds);
    pl_columns_shape shape = pl_dataset_shape(&attrs);
    if (template) attrs.template_name = template;
    if (tokenizer) attrs.tokenizer_fingerprint = tokenizer;
    if (generation) attrs.generation = generation;
    if (pl_dataset_writer_create(&w, to, &attrs, 1000, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(pl_columns_reserve(&doc, &shape, 128, &err), PL_OK);
    for (int64_t i = 0; i < pl_dataset_docs(ds); i++) {
        int64_t first;
        assert_int_equal(pl_dataset_doc(ds, i, &first, &doc.n, &err), PL_OK);
        assert_int_equal(pl_dataset_read_doc(ds, i, &doc, &err), PL_OK);
        if (mask >= 0) memset(doc.loss_mask, mask, (size_t)doc.n);
        doc.about = &(pl_doc_about){.end = -1, .turn = turn, .back = i < turn ? (int32_t)i : turn};
        assert_int_equal(pl_dataset_append(w, &doc, &err), PL_OK);
    }
    assert_int_equal(pl_dataset_writer_close(w, &err), PL_OK);
    pl_dataset_close(ds);
    pl_columns_free(&doc);
    pl_free(from), pl_free(to);
}

// A dataset in another form, by another tokenizer, or whose mask says nothing.
static void refused_datasets(void **state) {
    (void)state;
    static const struct {
        const char *name, *template, *tokenizer;
        int         mask;
        const char *says;
    } cases[] = {
        {"same", NULL, NULL, -1, NULL},
        {"chat", "chat:0123456789abcdef", NULL, -1,
         "made with template chat:0123456789abcdef, wanted is plain; set data.form and data.chat as it was made"},
        {"tokenizer", NULL, "0123456789abcdef", -1, "made with tokenizer 0123456789abcdef, wanted is "},
        {"nothing", NULL, NULL, 0, "the loss mask is empty"},
        {"everything", NULL, NULL, 1, "the loss mask covers the prompts"}};
    pl_err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[128];
        write_changed(cases[i].name, cases[i].template, cases[i].tokenizer, NULL, cases[i].mask, 0);
        snprintf(lines, sizeof lines, "data.dataset=BASE/%s", cases[i].name);
        assert_int_equal(small_run("refused", lines, 1, NULL, &err), cases[i].says ? PL_E_INPUT : PL_E_INTERRUPTED);
        if (cases[i].says && !strstr(err.msg, cases[i].says)) fail_msg("%s", err.msg);
    }
}

// Reads a dataset of conversations of an earlier build, which lacks the member that describes later turns.
static void old_histories(void **state) {
    (void)state;
    static const struct {
        const char *name, *template, *generation;
        int         turn;
        bool        says;
    } cases[] = {{"h1", "chat:0123456789abcdef", "{\"chat_history\":\"own\"}", 1, true},
                 {"h2", "chat:0123456789abcdef", "{\"chat_history\":\"own\",\"histories\":\"spelt\"}", 1, false},
                 {"h3", "chat:0123456789abcdef", "{\"chat_history\":\"own\"}", 0, false},
                 {"h4", "plain", "{}", 1, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_feature_source *train, *held;
        pl_err             err = {0};
        char              *dir = pl_path_join(small_base, cases[i].name), *said = NULL;
        size_t             n;
        write_changed(cases[i].name, cases[i].template, NULL, cases[i].generation, -1, cases[i].turn);
        FILE *f = open_memstream(&said, &n);
        pl_log_to(f);
        if (pl_offline_sources(&train, &held, dir, NULL, 1, 4, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
        pl_log_to(NULL);
        fclose(f);
        if ((strstr(said, "remove it and generate the dataset again") != NULL) != cases[i].says)
            fail_msg("%s: said \"%s\"", cases[i].name, said);
        if (held) held->destroy(held);
        train->destroy(train);
        free(said);
        pl_free(dir);
    }
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
#define FEW "train.steps=14\ntrain.checkpoint_every=4\ntrain.eval_every=5\n"
    static const char *const kinds[][3] = {{"full", "parts", "train.eval_steps=3\n"},
                                           {"few1", "parts1", EAGLE1 FEW},
                                           {"few-deep", "parts-deep", DEEP FEW},
                                           {"few-peagle", "parts-peagle", PEAGLE "drafter.layers=2\n" FEW},
                                           {"few-narrow", "parts-narrow", NARROW FEW}};
    for (int i = 0; i < 5; i++) {
        const char *whole = kinds[i][0], *parts = kinds[i][1], *extra = kinds[i][2];
        if (i > 0) assert_int_equal(small_run(whole, extra, 0, NULL, &err), PL_OK);
        assert_int_equal(small_run(parts, extra, i ? 3 : 7, NULL, &err), PL_E_INTERRUPTED);
        assert_int_equal(small_run(parts, extra, i ? 11 : 41, pool, &err), PL_E_INTERRUPTED);
        assert_int_equal(small_run(parts, extra, 0, NULL, &err), PL_OK);
        small_same(whole, parts, "checkpoints/last/training_state");
        small_same(whole, parts, "checkpoints/last/model.safetensors");
        small_same(whole, parts, "checkpoints/best/model.safetensors");
        small_same(whole, parts, "checkpoints/best/config.json");
    }
#undef FEW
    pl_pool_destroy(pool);
}

// A run goes on with the rows that it began with, also where the recipe leaves them to the default, as those of older
// builds do.
static void a_run_keeps_its_rows(void **state) {
    (void)state;
    pl_err err = {0};
    double loss[2], supervised, tokens;
#define STEPS "train.eval_steps=3\n"
    assert_int_equal(small_run("all", STEPS "train.rows=all", 0, NULL, &err), PL_OK);
    assert_int_equal(small_run("parts-all", STEPS "train.rows=all", 7, NULL, &err), PL_E_INTERRUPTED);
    assert_int_equal(small_run("parts-all", STEPS, 0, NULL, &err), PL_OK);
    small_same("all", "parts-all", "checkpoints/last/training_state");
    small_same("all", "parts-all", "checkpoints/last/model.safetensors");
#undef STEPS
#define FEW "train.steps=12\n"
    assert_int_equal(small_run("parts-some", FEW, 7, NULL, &err), PL_E_INTERRUPTED);
    assert_int_equal(small_run("parts-some", FEW "train.rows=all", 0, NULL, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "trained with train.rows=supervised, this run has all"));
    assert_int_equal(small_run("parts-some", FEW "train.rows=all\ntrain.resume=any", 0, NULL, &err), PL_OK);
    // P-EAGLE without drawn depths runs all rows at all of them.
    assert_int_equal(small_run("peagle-whole", PEAGLE "train.depth_ratio=1\ntrain.rows=all\n" FEW, 0, NULL, &err),
                     PL_OK);
    assert_int_equal(small_run("parts-whole", PEAGLE "train.depth_ratio=1\ntrain.rows=all\n" FEW, 7, NULL, &err),
                     PL_E_INTERRUPTED);
    assert_int_equal(small_run("parts-whole", PEAGLE "train.depth_ratio=1\n" FEW, 0, NULL, &err), PL_OK);
    small_same("peagle-whole", "parts-whole", "checkpoints/last/training_state");
#undef FEW
    small_metric("all", "loss", &loss[0], &loss[0]);
    small_metric("full", "loss", &loss[1], &loss[1]);
    assert_true(fabs(loss[0] - loss[1]) < 0.05 * loss[0]);
    small_metric("full", "supervised_tokens_per_second", &supervised, &supervised);
    small_metric("full", "tokens_per_second", &tokens, &tokens);
    assert_true(supervised > 0 && supervised < tokens);
}

// Half of what is usual is a spike to this guard: the third and the fourth step do not count, and the file names their
// documents.
static void skipped_steps_name_their_documents(void **state) {
    (void)state;
    pl_err   err = {0};
    uint8_t *text;
    size_t   n;
    int64_t  seen[64], count = 0, found;
    assert_int_equal(
        small_run("skipped", "train.guard.spike=0.5\ntrain.guard.window=2\ntrain.guard.in_a_row=2", 0, NULL, &err),
        PL_E_INPUT);
    assert_non_null(strstr(err.msg, "step 4: 2 steps in a row did not count, of this one a loss of "));
    small_read("skipped", "skipped.jsonl", &text, &n);
    for (const char *at = (char *)text; (at = strstr(at, "\"documents\":[")) != NULL;)
        for (at += strlen("\"documents\":["); *at != ']'; at += *at == ',') {
            char *end;
            found = strtoll(at, &end, 10);
            assert_true(end > at && found >= 0 && found < 64 && count < 64);
            for (int64_t i = 0; i < count; i++)
                assert_true(seen[i] != found); // of one epoch, none was cut
            seen[count++] = found;
            at = end;
        }
    assert_true(count >= 4);
    static const char begins[] = "{\"stage\":\"eagle3\",\"step\":3,\"why\":\"a loss of ";
    assert_int_equal(strncmp((char *)text, begins, strlen(begins)), 0);
    pl_free(text);
}

// A frozen full head is the target's own output matrix, in the file that was written too.
static void frozen_head(void **state) {
    (void)state;
    pl_err err = {0};
    if (small_run("frozen", "drafter.head.frozen=true", 20, NULL, &err) != PL_E_INTERRUPTED) fail_msg("%s", err.msg);
    char *dir = pl_path_join(small_base, "frozen/checkpoints/last"),
         *from = pl_path_join(small_base, "target/checkpoints/last");
    pl_weight_source *src;
    pl_teacher        t;
    const void       *rows;
    pl_dtype          stored;
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_teacher_open(&t, from, PL_BF16, pl_backend_cpu(), false, NULL, &err), PL_OK);
    pl_weight_spec spec = {.part = {{.name = "lm_head.weight", .rows = 380}}, .n_parts = 1, .rows = 380, .cols = 32};
    assert_true(pl_weight_view(src, &spec, &rows, &stored));
    assert_int_equal(stored, PL_BF16);
    assert_memory_equal(rows, t.head.data, 380 * 32 * 2);
    pl_teacher_close(&t);
    pl_weight_source_close(src);
    pl_free(dir), pl_free(from);
}

static uint64_t prompt_hash(const pl_columns *doc) {
    size_t n = 0;
    while ((int64_t)n < doc->n && !doc->loss_mask[n])
        n++;
    assert_true(n > 2 && (int64_t)n < doc->n);
    return pl_hash(doc->tokens, n * sizeof *doc->tokens);
}

static uint64_t doc_hash(const pl_columns *doc) {
    uint64_t h = pl_hash(doc->tokens, (size_t)doc->n * sizeof *doc->tokens);
    h = pl_hash_more(h, doc->features, (size_t)doc->n * 3 * 32 * sizeof *doc->features);
    return pl_hash_more(h, doc->last_hidden, (size_t)doc->n * 32 * sizeof *doc->last_hidden);
}

// Answers to a prompt stay on one side; an epoch gives every training document once, each epoch in another order, and
// any document can be asked for first.
static void sources(void **state) {
    (void)state;
    enum { MOST = 64 };
    pl_err             err = {0};
    char              *dir = pl_path_join(small_base, "data/dataset");
    pl_feature_source *train, *held;
    pl_columns         doc;
    uint64_t           held_prompt[MOST], first[MOST], second[MOST];
    int                moved = 0;
    if (pl_offline_sources(&train, &held, dir, NULL, 3, 4, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_non_null(held);
    pl_tally counted = {0}; // a list of the dataset knows what is trained on alone
    assert_int_equal(pl_tally_dataset(&counted, NULL, dir,
                                      &(pl_tally_held){.every = 4, .seed = (const uint64_t[]){3}, .n_seeds = 1}, &err),
                     PL_OK);
    assert_int_equal(counted.all.documents, train->docs);
    pl_tally_fini(&counted);
    assert_int_equal(train->docs + held->docs, 2 * (36 - 5));
    assert_true(held->docs >= 4 && held->docs % 2 == 0); // the greedy and the sampled answer to each
    assert_true(train->docs <= MOST && held->docs <= MOST);
    for (int64_t i = 0; i < held->docs; i++) {
        assert_int_equal(held->get(held, i, &doc, &err), PL_OK);
        held_prompt[i] = prompt_hash(&doc);
    }
    for (int64_t at = 0; at < 2 * train->docs; at++) {
        int64_t i = at % train->docs;
        assert_int_equal(train->get(train, at, &doc, &err), PL_OK);
        (at < train->docs ? first : second)[i] = doc_hash(&doc);
        for (int64_t k = 0; k < held->docs; k++)
            assert_true(held_prompt[k] != prompt_hash(&doc));
    }
    for (int64_t i = 0; i < train->docs; i++) {
        int found = 0;
        for (int64_t k = 0; k < train->docs; k++)
            found += first[k] == second[i];
        assert_int_equal(found, 1);
        moved += first[i] != second[i];
    }
    assert_true(moved > train->docs / 2);
    int64_t docs = train->docs;
    train->destroy(train);
    held->destroy(held);

    assert_int_equal(pl_offline_sources(&train, &held, dir, NULL, 3, 4, 0, NULL, &err), PL_OK);
    assert_int_equal(train->get(train, docs + 5, &doc, &err), PL_OK); // as a resumed run asks
    assert_true(doc_hash(&doc) == second[5]);
    train->destroy(train);
    held->destroy(held);
    assert_int_equal(pl_offline_sources(&train, &held, dir, NULL, 3, 0, 0, NULL, &err), PL_OK);
    assert_null(held);
    assert_int_equal(train->docs, 2 * (36 - 5));
    train->destroy(train);
    pl_free(dir);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *extra, *says;
    } bad[] = {
        {"drafter.head.kind=lowrank", "rank"},
        {"drafter.head.kind=specvocab\ndrafter.head.candidates=9", "rank 0"},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4", "candidates 0 must lie in 1.."},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4\ndrafter.head.candidates=4000", "candidates 4000 must"},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4\ndrafter.head.candidates=9\n"
         "drafter.head.position_aware=true",
         "position_aware"},
        {"drafter.head.kind=specvocab\ndrafter.head.rank=4\ndrafter.head.candidates=9\ndrafter.head.redistribute=50",
         "redistribute=50: specvocab heads draft no fixed list of tokens; take full or lowrank"},
        {"drafter.taps=0,1", "layers [1,2,3], wanted are [0,1], 0 is not among them"},
        {"drafter.taps=9", "drafter.taps"},
        {"train.holdout=1", "train.holdout"},
        {"train.learn_rows=64\ntrain.rows=all", "train.learn_rows=64: is of train.rows: supervised"},
        {DFLASH "train.learn_rows=64", "dflash drafts blocks, whose number train.anchors bounds"},
        {"data.dataset=BASE/nowhere", "nowhere"},
        {"target.path=BASE/nowhere", "nowhere"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        assert_int_equal(small_run("bad", bad[i].extra, 0, NULL, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].says, err.msg);
        assert_null(strchr(err.msg, '\n'));
    }
    pl_err err = {0}; // the state of another recipe
    assert_int_equal(small_run("parts", "train.unroll=4", 0, NULL, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "another run"));
}

// What a head of all tokens, or the target's own, cannot do is refused by the recipe alone, before anything is made.
static void refused_before_anything(void **state) {
    (void)state;
    static const struct {
        const char *extra, *says;
    } bad[] = {
        {"drafter.head.position_aware=true",
         "drafter.head.position_aware=true: all tokens are drafted, in order of their "
         "ids; give drafter.head.vocab, the list to draft from"},
        {"drafter.head.kind=lowrank\ndrafter.head.rank=4\ndrafter.head.position_aware=true", "give drafter.head.vocab"},
        {"drafter.head.redistribute=50", "drafter.head.redistribute=50: all tokens are drafted"},
        {"drafter.kind=dflash\ntrain.unroll=3", ": dflash drafts blocks and does not unroll; leave it out"},
        {"drafter.block=4", "drafter.block=4: eagle3 drafts no blocks"},
        {PEAGLE "drafter.window=64", "drafter.window=64: peagle has no window; it is for eagle3 and dflash"},
        {EAGLE1 "drafter.window=64", "drafter.window=64: eagle1 has no window; it is for eagle3 and dflash"},
        {"drafter.window=2", "drafter.window=2: smaller than the"},
        {DFLASH "drafter.block=4\ndrafter.window=3\n", "drafter.window=3: smaller than drafter.block"},
        {MEDUSA "drafter.taps=1", "medusa has heads on the target's last hidden state, without masks or taps"},
        {MEDUSA "drafter.mask_token=3", "drafter.mask_token=3: medusa has heads on"},
        {MEDUSA "drafter.selector.candidates=4", "medusa has heads of its own, without one; a selector is for"},
        {HYDRA "drafter.layers=9", "drafter.layers=9: an hydra drafter has at most 8"},
        {HYDRA "drafter.anchor_first=true", "hydra has heads on the target's last hidden state, without masks or taps"},
        {MEDUSA "drafter.width=16", "medusa has the target's width and embeddings"},
        {MEDUSA "train.top_k=4", "medusa learns from blocks, without HASS's top-K loss"},
        {MEDUSA "train.learn_rows=64", "medusa drafts blocks, whose number train.anchors bounds"},
        {"train.masked_rows=all", "train.masked_rows=all: all tokens are drafted and all rows count; give"},
        {"train.masked_rows=all\ntrain.masked_teacher=false\ndrafter.head.vocab=BASE/text.txt",
         "train.masked_rows=all: is of train.masked_teacher: true"},
        {"drafter.head.kind=markov\ndrafter.head.rank=4", ": eagle3 drafts no blocks; such a head is for those"},
        {"drafter.head.kind=xpress\ndrafter.head.rank=4", ": eagle3 drafts no blocks; such a head is for those"},
        {"train.rounds.weight=1", "is of heads that are refined in passes (drafter.head.kind: xpress)"},
        {"drafter.selector.candidates=4\ndrafter.selector.kind=lattice",
         "drafter.selector.kind=lattice: scores the slots of blocks; it is for dflash"},
        {"drafter.selector.candidates=4\ndrafter.selector.width=4", "is of drafter.selector.kind: lattice"},
        {"drafter.selector.kind=lattice", "drafter.selector.kind=lattice: is of a drafter with drafter.selector"},
        {"drafter.kind=dflash\ntrain.unroll=0\ntrain.draft_weights=d-pace",
         ": d-pace weighs by cross-entropy; give train.objective: hard-ce"},
        {"train.selector_objective=kl", "train.selector_objective=kl: is of a drafter with drafter.selector"},
        {"drafter.selector.law=list", "drafter.selector.law=list: is of a drafter with drafter.selector"},
        {"drafter.selector.candidates=4\ntrain.selector_objective=label", "give hard-ce for its choice"},
        {"drafter.kind=dflash\ndrafter.block=4\ntrain.unroll=0\ntrain.draft_weights=d-pace\ntrain.objective=hard-ce\n"
         "drafter.selector.candidates=4\ntrain.selector_objective=tv",
         "train.selector_objective=tv: train.draft_weights: d-pace weighs by cross-entropy; give ce or hard-ce"},
        {"drafter.kind=eagle1\ndrafter.head.position_aware=true",
         "drafter.head.position_aware=true: the target's own matrix has no order of frequency; give drafter.head.vocab "
         "and "
         "drafter.head.frozen: false"},
        {"drafter.kind=eagle2\ndrafter.head.redistribute=50",
         "drafter.head.redistribute=50: the target's own matrix drafts all tokens; give drafter.head.vocab and "
         "drafter.head.frozen: false"},
        {"drafter.kind=eagle1\ndrafter.head.frozen=true\ndrafter.head.vocab=BASE/text.txt",
         "text.txt: the target's own matrix is not trimmed; give drafter.head.frozen: false"},
        {"drafter.head.max_rejection=500", "drafter.head.max_rejection=500: needs acceptance: true"},
        {"drafter.kind=eagle1\ndrafter.head.max_rejection=500",
         "drafter.head.max_rejection=500: needs acceptance: true"},
        {"drafter.kind=dflash\ntrain.unroll=0\ndrafter.head.acceptance=true",
         "drafter.head.acceptance=true: dflash drafts blocks"},
        {"drafter.kind=eagle1\ndrafter.head.acceptance=true", "drafter.head.acceptance=true: the target's own matrix "
                                                              "has nothing beside it; give drafter.head.frozen: false"},
    };
    char *dir = pl_path_join(small_base, "unmade");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_err err = {0};
        assert_int_equal(small_run("unmade", bad[i].extra, 0, NULL, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].says, err.msg);
        assert_null(strchr(err.msg, '\n'));
        assert_false(pl_path_exists(dir));
    }
    pl_free(dir);
}

static float *head_rows(const char *out) {
    float            *w = malloc(380 * 32 * sizeof *w);
    char             *dir = pl_path_join(small_base, out);
    pl_weight_source *src;
    pl_err            err = {0};
    pl_weight_spec    spec = {.part = {{.name = "lm_head.weight", .rows = 380}}, .n_parts = 1, .rows = 380, .cols = 32};
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_weight_read_f32(src, &spec, w, &err), PL_OK);
    pl_weight_source_close(src);
    pl_free(dir);
    return w;
}

// Returns the root mean square of the rows of a low-rank head that made no step.
static double rms_of_start(const char *out, const char *init) {
    char              lines[256];
    float             w[380 * 8];
    double            sum = 0;
    pl_weight_source *src;
    pl_err            err = {0};
    pl_weight_spec    spec = {
           .part = {{.name = "efficient_lm_head.weight", .rows = 380}}, .n_parts = 1, .rows = 380, .cols = 8};
    snprintf(lines, sizeof lines,
             "drafter.head.kind=lowrank\ndrafter.head.rank=8\ndrafter.head.init=%s\ntrain.steps=0\ntrain.warmup=0",
             init);
    if (small_run(out, lines, 0, NULL, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
    char *dir = pl_sprintf("%s/%s/checkpoints/last", small_base, out);
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_weight_read_f32(src, &spec, w, &err), PL_OK);
    for (int i = 0; i < 380 * 8; i++)
        sum += (double)w[i] * (double)w[i];
    pl_weight_source_close(src);
    pl_free(dir);
    return sqrt(sum / (380 * 8));
}

// A low-rank head starts from the best factors of the target's matrix or, where the recipe says so, from random ones of
// the deviation that its kind states.
static void random_start(void **state) {
    (void)state;
    double random = rms_of_start("random-start", "random"), best = rms_of_start("best-start", "target");
    assert_true(fabs(random - 0.02) < 0.001);
    assert_true(fabs(best - 0.02) > 0.005);
}

// A list may hold every token: what starts from such a drafter finds each token's row where the list put it.
static void list_of_all_tokens(void **state) {
    (void)state;
    pl_err        err = {0};
    pl_tokenizer *tok;
    pl_counts     c;
    char *target = pl_path_join(small_base, "target/checkpoints/last"), *list = pl_path_join(small_base, "all.json");
    assert_int_equal(pl_tokenizer_open(&tok, target, &err), PL_OK);
    assert_int_equal(pl_counts_init(&c, 380, pl_tokenizer_fingerprint(tok), "a test", &err), PL_OK);
    for (int32_t id = 0; id < 380; id++)
        for (int k = 0; k <= id; k++)
            pl_counts_add(&c, &id, 1); // the last one is the most frequent
    assert_int_equal(pl_counts_write(&c, list, &err), PL_OK);
    static const char few[] = "train.dtype=f32\ntrain.lr=1e-9\ntrain.warmup=0\ntrain.steps=1\n";
    char              extra[512];
    snprintf(extra, sizeof extra, "%sdrafter.head.vocab=BASE/all.json\ndrafter.head.position_aware=true", few);
    if (small_run("listed", extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    snprintf(extra, sizeof extra, "%sdrafter.start=BASE/listed/checkpoints/last", few);
    if (small_run("unlisted", extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    float *listed = head_rows("listed/checkpoints/last"), *whole = head_rows("unlisted/checkpoints/last");
    for (int i = 0; i < 380; i++)
        for (int k = 0; k < 32; k++)
            assert_true(fabsf(listed[i * 32 + k] - whole[(379 - i) * 32 + k]) < 1e-6f);
    free(listed), free(whole);
    pl_counts_fini(&c);
    pl_tokenizer_close(tok);
    pl_free(target), pl_free(list);
}

// A list that lacks the token that ends an answer, in all or in the part that is drafted: the drafter has it.
static void list_without_ends(void **state) {
    (void)state;
    pl_err        err = {0};
    pl_tokenizer *tok;
    pl_counts     c;
    char *target = pl_path_join(small_base, "target/checkpoints/last"), *list = pl_path_join(small_base, "some.json");
    assert_int_equal(pl_tokenizer_open(&tok, target, &err), PL_OK);
    int32_t eos = pl_tokenizer_eos_id(tok);
    assert_true(eos >= 0);
    assert_int_equal(pl_counts_init(&c, 380, pl_tokenizer_fingerprint(tok), "a test", &err), PL_OK);
    for (int32_t id = 40; id < 80; id++)
        for (int k = 0; k <= id; k++)
            pl_counts_add(&c, &id, 1);
    assert_int_equal(pl_counts_write(&c, list, &err), PL_OK);
    for (int size = 0; size <= 20; size += 20) {
        char              extra[512], *dir = pl_path_join(small_base, size ? "some-20" : "some-40");
        int64_t           n = size ? size : 41;
        int32_t          *d2t;
        pl_weight_source *src;
        snprintf(extra, sizeof extra,
                 "train.lr=1e-9\ntrain.warmup=0\ntrain.steps=1\ndrafter.head.vocab=BASE/some.json\n"
                 "drafter.head.vocab_size=%d\n",
                 size);
        if (small_run(pl_path_name(dir), extra, 0, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
        char *last = pl_path_join(dir, "checkpoints/last");
        assert_int_equal(pl_weight_source_open(&src, last, &err), PL_OK);
        if (pl_draft_vocab_read(&d2t, src, n, 380, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(d2t[0], eos);
        assert_int_equal(d2t[1], 79);
        assert_int_equal(d2t[n - 1], size ? 61 : 40);
        pl_weight_source_close(src);
        pl_free(d2t), pl_free(dir), pl_free(last);
    }
    pl_counts_fini(&c);
    pl_tokenizer_close(tok);
    pl_free(target), pl_free(list);
}

// A recipe's list of the answers knows none that any of its drafters holds out; another holdout makes it anew.
static void list_without_held_out(void **state) {
    (void)state;
    static const uint64_t seeds[] = {1, 9};
    pl_err                err = {0};
    char                 *dir = pl_path_join(small_base, "lists"), *data = pl_path_join(small_base, "data/dataset"),
         *file = pl_path_join(small_base, "lists/vocab/answers.json");
    for (int i = 0; i < 3; i++) {
        char          text[2048];
        pl_tally      want = {0};
        pl_counts     got;
        pl_tally_held held = {.every = i < 2 ? 8 : 0, .seed = seeds, .n_seeds = i == 0 ? 2 : 1};
        snprintf(text, sizeof text, "%svocabularies=[{name: answers, dataset: true}]\n%s", small_data_lines,
                 i < 2 ? "" : "train.holdout=0");
        pl_recipe *r = small_recipe(text);
        if (pl_vocabularies_run(r, seeds, held.n_seeds, dir, &err) != PL_OK) fail_msg("%s", err.msg);
        assert_int_equal(pl_tally_dataset(&want, NULL, data, &held, &err), PL_OK);
        assert_int_equal(pl_counts_read(&got, file, &err), PL_OK);
        assert_int_equal(got.documents, want.all.documents);
        assert_memory_equal(got.count, want.all.count, (size_t)got.vocab * sizeof *got.count);
        assert_true(i == 2 ? got.documents == 62 : got.documents < 62);
        pl_recipe_close(r);
        pl_counts_fini(&got);
        pl_tally_fini(&want);
    }
    pl_free(dir), pl_free(data), pl_free(file);
}

// What an answer ended with has no row, and is stored all the same: of the greedy ones that is what the target said
// behind the last row.
static void dataset_says_ends(void **state) {
    (void)state;
    pl_err      err = {0};
    pl_dataset *ds;
    char       *dir = pl_path_join(small_base, "data/dataset");
    if (pl_dataset_open(&ds, dir, NULL, &err) != PL_OK) fail_msg("%s", err.msg);
    for (int64_t i = 0; i < pl_dataset_docs(ds); i++) {
        int64_t      first, n;
        int32_t      argmax[128];
        pl_doc_about about;
        assert_int_equal(pl_dataset_doc(ds, i, &first, &n, &err), PL_OK);
        assert_true(n <= 128);
        assert_int_equal(pl_dataset_read_doc(ds, i, &(pl_columns){.argmax = argmax}, &err), PL_OK);
        assert_int_equal(pl_dataset_doc_about(ds, i, &about, &err), PL_OK);
        assert_true(about.end >= 0 && about.turn == 0 && about.back == 0 && about.cut == 0);
        assert_true(about.finish == PL_ANSWER_STOP || about.finish == PL_ANSWER_LENGTH);
        if (i < pl_dataset_docs(ds) / 2) assert_int_equal(about.end, argmax[n - 1]);
    }
    pl_dataset_close(ds);
    pl_free(dir);
}

// An answer that is shorter than it might be ended with a stop token.
static void stopped_answers(void **state) {
    (void)state;
    enum { LONGEST = 30 };
    pl_err err = {0};
    pl_env env = small_env(NULL);
    char  *target = pl_path_join(small_base, "target/checkpoints/last"),
         *prompts = pl_path_join(small_base, "prompts.jsonl");
    pl_llama             m;
    pl_tokenizer        *tok;
    pl_prompts          *p;
    pl_generator        *g;
    pl_columns           doc;
    pl_generator_options o = {
        .max_new = LONGEST, .greedy = true, .samples = 1, .temperature = 1, .top_p = 1, .sessions = 4};
    int32_t stop = -1;
    int     stopped = 0, cut = 0;
    assert_int_equal(pl_llama_open(&m, target, PL_BF16, pl_backend_cpu(), &err), PL_OK);
    assert_int_equal(pl_tokenizer_open(&tok, target, &err), PL_OK);
    assert_int_equal(pl_prompts_read(&p, prompts, &err), PL_OK);
    for (int pass = 0; pass < 2; pass++) { // the second stops where the first answer's middle was
        if (pl_generator_create(&g, &env, &m, tok, p, &o, &err) != PL_OK) fail_msg("%s", err.msg);
        while (pl_generator_next(g, &doc, &err) == PL_OK && doc.n > 0) {
            if (pass == 0 && stop < 0) stop = doc.tokens[doc.n - LONGEST / 2];
            if (pass == 0) continue;
            int answer = 1;
            for (int64_t i = 0; i < doc.n; i++) {
                assert_true(!doc.loss_mask[i] || doc.tokens[i] != stop);
                answer += doc.loss_mask[i];
            }
            assert_true(doc.about->end == stop || answer == LONGEST);
            assert_int_equal(doc.about->finish, doc.about->end == stop ? PL_ANSWER_STOP : PL_ANSWER_LENGTH);
            stopped += doc.about->end == stop;
            cut += doc.about->end != stop;
        }
        pl_generator_destroy(g);
        m.config.eos_token_id[0] = stop;
    }
    assert_true(stopped > 0 && cut > 0);
    pl_prompts_destroy(p);
    pl_tokenizer_close(tok);
    pl_llama_fini(&m);
    pl_free(target), pl_free(prompts);
}

// EAGLE-2 is a model and a tree.
static void eagle2_brings_its_tree(void **state) {
    (void)state;
    static const char *const lines[][2] = {{"drafter.kind=eagle2", "eagle2:60,10,6"}, {"drafter.kind=eagle1", NULL}};
    for (int i = 0; i < 2; i++) {
        pl_recipe     *r = small_recipe(lines[i][0]);
        const char    *tree = pl_backbone_tree(pl_train_recipe_of(r)->drafter.kind);
        pl_tree_policy p;
        pl_err         err;
        assert_ptr_equal(pl_train_backbone(r), &pl_backbone_eagle1);
        if (!lines[i][1]) assert_null(tree);
        if (lines[i][1]) assert_string_equal(tree, lines[i][1]);
        if (tree) assert_int_equal(pl_tree_policy_parse(&p, tree, &err), PL_OK);
        pl_recipe_close(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns_full),
        cmocka_unit_test(learns_lowrank),
        cmocka_unit_test(learns_acceptance),
        cmocka_unit_test(learns_deep),
        cmocka_unit_test(learns_own),
        cmocka_unit_test(learns_specvocab),
        cmocka_unit_test(learns_specvocab_selected),
        cmocka_unit_test(learns_eagle1),
        cmocka_unit_test(learns_dflash),
        cmocka_unit_test(learns_dspark),
        cmocka_unit_test(learns_xpress),
        cmocka_unit_test(learns_lilicorr),
        cmocka_unit_test(learns_peagle),
        cmocka_unit_test(learns_medusa),
        cmocka_unit_test(learns_hydra),
        cmocka_unit_test(learns_dflash2),
        cmocka_unit_test(starts_from_itself),
        cmocka_unit_test(held_out_rows_all_count),
        cmocka_unit_test(learns_eagle1_lowrank),
        cmocka_unit_test(eagle1_sources),
        cmocka_unit_test(some_taps),
        cmocka_unit_test(refused_datasets),
        cmocka_unit_test(old_histories),
        cmocka_unit_test(resume_is_bit_for_bit),
        cmocka_unit_test(a_run_keeps_its_rows),
        cmocka_unit_test(skipped_steps_name_their_documents),
        cmocka_unit_test(frozen_head),
        cmocka_unit_test(sources),
        cmocka_unit_test(list_without_held_out),
        cmocka_unit_test(dataset_says_ends),
        cmocka_unit_test(stopped_answers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(refused_before_anything),
        cmocka_unit_test(list_of_all_tokens),
        cmocka_unit_test(list_without_ends),
        cmocka_unit_test(random_start),
        cmocka_unit_test(eagle2_brings_its_tree),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
