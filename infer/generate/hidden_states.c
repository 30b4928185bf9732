#include "infer/generate/hidden_states.h"

#include "checkpoints/safetensors.h"
#include "infer/decode/decode.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/op/norm.h"
#include "kernels/op/topk.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    ROWS = 128,       // rows per run of the head
    COMPARED = 128,   // tokens of the first file that the target computes itself
    MIN_TOKENS = 2,   // a row needs a next token to learn
    MARK_TOKENS = 64, // the most tokens of a begin or end mark
};
// Largest |a - b| / |b| between a layer's states and the target's own: other kernels in bf16 differ by a few percent,
// adjacent layers by more than this.
static const double same_layer = 0.15;
// Least share of answers' tokens that are the target's first choice: sampling at temperature 1 has about half, another
// final norm, output matrix or last layer next to none.
static const double least_first_choices = 0.1;

typedef struct mark {
    int32_t *id; // owned
    int64_t  n;
} mark;

typedef struct reader {
    const pl_recipe          *r;
    const pl_generate_recipe *gen;
    const pl_llama           *target;
    const pl_env             *env;
    const pl_taps            *taps;
    int              place[PL_MAX_TAPS], last; // positions of the taps and of the last layer's output in the files
    mark             begin, end;
    pl_columns       doc; // owned
    pl_columns_shape shape;
    float           *row;    // [layers, d]
    float           *hidden; // [ROWS, d]
    pl_arena         arrays;
    int32_t         *argmax; // [ROWS] in `arrays`: an op writes it
    int64_t          rows;   // of the head's batch
    pl_ctx           ctx;
    int64_t taken, short_ones, silent, long_ones, whole; // counts of files; whole: all tokens belong to an answer
    int64_t answered, first_choices;                     // tokens of answers; those that are the target's first choice
} reader;

// ---- the folder

static int wanted(const struct dirent *e) {
    return e->d_name[0] != '.' && pl_path_ends(e->d_name, ".safetensors");
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void free_names(struct dirent **name, int n) {
    for (int i = 0; i < n; i++)
        free(name[i]); // allocated by scandir
    free(name);
}

static pl_status list(struct dirent ***name, int *n, const pl_recipe *r, pl_err *err) {
    const char *dir = pl_generate_recipe_of(r)->data.hidden_states.path;
    *name = NULL;
    *n = scandir(dir, name, wanted, by_name);
    if (*n > 0) return PL_OK;
    int why = errno;
    free_names(*name, *n);
    if (*n == 0) return pl_fail(err, PL_E_INPUT, "data.hidden_states.path: no .safetensors file in %s", dir);
    return pl_fail(err, PL_E_IO, "data.hidden_states.path: %s: %s", dir, strerror(why));
}

pl_status pl_hidden_states_hash(uint64_t *h, const pl_recipe *r, pl_err *err) {
    const char     *dir = pl_generate_recipe_of(r)->data.hidden_states.path;
    struct dirent **name;
    int             n;
    PL_TRY(list(&name, &n, r, err));
    pl_status st = PL_OK;
    for (int i = 0; i < n && st == PL_OK; i++) {
        struct stat s;
        char       *path = pl_path_join(dir, name[i]->d_name);
        if (!path)
            st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
        else if (stat(path, &s) != 0)
            st = pl_fail(err, PL_E_IO, "%s: %s", path, strerror(errno));
        else
            *h = pl_hash_more(pl_hash_more(*h, name[i]->d_name, strlen(name[i]->d_name) + 1), &s.st_size,
                              sizeof s.st_size);
        pl_free(path);
    }
    free_names(name, n);
    return st;
}

// ---- keys

pl_status pl_hidden_states_check(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_ints            *layers = &gen->data.hidden_states.layers;
    bool                      between = gen->data.hidden_states.answers == PL_ANSWERS_BETWEEN;
    const struct {
        const void *key;
        bool        given;
    } marks[] = {{&gen->data.hidden_states.begin, gen->data.hidden_states.begin != NULL},
                 {&gen->data.hidden_states.end, gen->data.hidden_states.end != NULL}};
    if (gen->data.mode == PL_DATA_ONLINE)
        return pl_recipe_fail(r, &gen->data.mode, err, "online answers prompts; with data.hidden_states use offline");
    if (layers->n == 0)
        return pl_recipe_fail(r, layers, err,
                              "is missing; name the layers whose inputs the files hold, in their order, as vLLM's "
                              "eagle_aux_hidden_state_layer_ids does");
    for (int i = 0; i < layers->n; i++)
        for (int j = 0; j < i; j++)
            if (layers->at[i] == layers->at[j])
                return pl_recipe_fail(r, layers, err, "layer %lld a second time", (long long)layers->at[i]);
    for (int i = 0; i < 2; i++) {
        if (between && !marks[i].given)
            return pl_recipe_fail(r, marks[i].key, err,
                                  "is missing; data.hidden_states.answers: between needs the texts that begin and end "
                                  "an answer");
        if (!between && marks[i].given)
            return pl_recipe_fail(r, marks[i].key, err, "needs data.hidden_states.answers: between");
    }
    return PL_OK;
}

// Returns the position of layer `layer` in the files; -1: none.
static int place_of(const pl_ints *layers, int layer) {
    for (int i = 0; i < layers->n; i++)
        if (layers->at[i] == layer) return i;
    return -1;
}

static pl_status find_places(reader *x, pl_err *err) {
    const pl_ints *layers = &x->gen->data.hidden_states.layers;
    for (int i = 0; i < layers->n; i++)
        if (layers->at[i] > x->target->n_layers)
            return pl_recipe_fail(x->r, layers, err, "layer %lld does not exist, the target has %d layers",
                                  (long long)layers->at[i], x->target->n_layers);
    x->last = place_of(layers, x->target->n_layers);
    if (x->last < 0)
        return pl_recipe_fail(x->r, layers, err,
                              "lacks %d, what the last layer gives: the hidden that drafters learn to predict is made "
                              "of it",
                              x->target->n_layers);
    for (int i = 0; i < x->taps->n; i++) {
        x->place[i] = place_of(layers, x->taps->layer[i]);
        if (x->place[i] < 0)
            return pl_recipe_fail(x->r, layers, err, "lacks %d, whose input the drafter reads (drafter.taps)",
                                  x->taps->layer[i]);
    }
    return PL_OK;
}

static pl_status find_mark(mark *m, const reader *x, const char *const *key, const pl_tokenizer *tok, pl_err *err) {
    if (!*key) return PL_OK;
    PL_TRY(pl_tokenizer_encode(tok, *key, strlen(*key), 0, &m->id, &m->n, err));
    if (m->n >= 1 && m->n <= MARK_TOKENS) return PL_OK;
    return pl_recipe_fail(x->r, key, err, "is %lld tokens; 1 to %d are needed", (long long)m->n, MARK_TOKENS);
}

// ---- one file

typedef struct states {
    pl_st             *file;
    const pl_st_entry *hidden, *id, *mask; // mask may be NULL
    int64_t            n;
} states;

static pl_status find(const pl_st_entry **e, const states *s, const char *name, int rank, pl_err *err) {
    *e = pl_st_find(s->file, name);
    if (!*e)
        return pl_fail(err, PL_E_INPUT,
                       "%s: has no %s; vLLM's extract_hidden_states writes hidden_states and token_ids",
                       pl_st_path(s->file), name);
    if ((*e)->rank != rank)
        return pl_fail(err, PL_E_INPUT, "%s: %s has %d dimensions, not %d", pl_st_path(s->file), name, (*e)->rank,
                       rank);
    return PL_OK;
}

// Opens a file. Close it even on failure.
static pl_status open_states(states *s, const reader *x, const char *name, pl_err *err) {
    int64_t layers = x->gen->data.hidden_states.layers.n, d = x->target->shape.d;
    char   *path = pl_path_join(x->gen->data.hidden_states.path, name);
    *s = (states){0};
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    pl_status st = pl_st_open(&s->file, path, err);
    pl_free(path);
    PL_TRY(st);
    PL_TRY(find(&s->hidden, s, "hidden_states", 3, err));
    PL_TRY(find(&s->id, s, "token_ids", 1, err));
    if (s->hidden->dtype != PL_F32 && s->hidden->dtype != PL_F16 && s->hidden->dtype != PL_BF16)
        return pl_fail(err, PL_E_INPUT, "%s: hidden_states are %s, not F32, F16 or BF16", pl_st_path(s->file),
                       pl_dtype_name(s->hidden->dtype));
    if (s->id->dtype != PL_I64 && s->id->dtype != PL_I32)
        return pl_fail(err, PL_E_INPUT, "%s: token_ids are %s, not I64 or I32", pl_st_path(s->file),
                       pl_dtype_name(s->id->dtype));
    s->n = s->id->shape[0];
    if (s->hidden->shape[0] != s->n || s->hidden->shape[1] != layers || s->hidden->shape[2] != d)
        return pl_fail(err, PL_E_INPUT,
                       "%s: hidden_states are [%lld, %lld, %lld]; for %lld tokens, the %lld layers of "
                       "data.hidden_states.layers and the target's width they would be [%lld, %lld, %lld]",
                       pl_st_path(s->file), (long long)s->hidden->shape[0], (long long)s->hidden->shape[1],
                       (long long)s->hidden->shape[2], (long long)s->n, (long long)layers, (long long)s->n,
                       (long long)layers, (long long)d);
    s->mask = pl_st_find(s->file, "loss_mask");
    if (x->gen->data.hidden_states.answers != PL_ANSWERS_MASK) return PL_OK;
    if (!s->mask)
        return pl_fail(err, PL_E_INPUT,
                       "%s: has no loss_mask; set data.hidden_states.answers to between, with the texts that begin and "
                       "end an answer, or to all",
                       pl_st_path(s->file));
    if (s->mask->rank != 1 || s->mask->shape[0] != s->n)
        return pl_fail(err, PL_E_INPUT, "%s: loss_mask is no list of %lld numbers", pl_st_path(s->file),
                       (long long)s->n);
    return PL_OK;
}

static pl_status read_ids(reader *x, const states *s, pl_err *err) {
    for (int64_t t = 0; t < s->n; t++) {
        int64_t id = 0;
        int32_t narrow;
        if (s->id->dtype == PL_I64) {
            memcpy(&id, (const char *)s->id->data + 8 * t, 8);
        } else {
            memcpy(&narrow, (const char *)s->id->data + 4 * t, 4);
            id = narrow;
        }
        if (id < 0 || id >= x->target->vocab)
            return pl_fail(err, PL_E_INPUT, "%s: token %lld is %lld, outside the target's vocabulary of %lld",
                           pl_st_path(s->file), (long long)t, (long long)id, (long long)x->target->vocab);
        x->doc.tokens[t] = (int32_t)id;
    }
    return PL_OK;
}

static bool stands(const mark *m, const int32_t *id, int64_t left) {
    return left >= m->n && memcmp(id, m->id, (size_t)m->n * sizeof *id) == 0;
}

static void mask_between(reader *x, int64_t n) {
    const int32_t *id = x->doc.tokens;
    bool           inside = false;
    for (int64_t t = 0, next = 0; t < n; t++) {
        bool ends = inside && t >= next && stands(&x->end, id + t, n - t);
        if (!inside && t >= next && stands(&x->begin, id + t, n - t)) {
            inside = true;
            next = t + x->begin.n; // the answer's first token
        } else if (ends) {
            inside = false;
            next = t + x->end.n;
        }
        // The end mark belongs to the answer, the begin mark does not.
        x->doc.loss_mask[t] = inside ? t >= next : t < next;
    }
}

static void read_mask(reader *x, const states *s) {
    if (x->gen->data.hidden_states.answers == PL_ANSWERS_BETWEEN) {
        mask_between(x, s->n);
        return;
    }
    size_t size = x->gen->data.hidden_states.answers == PL_ANSWERS_MASK ? pl_dtype_size(s->mask->dtype) : 0;
    for (int64_t t = 0; t < s->n; t++) {
        const uint8_t *at = size ? (const uint8_t *)s->mask->data + (size_t)t * size : NULL;
        bool           set = size == 0;
        for (size_t b = 0; b < size; b++) // a number other than 0 has a byte other than 0
            set |= at[b] != 0;
        x->doc.loss_mask[t] = set;
    }
}

// Reads row t of every layer as floats.
static pl_status read_row(const reader *x, const states *s, int64_t t, pl_err *err) {
    size_t n = (size_t)(s->hidden->shape[1] * s->hidden->shape[2]), size = pl_dtype_size(s->hidden->dtype);
    pl_to_f32(x->row, (const char *)s->hidden->data + (size_t)t * n * size, s->hidden->dtype, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x->row[i]))
            return pl_fail(err, PL_E_INPUT, "%s: hidden_states of token %lld are not all numbers", pl_st_path(s->file),
                           (long long)t);
    return PL_OK;
}

static void take_arrays(void *arg) {
    reader *x = arg;
    x->argmax = pl_arena_alloc(&x->arrays, ROWS * sizeof *x->argmax);
}

static void finish_rows(pl_ctx *ctx, void *arg) {
    reader   *x = arg;
    int64_t   d = x->target->shape.d;
    pl_tensor h = pl_rmsnorm(ctx, pl_ctx_write(ctx, x->hidden, x->rows, d), x->target->norm, x->target->shape.eps);
    pl_tensor z = pl_llama_logits(ctx, x->target, h);
    pl_topk(ctx, &(pl_topk_args){.x = z, .id = x->argmax, .k = 1});
    const float *got = pl_ctx_read(ctx, &h);
    if (!ctx->measuring && got) memcpy(x->hidden, got, (size_t)(x->rows * d) * sizeof *got);
}

// Computes final norm and argmax of rows [from, from + x->rows) from the last layer's output in x->hidden.
static pl_status finish(reader *x, int64_t from, pl_err *err) {
    int64_t d = x->target->shape.d;
    pl_ctx_begin(&x->ctx);
    finish_rows(&x->ctx, x);
    PL_TRY(pl_ctx_sync(&x->ctx, err));
    pl_from_f32(x->doc.last_hidden + from * d, PL_BF16, x->hidden, (size_t)(x->rows * d));
    memcpy(x->doc.argmax + from, x->argmax, (size_t)x->rows * sizeof *x->argmax);
    return PL_OK;
}

static void count_first_choices(reader *x, int64_t n) {
    for (int64_t t = 1; t < n; t++) {
        x->answered += x->doc.loss_mask[t];
        x->first_choices += x->doc.loss_mask[t] && x->doc.tokens[t] == x->doc.argmax[t - 1];
    }
}

static pl_status read_states(reader *x, const states *s, pl_err *err) {
    int64_t d = x->target->shape.d, w = x->taps->n * d;
    for (int64_t from = 0; from < s->n; from += x->rows) {
        x->rows = s->n - from < ROWS ? s->n - from : ROWS;
        for (int64_t t = 0; t < x->rows; t++) {
            PL_TRY(read_row(x, s, from + t, err));
            for (int i = 0; i < x->taps->n; i++)
                pl_from_f32(x->doc.features + (from + t) * w + i * d, PL_BF16, x->row + x->place[i] * d, (size_t)d);
            memcpy(x->hidden + t * d, x->row + x->last * d, (size_t)d * sizeof *x->hidden);
        }
        PL_TRY(finish(x, from, err));
    }
    count_first_choices(x, s->n);
    return PL_OK;
}

// ---- verification of the list of layers

typedef struct own_states {
    float  *at; // [n, taps, d]; owned
    int64_t n, width;
    int     taps;
} own_states;

static void take_own(void *arg, const pl_final_rows *r) {
    own_states *o = arg;
    int64_t     width = o->taps * o->width;
    for (int i = 0; i < r->count; i++)
        if (r->first + i < o->n)
            memcpy(o->at + (r->first + i) * width, pl_f32(&r->features) + r->row[i] * width,
                   (size_t)width * sizeof *o->at);
}

// Computes the target's own states at some layers, of the first n tokens of x->doc.
static pl_status read_own(own_states *o, reader *x, const int *layer, pl_err *err) {
    pl_engine        *e = NULL;
    pl_session       *s;
    pl_engine_options eo = {.max_sessions = 1, .max_rows = COMPARED, .max_len = COMPARED + 2, .n_taps = o->taps};
    memcpy(eo.tap, layer, (size_t)o->taps * sizeof *layer);
    pl_status st = pl_engine_create(&e, x->env->backend, x->env->pool, x->target, NULL, &eo, err);
    if (st == PL_OK) {
        pl_engine_on_final(e, take_own, o);
        st = pl_engine_start(e, x->doc.tokens, (int)o->n, &(pl_session_options){.max_new = 1}, &s, err);
    }
    while (st == PL_OK && pl_session_finish(s) == PL_RUNNING)
        st = pl_engine_step(e, err);
    pl_engine_destroy(e);
    return st;
}

// Computes |file - own| / |own| of a layer of the file and one of the target's, without the first token, whose states
// are very large in some models.
static pl_status distance(double *far, const reader *x, const states *s, int place, const own_states *o, int tap,
                          pl_err *err) {
    double  apart = 0, size = 0;
    int64_t d = o->width;
    for (int64_t t = o->n > 1; t < o->n; t++) {
        const float *own = o->at + (t * o->taps + tap) * d;
        PL_TRY(read_row(x, s, t, err));
        for (int64_t i = 0; i < d; i++) {
            double a = x->row[place * d + i], b = own[i];
            apart += (a - b) * (a - b);
            size += b * b;
        }
    }
    *far = size > 0 ? sqrt(apart / size) : INFINITY;
    return PL_OK;
}

// Finds the target's layer that best matches the states at position `place`; -2: none within same_layer.
static pl_status find_layer(int *best, reader *x, const states *s, int place, own_states *o, pl_err *err) {
    double least = same_layer;
    *best = -2;
    for (int first = PL_TAP_FINAL; first <= x->target->n_layers; first += PL_MAX_TAPS) {
        int    layer[PL_MAX_TAPS];
        double far;
        for (o->taps = 0; o->taps < PL_MAX_TAPS && first + o->taps <= x->target->n_layers; o->taps++)
            layer[o->taps] = first + o->taps;
        PL_TRY(read_own(o, x, layer, err));
        for (int i = 0; i < o->taps; i++) {
            PL_TRY(distance(&far, x, s, place, o, i, err));
            if (!(far < least)) continue;
            least = far;
            *best = layer[i];
        }
    }
    return PL_OK;
}

static pl_status refuse_layer(reader *x, const states *s, int place, double far, own_states *o, pl_err *err) {
    const pl_ints *layers = &x->gen->data.hidden_states.layers;
    const char    *path = pl_st_path(s->file);
    long long      said = layers->at[place];
    int            best;
    PL_TRY(find_layer(&best, x, s, place, o, err));
    if (best == PL_TAP_FINAL)
        return pl_recipe_fail(x->r, layers, err,
                              "%s: what is given as layer %lld is the last hidden after the final norm; the one before "
                              "it is needed",
                              path, said);
    if (best >= 0)
        return pl_recipe_fail(x->r, layers, err,
                              "%s: what is given as layer %lld is the input of the target's layer %d; count inputs "
                              "from 0, the last layer's output as %d",
                              path, said, best, x->target->n_layers);
    return pl_recipe_fail(x->r, layers, err,
                          "%s: what is given as layer %lld differs from that layer of this target by %.0f %% and is no "
                          "other: the files are of another model",
                          path, said, 100 * far);
}

// Checks the layers by the first document, whose tokens are in x->doc.
static pl_status check_layers(reader *x, const states *s, pl_err *err) {
    const pl_ints *layers = &x->gen->data.hidden_states.layers;
    own_states     o = {.n = s->n < COMPARED ? s->n : COMPARED, .width = x->target->shape.d};
    pl_status      st = PL_OK;
    o.at = pl_malloc((size_t)(o.n * o.width) * PL_MAX_TAPS * sizeof *o.at);
    if (!o.at) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", pl_st_path(s->file));
    for (int first = 0; first < layers->n && st == PL_OK; first += o.taps) {
        int layer[PL_MAX_TAPS], n = layers->n - first < PL_MAX_TAPS ? (int)layers->n - first : PL_MAX_TAPS;
        o.taps = n;
        for (int i = 0; i < n; i++)
            layer[i] = (int)layers->at[first + i];
        st = read_own(&o, x, layer, err);
        for (int i = 0; i < n && st == PL_OK; i++) {
            double far = 0;
            st = distance(&far, x, s, first + i, &o, i, err);
            if (st == PL_OK && !(far < same_layer)) st = refuse_layer(x, s, first + i, far, &o, err);
        }
    }
    pl_free(o.at);
    return st;
}

// ---- all files

// Decides whether the file becomes a document; if so, its tokens and mask have been read.
static pl_status take(reader *x, const states *s, bool *yes, pl_err *err) {
    int64_t answer = 0;
    *yes = s->n >= MIN_TOKENS && s->n <= x->target->config.max_position_embeddings;
    x->short_ones += s->n < MIN_TOKENS;
    x->long_ones += s->n > x->target->config.max_position_embeddings;
    if (!*yes) return PL_OK;
    PL_TRY(pl_columns_reserve(&x->doc, &x->shape, s->n, err));
    PL_TRY(read_ids(x, s, err));
    read_mask(x, s);
    for (int64_t t = 0; t < s->n; t++)
        answer += x->doc.loss_mask[t];
    x->silent += answer == 0;
    x->whole += answer == s->n;
    *yes = answer > 0;
    return PL_OK;
}

static pl_status write_file(reader *x, pl_dataset_writer *w, int64_t done, const char *name, pl_err *err) {
    states    s;
    bool      yes = false;
    pl_status st = open_states(&s, x, name, err);
    if (st == PL_OK) st = take(x, &s, &yes, err);
    if (st == PL_OK && yes && x->taken == 0 && !x->target->config.foreign) st = check_layers(x, &s, err);
    if (st == PL_OK && yes && x->taken++ >= done) {
        st = read_states(x, &s, err);
        x->doc.n = s.n;
        x->doc.about = &(pl_doc_about){.end = -1, .finish = PL_ANSWER_UNKNOWN};
        if (st == PL_OK) st = pl_dataset_append(w, &x->doc, err);
    }
    pl_st_close(s.file);
    return st;
}

// The check of a target whose layers are not computed here.
static pl_status check_first_choices(const reader *x, pl_err *err) {
    double share = (double)x->first_choices / (double)x->answered;
    if (!x->target->config.foreign || x->answered == 0) return PL_OK; // 0: all documents were there already
    if (share < least_first_choices)
        return pl_recipe_fail(x->r, &x->gen->data.hidden_states.layers, err,
                              "of %lld tokens of answers only %.1f %% are the first choice of the target's output "
                              "matrix on the last layer's states: the files are of another model, or the list of "
                              "layers is wrong, or the final norm of %s is another than is known here",
                              (long long)x->answered, 100 * share, x->target->config.architecture);
    pl_log("%s is not computed here: layers are as the recipe says; %.1f %% of answers' tokens are its first choice",
           x->target->config.architecture, 100 * share);
    return PL_OK;
}

static pl_status tell(const reader *x, int files, pl_err *err) {
    if (x->short_ones + x->silent + x->long_ones)
        pl_log_warn("data.hidden_states: of %d files %lld are left out: %lld of fewer than %d tokens, %lld without an "
                    "answer, %lld longer than the target's context",
                    files, (long long)(x->short_ones + x->silent + x->long_ones), (long long)x->short_ones, MIN_TOKENS,
                    (long long)x->silent, (long long)x->long_ones);
    if (x->taken == 0)
        return pl_fail(err, PL_E_INPUT,
                       "data.hidden_states: none of %d files has an answer; look at data.hidden_states.answers, begin "
                       "and end",
                       files);
    if (x->whole == x->taken && x->gen->data.hidden_states.answers == PL_ANSWERS_MASK)
        return pl_fail(err, PL_E_INPUT,
                       "data.hidden_states: every loss_mask is 1 from the first token to the last, so prompts would be "
                       "learned as answers; where that is meant, set data.hidden_states.answers: all");
    return PL_OK;
}

static pl_status write_files(reader *x, pl_dataset_writer *w, pl_err *err) {
    struct dirent **name;
    int             n, i = 0;
    int64_t         done = pl_dataset_writer_docs(w);
    pl_progress     p;
    PL_TRY(list(&name, &n, x->r, err));
    pl_stop_hold();
    pl_progress_begin(&p, "hidden states", 0, n);
    pl_status st = PL_OK;
    for (; i < n && st == PL_OK; i++) {
        st = write_file(x, w, done, name[i]->d_name, err);
        pl_progress_update(&p, i + 1, "%lld documents", (long long)x->taken);
        if (st == PL_OK && pl_stop_requested())
            st =
                pl_fail(err, PL_E_INTERRUPTED, "stopped after %d of %d files; run the same command to go on", i + 1, n);
    }
    pl_progress_end(&p);
    pl_stop_release();
    free_names(name, n);
    if (st == PL_OK) st = tell(x, n, err);
    return st == PL_OK ? check_first_choices(x, err) : st;
}

pl_status pl_hidden_states_write(pl_dataset_writer *w, const pl_recipe *r, const pl_llama *target,
                                 const pl_tokenizer *tok, const pl_taps *taps, const pl_env *env, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    int64_t                   d = target->shape.d;
    reader                    x = {.r = r,
                                   .gen = gen,
                                   .target = target,
                                   .env = env,
                                   .taps = taps,
                                   .rows = ROWS,
                                   .shape = {.d = d, .taps = taps->n}};
    pl_status                 st;
    x.row = pl_malloc((size_t)(gen->data.hidden_states.layers.n * d) * sizeof *x.row);
    x.hidden = pl_calloc((size_t)(ROWS * d), sizeof *x.hidden);
    if (!x.row || !x.hidden) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "data.hidden_states: out of memory"));
    PL_TRY_GOTO(st, done, find_places(&x, err));
    PL_TRY_GOTO(st, done, find_mark(&x.begin, &x, &gen->data.hidden_states.begin, tok, err));
    PL_TRY_GOTO(st, done, find_mark(&x.end, &x, &gen->data.hidden_states.end, tok, err));
    PL_TRY_GOTO(st, done, pl_arena_init_shared(&x.arrays, "hidden states", env->backend->memory, take_arrays, &x, err));
    PL_TRY_GOTO(st, done, pl_ctx_init(&x.ctx, env->backend, env->pool));
    PL_TRY_GOTO(st, done, pl_ctx_measure(&x.ctx, finish_rows, &x, err));
    st = write_files(&x, w, err);
done:
    pl_ctx_fini(&x.ctx);
    pl_columns_free(&x.doc);
    pl_free(x.begin.id);
    pl_free(x.end.id);
    pl_free(x.row);
    pl_free(x.hidden);
    pl_arena_fini(&x.arrays);
    return st;
}
