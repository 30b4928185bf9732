#include "data/tokenizer/tokenizer.h"
#include "kernels/base/arena.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static const char *const texts[] = {
    "", " ", "the cat sat\n on  a mat, and 12.5 dogs</s> <s>",
    ("\xe2\x96\x81\xe2\x96\x81"
     "caf\xc3\xa9 e\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80\t\r\n"),
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

static void stream(const pl_tokenizer *tok, const int32_t *ids, int64_t n) {
    pl_err      err;
    pl_detok    d;
    const char *s;
    pl_fuzz_must(pl_detok_init(&d, tok, true, &err), &err);
    for (int64_t i = 0; i < n; i++) {
        size_t len = pl_detok_push(&d, ids[i], &s);
        pl_fuzz_touch(s, len);
    }
    size_t len = pl_detok_flush(&d, &s);
    pl_fuzz_touch(s, len);
    pl_detok_fini(&d);
}

static void use(const pl_tokenizer *tok, const char *text, size_t bytes, unsigned flags) {
    pl_err   err;
    int32_t *ids = NULL;
    int64_t  n;
    char    *back = NULL;
    size_t   len;
    if (!pl_fuzz_result(pl_tokenizer_encode(tok, text, bytes, flags, &ids, &n, &err), &err, &ids)) return;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= pl_tokenizer_vocab_size(tok))
            pl_fuzz_finding("id %d of a vocabulary of %d", ids[i], pl_tokenizer_vocab_size(tok));
    if (pl_fuzz_result(pl_tokenizer_decode(tok, ids, n, &back, &len, &err), &err, &back)) pl_fuzz_touch(back, len + 1);
    stream(tok, ids, n);
    pl_free(back);
    pl_free(ids);
}

void pl_fuzz_tokenizer(const char *path, const char *pre) {
    pl_err        err;
    pl_tokenizer *tok = NULL;
    if (!pl_fuzz_result(pl_tokenizer_open_pre(&tok, path, pre, &err), &err, &tok)) return;
    int32_t vocab = pl_tokenizer_vocab_size(tok);
    if (vocab < 1 || pl_tokenizer_bos_id(tok) >= vocab || pl_tokenizer_eos_id(tok) >= vocab)
        pl_fuzz_finding("vocabulary %d, BOS %d, EOS %d", vocab, pl_tokenizer_bos_id(tok), pl_tokenizer_eos_id(tok));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        use(tok, texts[i], strlen(texts[i]), PL_TOK_ADD_BOS);
        use(tok, texts[i], strlen(texts[i]), PL_TOK_NO_SPECIAL);
    }
    use(tok, "a\0b", 3, 0);
    for (int32_t id = 0; id < vocab && id < 2000; id++) { // every piece, as text and as an id
        const char *s = pl_tokenizer_piece(tok, id);
        pl_fuzz_touch(s, strlen(s) + 1);
        if (id < 300) use(tok, s, strlen(s), 0);
        stream(tok, (int32_t[]){id, vocab - 1 - id}, 2);
    }
    pl_fuzz_touch(pl_tokenizer_fingerprint(tok), 17);
    pl_tokenizer_close(tok);
}
