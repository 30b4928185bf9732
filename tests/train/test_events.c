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
#include <unistd.h>

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
    pl_metrics_watch(&m, dir);
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

// ---- files of others

static void put(const char *dir, const char *name, const void *text, size_t n) {
    char *path = pl_path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    pl_free(path);
}

static void assert_holds(const char *dir, const char *name, const void *text, size_t n) {
    uint8_t *data;
    size_t   bytes;
    char    *path = pl_path_join(dir, name);
    assert_int_equal(pl_file_read(path, &data, &bytes, 1 << 20, NULL), PL_OK);
    if (bytes != n || memcmp(data, text, n) != 0) fail_msg("%s has changed", path);
    pl_free(data);
    pl_free(path);
}

// Other writers' files, by name or by content, links, folders, and empty files that this run did not write.
static void others_files_stay(void **state) {
    (void)state;
    static const struct {
        const char *name;
        const char *text;
        size_t      n;
    } theirs[] = {
        {"events.out.tfevents.1690000000.gpu1.77.0", "torch", 5}, // more behind the process
        {"events.out.tfevents.1690000000.gpu1", "keras", 5},      // less
        {"events.out.tfevents.1690000001.host.77", "ours by name alone", 18},
        {"events.out.tfevents.1690000002.host.77", "", 0},
        {"events.out.tfevents.1690000003.host.77",
         "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\x9b\x5a\x2a\xd9\x41\x1a\x0d"
         "brain.Event:2",
         36}, // another's first record
    };
    enum { THEIRS = sizeof theirs / sizeof *theirs };
    for (int listed = 0; listed < 2; listed++) {
        char *dir = pl_path_join(base, listed ? "listed" : "unlisted"), link[256], folder[256], list[256];
        snprintf(link, sizeof link, "%s/events.out.tfevents.1690000004.host.77", dir);
        snprintf(folder, sizeof folder, "%s/events.out.tfevents.1690000005.host.77", dir);
        snprintf(list, sizeof list, "%s/.stamps/events", dir);
        write_steps(dir, 0, 1, 4);
        for (int i = 0; i < THEIRS; i++)
            put(dir, theirs[i].name, theirs[i].text, theirs[i].n);
        put(dir, "victim", "keep", 4);
        assert_int_equal(symlink("victim", link), 0);
        assert_int_equal(pl_dir_make(folder, NULL), PL_OK);
        // As a build before there was a list leaves it.
        if (!listed) assert_int_equal(unlink(list), 0);
        for (int64_t s = 5; s < 8; s++)
            write_steps(dir, s - 1, s, s);
        for (int i = 0; i < THEIRS; i++)
            assert_holds(dir, theirs[i].name, theirs[i].text, theirs[i].n);
        assert_holds(dir, "victim", "keep", 4);
        assert_true(pl_path_is_dir(folder));
        // Of this run's four files the last speaks, the one before is empty, the first two are gone.
        uint8_t *text;
        size_t   n;
        int      own = 0;
        assert_int_equal(pl_file_read(list, &text, &n, 1 << 16, NULL), PL_OK);
        for (size_t i = 0; i < n; i++)
            own += text[i] == '\n';
        assert_int_equal(own, 3); // the one before that is removed while the list is written
        pl_free(text);
        pl_free(dir);
    }
}

// Lines that no training wrote are nobody's to cut, nor is what a link leads to.
static void others_lines_stay(void **state) {
    (void)state;
    static const char *const theirs[] = {"{\"epoch\":1,\"loss\":0.5}\n",
                                         "{\"step\":1,\"stage\":\"x\"}\n",
                                         "a note\n",
                                         "{\"stage\":\"eagle3\",\"step\":9}\na note\n",
                                         "{\"stage\":\"eagle3\",\"step\":9}\n{\"epoch\":1}\n",
                                         "{\"stage\":\"eagle3\",\"step\":9}\nsome text",
                                         "[1]\n"};
    static const char *const ours[] = {"", "{\"stage\":\"eagle3\",\"step\":9}\n", "{\"sta",
                                       "{\"stage\":\"eagle3\",\"step\":9}\n{\"stage\":\"ea"};
    enum { THEIRS = sizeof theirs / sizeof *theirs, OURS = sizeof ours / sizeof *ours };
    char      *path = pl_path_join(base, "lines.jsonl"), *link = pl_path_join(base, "link.jsonl");
    pl_metrics m;
    pl_err     err = {0};
    for (int i = 0; i < THEIRS; i++) {
        put(base, "lines.jsonl", theirs[i], strlen(theirs[i]));
        assert_int_equal(pl_metrics_spares(path, &err), PL_E_INPUT);
        assert_int_equal(pl_metrics_open(&m, path, "eagle3", 0, &err), PL_E_INPUT);
        assert_non_null(strstr(err.msg, "would be lost"));
        assert_holds(base, "lines.jsonl", theirs[i], strlen(theirs[i]));
    }
    for (int i = 0; i < OURS; i++) {
        put(base, "lines.jsonl", ours[i], strlen(ours[i]));
        assert_int_equal(pl_metrics_spares(path, &err), PL_OK);
        assert_holds(base, "lines.jsonl", ours[i], strlen(ours[i]));
        assert_int_equal(pl_metrics_open(&m, path, "eagle3", 0, &err), PL_OK);
        pl_metrics_close(&m);
        assert_holds(base, "lines.jsonl", "", 0);
    }
    put(base, "victim", "keep", 4);
    assert_int_equal(symlink("victim", link), 0);
    assert_int_equal(pl_metrics_open(&m, link, "eagle3", 0, &err), PL_E_INPUT);
    assert_non_null(strstr(err.msg, "is a link"));
    assert_holds(base, "victim", "keep", 4);
    pl_free(path);
    pl_free(link);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_castagnolis),
        cmocka_unit_test(a_line_is_an_event),
        cmocka_unit_test(a_resumed_run_says_each_step_once),
        cmocka_unit_test(old_lines_have_events_too),
        cmocka_unit_test(others_files_stay),
        cmocka_unit_test(others_lines_stay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
