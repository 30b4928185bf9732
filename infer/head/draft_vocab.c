#include "infer/head/draft_vocab.h"

#include "data/counts/counts.h"
#include "kernels/base/arena.h"
#include "kernels/base/log.h"

#include <string.h>

static bool is_among(const int32_t *id, int64_t n, int32_t token) {
    for (int64_t i = 0; i < n; i++)
        if (id[i] == token) return true;
    return false;
}

// Takes `drop` of the rarest ids out that are no stop tokens. Returns the number of ids that it could not take.
static int64_t drop_rarest(int32_t *id, int64_t *n, int64_t drop, const pl_draft_vocab_options *o) {
    for (int64_t at = *n - 1; at >= 0 && drop > 0; at--) {
        if (is_among(o->stop, o->n_stop, id[at])) continue;
        memmove(id + at, id + at + 1, (size_t)(*n - at - 1) * sizeof *id);
        --*n;
        drop--;
    }
    return drop;
}

// Puts the stop tokens that are not among id[0..n) in front of them, where every prefix has them; at most `most` ids
// remain, 0: any number. id has room for the whole vocabulary.
static pl_status put_stops(int32_t *id, int64_t *n, int64_t most, const char *path, const pl_draft_vocab_options *o,
                           pl_err *err) {
    int64_t missing = 0;
    for (int i = 0; i < o->n_stop; i++)
        missing += o->stop[i] >= 0 && o->stop[i] < o->vocab && !is_among(id, *n, o->stop[i]);
    int64_t drop = most > 0 && *n + missing > most ? *n + missing - most : 0;
    if (missing == 0) return PL_OK;
    if (drop_rarest(id, n, drop, o) > 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: %lld ids are no room for the target's %d tokens that end an answer; give a larger "
                       "drafter.head.vocab_size",
                       path, (long long)most, o->n_stop);
    pl_log("%s: lacks %lld of the target's %d tokens that end an answer; they are drafted too%s", path,
           (long long)missing, o->n_stop, drop > 0 ? ", in place of the rarest" : "");
    memmove(id + missing, id, (size_t)*n * sizeof *id);
    for (int i = 0, to = 0; i < o->n_stop; i++)
        if (o->stop[i] >= 0 && o->stop[i] < o->vocab && !is_among(id + missing, *n, o->stop[i])) id[to++] = o->stop[i];
    *n += missing;
    return PL_OK;
}

static pl_status check_list(const pl_counts *c, const char *path, const pl_draft_vocab_options *o, pl_err *err) {
    if (c->vocab > o->vocab)
        return pl_fail(err, PL_E_INPUT,
                       "%s: counted in a vocabulary of %d, the target has %lld; count with the target's own tokenizer",
                       path, c->vocab, (long long)o->vocab);
    if (o->tokenizer && strcmp(o->tokenizer, c->tokenizer) != 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: counted with tokenizer %s, the target's is %s; count with the target's own tokenizer", path,
                       c->tokenizer, o->tokenizer);
    return PL_OK;
}

pl_status pl_draft_vocab_from_list(int32_t **d2t, int64_t *n, const char *path, const pl_draft_vocab_options *o,
                                   pl_err *err) {
    pl_counts c;
    int32_t  *id = NULL;
    pl_status st = PL_OK;
    *d2t = NULL;
    *n = 0;
    PL_TRY(pl_counts_read(&c, path, err));
    PL_TRY_GOTO(st, done, check_list(&c, path, o, err));
    id = pl_malloc(pl_size_mul((size_t)o->vocab, sizeof *id, 1));
    if (!id) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", path));
    int64_t seen = pl_counts_rank(&c, id), size = o->size > 0 ? o->size : c.size;
    if (seen == 0) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "%s: lists no token", path));
    if (o->size > seen)
        pl_log_warn("%s: lists %lld tokens, drafter.head.vocab_size is %lld; count more text, or make it smaller", path,
                    (long long)seen, (long long)o->size);
    int64_t kept = size > 0 && size < seen ? size : seen;
    PL_TRY_GOTO(st, done, put_stops(id, &kept, size, path, o, err));
    *n = kept;
    *d2t = id;
    id = NULL;
done:
    pl_free(id);
    pl_counts_fini(&c);
    return st;
}

static pl_status find_entry(const pl_weight_entry **e, const pl_weight_source *src, const char *name, int64_t n,
                            bool needed, pl_err *err) {
    const char *where = pl_weight_source_path(src);
    *e = pl_weight_source_find(src, name);
    if (!*e && !needed) return PL_OK;
    if (!*e)
        return pl_fail(err, PL_E_INPUT, "%s: no tensor \"%s\", which a trimmed draft vocabulary needs", where, name);
    if ((*e)->rank != 1 || (*e)->shape[0] != n)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"%s\": expected [%lld]", where, name, (long long)n);
    return PL_OK;
}

int64_t pl_draft_vocab_entry(const void *data, pl_dtype t, int64_t i) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (t == PL_I64) memcpy(&wide, (const char *)data + i * 8, 8);
    if (t == PL_I32) memcpy(&narrow, (const char *)data + i * 4, 4);
    return t == PL_I32 ? narrow : wide;
}

int64_t pl_draft_vocab_unfilled(const int32_t *d2t, int64_t n) {
    enum { CHANCE = 8 };
    int64_t rest = n;
    while (rest > 0 && d2t[rest - 1] == rest - 1)
        rest--;
    return rest == 0 || n - rest >= CHANCE ? n - rest : 0;
}

static pl_status read_ids(int32_t *d2t, uint8_t *drafted, const pl_weight_entry *e, const char *where, int64_t n,
                          int64_t vocab, pl_err *err) {
    if (e->dtype != PL_I64 && e->dtype != PL_I32)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"d2t\": is %s, expected int64", where, pl_dtype_name(e->dtype));
    for (int64_t i = 0; i < n; i++) {
        int64_t offset = pl_draft_vocab_entry(e->data, e->dtype, i);
        if (offset < -i || offset >= vocab - i)
            return pl_fail(err, PL_E_INPUT, "%s: d2t[%lld] is %lld, which leads outside the vocabulary of %lld", where,
                           (long long)i, (long long)offset, (long long)vocab);
        int64_t id = i + offset;
        if (drafted[id])
            return pl_fail(err, PL_E_INPUT, "%s: d2t[%lld]: target id %lld is drafted twice", where, (long long)i,
                           (long long)id);
        drafted[id] = 1;
        d2t[i] = (int32_t)id;
    }
    return PL_OK;
}

static pl_status check_marks(const pl_weight_entry *e, const uint8_t *drafted, const char *where, int64_t vocab,
                             pl_err *err) {
    if (e->dtype != PL_BOOL && e->dtype != PL_U8)
        return pl_fail(err, PL_E_INPUT, "%s: tensor \"t2d\": is %s, expected bool", where, pl_dtype_name(e->dtype));
    for (int64_t i = 0; i < vocab; i++)
        if ((((const uint8_t *)e->data)[i] != 0) != drafted[i])
            return pl_fail(err, PL_E_INPUT, "%s: t2d and d2t differ over target id %lld", where, (long long)i);
    return PL_OK;
}

pl_status pl_draft_vocab_read(int32_t **d2t, const pl_weight_source *src, int64_t n, int64_t vocab, pl_err *err) {
    const char            *where = pl_weight_source_path(src);
    const pl_weight_entry *to, *marks;
    pl_status              st = PL_OK;
    *d2t = NULL;
    PL_TRY(find_entry(&to, src, "d2t", n, true, err));
    PL_TRY(find_entry(&marks, src, "t2d", vocab, false, err));
    int32_t *ids = pl_malloc(pl_size_mul((size_t)n, sizeof *ids, 1));
    uint8_t *drafted = pl_calloc((size_t)vocab, 1);
    if (!ids || !drafted) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", where));
    PL_TRY_GOTO(st, done, read_ids(ids, drafted, to, where, n, vocab, err));
    if (marks) PL_TRY_GOTO(st, done, check_marks(marks, drafted, where, vocab, err));
    *d2t = ids;
    ids = NULL;
done:
    pl_free(ids);
    pl_free(drafted);
    return st;
}

pl_status pl_draft_vocab_tensors_init(pl_draft_vocab_tensors *t, const int32_t *d2t, int64_t n, int64_t vocab,
                                      pl_err *err) {
    *t = (pl_draft_vocab_tensors){.d2t = pl_malloc(pl_size_mul((size_t)n, sizeof *t->d2t, 1)),
                                  .t2d = pl_calloc((size_t)vocab, 1)};
    if (!t->d2t || !t->t2d) {
        pl_draft_vocab_tensors_fini(t);
        return pl_fail(err, PL_E_MEMORY, "draft vocabulary of %lld: out of memory", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) {
        t->d2t[i] = d2t[i] - i;
        t->t2d[d2t[i]] = 1;
    }
    t->tensor[0] = (pl_st_source){.name = "d2t", .dtype = PL_I64, .rank = 1, .shape = {n}, .data = t->d2t};
    t->tensor[1] = (pl_st_source){.name = "t2d", .dtype = PL_BOOL, .rank = 1, .shape = {vocab}, .data = t->t2d};
    return PL_OK;
}

void pl_draft_vocab_tensors_fini(pl_draft_vocab_tensors *t) {
    pl_free(t->d2t);
    pl_free(t->t2d);
    *t = (pl_draft_vocab_tensors){0};
}
