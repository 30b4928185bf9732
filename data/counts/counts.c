#include "data/counts/counts.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "paceline.vocab"
#define VOCAB_MAX (1 << 22)
#define FILE_MAX ((size_t)160 << 20) // an id and a count of each of VOCAB_MAX tokens, and what stands beside them

pl_status pl_counts_init(pl_counts *c, int32_t vocab, const char *tokenizer, const char *corpus, pl_err *err) {
    *c = (pl_counts){.vocab = vocab};
    c->count = pl_calloc((size_t)vocab, sizeof *c->count);
    c->corpus = pl_strdup(corpus);
    snprintf(c->tokenizer, sizeof c->tokenizer, "%s", tokenizer);
    if (c->count && c->corpus) return PL_OK;
    pl_counts_fini(c);
    return pl_fail(err, PL_E_MEMORY, "counts of %d tokens: out of memory", vocab);
}

void pl_counts_fini(pl_counts *c) {
    pl_free(c->count);
    pl_free(c->corpus);
    *c = (pl_counts){0};
}

void pl_counts_add(pl_counts *c, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        PL_CHECK(ids[i] >= 0 && ids[i] < c->vocab, "id %d of %d", ids[i], c->vocab);
        c->count[ids[i]]++;
    }
    c->tokens += n;
    c->documents++;
}

void pl_counts_end(pl_counts *c, int32_t id) {
    PL_CHECK(id >= 0 && id < c->vocab, "id %d of %d", id, c->vocab);
    c->count[id]++;
    c->tokens++;
}

static int by_rank(const void *a, const void *b, void *arg) {
    const int64_t *count = arg;
    int32_t        x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (count[x] != count[y]) return count[x] > count[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

int32_t pl_counts_rank(const pl_counts *c, int32_t *id) {
    int32_t seen = 0;
    for (int32_t i = 0; i < c->vocab; i++) {
        id[i] = i;
        seen += c->count[i] > 0;
    }
    qsort_r(id, (size_t)c->vocab, sizeof *id, by_rank, c->count);
    return seen;
}

double pl_counts_coverage(const pl_counts *c, const int32_t *id, int64_t k) {
    int64_t held = 0;
    for (int64_t i = 0; i < k; i++)
        held += c->count[id[i]];
    return c->tokens > 0 ? (double)held / (double)c->tokens : NAN;
}

int64_t pl_counts_needed(const pl_counts *c, const int32_t *id, int64_t n, double share) {
    int64_t held = 0;
    for (int64_t i = 0; i < n; i++) {
        held += c->count[id[i]];
        if ((double)held >= share * (double)c->tokens) return i + 1;
    }
    return -1;
}

pl_status pl_counts_bcl(int64_t *k, const pl_counts *c, const pl_bcl *o, double *coverage, double *utility,
                        pl_err *err) {
    int32_t *id = pl_malloc((size_t)c->vocab * sizeof *id);
    int64_t  held = 0;
    double   most = -INFINITY;
    if (!id) return pl_fail(err, PL_E_MEMORY, "counts of %d tokens: out of memory", c->vocab);
    int32_t seen = pl_counts_rank(c, id);
    for (int32_t n = 1; n <= seen; n++) {
        held += c->count[id[n - 1]];
        double share = (double)held / (double)c->tokens;
        double u = o->alpha * share + (1 - o->alpha) * o->head_share * (1 - (double)n / c->vocab);
        if (share < o->min_coverage || u <= most) continue;
        *k = n;
        most = u;
        if (coverage) *coverage = share;
        if (utility) *utility = u;
    }
    pl_free(id);
    return seen > 0 ? PL_OK : pl_fail(err, PL_E_INPUT, "%s: no token was counted", c->corpus);
}

bool pl_counts_is(const char *front, size_t n) {
    static const char begins[] = "{\"format\":\"" FORMAT "\"";
    return n >= sizeof begins - 1 && memcmp(front, begins, sizeof begins - 1) == 0;
}

pl_status pl_counts_write(const pl_counts *c, const char *path, pl_err *err) {
    int32_t *id = pl_malloc((size_t)c->vocab * sizeof *id);
    if (!id) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    int32_t     n = pl_counts_rank(c, id);
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_json_out_key(&o, "format"), pl_json_out_str(&o, FORMAT);
    pl_json_out_key(&o, "version"), pl_json_out_int(&o, 1);
    pl_json_out_key(&o, "tokenizer"), pl_json_out_str(&o, c->tokenizer);
    pl_json_out_key(&o, "vocab_size"), pl_json_out_int(&o, c->vocab);
    pl_json_out_key(&o, "corpus"), pl_json_out_str(&o, c->corpus);
    pl_json_out_key(&o, "documents"), pl_json_out_int(&o, c->documents);
    pl_json_out_key(&o, "tokens"), pl_json_out_int(&o, c->tokens);
    if (c->size > 0) pl_json_out_key(&o, "size"), pl_json_out_int(&o, c->size);
    pl_json_out_key(&o, "ids"), pl_json_out_array(&o);
    for (int32_t i = 0; i < n; i++)
        pl_json_out_int(&o, id[i]);
    pl_json_out_close(&o, ']');
    pl_json_out_key(&o, "counts"), pl_json_out_array(&o);
    for (int32_t i = 0; i < n; i++)
        pl_json_out_int(&o, c->count[id[i]]);
    pl_json_out_close(&o, ']');
    pl_json_out_close(&o, '}');
    pl_free(id);
    PL_TRY(pl_json_out_end(&o, err));
    pl_status st = pl_file_write_atomic(path, o.text, o.len, err);
    pl_free(o.text);
    return st;
}

static pl_status read_pairs(pl_counts *c, const pl_json *j, pl_err *err) {
    const cJSON *ids, *counts;
    PL_TRY(pl_json_get_array(j, NULL, "ids", &ids, err));
    PL_TRY(pl_json_get_array(j, NULL, "counts", &counts, err));
    const cJSON *a = ids->child, *b = counts->child;
    int64_t      total = 0, last_count = PL_JSON_INT_MAX, last_id = -1;
    for (; a && b; a = a->next, b = b->next) {
        int64_t id, count;
        PL_TRY(pl_json_int_of(j, a, 0, c->vocab - 1, &id, err));
        PL_TRY(pl_json_int_of(j, b, 1, last_count, &count, err));
        if (count == last_count && id <= last_id)
            return pl_json_fail(j, a, err, "ids of one count must ascend, %lld stands behind %lld", (long long)id,
                                (long long)last_id);
        if (c->count[id]) return pl_json_fail(j, a, err, "id %lld stands here twice", (long long)id);
        if (count > PL_JSON_INT_MAX - total)
            return pl_json_fail(j, b, err, "counts add up to more than %lld", (long long)PL_JSON_INT_MAX);
        c->count[id] = count;
        total += count;
        last_count = count;
        last_id = id;
    }
    if (a || b) return pl_json_fail(j, a ? ids : counts, err, "ids and counts differ in length");
    if (total != c->tokens)
        return pl_json_fail(j, counts, err, "counts add up to %lld, not to tokens, which is %lld", (long long)total,
                            (long long)c->tokens);
    return PL_OK;
}

static pl_status read_json(pl_counts *c, const pl_json *j, pl_err *err) {
    const char *format, *tokenizer, *corpus;
    int64_t     version, vocab;
    PL_TRY(pl_json_get_str(j, NULL, "format", &format, err));
    if (strcmp(format, FORMAT) != 0)
        return pl_json_fail(j, pl_json_find(j, NULL, "format"), err, "expected \"%s\"; paceline vocab makes such files",
                            FORMAT);
    PL_TRY(pl_json_get_int(j, NULL, "version", 1, 1, &version, err));
    PL_TRY(pl_json_get_str(j, NULL, "tokenizer", &tokenizer, err));
    PL_TRY(pl_json_get_str(j, NULL, "corpus", &corpus, err));
    PL_TRY(pl_json_get_int(j, NULL, "vocab_size", 1, VOCAB_MAX, &vocab, err));
    if (strlen(tokenizer) >= sizeof c->tokenizer)
        return pl_json_fail(j, pl_json_find(j, NULL, "tokenizer"), err, "expected 16 hexadecimal digits");
    PL_TRY(pl_counts_init(c, (int32_t)vocab, tokenizer, corpus, err));
    PL_TRY(pl_json_get_int(j, NULL, "documents", 0, PL_JSON_INT_MAX, &c->documents, err));
    PL_TRY(pl_json_get_int(j, NULL, "tokens", 0, PL_JSON_INT_MAX, &c->tokens, err));
    if (pl_json_find(j, NULL, "size")) PL_TRY(pl_json_get_int(j, NULL, "size", 1, vocab, &c->size, err));
    PL_TRY(read_pairs(c, j, err));
    if (c->size > cJSON_GetArraySize(pl_json_find(j, NULL, "ids")))
        return pl_json_fail(j, pl_json_find(j, NULL, "size"), err, "%lld ids, the list is shorter", (long long)c->size);
    return PL_OK;
}

pl_status pl_counts_read(pl_counts *c, const char *path, pl_err *err) {
    pl_json j;
    *c = (pl_counts){0};
    PL_TRY(pl_json_open(&j, path, FILE_MAX, PL_JSON_UNIQUE, err));
    pl_status st = read_json(c, &j, err);
    pl_json_close(&j);
    if (st != PL_OK) pl_counts_fini(c);
    return st;
}
