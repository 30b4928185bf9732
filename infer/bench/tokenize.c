// bench tokenize: times encoding and decoding of a text on one thread.
#include "data/tokenizer/tokenizer.h"
#include "infer/bench/bench.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"

#include <string.h>

#define MAX_TEXT ((size_t)1 << 30)
enum { PIECE = 4096 }; // bytes of text encoded in one call, like a prompt or a short document

// Returns the end of the piece at `at`: after the first line feed from PIECE bytes on.
static size_t piece_end(const char *s, size_t n, size_t at) {
    if (n - at <= PIECE) return n;
    const char *end = memchr(s + at + PIECE, '\n', n - at - PIECE);
    return end ? (size_t)(end + 1 - s) : n;
}

typedef struct pass {
    const pl_tokenizer *tok;
    const char         *text;
    size_t              bytes;
    unsigned            flags;
    bool                decode; // decodes the tokens again and times only that
    int64_t             tokens;
    double              seconds;
} pass;

static pl_status run_pass(pass *p, pl_err *err) {
    p->tokens = 0;
    p->seconds = 0;
    for (size_t at = 0, end; at < p->bytes; at = end) {
        end = piece_end(p->text, p->bytes, at);
        int32_t *ids;
        int64_t  n;
        double   t0 = pl_now();
        PL_TRY(pl_tokenizer_encode(p->tok, p->text + at, end - at, p->flags, &ids, &n, err));
        double    t1 = pl_now();
        char     *back = NULL;
        size_t    len;
        pl_status st = p->decode ? pl_tokenizer_decode(p->tok, ids, n, &back, &len, err) : PL_OK;
        p->seconds += p->decode ? pl_now() - t1 : t1 - t0;
        p->tokens += n;
        pl_free(ids);
        pl_free(back);
        PL_TRY(st);
    }
    return PL_OK;
}

// Times all ways in turn; the first round warms up and is not counted.
enum { WAYS = 3 };
static pl_status time_ways(pass way[WAYS], double seconds[WAYS][PL_BENCH_TRIES], pl_err *err) {
    for (int t = -1; t < PL_BENCH_TRIES; t++)
        for (int i = 0; i < WAYS; i++) {
            PL_TRY(run_pass(&way[i], err));
            if (t >= 0) seconds[i][t] = way[i].seconds;
        }
    return PL_OK;
}

pl_status pl_bench_put_tokenize(pl_json_out *o, const pl_bench_tokenize *b, pl_err *err) {
    pl_tokenizer *tok = NULL;
    uint8_t      *text = NULL;
    size_t        n = 0;
    double        seconds[WAYS][PL_BENCH_TRIES];
    pl_status     st = PL_OK;
    PL_TRY_GOTO(st, done, pl_file_read(b->file, &text, &n, MAX_TEXT, err));
    if (n == 0) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "%s: is empty", b->file));
    double t0 = pl_now();
    PL_TRY_GOTO(st, done, pl_tokenizer_open_pre(&tok, b->tokenizer, b->pre, err));
    double open = pl_now() - t0;
    bool   spm = strcmp(pl_tokenizer_kind(tok), "sentencepiece") == 0;
    pass   p = {.tok = tok, .text = (const char *)text, .bytes = n, .flags = PL_TOK_NO_SPECIAL};
    pass   way[WAYS] = {p, p, p};
    way[1].flags |= PL_TOK_NO_CACHE;
    way[2].decode = true;
    // Without the cache of words the SentencePiece library alone encodes.
    const char *names[WAYS] = {"encode", spm ? "encode, SentencePiece library alone" : "encode, no memory of words",
                               "decode"};
    PL_TRY_GOTO(st, done, time_ways(way, seconds, err));
    pl_put_object(o, "tokenize");
    pl_put_str(o, "kind", pl_tokenizer_kind(tok));
    pl_put_str(o, "fingerprint", pl_tokenizer_fingerprint(tok));
    pl_put_num(o, "open_seconds", open);
    pl_put_int(o, "text_bytes", (int64_t)n);
    pl_put_int(o, "tokens", way[0].tokens);
    pl_put_num(o, "bytes_per_token", (double)n / (double)way[0].tokens);
    pl_put_int(o, "threads", 1);
    pl_put_array(o, "ways");
    for (int i = 0; i < WAYS; i++) {
        pl_sample_stats s = pl_stats(seconds[i], PL_BENCH_TRIES);
        pl_json_out_object(o);
        pl_put_str(o, "name", names[i]);
        pl_put_num(o, "seconds", s.median);
        pl_put_num(o, "p10", s.p10);
        pl_put_num(o, "p90", s.p90);
        pl_put_num(o, "mb_per_second", (double)n / 1e6 / s.median);
        pl_put_num(o, "tokens_per_second", (double)way[i].tokens / s.median);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
    pl_json_out_close(o, '}');
done:
    pl_tokenizer_close(tok);
    pl_free(text);
    return st;
}
