#include "data/tokenizer/hf.h"
#include "kernels/base/arena.h"
#include "kernels/base/utf8.h"

#include <math.h>
#include <stdlib.h>

#define UNKNOWN_PENALTY 10

void pl_unigram_fini(pl_unigram *u) {
    pl_free(u->score);
    *u = (pl_unigram){0};
}

void pl_unigram_index(pl_unigram *u) {
    double least = INFINITY;
    u->longest = 0;
    for (int32_t i = 0; i < u->vocab->n; i++) {
        size_t n;
        pl_vocab_piece(u->vocab, i, &n);
        if (n == 0) continue; // a hole
        if (n > u->longest) u->longest = n;
        if (u->score[i] < least) least = u->score[i];
    }
    u->unknown = least - UNKNOWN_PENALTY;
}

// The best segmentation of the text up to a byte: its last piece.
typedef struct node {
    double  score;
    int64_t from; // start of the piece; -1: no segmentation ends here
    int32_t id;
} node;

static void offer_piece(node *to, double score, size_t from, int32_t id) {
    if (to->from < 0 || score > to->score) *to = (node){score, (int64_t)from, id};
}

static void find_best(const pl_unigram *u, const char *s, size_t n, node *best) {
    for (size_t i = 0; i <= n; i++)
        best[i] = (node){0, -1, -1};
    for (size_t at = 0; at < n;) {
        size_t one = (size_t)pl_utf8_next(s + at, n - at, NULL), most = n - at < u->longest ? n - at : u->longest;
        bool   alone = false;
        for (size_t len = 1; len <= most; len++) {
            int32_t id = pl_vocab_find(u->vocab, s + at, len);
            if (id < 0) continue;
            offer_piece(&best[at + len], u->score[id] + best[at].score, at, id);
            alone |= len == one;
        }
        if (!alone) offer_piece(&best[at + one], u->unknown + best[at].score, at, u->unk);
        at += one;
    }
}

// Writes unknown text: a piece after all, its bytes, or the unknown token.
static void put_unknown(const pl_unigram *u, const char *s, size_t n, pl_ids *o) {
    int32_t id = pl_vocab_find(u->vocab, s, n);
    bool    bytes = id < 0 && u->byte_id;
    for (size_t i = 0; i < n && bytes; i++)
        bytes = u->byte_id[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; i < n && bytes; i++)
        o->v[o->n++] = u->byte_id[(uint8_t)s[i]];
    if (!bytes) o->v[o->n++] = id >= 0 ? id : u->unk;
}

// Writes the best path's ids in text order. The caller has reserved an id per byte.
static void put_path(const pl_unigram *u, const char *s, size_t n, node *best, pl_ids *o) {
    // Reverses the path in place: best[i].from becomes the end of the piece that begins at i.
    size_t end = n;
    for (int64_t next = -1; end > 0;) {
        int64_t from = best[end].from;
        best[end].from = next;
        next = (int64_t)end;
        end = (size_t)from;
        if (end == 0) best[0].from = next;
    }
    for (size_t at = 0; at < n;) {
        size_t to = (size_t)best[at].from;
        if (best[to].id != u->unk) {
            o->v[o->n++] = best[to].id;
            at = to;
            continue;
        }
        while (to < n && best[(size_t)best[to].from].id == u->unk)
            to = (size_t)best[to].from;
        put_unknown(u, s + at, to - at, o);
        at = to;
    }
}

pl_status pl_unigram_encode(const pl_unigram *u, const char *s, size_t n, pl_ids *o, pl_err *err) {
    if (n == 0) return PL_OK;
    node *best = pl_malloc(pl_size_mul(n + 1, sizeof *best, 1));
    if (!best) return pl_fail(err, PL_E_MEMORY, "encoding: out of memory");
    pl_status st = pl_ids_reserve(o, n, err);
    if (st == PL_OK) {
        find_best(u, s, n, best);
        put_path(u, s, n, best, o);
    }
    pl_free(best);
    return st;
}
