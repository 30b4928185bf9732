// Offline data within a disk budget: the weights of the run over the whole dataset, bit for bit, whatever was deleted,
// stopped, killed or shared in between.
#include "tests/train/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoints/state.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "train/run/run.h"
#include "train/source/order.h"
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARDS "data.rows_per_shard=300\ndata.sessions=4\n"
// Some epochs over 50 documents.
#define RUN                                                                                                            \
    SHARDS "data.window=8\ntrain.slots=2\ntrain.steps=30\ntrain.eval_every=15\ntrain.checkpoint_every=7\n"             \
           "train.eval_prompts=2\n"
#define BUDGET "data.disk_budget=1.8MB\n"

static pl_status make(const pl_recipe *r, const char *dir, const pl_env *env, int64_t stop_after, pl_err *err) {
    (void)stop_after;
    return pl_generate_run(r, NULL, dir, env, err);
}

// What every run says but where its data are.
static const char *without_dataset(void) {
    static char lines[4096];
    const char *at = strstr(small_data_lines, "data.dataset=");
    assert_non_null(at);
    snprintf(lines, sizeof lines, "%.*s%s", (int)(at - small_data_lines), small_data_lines, strchr(at, '\n') + 1);
    return lines;
}

static pl_status train(int ranks, const char *out, const char *extra, int64_t stop_after, pl_err *err) {
    char lines[4096];
    snprintf(lines, sizeof lines, "%s%s", without_dataset(), extra);
    return small_ranks(ranks, out, lines, pl_train_run_until, stop_after, err);
}

static void trained(int ranks, const char *out, const char *extra) {
    pl_err err;
    if (train(ranks, out, extra, 0, &err) != PL_OK) fail_msg("%s: %s", out, err.msg);
}

// Masters and moments; what they are rounded to, as it was best and last.
static void same(const char *a, const char *b) {
    static const char *const part[] = {"w", "m", "v", "cursor", "best_score", "best_step"};
    pl_state                *s[2];
    pl_err                   err = {0};
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s/checkpoints/last/training_state", small_base, i ? b : a);
        assert_int_equal(pl_state_open(&s[i], path, &err), PL_OK);
    }
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const pl_state_item *x = pl_state_find(s[0], part[i]), *y = pl_state_find(s[1], part[i]);
        assert_non_null(x);
        assert_non_null(y);
        assert_int_equal(x->count, y->count);
        assert_memory_equal(x->data, y->data, (size_t)x->count * pl_dtype_size(x->dtype));
    }
    pl_state_close(s[0]), pl_state_close(s[1]);
    small_same(a, b, "checkpoints/last/model.safetensors");
    small_same(a, b, "checkpoints/best/model.safetensors");
}

// Bytes of the shards in a folder, and how many.
static int64_t on_disk(const char *folder, int *n) {
    char           path[400];
    int64_t        bytes = 0;
    struct dirent *d;
    snprintf(path, sizeof path, "%s/%s", small_base, folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (*n = 0; (d = readdir(dir)) != NULL;) {
        struct stat st;
        char        file[700];
        snprintf(file, sizeof file, "%s/%s", path, d->d_name);
        if (strncmp(d->d_name, "shard-", 6) != 0 || stat(file, &st) != 0) continue;
        bytes += st.st_size;
        ++*n;
    }
    closedir(dir);
    return bytes;
}

static void like_the_whole(void **state) {
    (void)state;
    int     n[2];
    pl_err  err;
    int64_t all, here;
    char    lines[4096];
    snprintf(lines, sizeof lines, "%s%s", without_dataset(), RUN);
    if (small_ranks(1, "whole", lines, make, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    trained(1, "whole", RUN);
    trained(1, "one", RUN BUDGET);
    trained(2, "two", RUN BUDGET);
    same("whole", "one");
    same("whole", "two");
    small_same("one", "two", "checkpoints/last/training_state");
    all = on_disk("whole/dataset", &n[0]), here = on_disk("two/bounded", &n[1]);
    print_message("%d shards, %lld bytes; bounded %d, %lld\n", n[0], (long long)all, n[1], (long long)here);
    assert_true(n[0] > 8 && n[1] < n[0] / 2 && here <= 1800000 && here < all / 2);
    assert_false(small_exists("one/dataset"));
}

// Features in 8 bits take less and are others; bounded or whole, by one or two, they are the same.
static void in_8_bits(void **state) {
    (void)state;
    pl_err   err;
    int      n;
    char     lines[4096];
    uint8_t *a, *b;
    size_t   na, nb;
    snprintf(lines, sizeof lines, "%s%s", without_dataset(), RUN "data.feature_format=int8\n");
    if (small_ranks(1, "whole8", lines, make, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    trained(1, "whole8", RUN "data.feature_format=int8\n");
    trained(2, "two8", RUN "data.disk_budget=1.8MB\ndata.feature_format=int8\n");
    same("whole8", "two8");
    small_read("whole", "checkpoints/last/model.safetensors", &a, &na);
    small_read("whole8", "checkpoints/last/model.safetensors", &b, &nb);
    assert_true(na != nb || memcmp(a, b, na) != 0);
    pl_free(a), pl_free(b);
    assert_true(on_disk("whole8/dataset", &n) < on_disk("whole/dataset", &n));
    assert_int_equal(train(1, "two8", RUN BUDGET, 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its features are stored as int8, wanted is bf16"));
    assert_int_equal(train(1, "whole8", RUN "train.steps=40\n", 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "its features are stored as int8, wanted is bf16"));
}

// A conversation's turns, answered by generators that have looked ahead.
static void conversations(void **state) {
    (void)state;
    pl_err            err;
    char              lines[4096];
    static const char talk[] = RUN "data.prompts=BASE/talks.jsonl\ndata.form=chat\ndata.chat.template=BASE/t.jinja\n"
                                   "data.rows_per_shard=400\n";
    small_conversations(24);
    snprintf(lines, sizeof lines, "%s%s", without_dataset(), talk);
    if (small_ranks(1, "talks", lines, make, 0, &err) != PL_OK) fail_msg("%s", err.msg);
    snprintf(lines, sizeof lines, "%sdata.disk_budget=2.5MB\n", talk);
    trained(1, "talks", talk);
    trained(2, "talks2", lines);
    same("talks", "talks2");
}

// Stopped, by other ranks, and with shards that are lost meanwhile or left without their line.
static void goes_on(void **state) {
    (void)state;
    pl_err err;
    char   path[160], to[160];
    int    n;
    assert_int_equal(train(2, "parts", RUN BUDGET, 5, &err), PL_E_INTERRUPTED);
    assert_int_equal(train(1, "parts", RUN BUDGET, 11, &err), PL_E_INTERRUPTED);
    on_disk("parts/bounded", &n);
    for (int k = 0, lost = 0; k < 20 && lost < 1; k++) {
        snprintf(path, sizeof path, "%s/parts/bounded/shard-%05d.h5", small_base, k);
        snprintf(to, sizeof to, "%s/parts/bounded/shard-00019.h5", small_base);
        lost += rename(path, to) == 0;
    }
    trained(2, "parts", RUN "data.disk_budget=2.5MB\n"); // another budget is no other run
    small_same("one", "parts", "checkpoints/last/training_state");
}

// Shards of other prompts are not learned from, though they are as many.
static void other_prompts(void **state) {
    (void)state;
    pl_err err;
    small_other_prompts();
    assert_int_equal(train(1, "swapped", RUN BUDGET, 5, &err), PL_E_INTERRUPTED);
    assert_int_equal(train(1, "swapped", RUN BUDGET "data.prompts=BASE/others.jsonl\n", 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "made with generation settings"));
}

// Rank 1 dies while shards are made and learned from.
static void killed(void **state) {
    (void)state;
    pl_err    err;
    pl_status st = PL_E_IO;
    int       died = 0;
    for (int i = 0; i < 8 && st != PL_OK; i++) {
        small_dies_after_ms = 60 + 150 * i;
        st = train(2, "killed", RUN BUDGET, 0, &err);
        small_dies_after_ms = 0;
        assert_true(st == PL_OK || st == PL_E_IO);
        died += st != PL_OK;
    }
    assert_true(died > 0);
    if (st != PL_OK) trained(2, "killed", RUN BUDGET);
    small_same("one", "killed", "checkpoints/last/training_state");
}

// A stop that is asked for, while documents are made or learned from, leaves a state to go on from.
static void asked_to_stop(void **state) {
    (void)state;
    pl_err    err;
    pl_status st = PL_E_INTERRUPTED;
    int       stopped = 0;
    for (int i = 0; i < 12 && st == PL_E_INTERRUPTED; i++) {
        pid_t asks = fork();
        assert_true(asks >= 0);
        if (asks == 0) {
            usleep(25000 * (useconds_t)(1 + i));
            kill(getppid(), SIGTERM);
            _exit(0);
        }
        pl_stop_install();
        pl_stop_hold();
        st = train(1, "asked", RUN BUDGET "train.checkpoint_every=0\n", 0, &err);
        assert_int_equal(waitpid(asks, NULL, 0), asks);
        pl_stop_install(); // one that came too late is forgotten
        pl_stop_release();
        if (st == PL_OK) break;
        if (st != PL_E_INTERRUPTED) fail_msg("%s", err.msg);
        uint8_t *data;
        size_t   n;
        small_read("asked", "checkpoints/last/training_state", &data, &n);
        assert_true(n > 0);
        pl_free(data);
        stopped++;
    }
    signal(SIGTERM, SIG_DFL);
    assert_true(stopped > 0);
    if (st != PL_OK) trained(1, "asked", RUN BUDGET "train.checkpoint_every=0\n");
    small_same("one", "asked", "checkpoints/last/training_state");
}

// The disk is full, for rank 0, at one step after the other.
static void full_disk(void **state) {
    (void)state;
    pl_err    err;
    pl_status st = PL_E_IO;
    int       failed = 0;
    for (uint64_t n = 10; n < 200 && st != PL_OK; n += 37) {
        pl_io_fail_after(n);
        st = train(2, "full", RUN BUDGET, 0, &err);
        pl_io_fail_after(0);
        assert_true(st == PL_OK || st == PL_E_IO);
        if (st != PL_OK) assert_null(strchr(err.msg, '\n'));
        failed += st != PL_OK;
    }
    assert_true(failed > 2);
    if (st != PL_OK) trained(1, "full", RUN BUDGET);
    small_same("one", "full", "checkpoints/last/training_state");
}

static void refused(int ranks, const char *extra, const char *says) {
    pl_err err;
    assert_int_equal(train(ranks, "bad", extra, 0, &err), PL_E_INPUT);
    if (!strstr(err.msg, says)) fail_msg("%s", err.msg);
    assert_null(strchr(err.msg, '\n'));
}

static void refusals(void **state) {
    (void)state;
    refused(1, RUN "data.disk_budget=0.9MB\n", "two windows are there at a time, which take up to ");
    refused(2, RUN "data.window=0\ndata.disk_budget=1.8MB\n", "lower data.window (0 and large ones: all documents)");
    refused(1, RUN "data.disk_budget=much\n", "\"much\" is no size; write 500MB, 20GB or 1.5TiB");
    refused(1, RUN "data.disk_budget=1GB\ndata.mode=online\n", "data.mode: online stores nothing");
    refused(1, RUN "data.mode=online\ndata.feature_format=int8\n", "data.feature_format");
    refused(1, RUN "data.disk_budget=1GB\ndata.dataset=BASE/whole/dataset\n", "data.dataset is there already");
}

static int64_t seven(void *arg, int64_t k) {
    (void)arg, (void)k;
    return 7;
}

// Each epoch takes every document once, window by window, in another order each time.
static void order(void **state) {
    (void)state;
    enum { SHARDS_N = 9, DOCS = 7 * SHARDS_N };
    for (int window = 0; window < 30; window += 10) {
        pl_doc_order o;
        pl_err       err = {0};
        int64_t      before[DOCS] = {0};
        assert_int_equal(pl_doc_order_init(&o, 5, DOCS, &err), PL_OK);
        for (int i = 0; i < DOCS; i++)
            if (i % 5) o.member[o.docs++] = i;
        assert_int_equal(pl_doc_order_windows(&o, window, SHARDS_N, seven, NULL, &err), PL_OK);
        assert_int_equal(o.windows, window == 0 ? 1 : window == 10 ? 5 : 3);
        for (int epoch = 0; epoch < 3; epoch++) {
            int     seen[DOCS] = {0}, moved = 0, turns = 0;
            int64_t last = -1;
            for (int64_t i = 0; i < o.docs; i++) {
                int64_t at = epoch * o.docs + i, d = pl_doc_order_number(&o, at), w = pl_doc_order_window(&o, at);
                assert_true(d % 5 != 0 && seen[d]++ == 0);
                assert_true(d / 7 >= o.shard[w] && d / 7 < o.shard[w + 1]);
                turns += w != last;
                moved += d != before[i];
                before[i] = d, last = w;
            }
            assert_int_equal(turns, o.windows);
            assert_true(moved > o.docs / 2);
        }
        pl_doc_order_fini(&o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),         cmocka_unit_test(like_the_whole), cmocka_unit_test(in_8_bits),
        cmocka_unit_test(conversations), cmocka_unit_test(goes_on),        cmocka_unit_test(killed),
        cmocka_unit_test(other_prompts), cmocka_unit_test(asked_to_stop),  cmocka_unit_test(full_disk),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, small_setup, small_teardown);
}
