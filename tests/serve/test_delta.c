// An answer's text in parts (infer/serve/delta.h): whole characters, stop strings over any split, nothing lost. Keys,
// hosts and log-probabilities of a server beside it.
#include "infer/serve/access.h"
#include "infer/serve/delta.h"
#include "infer/serve/logprobs.h"
#include "kernels/base/utf8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT "The caf\xc3\xa9 of \xe6\x97\xa5\xe6\x9c\xac was aab aabb aaab."

static pl_tokenizer *tok;

static int setup(void **state) {
    (void)state;
    pl_err err;
    if (pl_tokenizer_open(&tok, PACELINE_SOURCE_DIR "/checkpoints/tiny", &err) != PL_OK) fail_msg("%s", err.msg);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    pl_tokenizer_close(tok);
    return 0;
}

// Pushes TEXT token by token, taking what may be given out after each; returns whether a stop string was found.
static bool stream(const char *const *stop, int n_stop, char out[256]) {
    pl_delta d;
    int32_t *ids;
    int64_t  n;
    bool     stopped = false;
    assert_int_equal(pl_tokenizer_encode(tok, TEXT, strlen(TEXT), 0, &ids, &n, NULL), PL_OK);
    assert_int_equal(pl_delta_init(&d, tok, true, stop, n_stop, NULL), PL_OK);
    *out = 0;
    for (int64_t i = 0; i <= n && !stopped; i++) {
        size_t bytes;
        if (i < n)
            stopped = !pl_delta_push(&d, ids[i]);
        else
            pl_delta_end(&d);
        const char *part = pl_delta_take(&d, &bytes);
        assert_int_equal(pl_utf8_valid(part, bytes), bytes);
        strncat(out, part, bytes);
    }
    stopped |= d.stopped;
    assert_int_equal(d.taken, d.text.n);
    assert_int_equal(strlen(out), d.text.n);
    pl_delta_fini(&d);
    pl_free(ids);
    return stopped;
}

static void whole(void **state) {
    (void)state;
    char out[256];
    assert_false(stream(NULL, 0, out));
    assert_string_equal(out, TEXT);
    assert_false(stream((const char *const[]){"aac", "aabbb"}, 2, out)); // only begun
    assert_string_equal(out, TEXT);
}

// Every part of the text as a stop string ends it where it first occurs.
static void stops(void **state) {
    (void)state;
    char out[256], part[64];
    for (size_t from = 0; from < strlen(TEXT); from++)
        for (size_t n = 1; n <= 9 && from + n <= strlen(TEXT); n++) {
            memcpy(part, &TEXT[from], n);
            part[n] = 0;
            if (pl_utf8_valid(part, n) != n) continue;
            size_t at = (size_t)(strstr(TEXT, part) - TEXT);
            assert_true(stream((const char *const[]){"never there", part}, 2, out));
            assert_int_equal(strlen(out), at);
            assert_memory_equal(out, TEXT, at);
        }
}

static void earliest_of_several(void **state) {
    (void)state;
    char out[256];
    assert_true(stream((const char *const[]){"was", "of", "caf\xc3\xa9 of"}, 3, out));
    assert_string_equal(out, "The ");
}

static void hosts(void **state) {
    (void)state;
    static const char *const names[] = {"box.example"};
    pl_access                a = {.host = names, .n_hosts = 1};
    static const char *const good[] = {"localhost",  "LOCALHOST:8000", "127.0.0.1:1",    "10.1.2.3",
                                       "[::1]:8000", "[::1]",          "box.example:80", "Box.Example"};
    static const char *const foreign[] = {"evil.example", "localhost.evil.example", "127.0.0.1.evil", "", ":8000", "[",
                                          "[x]",          "box.example.evil:80",    "1.2.3"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!pl_access_names_host(&a, good[i])) fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (pl_access_names_host(&a, foreign[i])) fail_msg("%s is accepted", foreign[i]);
    assert_true(pl_access_names_host(&a, NULL));
    assert_true(pl_access_is_json("application/json") && pl_access_is_json("Application/JSON; charset=utf-8"));
    assert_false(pl_access_is_json(NULL) || pl_access_is_json("text/plain") || pl_access_is_json("application/jsonl"));
}

static pl_status read_keys(pl_access *a, const char *text, mode_t mode, pl_err *err) {
    char  path[] = "/tmp/paceline-keys-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
    *a = (pl_access){0};
    pl_status st = pl_access_read_keys(a, path, err);
    unlink(path);
    return st;
}

static void keys(void **state) {
    (void)state;
    pl_access a = {0};
    pl_err    err;
    assert_true(pl_access_has_key(&a, NULL)); // none is needed
    assert_int_equal(read_keys(&a, "# ours\n\nsk-one\r\nsk-two", 0600, &err), PL_OK);
    assert_int_equal(a.n_keys, 2);
    assert_true(pl_access_has_key(&a, "Bearer sk-one") && pl_access_has_key(&a, "bearer sk-two"));
    assert_false(pl_access_has_key(&a, NULL) || pl_access_has_key(&a, "") || pl_access_has_key(&a, "sk-one"));
    assert_false(pl_access_has_key(&a, "Bearer sk-") || pl_access_has_key(&a, "Bearer sk-one2") ||
                 pl_access_has_key(&a, "Bearer # ours") || pl_access_has_key(&a, "Bearer "));
    pl_access_fini(&a);
    assert_int_equal(read_keys(&a, "sk-one\n", 0644, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "chmod 600"));
    assert_int_equal(read_keys(&a, "# none\n", 0600, &err), PL_E_USAGE);
    assert_non_null(strstr(err.msg, "holds no key"));
    pl_access_fini(&a);
}

static void logprobs(void **state) {
    (void)state;
    const float   x[] = {1, 3, -2, 3, 0.5f};
    double        sum = 0;
    pl_logprobs   l = {.top = 3};
    const int32_t best[] = {1, 3, 0};
    for (int i = 0; i < 5; i++)
        sum += exp(x[i]);
    for (int k = 0; k < 100; k++)
        assert_int_equal(pl_logprobs_add(&l, x, 5, k % 5, NULL), PL_OK);
    for (int k = 0; k < 100; k++) {
        const pl_logprob *p = pl_logprobs_at(&l, k);
        assert_int_equal(p[0].token, k % 5);
        assert_true(fabs(p[0].logprob - (x[k % 5] - log(sum))) < 1e-6);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(p[1 + i].token, best[i]);
            assert_true(fabs(p[1 + i].logprob - (x[best[i]] - log(sum))) < 1e-6);
        }
    }
    pl_logprobs_fini(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole), cmocka_unit_test(stops), cmocka_unit_test(earliest_of_several),
        cmocka_unit_test(hosts), cmocka_unit_test(keys),  cmocka_unit_test(logprobs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
