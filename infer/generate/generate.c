#include "infer/generate/generate.h"

#include "data/dataset/dataset.h"
#include "infer/model/llama.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"

#include <string.h>

const pl_recipe_key pl_generate_keys[] = {
    {.path = "target.path", .type = PL_RECIPE_PATH, .help = "the target: a Hugging Face folder or a llama2.c file"},
    {.path = "target.tokenizer", .type = PL_RECIPE_PATH, .help = "its tokenizer, where the folder does not hold one"},
    {.path = "target.pre", .type = PL_RECIPE_STRING, .help = PL_TOK_PRE_HELP},
    {.path = "target.dtype",
     .type = PL_RECIPE_ENUM,
     .deflt = "bf16",
     .choices = {"bf16", "fp32"},
     .help = "how the target's weights are held"},
    {.path = "data.prompts", .type = PL_RECIPE_PATH, .help = "prompts: JSONL, a JSON list or paragraphs of text"},
    {.path = "data.mode",
     .type = PL_RECIPE_ENUM,
     .deflt = "offline",
     .choices = {"offline", "online"},
     .help = "offline stores features; online runs the target while training and stores nothing"},
    {.path = "data.taps",
     .type = PL_RECIPE_BOOL,
     .deflt = "true",
     .help = "store EAGLE-3's tap layers beside the last hidden; EAGLE-1 needs none"},
    {.path = "data.max_new_tokens",
     .type = PL_RECIPE_INT,
     .deflt = "128",
     .min = 2,
     .max = 1 << 20,
     .help = "length of an answer at most"},
    {.path = "data.greedy", .type = PL_RECIPE_BOOL, .deflt = "true", .help = "one greedy answer per prompt"},
    {.path = "data.samples",
     .type = PL_RECIPE_INT,
     .deflt = "2",
     .min = 0,
     .max = 100000,
     .help = "sampled answers per prompt"},
    {.path = "data.temperature",
     .type = PL_RECIPE_REAL,
     .deflt = "1",
     .min = 0.01,
     .max = 100,
     .help = "of sampled answers"},
    {.path = "data.top_p", .type = PL_RECIPE_REAL, .deflt = "1", .min = 1e-6, .max = 1, .help = "of sampled answers"},
    {.path = "data.sessions",
     .type = PL_RECIPE_INT,
     .deflt = "32",
     .min = 1,
     .max = 1024,
     .help = "answers generated side by side",
     .stages = PL_RECIPE_NO_STAGE},
    {.path = "data.rows_per_shard",
     .type = PL_RECIPE_INT,
     .deflt = "65536",
     .min = 1,
     .max = 1e9,
     .help = "rows of a dataset shard"},
    {.path = "seed", .type = PL_RECIPE_INT, .deflt = "1", .min = 0, .max = 9e15, .help = "of everything random"},
    {0}};

void pl_generator_options_from(pl_generator_options *o, const pl_recipe *r, const int *taps, int n_taps) {
    *o = (pl_generator_options){.n_taps = n_taps,
                                .max_new = (int)pl_recipe_int(r, "data.max_new_tokens"),
                                .greedy = pl_recipe_bool(r, "data.greedy"),
                                .samples = (int)pl_recipe_int(r, "data.samples"),
                                .temperature = pl_recipe_real(r, "data.temperature"),
                                .top_p = pl_recipe_real(r, "data.top_p"),
                                .sessions = (int)pl_recipe_int(r, "data.sessions"),
                                .seed = (uint64_t)pl_recipe_int(r, "seed")};
    memcpy(o->tap, taps, (size_t)n_taps * sizeof *taps);
}

pl_status pl_recipe_prompts(const pl_recipe *r, pl_prompts **train, pl_prompts **held, pl_err *err) {
    *train = *held = NULL;
    pl_prompts *all = NULL;
    PL_TRY(pl_recipe_require(r, "data.prompts", err));
    PL_TRY(pl_prompts_read(&all, pl_recipe_str(r, "data.prompts"), err));
    const char *eval = pl_recipe_str(r, "eval.prompts");
    pl_status   st = PL_OK;
    if (eval) {
        st = pl_prompts_read(held, eval, err);
        if (st == PL_OK)
            *train = all;
        else
            pl_prompts_destroy(all);
        return st;
    }
    int64_t holdout = pl_recipe_int(r, "eval.holdout");
    if (holdout >= all->n)
        st = pl_recipe_fail(r, "eval.holdout", err, "%lld prompts held out of %lld leave none to train on; lower it",
                            (long long)holdout, (long long)all->n);
    else
        st = pl_prompts_split(all, (uint64_t)pl_recipe_int(r, "seed"), holdout, train, held, err);
    pl_prompts_destroy(all);
    return st;
}

static pl_status settings_json(const pl_generator_options *o, char **text, pl_err *err) {
    pl_json_out j;
    pl_json_out_begin(&j, 0);
    pl_json_out_object(&j);
    pl_json_out_key(&j, "max_new_tokens"), pl_json_out_int(&j, o->max_new);
    pl_json_out_key(&j, "greedy"), pl_json_out_bool(&j, o->greedy);
    pl_json_out_key(&j, "samples"), pl_json_out_int(&j, o->samples);
    pl_json_out_key(&j, "temperature"), pl_json_out_num(&j, o->temperature);
    pl_json_out_key(&j, "top_p"), pl_json_out_num(&j, o->top_p);
    pl_json_out_key(&j, "seed"), pl_json_out_int(&j, (int64_t)o->seed);
    pl_json_out_close(&j, '}');
    PL_TRY(pl_json_out_end(&j, err));
    *text = j.text;
    return PL_OK;
}

static pl_status write_all(pl_generator *g, int64_t first_job, pl_dataset_writer *w, pl_err *err) {
    pl_progress  p;
    pl_generated doc;
    int64_t      jobs = pl_generator_jobs(g), done = first_job, tokens = 0;
    pl_progress_begin(&p, "generate", done, jobs);
    pl_status st = PL_OK;
    for (; done < jobs && st == PL_OK; done++) {
        st = pl_generator_next(g, &doc, err);
        if (st == PL_OK)
            st = pl_dataset_append(w, doc.n, doc.tokens, doc.mask, doc.features, doc.last, doc.argmax, err);
        tokens += doc.answer;
        pl_progress_update(&p, done + 1, "%lld tokens", (long long)tokens);
        if (st == PL_OK && pl_stop_requested())
            st = pl_fail(err, PL_E_INTERRUPTED, "stopped after %lld of %lld answers; run the same command to go on",
                         (long long)(done + 1), (long long)jobs);
    }
    pl_progress_end(&p);
    return st;
}

pl_status pl_generate_run(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    pl_llama             target = {0};
    pl_tokenizer        *tok = NULL;
    pl_prompts          *train = NULL, *held = NULL;
    pl_generator        *g = NULL;
    pl_dataset_writer   *w = NULL;
    char                *dir = NULL, *settings = NULL;
    int                  taps[PL_MAX_TAPS], n_taps;
    pl_generator_options o;
    pl_status            st;
    PL_TRY(pl_recipe_require(r, "target.path", err));
    const char *path = pl_recipe_str(r, "target.path"), *tokenizer = pl_recipe_str(r, "target.tokenizer");
    pl_dtype    t = pl_recipe_choice(r, "target.dtype") == 0 ? PL_BF16 : PL_F32;
    PL_TRY_GOTO(st, done, pl_recipe_prompts(r, &train, &held, err));
    PL_TRY_GOTO(st, done, pl_llama_open(&target, path, t, env->backend, err));
    PL_TRY_GOTO(st, done,
                pl_tokenizer_open_pre(&tok, tokenizer ? tokenizer : path, pl_recipe_str(r, "target.pre"), err));
    n_taps = pl_recipe_bool(r, "data.taps") ? pl_llama_default_taps(target.n_layers, taps) : 0;
    pl_generator_options_from(&o, r, taps, n_taps);
    PL_TRY_GOTO(st, done, settings_json(&o, &settings, err));
    pl_dataset_attrs attrs = {.target_fingerprint = target.fingerprint,
                              .tokenizer_fingerprint = pl_tokenizer_fingerprint(tok),
                              .template_name = "plain",
                              .generation = settings,
                              .vocab_size = (int32_t)target.vocab,
                              .d = (int32_t)target.shape.d,
                              .A = n_taps};
    for (int i = 0; i < n_taps; i++)
        attrs.tap_layer_ids[i] = taps[i];
    dir = pl_path_join(out_dir, "dataset");
    if (!dir) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir));
    PL_TRY_GOTO(st, done, pl_dataset_writer_create(&w, dir, &attrs, pl_recipe_int(r, "data.rows_per_shard"), err));
    o.first_job = pl_dataset_writer_docs(w);
    PL_TRY_GOTO(st, done, pl_generator_create(&g, env, &target, tok, train, &o, err));
    PL_TRY_GOTO(st, done, write_all(g, o.first_job, w, err));
    st = pl_dataset_writer_close(w, err);
    w = NULL;
done:
    pl_dataset_writer_destroy(w); // whole shards stay: the next run goes on from there
    pl_generator_destroy(g);
    pl_prompts_destroy(train);
    pl_prompts_destroy(held);
    pl_tokenizer_close(tok);
    pl_llama_fini(&target);
    pl_free(dir);
    pl_free(settings);
    return st;
}
