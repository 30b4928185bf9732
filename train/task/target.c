// kind: target. Pretrains a Llama-family target from text: tokenizer, token files, training.
//
// checkpoints/{last,best} are complete Hugging Face model folders: config.json, generation_config.json,
// model.safetensors (which holds a tied embedding once), tokenizer.model, tokenizer_config.json.
// A step is `batch` windows of seq_len tokens; the last long_steps steps have windows of long_seq_len and the same
// number of tokens, so that all positions of the model are trained. Best is by bits per byte of held-out text.
#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "train/keys.h"
#include "train/loop/trainer.h"
#include "train/task/heldout.h"
#include "train/task/lm.h"
#include "train/task/model_files.h"
#include "train/task/repetition.h"
#include "train/task/textdata.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { AUTO_SLOT_ROWS = 2048 }; // train.slots 0: activations of so many rows stay below a gigabyte in small models

// Sums of continuations: written tokens, repeated tokens.
enum { SUM_WRITTEN = PL_SUM_OWN, SUM_REPEATED };

enum { N_PHASES = 2 }; // short windows, then long ones

// The shape of the steps from first_step on: windows of seq_len, `per_slot` of them in a slot.
typedef struct phase {
    int64_t          seq_len, batch, per_slot, first_step;
    pl_tokens const *tokens;
    uint64_t         seed; // of the windows' order
} phase;

typedef struct pretrain {
    pl_task          task;
    const pl_recipe *r;
    pl_textdata      data;
    pl_lm            lm;
    int64_t          positions; // of the model's RoPE table
    phase            phase[N_PHASES];
    int              n_phases;
    pl_heldout       held[N_PHASES]; // one per phase
    int32_t         *ids, *doc;      // [longest window + 1]
    pl_repetition    repetition;     // engine NULL: none
} pretrain;

static const phase *phase_of(const pretrain *p, int64_t step, int *index) {
    int i = p->n_phases - 1;
    while (i > 0 && step < p->phase[i].first_step)
        i--;
    *index = i;
    return &p->phase[i];
}

// ---- the task

// Takes prefixes from windows, in a separate order: of each prefix the part in the document in which it ends.
static void take_prefixes(pretrain *p, int64_t step, int s) {
    pl_repetition *r = &p->repetition;
    int64_t        n = r->o.prefix, room = n + r->o.length;
    for (int i = 0; i < r->o.sequences; i++) {
        int64_t position = ((step - 1) * p->task.n_slots + s) * r->o.sequences + i, first = 0;
        pl_tokens_window(p->data.train, n, (uint64_t)pl_generate_recipe_of(p->r)->seed + N_PHASES, position, p->ids,
                         p->doc);
        for (int64_t k = 1; k < n; k++)
            if (p->doc[k] != p->doc[k - 1]) first = k;
        r->text[i].prompt = (int32_t)(n - first);
        memcpy(r->ids + i * room, p->ids + first, (size_t)(n - first) * sizeof *r->ids);
    }
}

static pl_status slot(pl_task *t, int64_t step, int s, double *sums, pl_err *err) {
    pretrain    *p = (pretrain *)t;
    int          index;
    const phase *ph = phase_of(p, step, &index);
    pl_lm_sums   got;
    bool         penalise = p->repetition.engine && step >= pl_train_recipe_of(p->r)->train.unlikelihood.first_step;
    if (penalise) {
        take_prefixes(p, step, s);
        PL_TRY(pl_repetition_write(&p->repetition, err));
        sums[SUM_WRITTEN] = (double)p->repetition.written;
        sums[SUM_REPEATED] = (double)p->repetition.repeated;
    }
    pl_lm_clear(&p->lm);
    for (int64_t i = 0; i < ph->per_slot; i++) {
        int64_t position = (step - ph->first_step) * ph->batch + s * ph->per_slot + i;
        pl_tokens_window(ph->tokens, ph->seq_len, ph->seed, position, p->ids, p->doc);
        pl_lm_add(&p->lm, p->ids, p->doc, ph->seq_len);
    }
    if (penalise) pl_repetition_add(&p->repetition);
    PL_TRY(pl_lm_learn(&p->lm, &got, err));
    sums[PL_SUM_LOSS] = got.loss;
    sums[PL_SUM_WEIGHT] = (double)got.count;
    sums[PL_SUM_TOKENS] = (double)p->lm.rows;
    return PL_OK;
}

// Writes the slot's windows, each by its first token in the stream of training tokens.
static void place(pl_task *t, int64_t step, int s, const int64_t *from, const int64_t *to, pl_json_out *o) {
    pretrain    *p = (pretrain *)t;
    int          index;
    const phase *ph = phase_of(p, step, &index);
    (void)from, (void)to; // windows are drawn by step and slot
    pl_put_array(o, "tokens");
    for (int64_t i = 0; i < ph->per_slot; i++) {
        int64_t position = (step - ph->first_step) * ph->batch + s * ph->per_slot + i;
        pl_json_out_int(o, pl_tokens_window(ph->tokens, ph->seq_len, ph->seed, position, p->ids, NULL).start);
    }
    pl_json_out_close(o, ']');
    pl_put_int(o, "each", ph->seq_len);
}

static void report(pl_task *t, const double *sums, pl_metrics *m) {
    (void)t;
    if (sums[SUM_WRITTEN] > 0) pl_metrics_num(m, "repeated", sums[SUM_REPEATED] / sums[SUM_WRITTEN]);
}

static pl_status evaluate(pl_task *t, int64_t step, pl_metrics *m, double *score, pl_err *err) {
    pretrain         *p = (pretrain *)t;
    pl_heldout_result r;
    int               index;
    const phase      *ph = phase_of(p, step, &index);
    PL_TRY(pl_heldout_score(&p->held[index], &p->lm, &r, err));
    pl_metrics_num(m, "eval_bits_per_byte", r.bits_per_byte);
    pl_metrics_num(m, "eval_loss", r.loss);
    pl_metrics_num(m, "eval_accuracy", r.accuracy);
    pl_metrics_int(m, "eval_tokens", r.tokens);
    pl_metrics_int(m, "eval_bytes", r.bytes);
    pl_metrics_int(m, "eval_seq_len", ph->seq_len);
    pl_log("step %lld: held out %.4f bits/byte, loss %.4f, accuracy %.1f%%", (long long)step, r.bits_per_byte, r.loss,
           100 * r.accuracy);
    *score = -r.bits_per_byte;
    return PL_OK;
}

static pl_status save_model(pl_task *t, const char *dir, pl_err *err) {
    const pretrain *p = (const pretrain *)t;
    return pl_model_files_write(dir, &p->lm, p->data.tok, p->data.tokenizer_path, err);
}

// ---- preparation

#define NEW(key) offsetof(pl_train_recipe, target.new.key)

// Reads the config of the model that target.start names.
static pl_status config_of_start(pl_hf_config *c, const pretrain *p, pl_err *err) {
    const pl_recipe       *r = p->r;
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    int32_t                pieces = pl_tokenizer_vocab_size(p->data.tok);
    static const size_t    said[] = {NEW(hidden_size), NEW(layers),    NEW(heads), NEW(kv_heads),   NEW(intermediate),
                                     NEW(vocab),       NEW(positions), NEW(tie),   NEW(rope_theta), NEW(norm_eps)};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const void *field = (const char *)tr + said[i];
        if (pl_recipe_given(r, field))
            return pl_recipe_fail(r, field, err, "the model's shape is that of target.start; leave this out");
    }
    PL_TRY(pl_model_files_config(c, tr->target.start, tr->train.dtype == PL_TRAIN_BF16 ? PL_BF16 : PL_F32, err));
    if (c->vocab_size < pieces)
        return pl_recipe_fail(r, &tr->target.start, err, "its vocabulary of %d is smaller than the tokenizer's, %d",
                              c->vocab_size, pieces);
    return PL_OK;
}

static pl_status config_of(pl_hf_config *c, const pretrain *p, pl_err *err) {
    const pl_recipe       *r = p->r;
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    int32_t                pieces = pl_tokenizer_vocab_size(p->data.tok);
    int64_t                vocab = tr->target.new.vocab;
    if (tr->target.start) return config_of_start(c, p, err);
    if (vocab == 0) vocab = pieces;
    if (vocab < pieces)
        return pl_recipe_fail(r, &tr->target.new.vocab, err, "the tokenizer has %d pieces; use 0 or at least that",
                              pieces);
    pl_hf_config_init(c);
    snprintf(c->architecture, sizeof c->architecture, "LlamaForCausalLM");
    snprintf(c->model_type, sizeof c->model_type, "llama");
    c->hidden_size = (int)tr->target.new.hidden_size;
    c->intermediate_size = (int)tr->target.new.intermediate;
    c->num_hidden_layers = (int)tr->target.new.layers;
    c->num_attention_heads = (int)tr->target.new.heads;
    c->num_key_value_heads = (int)tr->target.new.kv_heads;
    c->vocab_size = (int)vocab;
    c->max_position_embeddings = (int)tr->target.new.positions;
    c->rms_norm_eps = tr->target.new.norm_eps;
    c->rope.theta = tr->target.new.rope_theta;
    c->tie_word_embeddings = tr->target.new.tie;
    c->bos_token_id = pl_tokenizer_bos_id(p->data.tok);
    if (pl_tokenizer_eos_id(p->data.tok) >= 0) c->eos_token_id[c->n_eos++] = pl_tokenizer_eos_id(p->data.tok);
    c->dtype = tr->train.dtype == PL_TRAIN_BF16 ? PL_BF16 : PL_F32;
    if (c->hidden_size % c->num_attention_heads)
        return pl_recipe_fail(r, &tr->target.new.heads, err, "%d does not divide target.new.hidden_size, %d",
                              c->num_attention_heads, c->hidden_size);
    if (c->num_attention_heads % c->num_key_value_heads)
        return pl_recipe_fail(r, &tr->target.new.kv_heads, err, "%d does not divide target.new.heads, %d",
                              c->num_key_value_heads, c->num_attention_heads);
    c->head_dim = c->hidden_size / c->num_attention_heads;
    return pl_hf_config_check(c, "target.new", err);
}

// Sets the number of slots: the recipe's, or the smallest divisor of the batch that keeps a slot within AUTO_SLOT_ROWS.
static pl_status slots_of(const pl_recipe *r, int64_t batch, int64_t seq_len, int *slots, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    int64_t                want = tr->train.slots, n = want > 0 ? want : 1;
    if (want == 0)
        while (n < batch && (batch % n != 0 || batch / n * seq_len > AUTO_SLOT_ROWS))
            n++;
    if (n > PL_SLOTS_MAX || batch % n != 0)
        return pl_recipe_fail(r, &tr->train.slots, err, "%lld slots do not divide train.batch, %lld sequences",
                              (long long)n, (long long)batch);
    *slots = (int)n;
    return PL_OK;
}

static pl_status check_phase(const pretrain *p, const void *key, const phase *ph, pl_err *err) {
    if (ph->seq_len > p->positions)
        return pl_recipe_fail(p->r, key, err, "longer than the model's %lld positions", (long long)p->positions);
    if (pl_tokens_windows(ph->tokens, ph->seq_len) < 1)
        return pl_recipe_fail(p->r, key, err, "the text has only %lld tokens", (long long)ph->tokens->n);
    return PL_OK;
}

static pl_status phases_of(pretrain *p, pl_err *err) {
    const pl_recipe          *r = p->r;
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    int64_t                   steps = tr->train.steps, long_steps = tr->train.long_steps;
    int64_t                   long_len = tr->train.long_seq_len;
    uint64_t                  seed = (uint64_t)gen->seed;
    phase                    *a = &p->phase[0], *b = &p->phase[1];
    *a = (phase){
        .seq_len = tr->train.seq_len, .batch = tr->train.batch, .first_step = 1, .tokens = p->data.train, .seed = seed};
    PL_TRY(slots_of(r, a->batch, a->seq_len, &p->task.n_slots, err));
    PL_TRY(check_phase(p, &tr->train.seq_len, a, err));
    a->per_slot = a->batch / p->task.n_slots;
    p->n_phases = 1;
    if (long_steps == 0) return PL_OK;

    if (long_steps > steps)
        return pl_recipe_fail(r, &tr->train.long_steps, err, "more than train.steps, %lld", (long long)steps);
    int64_t rows = a->per_slot * a->seq_len;
    if (long_len == 0 || rows % long_len != 0)
        return pl_recipe_fail(r, &tr->train.long_seq_len, err, "%lld does not divide the %lld tokens of a slot",
                              (long long)long_len, (long long)rows);
    *b = *a;
    b->seq_len = long_len;
    b->per_slot = rows / long_len;
    b->batch = b->per_slot * p->task.n_slots;
    b->first_step = steps - long_steps + 1;
    b->seed = seed + 1;
    p->n_phases = 2;
    return check_phase(p, &tr->train.long_seq_len, b, err);
}

// Reads the recipe's options of continuations; .sequences 0: none.
static pl_status repetition_of(pl_repetition_options *o, const pretrain *p, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(p->r);
    int64_t                n = tr->train.unlikelihood.sequences;
    int64_t                room = tr->train.unlikelihood.prefix + tr->train.unlikelihood.length;
    *o = (pl_repetition_options){.sequences = (int)(n / p->task.n_slots),
                                 .prefix = (int)tr->train.unlikelihood.prefix,
                                 .length = (int)tr->train.unlikelihood.length,
                                 .weight = tr->train.unlikelihood.weight};
    if (n == 0) return PL_OK;
    if (n % p->task.n_slots != 0)
        return pl_recipe_fail(p->r, &tr->train.unlikelihood.sequences, err, "not a multiple of the step's %d slots",
                              p->task.n_slots);
    if (tr->train.unlikelihood.first_step > tr->train.steps)
        return pl_recipe_fail(p->r, &tr->train.unlikelihood.first_step, err, "after train.steps, %lld",
                              (long long)tr->train.steps);
    if (room > p->positions)
        return pl_recipe_fail(p->r, &tr->train.unlikelihood.length, err,
                              "with the prefix %lld tokens, the model has %lld positions", (long long)room,
                              (long long)p->positions);
    if (pl_tokens_windows(p->data.train, o->prefix) < 1)
        return pl_recipe_fail(p->r, &tr->train.unlikelihood.prefix, err, "the text has only %lld tokens",
                              (long long)p->data.train->n);
    return PL_OK;
}

static pl_status take_windows(pretrain *p, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(p->r);
    int64_t                window = p->repetition.o.prefix;
    for (int i = 0; i < p->n_phases; i++) {
        const phase *ph = &p->phase[i];
        if (window < ph->seq_len) window = ph->seq_len;
        if (p->data.held)
            PL_TRY(pl_heldout_init(&p->held[i], p->data.held, p->data.tok, ph->seq_len, tr->train.eval_tokens, err));
    }
    p->ids = pl_calloc((size_t)window + 1, sizeof *p->ids);
    p->doc = pl_calloc((size_t)window + 1, sizeof *p->doc);
    return p->ids && p->doc ? PL_OK : pl_fail(err, PL_E_MEMORY, "training: out of memory for a window");
}

static pl_status prepare(pl_task *t, const pl_recipe *r, const char *out_dir, const pl_env *env, pl_err *err) {
    pretrain              *p = (pretrain *)t;
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    pl_repetition_options  ro;
    pl_hf_config           config;
    char                   recipe[17], start[17];
    p->r = r;
    if (env->tp)
        return pl_fail(err, PL_E_UNSUPPORTED,
                       "--tensor-parallel: a target is trained whole, on ranks that share its steps: --ranks");
    PL_TRY(pl_comm_enter(env->comm, err)); // rank 0 writes the files; the other ranks open them
    PL_TRY(pl_textdata_prepare(&p->data, p->r, out_dir, err));
    PL_TRY(pl_comm_leave(env->comm, err));
    PL_TRY(config_of(&config, p, err));
    p->positions = config.max_position_embeddings;
    PL_TRY(phases_of(p, err));
    PL_TRY(repetition_of(&ro, p, err));
    PL_TRY(pl_recipe_hash(p->r, PL_STAGE_TARGET, recipe, err));
    int64_t       rows = p->phase[0].per_slot * p->phase[0].seq_len;
    pl_lm_options o = {.backend = env->backend,
                       .pool = env->pool,
                       .capacity = rows + pl_repetition_rows(&ro),
                       .round_to = config.dtype,
                       .shard = pl_train_shard(p->r, env->comm),
                       .decay_embed = tr->train.decay_embeddings,
                       .recompute = tr->train.recompute};
    PL_TRY(pl_lm_create(&p->lm, &config, &o, err));
    *start = 0; // the fingerprint of the model that it starts from
    if (tr->target.start)
        PL_TRY(pl_model_files_weights(&p->lm, tr->target.start, start, err));
    else
        PL_TRY(pl_param_block_init(&p->lm.block, (uint64_t)pl_generate_recipe_of(r)->seed, err));
    if (ro.sequences > 0) PL_TRY(pl_repetition_init(&p->repetition, &ro, &p->lm, env->backend, env->pool, err));
    PL_TRY(take_windows(p, err));

    p->task.name = "target";
    p->task.block = &p->lm.block;
    p->task.tape = &p->lm.tape;
    p->task.slot = slot;
    p->task.place = place;
    p->task.report = report;
    p->task.save_model = save_model;
    if (p->data.held) p->task.evaluate = evaluate;
    snprintf(p->task.identity, sizeof p->task.identity, "target recipe %s text %s%s%s", recipe, p->data.stamp,
             *start ? " start " : "", start);
    pl_log("target: %.2f M parameters, %lld training tokens, %lld tokens a step in %d slots, %.0f MB of activations",
           (double)pl_params_count(&p->lm.model.params) / 1e6, (long long)p->data.train->n,
           (long long)rows * p->task.n_slots, p->task.n_slots, (double)p->lm.ctx.frame.size / 1e6);
    return PL_OK;
}

static void destroy(pl_task *t) {
    pretrain *p = (pretrain *)t;
    for (int i = 0; i < N_PHASES; i++)
        pl_heldout_fini(&p->held[i]);
    pl_repetition_fini(&p->repetition);
    pl_lm_destroy(&p->lm);
    pl_textdata_close(&p->data);
    pl_free(p->ids);
    pl_free(p->doc);
}

const pl_training pl_training_target = {sizeof(pretrain), prepare, destroy};
