// --ranks and --transport through the program: the same weights, one voice, stopping, killing, refusals.
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include "program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64];

static const char recipe[] = "kind: target\n"
                             "data: {text: %s/text.txt, tokenizer: {vocab_size: 300}}\n"
                             "target: {new: {hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate: 48, "
                             "positions: 96}}\n"
                             "train: {steps: 200, batch: 8, seq_len: 64, lr: 1e-2, warmup: 5, slots: 4, "
                             "checkpoint_every: 20, log_every: 5}\n";

static int setup(void **state) {
    (void)state;
    static const char *const words[] = {"rider", "leader", "wind", "group", "wheel", "climb", "road", "coach"};
    char                     path[128];
    pl_rng                   rng = pl_rng_make(1, PL_STREAM_TEST, 0);
    test_scratch(base);
    snprintf(path, sizeof path, "%s/text.txt", base);
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    for (int i = 0; i < 9000; i++)
        fprintf(f, "%s%s", words[pl_rng_below(rng, (uint64_t)i, 8)], i % 9 == 8 ? ".\n" : " ");
    fclose(f);
    snprintf(path, sizeof path, "%s/r.yaml", base);
    f = fopen(path, "w");
    if (!f) return -1;
    fprintf(f, recipe, base);
    return fclose(f);
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

static void same_state(const char *a, const char *b) {
    uint8_t *data[2];
    size_t   n[2];
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%s/checkpoints/last/training_state", base, i ? b : a);
        assert_int_equal(pl_file_read(path, &data[i], &n[i], 1 << 26, NULL), PL_OK);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    pl_free(data[0]), pl_free(data[1]);
}

static void trains(const char *command, const char *out, const char *options) {
    test_output o;
    test_run(&o, "%s %s/r.yaml --out %s/%s --threads 2 %s", command, base, base, out, options);
    if (o.code != 0) fail_msg("%s %s: exit code %d: %s", command, options, o.code, o.err);
    test_run_fini(&o);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

static void same_weights(void **state) {
    (void)state;
    test_output o;
    trains("train", "one", "--quiet");
    trains("train", "two", "--quiet --ranks 2");
    trains("run", "four", "--quiet --ranks 4 --transport local");
    same_state("one", "two");
    same_state("one", "four");
    // Rank 0 alone speaks, also when everything is said.
    test_run(&o, "train %s/r.yaml --out %s/loud --ranks 2 --set train.steps=10", base, base);
    assert_int_equal(o.code, 0);
    assert_int_equal(count(o.err, "done: "), 1);
    assert_int_equal(count(o.err, "M parameters"), 1);
    assert_int_equal(count(o.err, "2 ranks, 2 of 4 slots each at most, joined by local"), 1);
    assert_int_equal(o.out_bytes, 0);
    test_run_fini(&o);
    test_run(&o, "train %s/r.yaml --out %s/json --ranks 2 --json --quiet --set train.steps=10", base, base);
    assert_int_equal(o.code, 0);
    assert_int_equal(count(o.out, "\"out\""), 1);
    assert_int_equal(o.err_bytes, 0);
    test_run_fini(&o);
}

static void refusals(void **state) {
    (void)state;
#define TRAIN "train %s/r.yaml --out %s/bad --quiet "
    test_run_fails(2, "--ranks 0: must be between 1 and 64", TRAIN "--ranks 0", base, base);
    test_run_fails(2, "--ranks -1: must be between", TRAIN "--ranks=-1", base, base);
    test_run_fails(2, "--ranks 65: must be between", TRAIN "--ranks 65", base, base);
    test_run_fails(2, "--ranks two: expected an integer", TRAIN "--ranks two", base, base);
    test_run_fails(2, "--ranks 5: a step has 4 slots, shared in powers of two: 1 to a rank, none for 1 of them",
                   TRAIN "--ranks 5", base, base);
    test_run_fails(2, "use --ranks 2 or train.slots: 6", TRAIN "--ranks 3", base, base);
    test_run_fails(2, "--transport mpi: expected auto|local|nccl", TRAIN "--ranks 2 --transport mpi", base, base);
    test_run_fails(2, "--transport mpi: expected", TRAIN "--transport mpi", base, base);
    test_run_fails(1, "use --transport local", TRAIN "--transport nccl", base, base);
    test_run_fails(1, "use --transport local", TRAIN "--ranks 2 --transport nccl", base, base);
    test_run_fails(2, "one GPU for 2 ranks", TRAIN "--ranks 2 --device cuda:0", base, base);
    test_run_fails(1, "--device cuda:", TRAIN "--ranks 64 --device cuda --set train.slots=64", base, base);
    test_run_fails(2, "--ranks: unknown option", "eval %s/r.yaml --ranks 2", base);
    test_run_fails(2, "--ranks: unknown option", "decode --ranks 2 --target nowhere --prompt a");
    test_run_fails(2, "nowhere.yaml", "train %s/nowhere.yaml --ranks 2", base);
#undef TRAIN
}

// ---- a run that something happens to

typedef struct running {
    pid_t pid;
    FILE *err;
} running;

static running start(const char *out, const char *ranks) {
    running r = {.err = tmpfile()};
    char    path[128], to[128];
    snprintf(path, sizeof path, "%s/r.yaml", base);
    snprintf(to, sizeof to, "%s/%s", base, out);
    assert_non_null(r.err);
    fflush(NULL);
    r.pid = fork();
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        dup2(fileno(r.err), STDERR_FILENO);
        execl(PACELINE_PROGRAM, PACELINE_PROGRAM, "train", path, "--out", to, "--quiet", "--ranks", ranks, "--set",
              "train.log_every=1", (char *)NULL);
        _exit(127);
    }
    return r;
}

// Until the run has said something about its steps.
static void wait_for_steps(const char *out) {
    char   path[160];
    double until = pl_now() + 120;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", base, out);
    for (;; usleep(2000)) {
        FILE *f = fopen(path, "r");
        int   byte = f ? fgetc(f) : EOF;
        if (f) fclose(f);
        if (byte != EOF) return;
        if (pl_now() > until) fail_msg("no step after two minutes");
    }
}

static int ended(running *r, char line[512]) {
    int status;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    rewind(r->err);
    size_t n = fread(line, 1, 511, r->err);
    line[n] = 0;
    fclose(r->err);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void one_line(const char *text, const char *part) {
    char *end = strchr(text, '\n');
    if (strncmp(text, "paceline: train: ", 17) != 0 || !end || end[1] || !strstr(text, part))
        fail_msg("one line with \"%s\" expected: %s", part, text);
}

static void child_of(pid_t parent, pid_t *child) {
    char path[64];
    int  number = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *f = fopen(path, "r");
    if (!f) skip(); // a kernel without this list
    assert_int_equal(fscanf(f, "%d", &number), 1);
    fclose(f);
    *child = number;
}

// Asked to stop, as from a terminal (all) or by kill (rank 0 alone): all of them do, and any number goes on.
static void stopping(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        const char *out = all ? "stopped-all" : "stopped";
        char        line[512];
        running     r = start(out, "2");
        wait_for_steps(out);
        if (all) {
            pid_t child;
            child_of(r.pid, &child);
            kill(child, SIGINT);
        }
        kill(r.pid, SIGINT);
        int code = ended(&r, line);
        if (code != 0) { // else it was quicker
            assert_int_equal(code, 1);
            one_line(line, "of 200; the same command goes on");
        }
        print_message("%s", line);
        trains("train", out, "--quiet --ranks 4 --set train.log_every=1");
        same_state("one", out);
    }
}

static void killing(void **state) {
    (void)state;
    char    line[512];
    pid_t   child;
    running r = start("killed", "4");
    wait_for_steps("killed");
    child_of(r.pid, &child);
    kill(child, SIGKILL);
    int code = ended(&r, line);
    print_message("%s", line);
    if (code != 0) {
        assert_int_equal(code, 1);
        one_line(line, "was ended by signal 9, Killed");
    }
    trains("train", "killed", "--quiet --set train.log_every=1");
    same_state("one", "killed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_weights),
        cmocka_unit_test(refusals),
        cmocka_unit_test(stopping),
        cmocka_unit_test(killing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
