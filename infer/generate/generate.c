#include "infer/generate/generate.h"

#include "data/dataset/dataset.h"
#include "infer/generate/hidden_states.h"
#include "infer/generate/shards.h"
#include "infer/model/llama.h"
#include "infer/model/target.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"

#include <stdlib.h>
#include <string.h>

#define ANSWERS "mask", "all", "between" // in the order of PL_ANSWERS_*

const pl_key pl_generate_keys[] = {
    {PL_KEY_FIELD_PATH(pl_generate_recipe, target.path),
     .help = "the target: a Hugging Face folder, a GGUF file or a llama2.c file",
     .stages = PL_KEY_NO_STAGE}, // its contents are hashed instead
    {PL_KEY_FIELD_PATH(pl_generate_recipe, target.tokenizer),
     .help = "its tokenizer, where the folder does not hold one", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, target.pre), .help = PL_TOK_PRE_HELP},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, target.dtype), .deflt = "bf16", .choices = {"bf16", "fp32"},
     .help = "how the target's weights are held"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, target.kv), .deflt = "fp32", .choices = {PL_KV_CHOICES}, .late = true,
     .help = PL_KV_HELP},
    {PL_KEY_FIELD_PATH(pl_generate_recipe, data.prompts),
     .help =
         "prompts: JSONL, a JSON list or paragraphs of text; self:N: N prompts that the target writes (Magpie), a file "
         "in the run's folder",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_generate_recipe, data.own.temperature), .deflt = "1", .min = 0.01, .max = 100, .late = true,
     .help = "of prompts that the target writes", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_generate_recipe, data.own.top_p), .deflt = "0.99", .min = 0.01, .max = 1, .late = true,
     .help = "of prompts that the target writes", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.own.min_tokens), .deflt = "4", .min = 1, .max = 1000000, .late = true,
     .help = "shorter ones are left out", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.own.max_tokens), .deflt = "256", .min = 1, .max = 1000000, .late = true,
     .help = "longer ones are left out; a base model's are cut there", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_BOOL(pl_generate_recipe, data.strict), .deflt = "false", .late = true,
     .help =
         "a record that is no prompt, or a conversation that the chat template refuses, ends the run; else it is left "
         "out with a warning",
     .stages = PL_KEY_NO_STAGE}, // the remaining prompts are hashed instead
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.form), .deflt = "text", .choices = {"text", "chat"},
     .help = "text: prompts are continued; chat: they are conversations, written by the target's chat template"},
    {PL_KEY_FIELD_PATH(pl_generate_recipe, data.chat.template), .help = "another chat template than the target's own"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.chat.kwargs),
     .help = "variables of the chat template, a JSON object: {\"enable_thinking\": false}"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.chat.date),
     .help = "what a chat template that writes today's date takes for it, YYYY-MM-DD"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.chat.system),
     .help = "a system message before conversations that begin without one"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.chat.history), .deflt = "own", .choices = {"own", "given"},
     .help = "what stands before later turns: the target's own answers, or those that the prompts' file gives"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.long_prompts), .deflt = "skip", .choices = {"skip", "cut"},
     .help = "prompts that leave no room for an answer in the target's context: left out, or their beginning is"},
    {PL_KEY_FIELD_PATH(pl_generate_recipe, data.hidden_states.path),
     .help = "instead of answering prompts: a folder of hidden states that vLLM's extract_hidden_states took of the "
             "target, a safetensors file for each sequence"},
    {PL_KEY_FIELD_INTS(pl_generate_recipe, data.hidden_states.layers), .deflt = "[]", .min = 0, .max = 1024,
     .help = "the layers in those files, in their order: inputs, counted from 0; the target's number of layers, which "
             "must be among them, is what the last one gives"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.hidden_states.answers), .deflt = "mask", .choices = {ANSWERS},
     .help = "their tokens that are answers: where loss_mask is 1, all, or those between begin and end"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.hidden_states.begin),
     .help = "text behind which an answer begins, special tokens spelt out"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.hidden_states.end), .help = "text with which it ends"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.mode), .deflt = "offline", .choices = {"offline", "online"},
     .help = "offline stores features; online runs the target while training and stores nothing"},
    {PL_KEY_FIELD_STRING(pl_generate_recipe, data.disk_budget),
     .help = "offline data that need not fit the disk: made while training, shards deleted when they have been learned "
             "from and made again when they are wanted; \"20GB\" is what they may take",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_BOOL(pl_generate_recipe, data.taps), .deflt = "true",
     .help = "store the inputs of the layers that the drafters read (drafter.taps) beside the last hidden; EAGLE-1 "
             "reads none"},
    {PL_KEY_FIELD_ENUM(pl_generate_recipe, data.feature_format), .deflt = "bf16", .choices = {"bf16", "int8"},
     .help = "how a dataset stores features: 2 bytes each, or 1.03 (MXINT8, blocks of 32 that share a scale)"},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.max_new_tokens), .deflt = "128", .min = 2, .max = 1 << 20,
     .help = "length of an answer at most"},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.max_length), .deflt = "4096", .min = 8, .max = 1 << 24,
     .help = "tokens of prompt and answer at most, as far as the target's context goes"},
    {PL_KEY_FIELD_BOOL(pl_generate_recipe, data.greedy), .deflt = "true", .help = "one greedy answer per prompt"},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.samples), .deflt = "2", .min = 0, .max = 100000,
     .help = "sampled answers per prompt"},
    {PL_KEY_FIELD_REAL(pl_generate_recipe, data.temperature), .deflt = "1", .min = 0.01, .max = 100,
     .help = "of sampled answers"},
    {PL_KEY_FIELD_REAL(pl_generate_recipe, data.top_p), .deflt = "1", .min = 1e-6, .max = 1,
     .help = "of sampled answers"},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.sessions), .deflt = "32", .min = 1, .max = 1024,
     .help = "answers generated side by side", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_INT(pl_generate_recipe, data.rows_per_shard), .deflt = "65536", .min = 1, .max = 1e9,
     .help = "rows of a dataset shard at most, if answers had full length"},
    {PL_KEY_FIELD_INT(pl_generate_recipe, seed), .each = true, .deflt = "1", .min = 0, .max = 9e15,
     .help = "seed of everything random"},
    PL_KEYS_END(pl_generate_recipe)};

void pl_generator_options_from(pl_generator_options *o, const pl_recipe *r, const pl_prompt_form *form, const int *taps,
                               int n_taps) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    *o = (pl_generator_options){.form = form,
                                .n_taps = n_taps,
                                .max_new = (int)gen->data.max_new_tokens,
                                .max_len = (int)gen->data.max_length,
                                .greedy = gen->data.greedy,
                                .samples = (int)gen->data.samples,
                                .temperature = gen->data.temperature,
                                .top_p = gen->data.top_p,
                                .sessions = (int)gen->data.sessions,
                                .cut = gen->data.long_prompts == PL_LONG_CUT,
                                .strict = gen->data.strict,
                                .seed = (uint64_t)gen->seed};
    if (n_taps) memcpy(o->tap, taps, (size_t)n_taps * sizeof *taps);
}

static const char *const answers_names[] = {ANSWERS};

static void put_hidden_states(pl_json_out *j, const pl_generate_recipe *gen) {
    pl_json_out_key(j, "hidden_states"), pl_json_out_object(j);
    pl_json_out_key(j, "layers"), pl_json_out_array(j);
    for (int i = 0; i < gen->data.hidden_states.layers.n; i++)
        pl_json_out_int(j, gen->data.hidden_states.layers.at[i]);
    pl_json_out_close(j, ']');
    pl_json_out_key(j, "answers"), pl_json_out_str(j, answers_names[gen->data.hidden_states.answers]);
    if (gen->data.hidden_states.begin) {
        pl_json_out_key(j, "begin"), pl_json_out_str(j, gen->data.hidden_states.begin);
        pl_json_out_key(j, "end"), pl_json_out_str(j, gen->data.hidden_states.end);
    }
    pl_json_out_close(j, '}');
}

static void put_answering(pl_json_out *j, const pl_generator_options *o, pl_dtype kv) {
    pl_json_out_key(j, "max_new_tokens"), pl_json_out_int(j, o->max_new);
    pl_json_out_key(j, "max_length"), pl_json_out_int(j, o->max_len);
    pl_json_out_key(j, "greedy"), pl_json_out_bool(j, o->greedy);
    pl_json_out_key(j, "samples"), pl_json_out_int(j, o->samples);
    pl_json_out_key(j, "temperature"), pl_json_out_num(j, o->temperature);
    pl_json_out_key(j, "top_p"), pl_json_out_num(j, o->top_p);
    pl_json_out_key(j, "seed"), pl_json_out_int(j, (int64_t)o->seed);
    if (o->cut) pl_json_out_key(j, "long_prompts"), pl_json_out_str(j, "cut");
    if (kv != PL_F32) pl_json_out_key(j, "kv"), pl_json_out_str(j, pl_weights_name(kv));
}

// Returns true if later turns of the prompts follow the target's own answers.
static bool has_histories(const pl_generate_recipe *gen, const pl_prompts *prompts) {
    bool later = false;
    for (int64_t i = 0; prompts && i < prompts->n; i++)
        later |= prompts->p[i].turns > 1;
    return later && gen->data.form == PL_FORM_CHAT && gen->data.chat.history == PL_HISTORY_OWN;
}

static pl_status settings_json(const pl_generator_options *o, const pl_recipe *r, const pl_prompts *prompts,
                               const pl_hf_config *target, const pl_tokenizer *tok, const pl_backend *be, char **text,
                               pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_dtype            weights = pl_target_dtype(gen);
    const uint64_t            stops = gen->data.hidden_states.path ? 0 : pl_target_stops_hash(target, tok);
    uint64_t                  of = 0; // hash of the prompts or hidden states, so that a run is not resumed with others
    char                      hash[17];
    pl_json_out               j;
    if (gen->data.hidden_states.path)
        PL_TRY(pl_hidden_states_hash(&of, r, err));
    else
        of = pl_prompts_hash(prompts, 0);
    pl_hash_hex(hash, of);
    pl_json_out_begin(&j, 0);
    pl_json_out_object(&j);
    pl_json_out_key(&j, "arithmetic"), pl_json_out_str(&j, be->arithmetic);
    if (gen->data.hidden_states.path)
        put_hidden_states(&j, gen);
    else
        put_answering(&j, o, pl_target_kv(gen));
    pl_json_out_key(&j, "of"), pl_json_out_str(&j, hash);
    if (!pl_tokenizer_adds_bos(tok)) pl_json_out_key(&j, "bos"), pl_json_out_bool(&j, false);
    if (stops) pl_hash_hex(hash, stops), pl_json_out_key(&j, "stops"), pl_json_out_str(&j, hash);
    // Bf16 is the default and not recorded.
    if (weights != PL_BF16) pl_json_out_key(&j, "weights"), pl_json_out_str(&j, pl_weights_name(weights));
    pl_put_chat(&j, r);
    // Earlier builds left an answer's special tokens out of later turns, and recorded no such member.
    if (has_histories(gen, prompts)) pl_put_str(&j, PL_DATASET_HISTORIES, "spelt");
    pl_json_out_close(&j, '}');
    PL_TRY(pl_json_out_end(&j, err));
    *text = j.text;
    return PL_OK;
}

pl_status pl_generate_describe(pl_dataset_attrs *a, char **settings, const pl_recipe *r, const pl_llama *target,
                               const pl_tokenizer *tok, const pl_prompts *prompts, const pl_generator_options *o,
                               const pl_backend *be, pl_err *err) {
    PL_TRY(settings_json(o, r, prompts, &target->config, tok, be, settings, err));
    *a = (pl_dataset_attrs){.target_fingerprint = target->fingerprint,
                            .tokenizer_fingerprint = pl_tokenizer_fingerprint(tok),
                            .template_name = o->form->name,
                            .feature_format = pl_data_format(pl_generate_recipe_of(r)),
                            .generation = *settings,
                            .vocab_size = (int32_t)target->vocab,
                            .d = (int32_t)target->shape.d,
                            .A = o->n_taps};
    for (int i = 0; i < o->n_taps; i++)
        a->tap_layer_ids[i] = o->tap[i];
    return PL_OK;
}

pl_status pl_data_budget(int64_t *bytes, const pl_recipe *r, pl_err *err) {
    static const struct {
        const char *name;
        double      bytes;
    } unit[] = {{"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 0x1p40}};
    const char *const *text = &pl_generate_recipe_of(r)->data.disk_budget;
    char              *end;
    double             n = strtod(*text, &end);
    end += strspn(end, " ");
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        if (end != *text && n > 0 && n < 1e9 && strcmp(end, unit[i].name) == 0) {
            *bytes = (int64_t)(n * unit[i].bytes);
            return PL_OK;
        }
    return pl_recipe_fail(r, text, err, "\"%s\" is no size; write 500MB, 20GB or 1.5TiB", *text);
}

// Warns of keys that have a value and that another key makes unread.
static void warn_unread(const pl_recipe *r) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const char               *states = gen->data.hidden_states.path ? "data.hidden_states.path is given" : NULL;
    const char               *sampled = gen->data.samples == 0 ? "data.samples is 0" : states;
    const struct {
        const void *key;
        const char *why; // NULL: it is read
    } of[] = {{&gen->data.temperature, sampled},   {&gen->data.top_p, sampled},       {&gen->data.prompts, states},
              {&gen->data.max_new_tokens, states}, {&gen->data.long_prompts, states}, {&gen->data.samples, states},
              {&gen->data.greedy, states}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].why && pl_recipe_differs(r, of[i].key))
            pl_log_warn_once("%s: is not read, since %s", pl_recipe_path(r, of[i].key), of[i].why);
}

pl_status pl_generate_check(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    const void *states[] = {&gen->data.hidden_states.layers, &gen->data.hidden_states.answers,
                            &gen->data.hidden_states.begin, &gen->data.hidden_states.end};
    for (int k = 0; k < 4 && !gen->data.hidden_states.path; k++)
        if (pl_recipe_differs(r, states[k]))
            return pl_recipe_fail(r, states[k], err, "is of data.hidden_states.path; give that, or leave it out");
    warn_unread(r);
    return gen->data.hidden_states.path ? pl_hidden_states_check(r, err)
                                        : pl_recipe_require(r, &gen->data.prompts, err);
}

void pl_generate_taps(pl_taps *t, const pl_recipe *r, int n_layers) {
    *t = (pl_taps){0};
    if (pl_generate_recipe_of(r)->data.taps) t->n = pl_llama_default_taps(n_layers, t->layer);
}

// Inputs of all products: the target, its tokenizer, the prompts to answer (or hidden states instead).
typedef struct sources {
    pl_llama       target;
    pl_tokenizer  *tok;
    pl_prompts    *train, *held;
    pl_prompt_form form;
} sources;

static void close_sources(sources *s) {
    pl_prompts_destroy(s->train);
    pl_prompts_destroy(s->held);
    pl_prompt_form_close(&s->form);
    pl_tokenizer_close(s->tok);
    pl_llama_fini(&s->target);
}

// Opens the sources. Close them even on failure.
static pl_status open_sources(sources *s, const pl_recipe *r, const pl_env *env, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    *s = (sources){0};
    PL_TRY(pl_generate_check(r, err));
    const char *path = gen->target.path, *tokenizer = gen->target.tokenizer;
    PL_TRY(pl_recipe_form(&s->form, r, err));
    if (!gen->data.hidden_states.path) PL_TRY(pl_recipe_prompts(r, &s->form, &s->train, &s->held, err));
    if (gen->data.hidden_states.path && env->tp)
        return pl_recipe_fail(r, &gen->data.hidden_states.path, err,
                              "ask the target for nothing but its head, which one process reads; leave "
                              "--tensor-parallel out");
    if (gen->data.hidden_states.path)
        PL_TRY(pl_llama_open_ends(&s->target, path, pl_target_dtype(gen), env->backend, err));
    else
        PL_TRY(pl_llama_open_over(&s->target, path, pl_target_dtype(gen), env->backend, env->tp, err));
    if (!gen->data.hidden_states.path) PL_TRY(pl_hf_warn_generation(path, err));
    s->target.shape.kv = pl_target_kv(gen);
    return pl_tokenizer_open_pre(&s->tok, tokenizer ? tokenizer : path, gen->target.pre, err);
}

// Opens the writer, rank 0 first, which recovers the files of a stopped run; no rank writes before all have opened it.
static pl_status open_writer(pl_dataset_writer **w, const char *dir, const pl_dataset_attrs *attrs, const pl_env *env,
                             pl_err *err) {
    PL_TRY(pl_comm_enter(env->comm, err));
    PL_TRY(pl_dataset_writer_open(w, dir, attrs, pl_comm_rank(env->comm), false, err));
    PL_TRY(pl_comm_leave(env->comm, err));
    return pl_comm_barrier(env->comm, err);
}

// Lists the missing shards; checks that existing ones agree with the plan.
static pl_status missing(int64_t **list, int64_t *n, const pl_shard_plan *p, const pl_dataset_writer *w, pl_err *err) {
    int64_t docs = 0;
    *n = 0;
    *list = pl_calloc((size_t)p->n + 1, sizeof **list);
    if (!*list) return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
    for (int64_t k = 0; k < p->n; k++) {
        if (pl_dataset_writer_has(w, k))
            docs += p->first[k + 1] - p->first[k];
        else
            (*list)[(*n)++] = k;
    }
    if (docs == pl_dataset_writer_docs(w)) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "dataset: its shards hold other documents than they would now (data.rows_per_shard is another, or "
                   "an older build began it); remove it");
}

// Writes this rank's share of the missing shards.
static pl_status write_share(pl_dataset_writer *w, const sources *s, const pl_generator_options *options,
                             int64_t rows_per_shard, const pl_env *env, pl_err *err) {
    pl_generator_options o = *options;
    pl_shard_plan        plan = {0};
    pl_shard_share       share = {.plan = &plan, .rank = pl_comm_rank(env->comm), .ranks = pl_comm_ranks(env->comm)};
    pl_generator        *g = NULL;
    int64_t             *list = NULL;
    pl_status            st;
    o.work = (pl_generator_work){pl_shard_share_next, &share};
    PL_TRY_GOTO(st, done, pl_generator_create(&g, env, &s->target, s->tok, s->train, &o, err));
    PL_TRY_GOTO(st, done, pl_shard_plan_make(&plan, g, rows_per_shard, err));
    PL_TRY_GOTO(st, done, missing(&list, &share.n, &plan, w, err));
    share.g = g;
    share.shard = list;
    share.end = share.n;
    st = pl_shards_write(&share, g, w, env->comm, pl_dataset_writer_docs(w), err);
done:
    pl_generator_destroy(g);
    pl_shard_plan_fini(&plan);
    pl_free(list);
    return st;
}

// Writes the dataset from hidden states, in the order of their files, in one process.
static pl_status write_states(const char *dir, const pl_dataset_attrs *attrs, const sources *s, const pl_recipe *r,
                              const pl_taps *taps, const pl_env *env, pl_err *err) {
    pl_dataset_writer *w;
    PL_TRY(pl_dataset_writer_create(&w, dir, attrs, pl_generate_recipe_of(r)->data.rows_per_shard, err));
    pl_status st = pl_hidden_states_write(w, r, &s->target, s->tok, taps, env, err);
    if (st == PL_OK) return pl_dataset_writer_close(w, err);
    pl_dataset_writer_destroy(w); // complete shards stay: the next run resumes after them
    return st;
}

static pl_status write_answers(const char *dir, const pl_dataset_attrs *attrs, const sources *s,
                               const pl_generator_options *o, int64_t rows_per_shard, const pl_env *env, pl_err *err) {
    pl_dataset_writer *w = NULL;
    bool               first = pl_comm_rank(env->comm) == 0;
    pl_status          st = open_writer(&w, dir, attrs, env, err);
    if (st == PL_OK) st = write_share(w, s, o, rows_per_shard, env, err);
    if (st == PL_OK && !first) {
        st = pl_dataset_writer_close(w, err);
        w = NULL;
    }
    if (st == PL_OK) st = pl_comm_barrier(env->comm, err);
    if (st == PL_OK && first) return pl_dataset_writer_close(w, err);
    pl_dataset_writer_destroy(w); // complete shards stay
    return st;
}

pl_status pl_generate_run(const pl_recipe *r, const pl_taps *taps, const char *out_dir, const pl_env *env,
                          pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    sources                   s;
    char                     *dir = NULL, *settings = NULL;
    pl_taps                   own;
    pl_generator_options      o;
    pl_dataset_attrs          attrs;
    pl_status                 st;
    bool                      states = gen->data.hidden_states.path;
    if (states && pl_comm_rank(env->comm) > 0) return PL_OK; // rank 0 alone reads them
    PL_TRY_GOTO(st, done, open_sources(&s, r, env, err));
    pl_generate_taps(&own, r, s.target.n_layers);
    if (!taps) taps = &own;
    pl_generator_options_from(&o, r, &s.form, taps->layer, taps->n);
    PL_TRY_GOTO(st, done, pl_generate_describe(&attrs, &settings, r, &s.target, s.tok, s.train, &o, env->backend, err));
    dir = pl_path_join(out_dir, "dataset");
    if (!dir) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir));
    st = states ? write_states(dir, &attrs, &s, r, taps, env, err)
                : write_answers(dir, &attrs, &s, &o, gen->data.rows_per_shard, env, err);
done:
    close_sources(&s);
    pl_free(dir);
    pl_free(settings);
    return st;
}

// ---- texts ----

// Writes one record. ids: prompt and answer.
static pl_status put_text(pl_atomic_file *f, const pl_tokenizer *tok, const pl_generator *g, const int32_t *ids,
                          int64_t n_prompt, int64_t n, const pl_doc_about *about, bool chat, pl_err *err) {
    char       *text = NULL, *before = NULL;
    size_t      bytes, skip, prompt_n;
    const char *prompt = pl_generator_prompt(g, &prompt_n);
    pl_json_out o;
    pl_status   st;
    PL_TRY_GOTO(st, done, pl_tokenizer_decode(tok, ids, n, &text, &bytes, err));
    PL_TRY_GOTO(st, done, pl_tokenizer_decode(tok, ids, n_prompt, &before, &skip, err));
    if (skip > bytes) skip = bytes;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "prompt"), pl_json_out_strn(&o, prompt, prompt_n);
    pl_json_out_key(&o, "answer"), pl_json_out_strn(&o, text + skip, bytes - skip);
    pl_json_out_key(&o, "text"), pl_json_out_strn(&o, text, bytes);
    pl_json_out_key(&o, "finish"), pl_json_out_str(&o, about->finish == PL_ANSWER_STOP ? "stop" : "length");
    pl_json_out_key(&o, "tokens"), pl_json_out_int(&o, n - n_prompt);
    if (chat) pl_json_out_key(&o, "turn"), pl_json_out_int(&o, about->turn);
    pl_json_out_close(&o, '}');
    PL_TRY_GOTO(st, done, pl_json_out_end(&o, err));
    st = pl_atomic_file_append(f, o.text, o.len, err);
    if (st == PL_OK) st = pl_atomic_file_append(f, "\n", 1, err);
    pl_free(o.text);
done:
    pl_free(text);
    pl_free(before);
    return st;
}

static pl_status write_texts(pl_atomic_file *f, pl_generator *g, const sources *s, int32_t *ids, pl_err *err) {
    pl_progress p;
    pl_columns  doc;
    int64_t     jobs = pl_generator_jobs(g), tokens = 0;
    pl_status   st = PL_OK;
    pl_stop_hold();
    pl_progress_begin(&p, "generate", 0, jobs);
    for (int64_t j = 0; j < jobs && st == PL_OK; j++) {
        PL_TRY_GOTO(st, done, pl_generator_next(g, &doc, err));
        if (doc.about->finish == PL_ANSWER_UNKNOWN) continue; // a turn without an answer
        int64_t n_prompt = 0, n = doc.n;
        while (n_prompt < doc.n && !doc.loss_mask[n_prompt])
            n_prompt++;
        memcpy(ids, doc.tokens, (size_t)doc.n * sizeof *ids);
        if (doc.about->end >= 0 && doc.about->finish != PL_ANSWER_STOP) ids[n++] = doc.about->end;
        tokens += n - n_prompt;
        st = put_text(f, s->tok, g, ids, n_prompt, n, doc.about, s->form.chat != NULL, err);
        pl_progress_update(&p, j + 1, "%lld tokens", (long long)tokens);
        if (st == PL_OK && pl_stop_requested())
            st = pl_fail(err, PL_E_INTERRUPTED, "stopped after %lld of %lld answers; nothing is kept", (long long)j + 1,
                         (long long)jobs);
    }
done:
    pl_progress_end(&p);
    pl_stop_release();
    return st;
}

// Returns true if the front of a file is a record of put_text.
static bool is_texts(const char *front, size_t n) {
    static const char *const keys[] = {"{\"prompt\":\"", ",\"answer\":\"", ",\"text\":\"", ",\"finish\":\""};
    size_t                   at = 0;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++, at++) {
        size_t bytes = strlen(keys[k]);
        if (n < at + bytes) return n == PL_FRONT;
        if (memcmp(front + at, keys[k], bytes) != 0) return false;
        for (at += bytes; at < n && front[at] != '"';)
            at += front[at] == '\\' ? 2 : 1;
        if (at >= n) return n == PL_FRONT;
    }
    return true;
}

pl_status pl_generate_texts_spare(const pl_recipe *r, const char *out_dir, pl_err *err) {
    char *path = pl_path_join(out_dir, "texts.jsonl");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = pl_file_spares(path, is_texts, "--out", err);
    if (st == PL_OK) st = pl_recipe_spares_read(r, &pl_generate_recipe_of(r)->data.prompts, path, err);
    pl_free(path);
    return st;
}

pl_status pl_generate_texts(const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    sources              s;
    pl_generator_options o;
    pl_generator        *g = NULL;
    pl_atomic_file       f = {0};
    int32_t             *ids = NULL;
    char                *path;
    const char *const   *states = &pl_generate_recipe_of(r)->data.hidden_states.path;
    pl_status            st;
    if (*states) return pl_recipe_fail(r, states, err, "hold no answers to write; generate --texts answers prompts");
    path = pl_path_join(out_dir, "texts.jsonl");
    PL_TRY_GOTO(st, done, open_sources(&s, r, env, err));
    pl_generator_options_from(&o, r, &s.form, NULL, 0);
    ids = pl_malloc(((size_t)s.target.config.max_position_embeddings + 1) * sizeof *ids);
    if (!path || !ids) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir));
    PL_TRY_GOTO(st, done, pl_generator_create(&g, env, &s.target, s.tok, s.train, &o, err));
    PL_TRY_GOTO(st, done, pl_dir_make(out_dir, err));
    PL_TRY_GOTO(st, done, pl_atomic_file_begin(&f, path, err));
    st = write_texts(&f, g, &s, ids, err);
    if (st == PL_OK)
        st = pl_atomic_file_commit(&f, err);
    else
        pl_atomic_file_abort(&f);
done:
    pl_generator_destroy(g);
    close_sources(&s);
    pl_free(ids);
    pl_free(path);
    return st;
}
