#include "train/task/heldout.h"

#include "kernels/base/arena.h"
#include "kernels/base/check.h"

#include <math.h>

// Returns the number of inputs of window w of document doc, 0 past its end. A window of n inputs needs n + 1 tokens.
static int32_t window_at(const pl_heldout *h, int64_t doc, int64_t w, int64_t *start) {
    int64_t first = h->tokens->doc_offsets[doc], n = h->tokens->doc_offsets[doc + 1] - first;
    int64_t left = n - 1 - w * h->window;
    *start = first + w * h->window;
    return (int32_t)(left <= 0 ? 0 : left < h->window ? left : h->window);
}

static int64_t windows_of(const pl_heldout *h, int64_t doc) {
    int64_t n = h->tokens->doc_offsets[doc + 1] - h->tokens->doc_offsets[doc];
    return n < 2 ? 0 : (n - 2) / h->window + 1;
}

// Counts the bytes of the labels of the selected windows. Documents are decoded from their start, so that a character
// or space that spans tokens is counted at the token that completes it.
static pl_status count_bytes(pl_heldout *h, const pl_tokenizer *tok, pl_err *err) {
    int64_t i = 0;
    for (int64_t doc = 0; doc < h->tokens->n_docs && i < h->n; doc++) {
        int64_t at = h->tokens->doc_offsets[doc], end = h->tokens->doc_offsets[doc + 1];
        if (h->start[i] >= end) continue;
        pl_detok    d;
        const char *text;
        PL_TRY(pl_detok_init(&d, tok, true, err));
        for (; at < end && i < h->n; at++) {
            int32_t id;
            pl_tokens_copy(h->tokens, at, 1, &id);
            size_t n = pl_detok_push(&d, id, &text);
            if (at > h->start[i] && at <= h->start[i] + h->len[i]) h->bytes += (int64_t)n;
            if (at == h->start[i] + h->len[i]) i++;
        }
        pl_detok_fini(&d);
    }
    return PL_OK;
}

pl_status pl_heldout_init(pl_heldout *h, const pl_tokens *tokens, const pl_tokenizer *tok, int64_t window,
                          int64_t want_tokens, pl_err *err) {
    PL_CHECK(window >= 1 && window < INT32_MAX && want_tokens >= 1, "window %lld, %lld tokens", (long long)window,
             (long long)want_tokens);
    *h = (pl_heldout){.tokens = tokens, .window = window};
    int64_t total = 0;
    for (int64_t doc = 0; doc < tokens->n_docs; doc++)
        total += windows_of(h, doc);
    int64_t take = want_tokens / window;
    if (take < 1) take = 1;
    if (take > total) take = total;
    if (take == 0) return pl_fail(err, PL_E_INPUT, "held-out text: no document has two tokens; hold out more");
    h->start = pl_calloc((size_t)take, sizeof *h->start);
    h->len = pl_calloc((size_t)take, sizeof *h->len);
    pl_status st = h->start && h->len ? PL_OK : pl_fail(err, PL_E_MEMORY, "held-out text: out of memory");
    int64_t   number = 0;
    for (int64_t doc = 0; doc < tokens->n_docs && st == PL_OK; doc++) {
        int64_t n = windows_of(h, doc);
        for (int64_t w = 0; w < n && h->n < take; w++, number++) {
            // Window `number` of `total` is taken when the running share crosses an integer: an even selection.
            if ((number + 1) * take / total == number * take / total) continue;
            h->len[h->n] = window_at(h, doc, w, &h->start[h->n]);
            h->n++;
        }
    }
    if (st == PL_OK) st = count_bytes(h, tok, err);
    if (st == PL_OK && h->bytes == 0)
        st = pl_fail(err, PL_E_INPUT, "held-out text: its tokens stand for no characters; hold out other text");
    if (st != PL_OK) pl_heldout_fini(h);
    return st;
}

void pl_heldout_fini(pl_heldout *h) {
    pl_free(h->start);
    pl_free(h->len);
    *h = (pl_heldout){0};
}

pl_status pl_heldout_score(const pl_heldout *h, pl_lm *lm, pl_heldout_result *out, pl_err *err) {
    PL_CHECK(lm->capacity >= h->window, "room for %lld rows, windows of %lld", (long long)lm->capacity,
             (long long)h->window);
    *out = (pl_heldout_result){.bytes = h->bytes};
    int32_t *ids = pl_malloc((size_t)(h->window + 1) * sizeof *ids);
    if (!ids) return pl_fail(err, PL_E_MEMORY, "held-out text: out of memory");
    double    loss = 0;
    int64_t   correct = 0;
    pl_status st = PL_OK;
    pl_lm_clear(lm);
    for (int64_t i = 0; i < h->n && st == PL_OK; i++) {
        pl_tokens_copy(h->tokens, h->start[i], h->len[i] + 1, ids);
        pl_lm_add(lm, ids, NULL, h->len[i]);
        if (i + 1 < h->n && lm->rows + h->len[i + 1] <= lm->capacity) continue;
        pl_lm_sums sums;
        st = pl_lm_score(lm, &sums, err);
        loss += sums.loss;
        correct += sums.correct;
        out->tokens += sums.count;
        pl_lm_clear(lm);
    }
    pl_free(ids);
    if (st != PL_OK) return st;
    out->loss = loss / (double)out->tokens;
    out->accuracy = (double)correct / (double)out->tokens;
    out->bits_per_byte = loss / log(2.0) / (double)h->bytes;
    return PL_OK;
}
