#include "infer/head/head.h"

#include "infer/head/settings.h"
#include "infer/head/stopping.h"
#include "kernels/base/check.h"
#include "kernels/op/elementwise.h"
#include "kernels/op/gatherdot.h"
#include "kernels/op/linear.h"
#include "kernels/op/topk.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PL_HEAD(name) extern const pl_head_kind pl_head_##name;
#include "infer/head/heads.def"
#undef PL_HEAD
#define PL_HEAD(name) &pl_head_##name,
static const pl_head_kind *const kinds[] = {
#include "infer/head/heads.def"
};
#undef PL_HEAD
enum { KINDS = sizeof kinds / sizeof *kinds };

const pl_head_kind *pl_head_at(int i) {
    return i < KINDS ? kinds[i] : NULL;
}

static const char *name_of(int i) {
    return i < KINDS ? kinds[i]->name : NULL;
}

const pl_head_kind *pl_head_find(const char *name, pl_err *err) {
    char   known[256] = "";
    size_t used = 0;
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", kinds[i]->name);
    }
    pl_fail(err, PL_E_INPUT, "head kind \"%s\" is not known; known are: %s", name, known);
    return NULL;
}

bool pl_head_next_example(pl_head_example *e, int *at, const pl_head_shape *s, unsigned in) {
    enum { STRIDE = 1 << 10 }; // *at encodes kind and number
    while (*at / STRIDE < KINDS) {
        const pl_head_kind *kind = kinds[*at / STRIDE];
        *e = (pl_head_example){.rows = s->vocab};
        if (!kind->example || !kind->example(e, *at % STRIDE, s)) {
            *at = (*at / STRIDE + 1) * STRIDE;
            continue;
        }
        ++*at;
        if (e->rows > 0 && (e->in & in)) return true;
    }
    return false;
}

// ---- settings

const pl_key pl_head_keys[] = {
    {PL_KEY_AS_ENUM("drafter.head.kind", pl_head_recipe, kind), .each = true, .deflt = "full", .names = name_of,
     .help = "how the head chooses among the tokens", .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_PATH("drafter.head.vocab", pl_head_recipe, vocab), .each = true,
     .help = "draft only the tokens of this list, most frequent first: a name of `vocabularies` or a file of paceline "
             "vocab --list; absent: all tokens",
     .stages = PL_KEY_NO_STAGE}, // the list's content matters, not its path
    {PL_KEY_AS_INT("drafter.head.vocab_size", pl_head_recipe, vocab_size), .each = true, .deflt = "0", .min = 0,
     .max = 1 << 22,
     .help = "draft only the first so many tokens of drafter.head.vocab; 0: as many as the list itself says, else all",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.position_aware", pl_head_recipe, position_aware), .each = true, .deflt = "false",
     .help = "a trimmed head reads all its rows at depths 0 and 1, 1/(t+1) of them at depth t",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_INT("drafter.head.redistribute", pl_head_recipe, redistribute), .each = true, .deflt = "0", .min = 0,
     .max = 999,
     .help = "a trimmed head gives so many thousandths of its probability to the tokens outside its list, where "
             "candidates are drawn",
     .stages = PL_STAGE_DRAFTER, .late = true},
    {PL_KEY_AS_ENUM("drafter.head.init", pl_head_recipe, init), .each = true, .deflt = "auto",
     .choices = {"auto", "target", "random"},
     .help = "what the head starts from; target: the target's output rows or their best low-rank factors; auto: "
             "target where possible",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_ENUM("drafter.head.frozen", pl_head_recipe, frozen), .each = true, .deflt = "auto",
     .choices = {"auto", "true", "false"},
     .help =
         "do not train the head; auto: true for the full heads of eagle1 and dflash, which are then the target's own "
         "and not stored",
     .stages = PL_STAGE_DRAFTER},
    {PL_KEY_AS_BOOL("drafter.head.acceptance", pl_head_recipe, acceptance), .each = true, .deflt = "false",
     .help = "eagle1, eagle3, lm: learn how likely each draft is to be accepted (SpecDec++)",
     .stages = PL_STAGE_DRAFTER, .late = true},
    {PL_KEY_AS_INT("drafter.head.max_rejection", pl_head_recipe, max_rejection), .each = true, .deflt = "0", .min = 0,
     .max = 999,
     .help = "with acceptance: a draft ends before one of its tokens is rejected with more than so many thousandths; "
             "0: never",
     .stages = PL_STAGE_DRAFTER, .late = true},
    PL_KEYS_END(pl_head_recipe)};

#define POSITION_AWARE "position_aware"
#define REDISTRIBUTE "redistribute"
#define ACCEPTANCE "acceptance"
#define MAX_REJECTION "max_rejection"

// Settings of any kind of head.
static const char *const every[] = {POSITION_AWARE, REDISTRIBUTE, ACCEPTANCE, MAX_REJECTION};
enum { EVERY = sizeof every / sizeof *every };

const char *pl_head_any_setting(const pl_hf_head *spec) {
    for (int i = 0; i < EVERY; i++)
        if (pl_hf_head_find(spec, every[i])) return every[i];
    return NULL;
}

const char *pl_head_wants_list(const pl_hf_head *spec) {
    return pl_hf_head_find(spec, POSITION_AWARE) ? POSITION_AWARE
           : pl_hf_head_find(spec, REDISTRIBUTE) ? REDISTRIBUTE
                                                 : NULL;
}

static size_t own_size(const pl_head_kind *kind) {
    const pl_key *row = kind->keys;
    while (row && row->path)
        row++;
    return row ? row->size : 0;
}

pl_hf_head pl_head_spec(const pl_head_recipe *r, const void *own) {
    const pl_head_kind *kind = kinds[r->kind];
    pl_hf_head          spec = pl_hf_head_make(kind->name, 0);
    size_t              size = own_size(kind);
    void               *settled = size ? pl_malloc(size) : NULL;
    PL_CHECK(!size || settled, "head settings: out of memory for %zu bytes", size);
    if (size) memcpy(settled, own, size);
    if (kind->settle) kind->settle(settled);
    pl_head_settings_state(&spec, kind->keys, settled);
    pl_hf_head_set_flag(&spec, POSITION_AWARE, r->position_aware);
    pl_hf_head_set(&spec, REDISTRIBUTE, r->redistribute);
    pl_hf_head_set_flag(&spec, ACCEPTANCE, r->acceptance);
    pl_hf_head_set(&spec, MAX_REJECTION, r->max_rejection);
    pl_free(settled);
    return spec;
}

// Returns true if any kind has a setting of this name: other kinds' settings are ignored, as formats write more than a
// kind reads.
static bool is_known(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (pl_head_settings_know(kinds[i]->keys, name)) return true;
    for (int i = 0; i < EVERY; i++)
        if (strcmp(name, every[i]) == 0) return true;
    return false;
}

// Reads a setting of any head: a flag (PL_HF_FLAG), or an integer of 1 to 999.
static pl_status read_setting(const pl_hf_head *spec, const char *name, pl_hf_form form, int *value, pl_err *err) {
    const pl_hf_setting *s = pl_hf_head_find(spec, name);
    *value = s ? (form == PL_HF_FLAG ? 1 : (int)s->value) : 0;
    if (!s || (s->form == form && (form == PL_HF_FLAG || (s->value > 0 && s->value <= 999)))) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "paceline.head.%s: expected %s", name,
                   form == PL_HF_FLAG ? "true or false" : "an integer from 1 to 999");
}

static pl_status read_settings(pl_head *h, pl_err *err) {
    size_t size = own_size(h->kind);
    int    aware, acceptance;
    for (int i = 0; i < h->spec.n; i++)
        if (!is_known(h->spec.setting[i].name))
            return pl_fail(err, PL_E_INPUT, "paceline.head.%s: unknown; written by a newer paceline?",
                           h->spec.setting[i].name);
    PL_TRY(read_setting(&h->spec, POSITION_AWARE, PL_HF_FLAG, &aware, err));
    PL_TRY(read_setting(&h->spec, REDISTRIBUTE, PL_HF_INT, &h->redistribute, err));
    PL_TRY(read_setting(&h->spec, ACCEPTANCE, PL_HF_FLAG, &acceptance, err));
    PL_TRY(read_setting(&h->spec, MAX_REJECTION, PL_HF_INT, &h->max_rejection, err));
    h->position_aware = aware;
    h->acceptance = acceptance;
    if (size == 0) return PL_OK;
    h->own = pl_calloc(1, size);
    if (!h->own) return pl_fail(err, PL_E_MEMORY, "drafter: out of memory");
    return pl_head_settings_read(h->own, h->kind->keys, &h->spec, err);
}

static pl_status init_head(pl_head *h, pl_err *err) {
    PL_TRY(read_settings(h, err));
    PL_TRY(pl_stopping_check(h, err));
    if (h->redistribute > 0 && !h->kind->listed)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": redistribute is for heads that draft a fixed list of tokens",
                       h->kind->name);
    if (h->position_aware && !h->kind->listed)
        return pl_fail(err, PL_E_INPUT,
                       "head of kind \"%s\": position_aware is for heads whose rows lie in order of frequency",
                       h->kind->name);
    return h->kind->init ? h->kind->init(h, err) : PL_OK;
}

pl_status pl_head_init(pl_head *h, const pl_hf_head *spec, int64_t d, int64_t vocab, pl_err *err) {
    *h = (pl_head){.spec = *spec, .d = d, .vocab = vocab, .rank = d};
    if (!*h->spec.kind) strcpy(h->spec.kind, "full");
    h->kind = pl_head_find(h->spec.kind, err);
    if (!h->kind) return PL_E_INPUT;
    pl_status st = init_head(h, err);
    if (st != PL_OK) pl_head_fini(h);
    return st;
}

void pl_head_fini(pl_head *h) {
    if (h->kind && h->kind->fini) h->kind->fini(h);
    pl_free(h->own);
    pl_free(h->d2t);
    pl_selector_fini(&h->selector);
    pl_outside_fini(&h->outside);
    *h = (pl_head){0};
}

void pl_head_share(pl_head *h, pl_tensor out) {
    PL_CHECK((h->kind->published || h->kind->over_target) && !h->d2t, "a head of kind %s cannot be the target's",
             h->kind->name);
    h->shared = true;
    h->out = out;
    h->out.grad = NULL;
}

// Returns the number of rows of out that a position-aware head (arXiv 2510.13847, appendix A.1: FR-Spec with a budget
// by depth) reads at this depth: all Vd at depths 0 and 1, then floor(Vd / (t + 1)), at least 1. Rows are in order of
// frequency, so these are the most frequent. Other heads read all Vd.
static int64_t count_budget(const pl_head *h, int level) {
    if (!h->position_aware || level < 2) return h->vocab;
    int64_t rows = h->vocab / (level + 1);
    return rows > 0 ? rows : 1;
}

pl_tensor pl_head_project(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor y) {
    if (h->kind->project) return h->kind->project(ctx, h, x, y);
    PL_CHECK(y.data == NULL || y.data == x.data, "a head without a projection does not move rows");
    return x;
}

bool pl_head_reads_inputs(const pl_head *h) {
    return h->kind->reads_inputs || h->selector.candidates > 0;
}

pl_drafted pl_head_drafted(const pl_head *h) {
    return (pl_drafted){.n = h->vocab, .d2t = h->d2t, .outside = h->outside.on ? &h->outside : NULL};
}

// Returns a support of one group that reads a prefix, or all rows.
static pl_head_support prefix_support(pl_ctx *ctx, const pl_head *h, int64_t rows, int level) {
    struct {
        int     row[2];
        pl_span span;
    } *s = pl_ctx_bytes(ctx, sizeof *s);
    if (ctx->measuring) return (pl_head_support){0};
    s->row[0] = 0;
    s->row[1] = (int)rows;
    s->span = (pl_span){.count = (int32_t)count_budget(h, level)};
    return (pl_head_support){.row = s->row, .spans = {.span = &s->span, .groups = 1, .most = 1}};
}

void pl_head_begin(pl_ctx *ctx, const pl_head *h, pl_head_rows *r) {
    if (!h->kind->foresees || !h->kind->foresees(h)) return;
    pl_ctx_fork(ctx);
    r->support = h->kind->support(ctx, h, r);
    r->foreseen = true;
    pl_ctx_back(ctx);
}

void pl_head_carry(pl_ctx *ctx, const pl_head *h, pl_head_rows *r) {
    if (h->kind->sequence) h->kind->sequence->carry(ctx, h, r);
}

static pl_head_support find_support(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_ctx_join(ctx);
    if (r->foreseen) return r->support;
    return h->kind->support ? h->kind->support(ctx, h, r) : prefix_support(ctx, h, pl_tensor_rows(&r->x), r->level);
}

// Multiplies with all rows of a matrix that is packed for row gathers only: the ids list every row, for each row of x.
static pl_tensor gathered_logits(pl_ctx *ctx, const pl_head *h, pl_tensor x, pl_tensor w) {
    int64_t  m = pl_tensor_rows(&x);
    int32_t *id = pl_ctx_bytes(ctx, pl_size_mul((size_t)m, (size_t)h->vocab, sizeof *id));
    for (int64_t i = 0; i < m * h->vocab && !ctx->measuring; i++)
        id[i] = (int32_t)(i % h->vocab);
    return pl_gatherdot(ctx, x, w, id, h->vocab);
}

static pl_tensor all_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_tensor x = pl_head_project(ctx, h, r->x, (pl_tensor){0});
    return h->out.layout == PL_SEGMENTS ? gathered_logits(ctx, h, x, h->out) : pl_linear(ctx, x, h->out);
}

pl_tensor pl_head_all_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    pl_tensor y = h->exact.data ? gathered_logits(ctx, h, r->x, h->exact) : all_logits(ctx, h, r);
    y.data = pl_ctx_read(ctx, &y);
    return y;
}

// Returns group g's spans; call after the host has read them.
static const pl_span *spans_of(const pl_head_support *s, int g, int *n) {
    *n = s->spans.held ? s->spans.held[g] : s->spans.most;
    return s->spans.span + (size_t)g * (size_t)s->spans.most;
}

static void forbid_range(float *z, int64_t from, int64_t to) {
    for (int64_t v = from; v < to; v++)
        z[v] = -INFINITY;
}

// Lists the rows of one group's support, once for each of its rows of x.
static void list_support(int32_t *id, const pl_span *span, int n_spans, int64_t rows) {
    int64_t n = 0;
    for (int i = 0; i < n_spans; i++)
        for (int32_t v = 0; v < span[i].count; v++)
            id[n++] = span[i].first + v;
    for (int64_t row = 1; row < rows; row++)
        memcpy(id + row * n, id, (size_t)n * sizeof *id);
}

// For rows packed by segments: reads only those of the support, with spans that the host has read.
static pl_tensor supported_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    enum { SPARE = 64 }; // elements of a row that aligning a group's blocks may take
    pl_tensor       x = pl_head_project(ctx, h, r->x, (pl_tensor){0});
    pl_tensor       y = pl_ctx_const(ctx, x.dim[0], h->vocab);
    pl_head_support s = find_support(ctx, h, r);
    if (ctx->measuring) {
        pl_arena_alloc(&ctx->frame, pl_size_mul((size_t)x.dim[0], (size_t)h->vocab + SPARE, sizeof(int32_t)));
        pl_ctx_const(ctx, x.dim[0], h->vocab + SPARE);
    }
    s.spans = pl_route_read(ctx, s.spans);
    if (!s.spans.span) {
        y.data = NULL;
        return y;
    }
    forbid_range(pl_f32(&y), 0, x.dim[0] * h->vocab);
    for (int g = 0; g < s.spans.groups; g++) {
        pl_tensor      some = x;
        int            n_spans;
        const pl_span *span = spans_of(&s, g, &n_spans);
        int64_t        rows = s.row[g + 1] - s.row[g], n = pl_spans_rows(span, n_spans);
        int32_t       *id = pl_arena_alloc(&ctx->frame, (size_t)(rows * n) * sizeof *id);
        list_support(id, span, n_spans, rows);
        some.data = pl_f32(&x) + s.row[g] * h->rank;
        some.dim[0] = rows;
        pl_tensor z = pl_gatherdot(ctx, some, h->out, id, n);
        for (int64_t i = 0; i < rows * n; i++)
            pl_f32(&y)[(s.row[g] + i / n) * h->vocab + id[i]] = pl_f32(&z)[i];
    }
    return y;
}

// The head's best tokens without its selector.
static void own_topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value,
                     float *lse) {
    if (h->kind->topk) {
        h->kind->topk(ctx, h, r, k, id, value, lse);
        return;
    }
    pl_headtopk_args all = {
        .x = pl_head_project(ctx, h, r->x, (pl_tensor){0}), .w = h->out, .k = k, .id = id, .value = value, .lse = lse};
    pl_head_support s = find_support(ctx, h, r);
    if (ctx->measuring || ctx->err.status != PL_OK) {
        pl_headtopk(ctx, &all);
        return;
    }
    for (int g = 0; g < s.spans.groups; g++) {
        pl_headtopk_args one = all;
        one.x.data = pl_f32(&all.x) + s.row[g] * h->rank;
        one.x.dim[0] = s.row[g + 1] - s.row[g];
        one.span = s.spans.span + (size_t)g * (size_t)s.spans.most;
        one.held = s.spans.held ? s.spans.held + g : NULL;
        one.n_spans = s.spans.most;
        one.id = id + s.row[g] * k;
        if (value) one.value = value + s.row[g] * k;
        if (lse) one.lse = lse + s.row[g];
        pl_headtopk(ctx, &one);
    }
}

// Returns true if the logits are complete as computed; otherwise the host sets -infinity outside the support.
static bool reads_all(const pl_head *h, const pl_head_rows *r) {
    return !h->kind->logits && !h->kind->support && count_budget(h, r->level) == h->vocab;
}

// The head's logits without its selector.
static pl_tensor own_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    if (h->kind->logits) return h->kind->logits(ctx, h, r);
    if (h->kind->support && h->out.layout == PL_SEGMENTS) return supported_logits(ctx, h, r);
    pl_tensor       y = all_logits(ctx, h, r);
    pl_head_support s = {0};
    if (!reads_all(h, r)) s = find_support(ctx, h, r);
    if (s.spans.held) s.spans = pl_route_read(ctx, s.spans);
    y.data = pl_ctx_read(ctx, &y);
    if (!y.data) return y;
    for (int g = 0; g < s.spans.groups; g++) {
        int            n_spans;
        const pl_span *span = spans_of(&s, g, &n_spans);
        for (int row = s.row[g]; row < s.row[g + 1]; row++) {
            float  *z = pl_f32(&y) + row * h->vocab;
            int64_t at = 0;
            for (int i = 0; i < n_spans; i++) {
                forbid_range(z, at, span[i].first);
                at = span[i].first + span[i].count;
            }
            forbid_range(z, at, h->vocab);
        }
    }
    return y;
}

// ---- its selector

// own: the rows' logits where ops can read them; NULL: not computed yet.
static pl_selector_list list_of(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, const pl_tensor *own) {
    int      K = h->selector.candidates;
    size_t   rows = (size_t)r->x.dim[0], n = pl_size_mul(rows, (size_t)K, 1);
    bool     blocks = h->selector.kind->blocks;
    int32_t *id = pl_ctx_bytes(ctx, n * sizeof *id);
    float   *value = pl_ctx_bytes(ctx, n * sizeof *value), *lse = blocks ? pl_ctx_bytes(ctx, rows * sizeof *lse) : NULL;
    if (own)
        pl_topk(ctx, &(pl_topk_args){.x = *own, .k = K, .id = id, .value = value, .lse = lse});
    else
        own_topk(ctx, h, r, K, id, value, lse);
    pl_selector_list l = {.id = id, .value = value, .lse = lse, .all = id};
    if (!blocks || pl_ctx_wait(ctx) || ctx->measuring) h->selector.kind->prepare(ctx, h, r, &l);
    return l;
}

// Returns the list, and in *own the logits that it was taken from, read by the host. Logits that are complete as
// computed give the list on the device, with one synchronisation for both; others are written back after the host has
// completed them.
static pl_selector_list list_and_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, pl_tensor *own) {
    if (reads_all(h, r)) {
        pl_tensor        y = all_logits(ctx, h, r);
        pl_selector_list l = list_of(ctx, h, r, &y);
        *own = y;
        own->data = pl_ctx_read(ctx, &y);
        return l;
    }
    *own = own_logits(ctx, h, r);
    pl_tensor back = pl_ctx_write(ctx, own->data, own->dim[0], own->dim[1]);
    return list_of(ctx, h, r, &back);
}

pl_selector_list pl_head_list(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, bool draws) {
    pl_selector_list l = {0};
    draws = draws && h->selector.law == PL_HF_LAW_FULL;
    if (!draws || ctx->measuring) l = list_of(ctx, h, r, NULL);
    if (!draws) return l;
    pl_tensor own;
    l = list_and_logits(ctx, h, r, &own);
    l.own = own.data;
    return l;
}

// Returns the list's scores [M, K].
static pl_tensor selected(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, const pl_selector_list *l) {
    PL_CHECK(ctx->be->real == PL_F32, "a selector's list beside %s", pl_dtype_name(ctx->be->real));
    void *value = (void *)(uintptr_t)l->value;
    return h->selector.kind->score(
        ctx, h,
        &(pl_selector_ask){.list = l,
                           .before = r->token,
                           .id = l->id,
                           .own = pl_tensor_2d(value, PL_F32, r->x.dim[0], h->selector.candidates)});
}

pl_tensor pl_head_spread(pl_ctx *ctx, int64_t vocab, const int32_t *id, pl_tensor z) {
    int64_t   m = z.dim[0], n = z.dim[1];
    pl_tensor y = pl_tensor_2d(NULL, ctx->be->real, m, vocab);
    void     *to = pl_ctx_bytes(ctx, pl_size_mul((size_t)m, (size_t)vocab, sizeof(float)));
    z.data = pl_ctx_read(ctx, &z);
    if (!z.data) return y;
    y.data = to;
    forbid_range(pl_f32(&y), 0, m * vocab);
    for (int64_t i = 0; i < m * n; i++)
        if (id[i] >= 0) pl_f32(&y)[i / n * vocab + id[i]] = pl_f32(&z)[i];
    return y;
}

// Returns the log of the sum of the list's exponentials.
static double list_lse(const float *z, const int32_t *id, int n) {
    double max = -INFINITY, sum = 0;
    for (int k = 0; k < n; k++)
        if (id[k] >= 0) max = fmax(max, (double)z[k]);
    for (int k = 0; k < n; k++)
        if (id[k] >= 0) sum += exp((double)z[k] - max);
    return max + log(sum);
}

// Full law, one row: y holds the head's logits; the listed ones get their scores, shifted to the mass that the head
// gives the list. An empty list changes nothing.
static void put_scores(float *y, const int32_t *id, const float *own, const float *score, int n) {
    double shift = list_lse(own, id, n) - list_lse(score, id, n);
    for (int k = 0; k < n && isfinite(shift); k++)
        if (id[k] >= 0) y[id[k]] = (float)((double)score[k] + shift);
}

static pl_tensor take_list(pl_ctx *ctx, const pl_head *h, const pl_selector_list *l, int64_t m) {
    size_t    row = (size_t)h->vocab * sizeof(float);
    pl_tensor y = pl_tensor_2d(pl_ctx_bytes(ctx, pl_size_mul((size_t)m, row, 1)), PL_F32, m, h->vocab);
    for (int64_t i = 0; i < m && !ctx->measuring; i++)
        memcpy(pl_f32(&y) + i * h->vocab, l->own + (l->row ? l->row[i] : i) * h->vocab, row);
    return y;
}

static pl_tensor full_law(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    int              n = h->selector.candidates;
    int64_t          m = r->x.dim[0];
    pl_selector_list l = r->list;
    pl_tensor        y;
    bool             listed = pl_selector_listed(&l);
    if (l.own || (listed && ctx->measuring)) y = take_list(ctx, h, &l, m);
    if (listed && !l.own) y = own_logits(ctx, h, r);
    if (!listed) l = list_and_logits(ctx, h, r, &y);
    pl_tensor score = selected(ctx, h, r, &l);
    score.data = pl_ctx_read(ctx, &score); // this also synchronises with everything that reads y
    if (!score.data || !y.data) return (pl_tensor){.rank = 2, .dtype = PL_F32, .dim = {m, h->vocab, 1, 1}};
    for (int64_t i = 0; i < m; i++)
        put_scores(pl_f32(&y) + i * h->vocab, l.id + i * n, l.value + i * n, pl_f32(&score) + i * n, n);
    return y;
}

pl_tensor pl_head_logits(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r) {
    if (h->selector.candidates == 0) return own_logits(ctx, h, r);
    if (h->selector.law == PL_HF_LAW_FULL) return full_law(ctx, h, r);
    pl_selector_list l = pl_selector_listed(&r->list) ? r->list : pl_head_list(ctx, h, r, false);
    return pl_head_spread(ctx, h->vocab, l.id, selected(ctx, h, r, &l));
}

void pl_head_topk(pl_ctx *ctx, const pl_head *h, const pl_head_rows *r, int k, int32_t *id, float *value, float *lse) {
    if (h->selector.candidates == 0) {
        own_topk(ctx, h, r, k, id, value, lse);
        return;
    }
    pl_selector_list l = pl_selector_listed(&r->list) ? r->list : pl_head_list(ctx, h, r, false);
    pl_topk(ctx,
            &(pl_topk_args){.x = selected(ctx, h, r, &l), .name = l.id, .k = k, .id = id, .value = value, .lse = lse});
}

double pl_head_step_bytes(const pl_head *h, int level) {
    double more = pl_selector_bytes(&h->selector);
    if (h->kind->step_bytes) return more + h->kind->step_bytes(h, level);
    double bytes = more + (double)count_budget(h, level) * (double)h->rank * (double)pl_dtype_size(h->out.dtype);
    if (!h->down.data) return bytes;
    return bytes + (double)h->rank * (double)h->d * (double)pl_dtype_size(h->down.dtype);
}
