#include "train/task/traces.h"

#include "infer/drafter/backbone.h"
#include "infer/drafter/drafter.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/panels.h"
#include "train/keys.h"
#include "train/source/sources.h"
#include "train/source/stamp.h"
#include "train/start/start.h"
#include "train/task/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 8, CHUNK = 64, ROWS = SESSIONS * CHUNK, ROWS_PER_SHARD = 65536 };

// A document along which the drafter drafts, and its rows traced so far.
typedef struct session {
    pl_columns text; // owned: tokens, loss_mask and the drafter's features
    bool       held;
    int64_t    at;    // tokens committed
    int64_t    taken; // rows that the drafter has read
    pl_tree    tree;
    pl_columns rows; // owned
} session;

typedef struct capture {
    pl_draft_watch     watch; // the drafter's observer; first member: its address is the capture's
    const pl_recipe   *r;
    pl_teacher         teacher;
    pl_llama           target;     // the teacher's, its head packed; borrowed
    void              *head_block; // in the backend's memory
    size_t             head_bytes;
    pl_drafter        *drafter;
    pl_feature_source *train, *held;
    pl_env             alone; // environment of rank 0, which captures alone
    pl_dataset_writer *writer;
    pl_ctx             ctx;
    session            session[SESSIONS];
    int                sessions; // current documents
    pl_draft_item      item[SESSIONS];
    int                item_session[SESSIONS], items;
    int64_t            n_features;  // rows of the current items, concatenated
    pl_arena           arrays;      // memory of the ops' inputs: features
    int32_t           *feature_row; // [ROWS]
    float             *features;    // [ROWS, width]
    int64_t            width, d, top, rows_max, positions;
    int64_t            rows, written;    // rows and documents of the dataset
    int64_t            next[2], docs[2]; // of each side: next document, number of documents
    pl_err             watch_err;        // the observer ran out of memory
} capture;

// ---- inputs of the drafter's head

static pl_status grow(const capture *c, session *s, pl_err *err) {
    pl_columns_shape shape = {.d = c->d, .top = c->top};
    if (s->rows.n < s->rows.room) return PL_OK;
    return pl_columns_reserve(&s->rows, &shape, s->rows.room ? 2 * s->rows.room : 256, err);
}

// A level's rows in host memory.
typedef struct level_rows {
    const int32_t *token, *id; // [m], [m, top]
    const float   *hidden, *x; // [m, d]
    const float   *value, *lse;
    const int32_t *d2t;
    int            level;
} level_rows;

static void add_row(capture *c, session *s, const level_rows *r, int64_t row, int beam) {
    if (c->watch_err.status != PL_OK || grow(c, s, &c->watch_err) != PL_OK) return;
    int64_t at = s->rows.n++, d = c->d;
    s->rows.tokens[at] = r->token[row];
    s->rows.depth[at] = (uint8_t)r->level;
    s->rows.beam[at] = (uint8_t)beam;
    s->rows.held_out[at] = s->held;
    pl_from_f32(s->rows.hidden + at * d, PL_BF16, r->hidden + row * d, (size_t)d);
    pl_from_f32(s->rows.output + at * d, PL_BF16, r->x + row * d, (size_t)d);
    for (int64_t k = 0; k < c->top; k++) {
        int32_t id = r->id[row * c->top + k];
        s->rows.top_id[at * c->top + k] = r->d2t ? r->d2t[id] : id;
        s->rows.top_prob[at * c->top + k] = expf(fminf(r->value[row * c->top + k] - r->lse[row], 0));
    }
}

static void see(pl_draft_watch *w, pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    capture *c = (capture *)w;
    int64_t  m = pl_tensor_rows(&r->x);
    size_t   best = pl_size_mul((size_t)m, (size_t)c->top, sizeof(float));
    int32_t *id = pl_ctx_bytes(ctx, best);
    float   *value = pl_ctx_bytes(ctx, best), *lse = pl_ctx_bytes(ctx, (size_t)m * sizeof *lse);
    pl_head_topk(ctx, h, r, (int)c->top, id, value, lse);
    level_rows rows = {.token = r->token,
                       .id = id,
                       .hidden = pl_ctx_read(ctx, &r->hidden),
                       .x = pl_ctx_read(ctx, &r->x),
                       .value = value,
                       .lse = lse,
                       .d2t = h->d2t,
                       .level = r->level};
    if (!pl_ctx_wait(ctx)) return;
    for (int64_t row = 0, first = 0; row < m; row++) {
        if (r->group[row] != r->group[first]) first = row;
        add_row(c, &c->session[c->item_session[r->group[row]]], &rows, row, (int)(row - first));
    }
}

// ---- documents

// Returns the first position from `at` on whose token belongs to an answer and can be drafted; n: none.
static int64_t position(const uint8_t *mask, int64_t n, int64_t at) {
    if (at < 2) at = 2; // drafting needs at least one row
    while (at < n && !mask[at])
        at++;
    return at;
}

static void drop(session *s) {
    pl_columns_free(&s->text);
    pl_columns_free(&s->rows);
}

// Opens the next document with a token to draft; s->text.n 0: no more. Mixes the sides in proportion, held-out first.
static pl_status next_doc(capture *c, session *s, pl_err *err) {
    while (c->next[0] < c->docs[0] || c->next[1] < c->docs[1]) {
        pl_columns doc;
        int64_t    all = c->docs[0] + c->docs[1], i = c->next[0] + c->next[1];
        bool       held = c->next[1] < c->docs[1] &&
                    (c->next[0] == c->docs[0] || (double)c->next[1] / (double)c->docs[1] <= (double)i / (double)all);
        pl_feature_source *from = held ? c->held : c->train;
        PL_TRY(from->get(from, c->next[held]++, &doc, err));
        int64_t n = doc.n < c->positions ? doc.n : c->positions;
        *s = (session){.held = held, .at = position(doc.loss_mask, n, 0)};
        if (s->at >= n) continue;
        doc.argmax = NULL;
        if (from->taps > 0) doc.last_hidden = NULL;
        return pl_columns_copy(&s->text, &doc, &(pl_columns_shape){.d = from->d, .taps = from->taps}, n, err);
    }
    s->text.n = 0;
    return PL_OK;
}

// ---- drafting

// Adds rows of the committed text that the drafter has not read, at most CHUNK; with the last of them, grows a tree.
static void add_item(capture *c, int number) {
    session        *s = &c->session[number];
    int64_t         left = s->at - 1 - s->taken, count = left < CHUNK ? left : CHUNK;
    int64_t         depth = s->text.n - s->at, most = c->drafter->policy.depth;
    int             i = c->items++;
    int64_t         row0 = c->n_features;
    const uint16_t *features = c->train->taps > 0 ? s->text.features : s->text.last_hidden;
    for (int64_t j = 0; j < count; j++) {
        c->feature_row[row0 + j] = (int32_t)(row0 + j);
        pl_to_f32(c->features + (row0 + j) * c->width, features + (s->taken + j) * c->width, PL_BF16, (size_t)c->width);
    }
    c->item_session[i] = number;
    c->item[i] = (pl_draft_item){.slot = number,
                                 .tokens = s->text.tokens,
                                 .n_tokens = (int32_t)s->at,
                                 .first = (int32_t)s->taken,
                                 .count = (int32_t)count,
                                 .feature_row = c->feature_row + row0};
    s->taken += count;
    c->n_features += count;
    if (count < left) return;
    pl_tree_root(&s->tree, s->text.tokens[s->at - 1]);
    c->item[i].tree = &s->tree;
    c->item[i].depth = (int)(depth < most ? depth : most);
}

// Advances as decoding would: past the longest path of the tree that agrees with the text, and one more token.
static void advance(capture *c, int i) {
    session *s = &c->session[c->item_session[i]];
    int64_t  at = s->at;
    if (!c->item[i].tree) return;
    pl_tree_finish(&c->drafter->policy, &s->tree);
    for (int node = 0; at < s->text.n && (node = pl_tree_child(&s->tree, node, s->text.tokens[at])) >= 0;)
        at++;
    s->at = position(s->text.loss_mask, s->text.n, at + 1);
}

static void propose(capture *c, pl_ctx *ctx, int64_t rows) {
    pl_draft_batch b = {.item = c->item, .n = c->items, .features = pl_ctx_write(ctx, c->features, rows, c->width)};
    c->drafter->kind->propose(c->drafter, ctx, &b);
}

static pl_status draft(capture *c, pl_err *err) {
    for (;;) {
        c->items = 0;
        c->n_features = 0;
        for (int i = 0; i < c->sessions; i++)
            if (c->session[i].at < c->session[i].text.n) add_item(c, i);
        if (c->items == 0) return PL_OK;
        pl_ctx_begin(&c->ctx);
        propose(c, &c->ctx, c->n_features);
        PL_TRY(pl_ctx_sync(&c->ctx, err));
        if (c->watch_err.status != PL_OK) return pl_fail(err, c->watch_err.status, "%s", c->watch_err.msg);
        for (int i = 0; i < c->items; i++)
            advance(c, i);
    }
}

static bool enough(const capture *c) {
    return c->rows_max > 0 && c->rows >= c->rows_max;
}

// Captures a group of documents and writes them in order. *more false: no more documents, or enough rows.
static pl_status run_group(capture *c, bool *more, pl_err *err) {
    pl_status st = PL_OK;
    for (c->sessions = 0; c->sessions < SESSIONS && st == PL_OK; c->sessions++) {
        st = next_doc(c, &c->session[c->sessions], err);
        if (st != PL_OK || c->session[c->sessions].text.n == 0) break;
    }
    if (st == PL_OK) st = draft(c, err);
    for (int i = 0; i < c->sessions; i++) {
        session *s = &c->session[i];
        if (st == PL_OK && !enough(c)) {
            st = pl_dataset_append(c->writer, &s->rows, err);
            c->rows += s->rows.n;
            c->written++;
        }
        drop(s);
    }
    *more = c->sessions == SESSIONS && !enough(c);
    return st;
}

// Measures the largest step; there are no items yet.
static void measure(pl_ctx *ctx, void *arg) {
    propose(arg, ctx, ROWS);
}

// ---- preparation

// Packs the target's output matrix as decoding does, for a drafter that uses it as head; shares the whole target's
// packed matrix if the target is loaded.
static pl_status pack_head(capture *c, pl_err *err) {
    if (c->teacher.whole.be) {
        c->target = c->teacher.whole;
        return PL_OK;
    }
    pl_tensor        from = c->teacher.host_head;
    int64_t          v = from.dim[0], d = from.dim[1];
    const pl_memory *m = c->teacher.model.be->memory;
    c->target = c->teacher.model;
    c->head_bytes = pl_panels_bytes(v, d, from.dtype);
    c->head_block = pl_memory_create(m, PL_LOCAL, c->head_bytes, err);
    if (!c->head_block) return PL_E_MEMORY;
    float    *row = pl_malloc((size_t)d * sizeof *row);
    void     *panels = row ? pl_memory_stage(m, c->head_block, c->head_bytes) : NULL;
    pl_status st = panels ? PL_OK : pl_fail(err, PL_E_MEMORY, "traces: out of memory for the target's head");
    for (int64_t i = 0; i < v && st == PL_OK; i++) {
        pl_to_f32(row, (const uint8_t *)from.data + (size_t)(i * d) * pl_dtype_size(from.dtype), from.dtype, (size_t)d);
        pl_panels_pack(panels, from.dtype, i, 1, v, d, row);
    }
    pl_free(row);
    PL_TRY(pl_memory_put(m, c->head_block, panels, c->head_bytes, st, err));
    c->target.head = pl_tensor_2d(c->head_block, from.dtype, v, d);
    c->target.head.layout = PL_PANELS;
    return PL_OK;
}

// Computes the fingerprint of a full head's rows and their tokens.
static pl_status head_fingerprint(char out[17], const capture *c, const char *dir, const pl_hf_config *config,
                                  pl_err *err) {
    const char       *name[] = {"lm_head.weight", "d2t"};
    const pl_tensor  *shared = &c->teacher.host_head;
    pl_weight_source *src;
    uint64_t          h = pl_hash("", 0);
    if (config->target_head) {
        h = pl_hash_more(h, shared->data, (size_t)pl_tensor_count(shared) * pl_dtype_size(shared->dtype));
        pl_hash_hex(out, h);
        return PL_OK;
    }
    PL_TRY(pl_weight_source_open(&src, dir, err));
    for (int i = 0; i < 2; i++) {
        const pl_weight_entry *e = pl_weight_source_find(src, name[i]);
        if (e) h = pl_hash_more(h, e->data, e->bytes);
    }
    pl_weight_source_close(src);
    pl_hash_hex(out, h);
    return PL_OK;
}

static pl_status open_drafter(capture *c, const char *dir, pl_dtype t, const pl_hf_config *config, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(c->r);
    pl_tree_policy         policy;
    int64_t                top = tr->traces.top, positions = c->target.config.max_position_embeddings;
    const pl_head_kind    *kind = pl_head_find(*config->head.kind ? config->head.kind : "full", err);
    bool                   aware = pl_hf_head_find(&config->head, "position_aware");
    if (!kind) return PL_E_INPUT;
    if (!kind->published || aware)
        return pl_fail(err, PL_E_INPUT, "%s: its head is of kind %s%s; traces come from a full head, over all its rows",
                       dir, kind->name, aware ? ", position-aware" : "");
    PL_TRY(pl_tree_policy_parse(&policy, tr->traces.tree, err));
    if (policy.adapt)
        return pl_recipe_fail(c->r, &tr->traces.tree, err,
                              "\"%s\" changes with measured times; name a tree of a fixed kind, as eagle2:60,10,6",
                              policy.text);
    int64_t vocab = config->draft_vocab_size ? config->draft_vocab_size : c->target.vocab;
    if (config->selector.candidates) vocab = config->selector.candidates; // a selector proposes only its candidates
    if (top > vocab)
        return pl_recipe_fail(c->r, &tr->traces.top, err, "%lld best tokens are to be kept of a head of %lld%s",
                              (long long)top, (long long)vocab, config->selector.candidates ? " candidates" : "");
    c->positions = positions < PL_TRACES_LONGEST ? positions : PL_TRACES_LONGEST;
    pl_drafter_options o = {.target = &c->target,
                            .dtype = t,
                            .tree = tr->traces.tree,
                            .max_sessions = SESSIONS,
                            .max_rows = ROWS,
                            .slots = (int)c->positions};
    PL_TRY(pl_drafter_open(&c->drafter, dir, &o, err));
    c->watch.see = see;
    c->drafter->watch = &c->watch;
    c->top = top;
    return PL_OK;
}

static void take_arrays(void *arg) {
    capture *c = arg;
    c->features = pl_arena_alloc(&c->arrays, pl_size_mul(ROWS, (size_t)c->width, sizeof *c->features));
}

static pl_status make_room(capture *c, pl_err *err) {
    c->width = c->train->taps > 0 ? c->train->taps * c->train->d : c->train->d;
    c->d = c->target.shape.d;
    PL_TRY(pl_arena_init_shared(&c->arrays, "traced rows", c->teacher.model.be->memory, take_arrays, c, err));
    c->feature_row = pl_calloc(ROWS, sizeof *c->feature_row);
    return c->feature_row ? PL_OK : pl_fail(err, PL_E_MEMORY, "traces: out of memory");
}

#define LIMIT ", traces.rows "                  // in the dataset's generation attribute, after the text's settings
#define SPLIT ", seed %lld, holdout %lld" LIMIT // determines the held-out documents

static pl_status open_writer(capture *c, const char *to, const char *drafter, const char *head, pl_err *err) {
    char generation[192];
    snprintf(generation, sizeof generation, "%s%s%s" SPLIT "%lld", c->train->identity,
             c->target.head.dtype == PL_F32 ? ", weights fp32" : "", c->target.shape.kv == PL_BF16 ? ", kv bf16" : "",
             (long long)pl_generate_recipe_of(c->r)->seed, (long long)pl_train_recipe_of(c->r)->train.holdout,
             (long long)c->rows_max);
    pl_dataset_attrs a = {.target_fingerprint = c->target.fingerprint,
                          .tokenizer_fingerprint = "",
                          .template_name = "",
                          .generation = generation,
                          .vocab_size = (int32_t)c->target.vocab,
                          .d = (int32_t)c->d,
                          .drafter_fingerprint = drafter,
                          .head_fingerprint = head,
                          .tree = c->drafter->policy.text,
                          .top = (int32_t)c->top};
    return pl_dataset_writer_create(&c->writer, to, &a, ROWS_PER_SHARD, err);
}

// Skips the documents that a stopped capture has already written.
static pl_status skip_docs(capture *c, pl_err *err) {
    c->rows = pl_dataset_writer_rows(c->writer);
    c->written = pl_dataset_writer_docs(c->writer);
    for (int64_t i = c->written; i > 0; i--) {
        PL_TRY(next_doc(c, &c->session[0], err));
        if (c->session[0].text.n == 0) break;
        drop(&c->session[0]);
    }
    return PL_OK;
}

static pl_status prepare(capture *c, const char *dataset_dir, const char *to, const pl_env *env, pl_err *err) {
    const pl_recipe          *r = c->r;
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    char                      drafter[17], head[17];
    pl_hf_config              config;
    PL_TRY(pl_recipe_require(r, &gen->target.path, err));
    PL_TRY(pl_recipe_require(r, &tr->drafter.start, err));
    const char *dir = tr->drafter.start;
    PL_TRY(pl_start_identity(drafter, r, err));
    PL_TRY(pl_hf_config_read(&config, dir, PL_HF_DRAFTER, err));
    PL_TRY(pl_sources_teacher(&c->teacher, r, env, err));
    PL_TRY(pack_head(c, err));
    c->target.shape.kv = pl_target_kv(gen);
    PL_TRY(open_drafter(c, dir, config.dtype == PL_F32 ? PL_F32 : PL_BF16, &config, err));
    c->alone = *env;
    c->alone.comm = NULL;
    PL_TRY(pl_drafter_sources(&c->train, &c->held, r, dataset_dir, &c->alone, &c->teacher, c->drafter->tap,
                              c->drafter->n_taps, err));
    c->rows_max = tr->traces.rows;
    c->docs[0] = c->train->docs > 0 ? c->train->docs : INT64_MAX / 2;
    c->docs[1] = c->held ? c->held->docs : 0;
    if (c->train->docs <= 0 && c->rows_max == 0)
        return pl_recipe_fail(r, &tr->traces.rows, err, "online data have no end; say how many rows to trace");
    PL_TRY(make_room(c, err));
    PL_TRY(head_fingerprint(head, c, dir, &config, err));
    PL_TRY(open_writer(c, to, drafter, head, err));
    PL_TRY(pl_ctx_init(&c->ctx, env->backend, env->pool));
    PL_TRY(pl_ctx_measure(&c->ctx, measure, c, err));
    return skip_docs(c, err);
}

static pl_status run(capture *c, const char *to, pl_err *err) {
    pl_progress p;
    pl_status   st = PL_OK;
    bool        more = !enough(c), by_rows = c->rows_max > 0;
    pl_stop_hold();
    pl_progress_begin(&p, "traces", by_rows ? c->rows : c->written, by_rows ? c->rows_max : c->docs[0] + c->docs[1]);
    while (more && st == PL_OK) {
        st = run_group(c, &more, err);
        pl_progress_update(&p, by_rows ? c->rows : c->written, "%lld rows", (long long)c->rows);
        if (st == PL_OK && more && pl_stop_requested()) {
            st = pl_dataset_flush(c->writer, err);
            if (st == PL_OK)
                st = pl_fail(err, PL_E_INTERRUPTED, "%s: stopped after %lld documents; the same command goes on", to,
                             (long long)c->written);
        }
    }
    pl_progress_end(&p);
    pl_stop_release();
    return st;
}

static void fini(capture *c) {
    for (int i = 0; i < SESSIONS; i++)
        drop(&c->session[i]);
    pl_dataset_writer_destroy(c->writer);
    if (c->held) c->held->destroy(c->held); // first: it may read from train
    if (c->train) c->train->destroy(c->train);
    if (c->drafter) pl_drafter_destroy(c->drafter);
    pl_ctx_fini(&c->ctx);
    pl_arena_fini(&c->arrays);
    if (c->head_block) pl_memory_destroy(c->teacher.model.be->memory, PL_LOCAL, c->head_block, c->head_bytes);
    pl_teacher_close(&c->teacher);
    pl_free(c->feature_row);
    pl_free(c);
}

pl_status pl_traces_check_rows(const char *dir, int64_t rows, pl_err *err) {
    pl_dataset      *ds;
    pl_dataset_attrs any = {.top = -1, .A = -1};
    char            *manifest = pl_path_join(dir, "manifest.json");
    bool             begun = manifest && pl_path_exists(manifest);
    if (!manifest) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(manifest);
    if (!begun) return PL_OK;
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = &any, .lazy = true, .incomplete = true}, err));
    const char *at = strstr(pl_dataset_get_attrs(ds)->generation, LIMIT);
    long long   had = at ? strtoll(at + strlen(LIMIT), NULL, 10) : rows;
    pl_dataset_close(ds);
    if (had == rows) return PL_OK;
    return pl_fail(
        err, PL_E_INPUT,
        "%s: captured with traces.rows %lld, wanted is %lld; set traces.rows to %lld, or remove the folder to "
        "capture them anew",
        dir, had, (long long)rows, had);
}

// Checks that the traces of a stored dataset are of the current dataset and split. (Other traces are compared when a
// capture is resumed; older builds recorded less.)
static pl_status check_text(const pl_recipe *r, const char *dataset_dir, const char *to, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_dataset               *ds, *text;
    pl_dataset_attrs          any = {.top = -1, .A = -1}, some = {.A = -1};
    char                      split[96];
    if (pl_data_made_meanwhile(gen)) return PL_OK;
    char *dir = tr->data.dataset ? pl_strdup(tr->data.dataset) : pl_path_join(dataset_dir, "dataset");
    if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", to);
    pl_status st =
        pl_dataset_open(&text, dir, &(pl_dataset_open_options){.want = &some, .lazy = true, .incomplete = true}, err);
    pl_free(dir);
    PL_TRY(st);
    st = pl_dataset_open(&ds, to, &(pl_dataset_open_options){.want = &any, .lazy = true, .incomplete = true}, err);
    if (st == PL_OK) {
        const char *print = pl_dataset_fingerprint(text), *made = pl_dataset_get_attrs(ds)->generation;
        snprintf(split, sizeof split, SPLIT, (long long)gen->seed, (long long)tr->train.holdout);
        if (strncmp(made, print, strlen(print)) != 0 || (strstr(made, ", seed ") && !strstr(made, split)))
            st = pl_fail(err, PL_E_INPUT,
                         "%s: captured along other documents (another dataset, seed or train.holdout); remove the "
                         "folder to capture them anew, or name it as traces.path",
                         to);
        pl_dataset_close(ds);
    }
    pl_dataset_close(text);
    return st;
}

pl_status pl_traces_capture(const pl_recipe *r, const char *dataset_dir, const char *to, const pl_env *env,
                            pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    bool                   whole;
    pl_dataset_attrs       want = {.A = -1, .tree = tr->traces.tree, .top = (int32_t)tr->traces.top};
    PL_TRY(pl_stage_dataset(to, &want, &whole, err));
    PL_TRY(pl_traces_check_rows(to, tr->traces.rows, err));
    if (whole) return check_text(r, dataset_dir, to, err);
    capture *c = pl_calloc(1, sizeof *c);
    if (!c) return pl_fail(err, PL_E_MEMORY, "traces: out of memory");
    c->r = r;
    pl_status st = prepare(c, dataset_dir, to, env, err);
    if (st == PL_OK) st = run(c, to, err);
    if (st == PL_OK) {
        pl_log("%s: %lld rows of %lld documents", to, (long long)c->rows, (long long)c->written);
        pl_dataset_writer *w = c->writer;
        c->writer = NULL;
        st = pl_dataset_writer_close(w, err);
    }
    fini(c);
    return st;
}

// ---- rows for a step

static int64_t count_docs(void *docs, int64_t k) {
    (void)k; // one shard: an epoch is a shuffle of all documents
    return *(const int64_t *)docs;
}

static pl_status divide_docs(pl_trace_rows *t, const char *dir, uint64_t seed, pl_err *err) {
    int64_t docs = pl_dataset_docs(t->ds);
    PL_TRY(pl_doc_order_init(&t->order, seed, docs, err));
    t->held = pl_calloc((size_t)docs + 1, sizeof *t->held);
    if (!t->held) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    for (int64_t i = 0; i < docs; i++) {
        int64_t first, n;
        uint8_t held;
        PL_TRY(pl_dataset_doc(t->ds, i, &first, &n, err));
        PL_TRY(pl_dataset_read(t->ds, first, 1, &(pl_columns){.held_out = &held}, err));
        (held ? t->held : t->order.member)[t->docs[held]++] = i;
    }
    if (t->docs[PL_TRACE_TRAIN] == 0) return pl_fail(err, PL_E_INPUT, "%s: no document is for training", dir);
    if (t->docs[PL_TRACE_HELD] == 0)
        pl_log_warn("%s: no document is held out, so that it is not measured what the router's shortlists hold", dir);
    t->order.docs = t->docs[PL_TRACE_TRAIN];
    return pl_doc_order_windows(&t->order, 0, 1, count_docs, &docs, err);
}

static void take_row_arrays(void *arg) {
    pl_trace_rows *t = arg;
    size_t         n = (size_t)t->capacity, reals = pl_size_mul(n, (size_t)t->d, pl_dtype_size(t->real));
    t->tokens = pl_arena_alloc(&t->arrays, n * sizeof *t->tokens);
    t->hidden = pl_arena_alloc(&t->arrays, reals);
    t->output = pl_arena_alloc(&t->arrays, reals);
}

static pl_status make_row_room(pl_trace_rows *t, const char *dir, const pl_backend *be, pl_err *err) {
    size_t n = (size_t)t->capacity, top = (size_t)t->top;
    PL_TRY(pl_arena_init_shared(&t->arrays, "trace rows", be->memory, take_row_arrays, t, err));
    t->depth = pl_calloc(n, 1);
    t->top_id = pl_calloc(n, top * sizeof *t->top_id);
    t->top_prob = pl_calloc(n, top * sizeof *t->top_prob);
    t->bf16 = pl_calloc(n, (size_t)t->d * sizeof *t->bf16);
    return t->depth && t->top_id && t->top_prob && t->bf16
               ? PL_OK
               : pl_fail(err, PL_E_MEMORY, "%s: out of memory for %lld rows", dir, (long long)t->capacity);
}

pl_status pl_trace_rows_open(pl_trace_rows *t, const char *dir, const pl_dataset_attrs *want, uint64_t seed,
                             int64_t capacity, const pl_backend *be, pl_err *err) {
    *t = (pl_trace_rows){.capacity = capacity, .real = be->real};
    pl_status st = pl_dataset_open(&t->ds, dir, &(pl_dataset_open_options){.want = want}, err);
    if (st == PL_OK) {
        t->d = pl_dataset_get_attrs(t->ds)->d;
        t->top = pl_dataset_get_attrs(t->ds)->top;
        st = divide_docs(t, dir, seed, err);
    }
    if (st == PL_OK) st = make_row_room(t, dir, be, err);
    if (st != PL_OK) pl_trace_rows_close(t);
    return st;
}

void pl_trace_rows_close(pl_trace_rows *t) {
    void *owned[] = {t->held, t->depth, t->top_id, t->top_prob, t->bf16};
    if (t->ds) pl_dataset_close(t->ds);
    pl_doc_order_fini(&t->order);
    pl_arena_fini(&t->arrays);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        pl_free(owned[i]);
    *t = (pl_trace_rows){0};
}

// Reads rows [first, first + n) of the dataset to row `at` of the step.
static pl_status take_rows(pl_trace_rows *t, int64_t at, int64_t first, int64_t n, pl_err *err) {
    pl_columns to = {.tokens = t->tokens + at,
                     .depth = t->depth + at,
                     .top_id = t->top_id + at * t->top,
                     .top_prob = t->top_prob + at * t->top,
                     .hidden = t->bf16};
    PL_TRY(pl_dataset_read(t->ds, first, n, &to, err));
    pl_rows_widen(t->hidden, t->real, at, t->bf16, n, t->d);
    PL_TRY(pl_dataset_read(t->ds, first, n, &(pl_columns){.output = t->bf16}, err));
    pl_rows_widen(t->output, t->real, at, t->bf16, n, t->d);
    return PL_OK;
}

// Finds the next rows for a step that has `taken` rows: *n rows from *first of the dataset. Advances the cursor.
static pl_status next_rows(pl_trace_rows *t, int side, int64_t taken, int64_t cursor[2], int64_t *first, int64_t *n,
                           pl_err *err) {
    int64_t rows, room = t->capacity - taken;
    int64_t doc = side == PL_TRACE_HELD ? t->held[cursor[0]] : pl_doc_order_number(&t->order, cursor[0]);
    PL_TRY(pl_dataset_doc(t->ds, doc, first, &rows, err));
    if (cursor[1] < 0 || cursor[1] >= rows)
        return pl_fail(err, PL_E_INPUT, "the run stands at row %lld of a document of %lld; give another --out",
                       (long long)cursor[1], (long long)rows);
    *n = rows - cursor[1] < room ? rows - cursor[1] : room;
    *first += cursor[1];
    cursor[1] += *n;
    if (cursor[1] == rows) {
        cursor[0]++;
        cursor[1] = 0;
    }
    return PL_OK;
}

pl_status pl_trace_rows_fill(pl_trace_rows *t, int side, int64_t cursor[2], pl_err *err) {
    int64_t first, n;
    t->rows = 0;
    while (t->rows < t->capacity && (side == PL_TRACE_TRAIN || cursor[0] < t->docs[side])) {
        PL_TRY(next_rows(t, side, t->rows, cursor, &first, &n, err));
        PL_TRY(take_rows(t, t->rows, first, n, err));
        t->rows += n;
    }
    return PL_OK;
}

pl_status pl_trace_rows_skip(pl_trace_rows *t, int64_t cursor[2], pl_err *err) {
    int64_t first, n;
    for (int64_t taken = 0; taken < t->capacity; taken += n)
        PL_TRY(next_rows(t, PL_TRACE_TRAIN, taken, cursor, &first, &n, err));
    return PL_OK;
}
