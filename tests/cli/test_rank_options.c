// --ranks and --transport through the program, and ranks that are started one by one: the same weights, one voice,
// stopping, killing, refusals.
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/rng.h"
#include "kernels/comm/comm.h"
#include "program.h"
#include "tests/mpirun.h"
#include "tests/port.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char base[64];

static const char recipe[] = "kind: target\n"
                             "data: {text: %s/text.txt, tokenizer: {vocab_size: 300}}\n"
                             "target: {new: {hidden_size: 32, layers: 2, heads: 4, kv_heads: 2, intermediate: 48, "
                             "positions: 96}}\n"
                             "train: {steps: 100, batch: 8, seq_len: 64, lr: 1e-2, warmup: 5, slots: 4, "
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
    trains("run", "four", "--quiet --ranks 4 --transport host");
    same_state("one", "two");
    same_state("one", "four");
    // Rank 0 alone speaks, also when everything is said.
    test_run(&o, "train %s/r.yaml --out %s/loud --ranks 2 --set train.steps=10", base, base);
    assert_int_equal(o.code, 0);
    assert_int_equal(count(o.err, "done: "), 1);
    assert_int_equal(count(o.err, "M parameters"), 1);
    assert_int_equal(count(o.err, "2 ranks, 2 of 4 slots each at most, joined by shared memory"), 1);
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
    test_run_fails(2, "--ranks: expected an integer from 1 to 512, found 0", TRAIN "--ranks 0", base, base);
    test_run_fails(2, "--ranks: expected an integer from 1 to 512, found -1", TRAIN "--ranks=-1", base, base);
    test_run_fails(2, "--ranks: expected an integer from 1 to 512, found 513", TRAIN "--ranks 513", base, base);
    test_run_fails(2, "--ranks: expected an integer, found \"two\"", TRAIN "--ranks two", base, base);
    test_run_fails(2, "--ranks 5: a step has 4 slots, shared in powers of two: 1 to a rank, none for 1 of them",
                   TRAIN "--ranks 5", base, base);
    test_run_fails(2, "use --ranks 2 or train.slots: 6", TRAIN "--ranks 3", base, base);
    test_run_fails(2, "--transport mpi: expected auto|host|nccl", TRAIN "--ranks 2 --transport mpi", base, base);
    test_run_fails(2, "--transport mpi: expected", TRAIN "--transport mpi", base, base);
    test_run_fails(1, "use --transport host", TRAIN "--transport nccl", base, base);
    test_run_fails(1, "use --transport host", TRAIN "--ranks 2 --transport nccl", base, base);
    test_run_fails(2, "one GPU for 2 ranks", TRAIN "--ranks 2 --device cuda:0", base, base);
    test_run_fails(1, "--device cuda:", TRAIN "--ranks 64 --device cuda --set train.slots=64", base, base);
    test_run_fails(2, "--texts: one process writes them", "generate %s/r.yaml --texts --ranks 2 --out %s/bad", base,
                   base);
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
        execl(PACELINE_PROGRAM, PACELINE_PROGRAM, "train", path, "--out", to, "--quiet", "--device=cpu", "--ranks",
              ranks, "--set", "train.log_every=1", (char *)NULL);
        _exit(127);
    }
    return r;
}

static char *text_of(const char *name) {
    char     path[160];
    uint8_t *data;
    size_t   n;
    snprintf(path, sizeof path, "%s/%s", base, name);
    assert_int_equal(pl_file_read(path, &data, &n, 1 << 24, NULL), PL_OK);
    return (char *)data;
}

// Each rank's rate, waiting and memory stand in the lines; rank 1 has a log of its own, rank 0 none.
static void ranks_are_watched(void **state) {
    (void)state;
    static const char *const lists[] = {"rank_tokens_per_second", "rank_wait_data_seconds", "rank_wait_ranks_seconds",
                                        "rank_memory_bytes"};
    char                     path[160], *metrics, *log;
    trains("train", "watched", "--ranks 2 --set train.steps=10 --set train.log_every=4");
    metrics = text_of("watched/metrics.jsonl");
    pl_json j;
    double  v, sum[2];
    int     lines = 0;
    for (char *line = metrics, *end; (end = strchr(line, '\n')); line = end + 1) {
        assert_int_equal(pl_json_parse(&j, "metrics.jsonl", 1, line, (size_t)(end - line), 0, NULL), PL_OK);
        if (pl_json_get_num(&j, NULL, "step_seconds", 1e-9, 1e3, &v, NULL) == PL_OK) {
            double waited;
            assert_int_equal(pl_json_get_num(&j, NULL, "wait_ranks_seconds", 0, v, &waited, NULL), PL_OK);
            for (int i = 0; i < 4; i++) {
                const cJSON *list = cJSON_GetObjectItemCaseSensitive(j.root, lists[i]);
                assert_int_equal(cJSON_GetArraySize(list), 2);
                for (int r = 0; r < 2; r++)
                    sum[r] = cJSON_GetArrayItem(list, r)->valuedouble;
                if (i != 1) assert_true(sum[0] > 0 && sum[1] > 0);
            }
            assert_int_equal(pl_json_get_num(&j, NULL, "memory_bytes", 1e6, 1e12, &v, NULL), PL_OK);
            assert_true(v == (sum[0] > sum[1] ? sum[0] : sum[1]));
            lines++;
        }
        pl_json_close(&j);
    }
    assert_int_equal(lines, 3); // steps 4, 8 and the last
    log = text_of("watched/rank-1.log");
    assert_int_equal(strncmp(log, "rank 1 of 2 on ", 15), 0);
    assert_null(strchr(log, '\r'));
    snprintf(path, sizeof path, "%s/watched/rank-0.log", base);
    assert_false(pl_path_exists(path));
    pl_free(metrics), pl_free(log);
}

// How much a run has said about its steps.
static long said(const char *out) {
    char path[160];
    long bytes = 0;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", base, out);
    FILE *f = fopen(path, "r");
    if (f && fseek(f, 0, SEEK_END) == 0) bytes = ftell(f);
    if (f) fclose(f);
    return bytes;
}

// Until it has said more than so many bytes.
static void wait_for_more(const char *out, long before) {
    for (double until = pl_now() + 120; said(out) <= before; usleep(2000))
        if (pl_now() > until) fail_msg("no step after two minutes");
}

static void wait_for_steps(const char *out) {
    wait_for_more(out, 0);
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
    if (strncmp(text, "paceline: SIG", 13) == 0) text = strchr(text, '\n') + 1; // on a slow machine: it is confirmed
    const char *end = strchr(text, '\n');
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
            one_line(line, "of 100; the same command goes on");
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

// ---- started one by one, each in a folder of its own

enum { WORLD = 2, NAMES = 6 };

// What torchrun tells a rank.
static void as_torchrun(int rank, int port) {
    static const char *const names[NAMES] = {"RANK",        "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                             "MASTER_PORT", "MASTER_ADDR"};
    const int                values[NAMES - 1] = {rank, WORLD, rank, WORLD, port - 1};
    char                     text[16];
    for (int i = 0; i < NAMES - 1; i++) {
        snprintf(text, sizeof text, "%d", values[i]);
        setenv(names[i], text, 1);
    }
    setenv(names[NAMES - 1], "127.0.0.1", 1);
}

static const char *other_command = "train"; // of ranks above 0

// Rank `rank`, in BASE/host-RANK, which holds nothing of the others; more: NULL, or an argument of this rank alone.
static running start_rank(int rank, int port, bool torchrun, const char *out, const char *more) {
    running r = {.err = tmpfile()};
    char    path[128], dir[96], address[32], number[16];
    snprintf(path, sizeof path, "%s/r.yaml", base);
    snprintf(dir, sizeof dir, "%s/host-%d", base, rank);
    snprintf(address, sizeof address, "--address=127.0.0.1:%d", port);
    snprintf(number, sizeof number, "--rank=%d", rank);
    assert_non_null(r.err);
    assert_int_equal(pl_dir_make(dir, NULL), PL_OK);
    fflush(NULL);
    r.pid = fork();
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        const char *argv[16] = {
            PACELINE_PROGRAM, rank ? other_command : "train", path, "--out", out, "--quiet", "--threads=1",
            "--patience=60",  "--set=train.log_every=1"};
        int n = 9;
        if (torchrun)
            as_torchrun(rank, port);
        else
            argv[n++] = address, argv[n++] = number, argv[n++] = "--world=2";
        if (more) argv[n++] = more;
        dup2(fileno(r.err), STDERR_FILENO);
        if (chdir(dir) == 0) execv(PACELINE_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return r;
}

static void both_end(running r[WORLD], int code, const char *part) {
    char line[512];
    for (int i = 0; i < WORLD; i++) {
        int got = ended(&r[i], line);
        if (got != code) fail_msg("rank %d: exit code %d: %s", i, got, line);
        if (code) one_line(line, part);
    }
}

// As torchrun starts them; and with options, masters and moments in a half each.
static void launched(void **state) {
    (void)state;
    for (int torchrun = 0; torchrun < 2; torchrun++) {
        const char *out = torchrun ? "torchrun" : "options";
        char        path[64];
        int         port = test_free_port();
        running     r[WORLD];
        for (int i = WORLD - 1; i >= 0; i--)
            r[i] = start_rank(i, port, torchrun, out, torchrun ? NULL : "--set=train.shard=optimizer");
        both_end(r, 0, NULL);
        snprintf(path, sizeof path, "host-0/%s", out);
        same_state("one", path);
    }
}

// A launcher ends one of them, whose machine is wanted: all stop and go on together, though one host has the checkpoint.
static void launched_and_stopped(void **state) {
    (void)state;
    running r[WORLD];
    int     port = test_free_port();
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, "stopped", NULL);
    wait_for_steps("host-0/stopped");
    kill(r[1].pid, SIGUSR1);
    both_end(r, 1, "of 100; the same command goes on");
    port = test_free_port();
    long before = said("host-0/stopped");
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, "stopped", NULL);
    wait_for_more("host-0/stopped", before);
    kill(r[1].pid, SIGKILL);
    char line[512];
    int  code = ended(&r[0], line), status;
    assert_int_equal(code, 1);
    one_line(line, "rank 1: its process on ");
    assert_int_equal(waitpid(r[1].pid, &status, 0), r[1].pid);
    fclose(r[1].err);
    trains("train", "host-0/stopped", "--quiet --set train.log_every=1"); // one rank goes on
    same_state("one", "host-0/stopped");
}

static void launched_wrongly(void **state) {
    (void)state;
    running r[WORLD];
    int     port = test_free_port();
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, "wrong", i ? "--set=train.lr=0.5" : NULL);
    both_end(r, 2, "has the hash ");
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, i ? "elsewhere" : "wrong", NULL);
    both_end(r, 2, "--out: is elsewhere here and another folder on rank 0");
    other_command = "eval";
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, "wrong", NULL);
    for (int i = 0; i < WORLD; i++) {
        char line[512];
        assert_int_equal(ended(&r[i], line), 2);
        if (!strstr(line, "rank 0 trains, which this rank's command does not")) fail_msg("%s", line);
    }
    other_command = "train";
    for (int i = 0; i < WORLD; i++)
        r[i] = start_rank(i, port, true, "wrong", "--ranks=2");
    both_end(r, 2, "--ranks 2: torchrun has started 2 processes already");
    setenv("RANK", "1", 1), setenv("WORLD_SIZE", "2", 1);
    test_run_fails(2, "WORLD_SIZE=2 is set and MASTER_ADDR is not", "train %s/r.yaml --out %s/bad", base, base);
    setenv("LOCAL_RANK", "1", 1), setenv("MASTER_ADDR", "127.0.0.1", 1);
    test_run_fails(1, "cannot reach 127.0.0.1:", "eval %s/r.yaml --out %s/bad --patience 1 --quiet", base, base);
    unsetenv("RANK"), unsetenv("WORLD_SIZE"), unsetenv("LOCAL_RANK"), unsetenv("MASTER_ADDR");
    test_run_fails(2, "--group nets: expected auto|tcp|mpi", "train %s/r.yaml --group nets", base);
    test_run_fails(pl_comm_mpi_kind() == PL_MPI_NONE ? 1 : 2, "--group mpi: ", "train %s/r.yaml --group mpi", base);
    test_run_fails(2, "--world: is missing", "train %s/r.yaml --rank 1 --address 127.0.0.1:9", base);
    test_run_fails(1, "cannot reach 127.0.0.1:9",
                   "train %s/r.yaml --quiet --rank 1 --world 2 --address 127.0.0.1:9 --patience 1", base);
}

// Which ranks need a secret, and which one is taken; where rank 0 listens for an address that is not its host's.
static void secrets(void **state) {
    (void)state;
    char        file[96];
    test_output o;
    snprintf(file, sizeof file, "%s/secret", base);
    FILE *f = fopen(file, "w");
    assert_true(f && fputs("0123456789abcdef0123456789abcdef\n", f) >= 0 && fclose(f) == 0);
    test_run_fails(2, "--secret-file: is for ranks that were started one by one", "train %s/r.yaml --secret-file %s",
                   base, file);
    test_run_fails(2, "ranks of several hosts know each other by a secret",
                   "train %s/r.yaml --quiet --rank 1 --world 2 --address 192.0.2.1:9", base);
    assert_int_equal(chmod(file, 0640), 0);
    test_run_fails(2, "has the mode 0640, by which others may read the secret",
                   "train %s/r.yaml --quiet --rank 1 --world 2 --address 127.0.0.1:9 --secret-file %s", base, file);
    assert_int_equal(chmod(file, 0600), 0);
    setenv("PACELINE_SECRET", "short", 1);
    test_run_fails(2, "PACELINE_SECRET: holds 5 bytes",
                   "train %s/r.yaml --quiet --rank 1 --world 2 --address 192.0.2.1:9", base);
    // TEST-NET-1: no host has it, as where rank 0 stands behind a service's address.
    test_run(&o, "train %s/r.yaml --rank 0 --world 2 --address 192.0.2.1:%d --patience 1 --secret-file %s", base,
             test_free_port(), file);
    unsetenv("PACELINE_SECRET");
    if (o.code != 1 || count(o.err, " is no address of this host: listening at all that it has") != 1)
        fail_msg("%d: %s", o.code, o.err);
    test_run_fini(&o);
}

// ---- started by mpirun

// `command` in ranks of mpirun; each writes its process's number to BASE/pid-RANK first.
static running start_mpirun(int ranks, const char *out, const char *more) {
    running r = {.err = tmpfile()};
    char    line[1024];
    assert_non_null(r.err);
    snprintf(line, sizeof line,
             "exec '%s' %s -n %d sh -c 'echo $$ >%s/pid-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec \"$@\"' - '%s' train "
             "%s/r.yaml --out %s/%s --quiet --device cpu --threads 1 %s",
             PACELINE_MPIEXEC, test_mpirun_patience(), ranks, base, PACELINE_PROGRAM, base, base, out, more);
    fflush(NULL);
    r.pid = fork();
    assert_true(r.pid >= 0);
    if (r.pid == 0) {
        test_mpirun_here();
        dup2(fileno(r.err), STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return r;
}

static pid_t rank_of_mpirun(int rank) {
    char path[128];
    int  pid = 0;
    snprintf(path, sizeof path, "%s/pid-%d", base, rank);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    fclose(f);
    return pid;
}

// All that its ranks and mpirun said; the ranks have ended with it.
static int mpirun_ended(running *r, int ranks, char text[8192]) {
    int status;
    assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
    rewind(r->err);
    text[fread(text, 1, 8191, r->err)] = 0;
    fclose(r->err);
    assert_true(WIFEXITED(status));
    for (int i = 0; i < ranks; i++) {
        pid_t pid = rank_of_mpirun(i);
        for (double until = pl_now() + 10; kill(pid, 0) == 0; usleep(10000))
            if (pl_now() > until) fail_msg("rank %d outlives mpirun: %s", i, text);
    }
    return WEXITSTATUS(status);
}

static void needs_mpirun(void) {
    if (!*PACELINE_MPIEXEC) skip();
}

static void by_mpirun(void **state) {
    (void)state;
    static const char *const outs[] = {"mpi-2", "mpi-4", "mpi-tcp"};
    needs_mpirun();
    for (int i = 0; i < 3; i++) {
        char    text[8192];
        running r = start_mpirun(i == 1 ? 4 : 2, outs[i], i == 2 ? "--group tcp" : "");
        int     code = mpirun_ended(&r, i == 1 ? 4 : 2, text);
        if (code != 0) fail_msg("%s: exit code %d: %s", outs[i], code, text);
        same_state("one", outs[i]);
    }
    char    text[8192];
    running r = start_mpirun(2, "mpi-loud", "--set train.steps=10 --no-such-option");
    assert_int_equal(mpirun_ended(&r, 2, text), 2);
    assert_true(count(text, "--no-such-option: unknown option") >= 1);
}

// A rank is killed: the others name it and its host. Asked to stop: a checkpoint, from which any number goes on.
static void mpirun_killed_and_stopped(void **state) {
    (void)state;
    static const int signals[] = {SIGKILL, SIGTERM};
    char             text[8192], host[65] = "", part[128];
    needs_mpirun();
    gethostname(host, sizeof host - 1);
    snprintf(part, sizeof part, "paceline: train: rank 2: its process on %s ended", host);
    for (int i = 0; i < 2; i++) {
        long    before = said("mpi-stopped");
        running r = start_mpirun(4, "mpi-stopped", "--set train.log_every=1");
        wait_for_more("mpi-stopped", before);
        kill(rank_of_mpirun(2), signals[i]);
        int code = mpirun_ended(&r, 4, text);
        if (code == 0) continue; // it was quicker
        if (i == 0) {
            if (!strstr(text, part)) fail_msg("\"%s\" expected: %s", part, text);
        } else {
            assert_int_equal(code, 1);
            if (!strstr(text, "of 100; the same command goes on")) fail_msg("%s", text);
        }
    }
    trains("train", "mpi-stopped", "--quiet --ranks 2 --set train.log_every=1");
    same_state("one", "mpi-stopped");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_watched),
        cmocka_unit_test(same_weights),
        cmocka_unit_test(refusals),
        cmocka_unit_test(stopping),
        cmocka_unit_test(killing),
        cmocka_unit_test(launched),
        cmocka_unit_test(launched_and_stopped),
        cmocka_unit_test(launched_wrongly),
        cmocka_unit_test(secrets),
        cmocka_unit_test(by_mpirun),
        cmocka_unit_test(mpirun_killed_and_stopped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
