// kind: target from a recipe: text to a model folder that opens, learns, resumes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/tokenizer/tokenizer.h"
#include "infer/generate/generate.h"
#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "tests/train/small.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/task/heldout.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Text with something to learn: sentences of a small grammar, in paragraphs.
static void write_text(const char *name, uint64_t seed, int sentences) {
    static const char *who[] = {"The rider", "A sprinter", "The leader", "Her team", "Nobody", "The old coach"};
    static const char *does[] = {"follows", "drafts behind", "waits for", "overtakes", "watches", "calls"};
    static const char *what[] = {"the wheel in front", "the second group", "the train of riders", "the wind", "him"};
    static const char *when[] = {"before the climb", "in the last kilometre", "again", "without a word", "at noon"};
    pl_rng             rng = pl_rng_make(seed, PL_STREAM_TEST, 0);
    char              *path = pl_path_join(small_base, name);
    FILE              *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < sentences; i++) {
        uint64_t p = (uint64_t)i * 4;
        fprintf(f, "%s %s %s %s.%s", who[pl_rng_below(rng, p, 6)], does[pl_rng_below(rng, p + 1, 6)],
                what[pl_rng_below(rng, p + 2, 5)], when[pl_rng_below(rng, p + 3, 5)], i % 5 == 4 ? "\n\n" : " ");
    }
    assert_int_equal(fclose(f), 0);
    pl_free(path);
}

static int setup(void **state) {
    (void)state;
    snprintf(small_base, sizeof small_base, "/tmp/paceline-pretrain-XXXXXX");
    if (!mkdtemp(small_base)) return -1;
    write_text("a.txt", 1, 900);
    write_text("b.txt", 2, 900);
    write_text("held.txt", 3, 200);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return pl_tree_remove(small_base, NULL) == PL_OK ? 0 : -1;
}

#define NEW "new: {hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate: 48, positions: 64}"

static pl_recipe *recipe(const char *target, const char *extra) {
    char text[2048], set[128];
    snprintf(set, sizeof set, "data.holdout.names=held.txt");
    snprintf(text, sizeof text,
             "kind: target\nseed: 3\n"
             "data:\n  text: [\"%s/*.txt\"]\n  tokenizer: {vocab_size: 380}\n  chunk_bytes: 0\n"
             "target:\n  %s\n"
             "train:\n  steps: 60\n  batch: 8\n  seq_len: 32\n  lr: 1e-2\n  warmup: 5\n  eval_every: 20\n  slots: 2\n"
             "  eval_tokens: 1024\n  long_seq_len: 64\n  long_steps: 10\n  checkpoint_every: 25\n  log_every: 1\n"
             "  weight_decay: 0.01\n%s",
             small_base, target, extra);
    const char          *sets[] = {set};
    pl_recipe           *r;
    pl_err               err = {0};
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    if (pl_recipe_parse(&r, text, strlen(text), "test", tables, n, sets, 1, &err) != PL_OK) fail_msg("%s", err.msg);
    return r;
}

static pl_status run_of(const char *target, const char *out, int64_t stop_after, pl_pool *pool, const char *extra,
                        pl_err *err) {
    pl_recipe *r = recipe(target, extra);
    char      *dir = pl_path_join(small_base, out);
    pl_env     env = {.backend = pl_backend_cpu(), .pool = pool};
    pl_status  st = pl_train_run_until(r, dir, &env, stop_after, err);
    pl_free(dir);
    pl_recipe_close(r);
    return st;
}

static pl_status run(const char *out, int64_t stop_after, pl_pool *pool, const char *extra, pl_err *err) {
    return run_of(NEW, out, stop_after, pool, extra, err);
}

static void learns(void **state) {
    (void)state;
    pl_err err = {0};
    double first, last, bits_first, bits_last;
    if (run("learn", 0, NULL, "", &err) != PL_OK) fail_msg("%s", err.msg);
    small_metric("learn", "loss", &first, &last);
    small_metric("learn", "eval_bits_per_byte", &bits_first, &bits_last);
    assert_true(fabs(first - log(380)) < 0.6); // it starts at knowing nothing
    assert_true(last < 0.5 * first);
    assert_true(bits_last < bits_first && bits_last < 1.5 && bits_last > 0.05);

    // The folder is a model: it opens, tokenises with its own files, and has exactly the weights that were trained.
    char         *dir = pl_path_join(small_base, "learn/checkpoints/last");
    pl_llama      m;
    pl_tokenizer *tok;
    if (pl_llama_open(&m, dir, PL_BF16, pl_backend_cpu(), &err) != PL_OK) fail_msg("%s", err.msg);
    if (pl_tokenizer_open(&tok, dir, &err) != PL_OK) fail_msg("%s", err.msg);
    assert_int_equal(m.vocab, 380);
    assert_int_equal(pl_tokenizer_vocab_size(tok), 380);
    assert_true(pl_tokenizer_adds_bos(tok));
    assert_int_equal(m.config.bos_token_id, 1);
    assert_int_equal(m.config.eos_token_id[0], 2);
    assert_int_equal(m.config.max_position_embeddings, 64);
    pl_llama_fini(&m);
    pl_tokenizer_close(tok);

    // A model opened from the folder scores the held-out text as the last evaluation did: what was trained was saved.
    pl_weight_source *src;
    pl_lm             lm;
    pl_hf_config      config;
    pl_lm_options     lo = {.backend = pl_backend_cpu(), .capacity = 128, .round_to = PL_BF16};
    pl_tokens        *held;
    pl_heldout        h;
    pl_heldout_result res;
    char             *tokens = pl_path_join(small_base, "learn/tokens/held.tokens");
    assert_int_equal(pl_hf_config_read(&config, dir, PL_HF_TARGET, &err), PL_OK);
    assert_int_equal(pl_lm_create(&lm, &config, &lo, &err), PL_OK);
    assert_int_equal(pl_weight_source_open(&src, dir, &err), PL_OK);
    assert_int_equal(pl_param_block_read(&lm.block, src, &err), PL_OK);
    pl_weight_source_close(src);
    assert_int_equal(pl_tokenizer_open(&tok, dir, &err), PL_OK);
    assert_int_equal(pl_tokens_open(&held, tokens, pl_tokenizer_fingerprint(tok), &err), PL_OK);
    assert_int_equal(pl_heldout_init(&h, held, tok, 64, 1024, &err), PL_OK);
    assert_int_equal(pl_heldout_score(&h, &lm, &res, &err), PL_OK);
    assert_true(fabs(res.bits_per_byte - bits_last) < 1e-6);
    pl_heldout_fini(&h);
    pl_tokens_close(held);
    pl_tokenizer_close(tok);
    pl_lm_destroy(&lm);
    pl_free(dir), pl_free(tokens);
}

// Windows of everything: the bytes counted are the bytes of the held-out text but for what the first tokens spell.
static void bits_count_bytes(void **state) {
    (void)state;
    pl_err        err = {0};
    pl_tokenizer *tok;
    pl_tokens    *held;
    pl_heldout    h;
    uint8_t      *text;
    size_t        n;
    char         *dir = pl_path_join(small_base, "learn/checkpoints/last"),
         *tokens = pl_path_join(small_base, "learn/tokens/held.tokens");
    assert_int_equal(pl_tokenizer_open(&tok, dir, &err), PL_OK);
    assert_int_equal(pl_tokens_open(&held, tokens, NULL, &err), PL_OK);
    assert_int_equal(pl_heldout_init(&h, held, tok, 50, 1 << 20, &err), PL_OK);
    small_read("", "held.txt", &text, &n);
    int64_t rows = 0;
    for (int64_t i = 0; i < h.n; i++)
        rows += h.len[i];
    assert_int_equal(rows, held->n - held->n_docs);
    // BOS stands in front, so every byte is predicted; unwrap turns "\n\n" into one "\n" and drops the last one.
    assert_true(h.bytes <= (int64_t)n && h.bytes > (int64_t)n - (int64_t)n / 100 - 10);
    pl_heldout_fini(&h);
    pl_tokens_close(held);
    pl_tokenizer_close(tok);
    pl_free(text), pl_free(dir), pl_free(tokens);
}

// Half of what is usual is a spike to this guard; the file says where the windows of such a step begin.
static void skipped_steps_name_their_windows(void **state) {
    (void)state;
    pl_err   err = {0};
    uint8_t *text;
    size_t   n;
    assert_int_equal(run("skipped", 0, NULL, "  guard: {spike: 0.5, window: 2, in_a_row: 1}\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "step 3: 1 steps in a row did not count"));
    small_read("skipped", "skipped.jsonl", &text, &n);
    assert_non_null(strstr((char *)text, "\"slots\":[{\"slot\":0,\"loss\":"));
    assert_non_null(strstr((char *)text, "\"tokens\":["));
    assert_non_null(strstr((char *)text, "\"each\":"));
    pl_free(text);
}

static void resume_is_bit_for_bit(void **state) {
    (void)state;
    pl_err   err = {0};
    pl_pool *pool;
    assert_int_equal(pl_pool_create(&pool, 2, &err), PL_OK);
    assert_int_equal(run("parts", 13, NULL, "", &err), PL_E_INTERRUPTED);
    assert_int_equal(run("parts", 55, pool, "", &err), PL_E_INTERRUPTED); // in the long phase, on two threads
    assert_int_equal(run("parts", 0, NULL, "", &err), PL_OK);
    small_same("learn", "parts", "tokenizer.model");
    small_same("learn", "parts", "checkpoints/last/training_state");
    small_same("learn", "parts", "checkpoints/last/model.safetensors");
    small_same("learn", "parts", "checkpoints/best/model.safetensors");
    assert_int_equal(run("parts", 0, NULL, "", &err), PL_OK);
    small_same("learn", "parts", "checkpoints/last/training_state");
    pl_pool_destroy(pool);
}

// Another recipe does not go on with this run's state; another text makes another run.
static void changes_are_noticed(void **state) {
    (void)state;
    pl_err err = {0};
    assert_int_equal(run("parts", 0, NULL, "  beta2: 0.9\n", &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "belongs to another run"));
    assert_int_equal(run("parts", 0, NULL, "  checkpoint_minutes: 3\n", &err), PL_OK);
    write_text("c.txt", 4, 50);
    assert_int_equal(run("parts", 0, NULL, "", &err), PL_E_INPUT);
    char *c = pl_path_join(small_base, "c.txt");
    assert_int_equal(remove(c), 0);
    pl_free(c);
}

// A model that goes on from another one, to repeat itself less: it begins where that one stood, continues its own text
// at every step, resumes bit for bit, and notices that what it began with has changed.
static void goes_on_from_a_model(void **state) {
    (void)state;
    static const char less[] = "  unlikelihood: {sequences: 8, prefix: 8, length: 40, weight: 2, first_step: 3}\n";
    char              start[160];
    pl_err            err = {0};
    double            first, last, bits, bits_before, unused;
    snprintf(start, sizeof start, "start: %s/learn/checkpoints/last", small_base);
    if (run_of(start, "less", 0, NULL, less, &err) != PL_OK) fail_msg("%s", err.msg);
    small_metric("learn", "eval_bits_per_byte", &unused, &bits_before);
    small_metric("less", "eval_bits_per_byte", &unused, &bits);
    small_metric("less", "repeated", &first, &last);
    assert_true(first > 0.3 && last < 0.7 * first);
    assert_true(bits < 1.5 * bits_before);
    small_metric("less", "loss", &first, &last);
    assert_true(first < 2.5); // where the other one ended, not at log(380)
    small_same("learn", "less", "checkpoints/last/tokenizer.model");
    assert_false(small_exists("less/tokenizer.model")); // none was trained

    assert_int_equal(run_of(start, "less-parts", 7, NULL, less, &err), PL_E_INTERRUPTED);
    assert_int_equal(run_of(start, "less-parts", 0, NULL, less, &err), PL_OK);
    small_same("less", "less-parts", "checkpoints/last/training_state");

    assert_int_equal(run_of("start: nowhere", "less", 0, NULL, less, &err), PL_E_INPUT);
    static const char *const other[][2] = {{"less-parts", "belongs to another run"}, {"less", "would be written over"}};
    for (int i = 0; i < 2; i++) {
        snprintf(start, sizeof start, "start: %s/%s/checkpoints/last", small_base, other[i][0]);
        assert_int_equal(run_of(start, "less", 0, NULL, less, &err), PL_E_INPUT);
        if (!strstr(err.msg, other[i][1])) fail_msg("%s", err.msg);
    }
    snprintf(start, sizeof start, "start: %s/learn/checkpoints/last\n  new: {layers: 2}", small_base);
    assert_int_equal(run_of(start, "less", 0, NULL, less, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "target.new.layers"));
}

static void bad_recipes(void **state) {
    (void)state;
    static const struct {
        const char *set, *also, *says;
    } bad[] = {
        {"train.warmup=61", NULL, "train.warmup"},
        {"train.long_steps=61", NULL, "train.long_steps"},
        {"train.slots=3", NULL, "do not divide"},
        {"train.long_seq_len=48", NULL, "train.long_seq_len"},
        {"train.seq_len=128", NULL, "train.seq_len"},
        {"train.unlikelihood.sequences=3", NULL, "train.unlikelihood.sequences"},
        {"train.unlikelihood.sequences=4", NULL, "train.unlikelihood.length"}, // 50 and 100 tokens, 64 positions
        {"train.unlikelihood.sequences=4", "train.unlikelihood.first_step=61", "train.unlikelihood.first_step"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char        text[1024];
        pl_err      err = {0};
        const char *out = "bad";
        pl_recipe  *r;
        const char *sets[] = {"kind=target",
                              text,
                              "train.steps=60",
                              "train.batch=8",
                              "train.seq_len=32",
                              "train.long_seq_len=64",
                              "train.long_steps=10",
                              "train.slots=2",
                              "target.new.positions=64",
                              "target.new.hidden_size=32",
                              "data.tokenizer.vocab_size=380",
                              bad[i].set,
                              bad[i].also};
        snprintf(text, sizeof text, "data.text=%s/a.txt", small_base);
        int                  n;
        const pl_key *const *tables = pl_stage_tables(&n);
        assert_int_equal(pl_recipe_open(&r, NULL, tables, n, sets, bad[i].also ? 13 : 12, &err), PL_OK);
        char  *dir = pl_path_join(small_base, out);
        pl_env env = {.backend = pl_backend_cpu()};
        assert_int_equal(pl_train_run(r, dir, &env, &err), PL_E_INPUT);
        if (!strstr(err.msg, bad[i].says)) fail_msg("%s: %s", bad[i].says, err.msg);
        pl_free(dir);
        pl_recipe_close(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns),
        cmocka_unit_test(bits_count_bytes),
        cmocka_unit_test(skipped_steps_name_their_windows),
        cmocka_unit_test(resume_is_bit_for_bit),
        cmocka_unit_test(changes_are_noticed),
        cmocka_unit_test(goes_on_from_a_model),
        cmocka_unit_test(bad_recipes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
