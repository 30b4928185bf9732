#include "infer/serve/delta.h"

pl_status pl_delta_init(pl_delta *d, const pl_tokenizer *tok, bool at_start, const char *const *stop, int n_stop,
                        pl_err *err) {
    *d = (pl_delta){.stop = stop, .n_stop = n_stop};
    for (int i = 0; i < n_stop; i++)
        if (strlen(stop[i]) > d->longest) d->longest = strlen(stop[i]);
    return pl_detok_init(&d->detok, tok, at_start, err);
}

void pl_delta_fini(pl_delta *d) {
    pl_detok_fini(&d->detok);
    pl_strbuf_fini(&d->text);
    *d = (pl_delta){0};
}

// Cuts the text at the first stop string that ends behind byte `from`.
static void find_stop(pl_delta *d, size_t from) {
    size_t      begin = from > d->longest ? from - d->longest : 0;
    const char *first = NULL;
    if (d->n_stop == 0 || d->text.n == from) return;
    for (int i = 0; i < d->n_stop; i++) {
        const char *at = memmem(d->text.s + begin, d->text.n - begin, d->stop[i], strlen(d->stop[i]));
        if (!at || (first && at >= first)) continue;
        first = at;
        d->found = i;
    }
    if (!first) return;
    d->text.n = (size_t)(first - d->text.s);
    d->stopped = true;
}

static void add_text(pl_delta *d, const char *text, size_t n) {
    size_t before = d->text.n;
    pl_strbuf_add(&d->text, text, n);
    find_stop(d, before);
}

static bool is_mark(const pl_delta *d, int32_t token) {
    for (int i = 0; i < d->n_marks; i++)
        if (d->mark[i] == token) return true;
    return false;
}

bool pl_delta_push(pl_delta *d, int32_t token) {
    const char *text;
    bool        mark = is_mark(d, token);
    size_t      n = mark ? pl_detok_flush(&d->detok, &text) : pl_detok_push(&d->detok, token, &text);
    if (!d->stopped) add_text(d, text, n);
    if (mark && !d->stopped) {
        text = pl_tokenizer_piece(d->detok.tok, token);
        add_text(d, text, strlen(text));
    }
    return !d->stopped;
}

void pl_delta_end(pl_delta *d) {
    const char *text;
    size_t      n = pl_detok_flush(&d->detok, &text);
    if (!d->stopped) add_text(d, text, n);
    d->ended = true;
}

// Returns the length of the longest end of the text that begins a stop string.
static size_t count_held(const pl_delta *d) {
    size_t n = d->text.n - d->taken;
    if (d->stopped || d->ended) return 0;
    for (n = n < d->longest ? n : d->longest; n > 0; n--)
        for (int i = 0; i < d->n_stop; i++)
            if (strncmp(d->text.s + d->text.n - n, d->stop[i], n) == 0) return n;
    return 0;
}

const char *pl_delta_take(pl_delta *d, size_t *n) {
    *n = d->text.n > d->taken ? d->text.n - d->taken - count_held(d) : 0;
    if (*n == 0) return "";
    d->taken += *n;
    return d->text.s + d->taken - *n;
}
