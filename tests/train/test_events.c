// TensorBoard's event files: framing and checksums by a reader of our own, tags, and a step that stands once whatever
// happened to the run. (TensorBoard's own reader: tests/peers/check_events.py.)
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "tests/train/event_reader.h"
#include "train/loop/metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char base[64];

static int setup(void **state) {
    (void)state;
    snprintf(base, sizeof base, "/tmp/paceline-events-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return pl_tree_remove(base, NULL) == PL_OK ? 0 : -1;
}

// Steps first..last, each with a loss, and an evaluation at every third.
static void write_steps(const char *dir, int64_t keep, int64_t first, int64_t last) {
    pl_metrics m;
    pl_err     err = {0};
    char      *path = pl_path_join(dir, "metrics.jsonl");
    assert_int_equal(pl_dir_make(dir, &err), PL_OK);
    assert_int_equal(pl_metrics_open(&m, path, "eagle3", keep, &err), PL_OK);
    pl_metrics_watch(&m);
    for (int64_t s = first; s <= last; s++) {
        pl_metrics_begin(&m, s);
        pl_metrics_num(&m, "loss", 1.0 / (double)s);
        pl_metrics_num(&m, "lr", 0.25);
        assert_int_equal(pl_metrics_end(&m, &err), PL_OK);
        if (s % 3) continue;
        pl_metrics_begin(&m, s);
        pl_metrics_num(&m, "eval_loss", NAN);
        pl_metrics_nums(&m, "eval_step_accuracy", (double[]){0.5, 0.25}, 2);
        pl_metrics_num(&m, "documents_decoded_length", 2.5);
        assert_int_equal(pl_metrics_end(&m, &err), PL_OK);
    }
    pl_metrics_close(&m);
    pl_free(path);
}

static int count_of(const test_event *e, int n, const char *tag, int64_t step) {
    int found = 0;
    for (int i = 0; i < n; i++)
        found += strcmp(e[i].tag, tag) == 0 && e[i].step == step;
    return found;
}

// RFC 3720, B.4.
static void checksums_are_castagnolis(void **state) {
    uint8_t zero[32] = {0}, ones[32], up[32];
    (void)state;
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 32; i++)
        up[i] = (uint8_t)i;
    assert_int_equal(test_crc32c(zero, 32), 0x8a9136aa);
    assert_int_equal(test_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(test_crc32c(up, 32), 0x46dd794e);
}

static void a_line_is_an_event(void **state) {
    test_event e[64];
    char       name[256], *dir = pl_path_join(base, "one");
    double     now = pl_unix_time();
    (void)state;
    write_steps(dir, 0, 1, 3);
    int n = test_events_read(e, 64, dir, name);
    assert_int_equal(strncmp(name, "events.out.tfevents.", 20), 0);
    assert_true(strspn(name + 20, "0123456789") == 10 && name[30] == '.');
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_true(e[1].session == 1 && e[1].step == 0);
    assert_int_equal(n, 2 + 3 * 2 + 3);
    for (int i = 0; i < 3; i++) {
        const test_event *loss = &e[2 + 2 * i], *lr = loss + 1;
        assert_string_equal(loss->tag, "train/loss");
        assert_string_equal(lr->tag, "train/learning_rate");
        assert_true(loss->value == 1.0f / (float)(i + 1) && loss->step == i + 1 && lr->value == 0.25f);
        assert_true(fabs(loss->time - now) < 60);
    }
    assert_string_equal(e[8].tag, "eval/step_accuracy/1"); // a loss that is not known has no event
    assert_string_equal(e[9].tag, "eval/step_accuracy/2");
    assert_string_equal(e[10].tag, "documents/decoded_length");
    assert_true(e[8].value == 0.5f && e[9].value == 0.25f && e[10].value == 2.5f && e[10].step == 3);
    pl_free(dir);
}

// Killed in a step behind its checkpoint, with a record cut short: each step stands once, in a file behind the first.
static void a_resumed_run_says_each_step_once(void **state) {
    test_event e[128];
    char       first[256], second[256], path[512], *dir = pl_path_join(base, "resumed");
    (void)state;
    write_steps(dir, 0, 1, 10);
    test_events_read(e, 128, dir, first);
    snprintf(path, sizeof path, "%s/%s", dir, first);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    fputs("\x1b", f);
    fclose(f);
    write_steps(dir, 6, 7, 12);
    int n = test_events_read(e, 128, dir, second);
    assert_true(strcmp(second, first) > 0);
    assert_int_equal(n, 2 + 12 * 2 + 4 * 3);
    for (int64_t s = 1; s <= 12; s++) {
        assert_int_equal(count_of(e, n, "train/loss", s), 1);
        assert_int_equal(count_of(e, n, "eval/step_accuracy/2", s), s % 3 == 0);
    }
    for (int i = 3; i < n; i++)
        assert_true(e[i].step >= e[i - 1].step && e[i].time >= e[i - 1].time);
    write_steps(dir, 11, 12, 12);
    assert_int_equal(test_events_read(e, 128, dir, second), n);
    write_steps(dir, 12, 13, 12); // nothing was left to do: the file is the same one
    assert_int_equal(test_events_read(e, 128, dir, first), n);
    assert_string_equal(first, second);
    pl_free(dir);
}

// A run that began before there were event files, whose lines do not say their time.
static void old_lines_have_events_too(void **state) {
    test_event e[64];
    char       name[256], path[128], *dir = pl_path_join(base, "old");
    (void)state;
    assert_int_equal(pl_dir_make(dir, NULL), PL_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"stage\":\"eagle3\",\"step\":1,\"loss\":4}\n", f);
    fclose(f);
    write_steps(dir, 1, 2, 2);
    int n = test_events_read(e, 64, dir, name);
    assert_int_equal(n, 2 + 1 + 2);
    assert_true(e[2].value == 4 && e[2].step == 1 && e[2].time > 1e9);
    pl_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_castagnolis),
        cmocka_unit_test(a_line_is_an_event),
        cmocka_unit_test(a_resumed_run_says_each_step_once),
        cmocka_unit_test(old_lines_have_events_too),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
