// What the shell, the machine and its users do to a process: closed descriptors, limits of file size, stack and memory,
// files that are none or shrink, signals. Each ends in the work done, or in one line with what was begun taken away.
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "tests/cli/program.h"
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

// A sanitizer's shadow counts as memory, and its frames are larger: limits near what the program needs cannot be tried.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LEAN = 0 };
#else
enum { LEAN = 1 };
#endif

#define TINY "checkpoints/tiny"
static const double PATIENCE = 60; // seconds that a command may take which the machine's load makes slow

static char base[64], at_buffer[4][256];

static const char *at(const char *name) {
    static int turn;
    char      *to = at_buffer[turn++ % 4];
    snprintf(to, sizeof *at_buffer, "%s/%s", base, name);
    return to;
}

// A recipe, its prompts, a dataset and a drafter trained on it.
static int setup(void **state) {
    (void)state;
    char prompts[4096] = "", recipe[1024];
    test_scratch(base);
    for (size_t i = 0, n = 0; i < 12; i++)
        n += (size_t)snprintf(prompts + n, sizeof prompts - n, "{\"prompt\": \"Once upon a time %zu there was a\"}\n",
                              i);
    test_put(base, "prompts.jsonl", prompts);
    snprintf(recipe, sizeof recipe,
             "seed: 1\ntarget: {path: " TINY "}\n"
             "data: {prompts: %s/prompts.jsonl, max_new_tokens: 12, greedy: true, samples: 0}\n"
             "drafter: {kind: eagle3, head: {kind: full}}\n"
             "train: {steps: 3, slots: 4, slot_rows: 32, unroll: 1, warmup: 1, log_every: 1}\n"
             "eval: {holdout: 4, max_new_tokens: 8, tree: 'chain:2', plain_fp32: false}\n",
             base);
    test_put(base, "r.yaml", recipe);
    test_output o;
    test_run(&o, "run %s --out %s --threads 2 --quiet", at("r.yaml"), at("run"));
    if (o.code != 0) fail_msg("%s", o.err);
    test_run_fini(&o);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_scratch_remove(base);
    return 0;
}

// A command of a table: @ is the scratch folder, # a free port.
static void expand(char to[1024], const char *args) {
    size_t n = 0;
    for (const char *s = args; *s; s++) {
        if (*s == '@')
            n += (size_t)snprintf(to + n, 1024 - n, "%s", base);
        else if (*s == '#')
            n += (size_t)snprintf(to + n, 1024 - n, "%d", test_free_port());
        else
            to[n++] = *s;
        assert_true(n < 1000);
    }
    to[n] = 0;
}

static void run_as(test_output *o, void (*before)(const void *), const void *arg, const char *args) {
    char       line[1024];
    test_child c;
    expand(line, args);
    test_start(&c, before, arg, "%s", line);
    test_end(&c, PATIENCE, o);
}

static void one_line(const test_output *o, int code, const char *part, const char *args) {
    const char *text = o->err, *end;
    if (strncmp(text, "paceline: SIG", 13) == 0) text = strchr(text, '\n') + 1; // on a slow machine: it is confirmed
    end = strchr(text, '\n');
    if (o->code != code || strncmp(text, "paceline: ", 10) != 0 || !end || end[1] || !strstr(text, part))
        fail_msg("%s: exit code %d (%d expected), signal %d; one line with \"%s\" expected: %s", args, o->code, code,
                 o->signal, part, o->err);
}

// ---- descriptors

static void close_some(const void *which) {
    for (const char *fd = which; *fd; fd++)
        close(*fd - '0');
}

static void assert_json_lines(const char *path, const char *args) {
    char   *text = test_read(path);
    pl_json j;
    pl_err  err;
    assert_true(*text);
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end || pl_json_parse(&j, path, 1, line, (size_t)(end - line), 0, &err) != PL_OK)
            fail_msg("%s: %s holds what is none of its lines: %s", args, path, line);
        pl_json_close(&j);
    }
    free(text);
}

// What is opened first takes no closed descriptor's number, whichever of them are closed.
static void closed_descriptors(void **state) {
    (void)state;
    static const char *const sets[] = {"0", "1", "2", "12", "012"};
    static const struct {
        const char *args, *json;
    } cases[] = {
        {"decode --threads 1 --target " TINY " --prompt Once -n 6 --trace @/closed/t.jsonl", "closed/t.jsonl"},
        {"train @/r.yaml --threads 1 --out @/closed --set data.dataset=@/run/dataset", "closed/metrics.jsonl"},
    };
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < 2; k++) {
            test_output o;
            assert_int_equal(pl_dir_make(at("closed"), NULL), PL_OK);
            run_as(&o, close_some, sets[i], cases[k].args);
            if (o.code != 0) fail_msg("%s without %s: exit code %d: %s", cases[k].args, sets[i], o.code, o.err);
            assert_json_lines(at(cases[k].json), cases[k].args);
            if (k == 1) {
                char *lock = test_read(at("closed/.lock"));
                assert_string_equal(lock, "");
                free(lock);
            }
            test_run_fini(&o);
            assert_int_equal(pl_tree_remove(at("closed"), NULL), PL_OK);
        }
}

// ---- limits

static void limit_file(const void *bytes) {
    rlim_t n = *(const rlim_t *)bytes;
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){n, n});
}

static int temporaries(const char *dir) {
    char command[300], line[256];
    int  n = 0;
    snprintf(command, sizeof command, "find %s -name '.*.tmp-*'", dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        print_message("left behind: %s", line);
        n++;
    }
    pclose(f);
    return n;
}

static void file_size(void **state) {
    (void)state;
    static const char *const cases[] = {
        "export @/run/checkpoints/best --to vllm --target " TINY " --out @/large/served",
        "export @/run/checkpoints/best --to sglang --target " TINY " --out @/large/served",
        "generate @/r.yaml --quiet --threads 1 --out @/large/generated",
        "train @/r.yaml --quiet --threads 1 --out @/large/trained --set data.dataset=@/run/dataset",
        "report @/run --quiet --out @/large/report",
    };
    const rlim_t bytes = 2000;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_output o;
        assert_int_equal(pl_dir_make(at("large"), NULL), PL_OK);
        run_as(&o, limit_file, &bytes, cases[i]);
        one_line(&o, 1, "File too large", cases[i]);
        test_run_fini(&o);
        assert_int_equal(temporaries(at("large")), 0);
        assert_int_equal(pl_tree_remove(at("large"), NULL), PL_OK);
    }
}

static void limit_stack(const void *bytes) {
    rlim_t n = *(const rlim_t *)bytes;
    setrlimit(RLIMIT_STACK, &(struct rlimit){n, n});
}

// Of the process itself, and of its threads, whose default follows it.
static void small_stack(void **state) {
    (void)state;
    if (!LEAN) skip();
    static const char *const cases[] = {
        "decode --threads 2 --target " TINY " --drafter @/run/checkpoints/best --prompt Once -n 8",
        "generate @/r.yaml --threads 2 --quiet --out @/small/generated",
        "train @/r.yaml --threads 2 --quiet --out @/small/trained --set data.dataset=@/run/dataset",
        "train @/r.yaml --threads 2 --ranks 2 --quiet --out @/small/ranks --set data.dataset=@/run/dataset",
        "eval @/r.yaml --threads 2 --quiet --out @/run",
        "bench linear attention train --vocab 64 --hidden 512 --max-mb 1 --threads 2 --quiet",
    };
    static const rlim_t bytes[] = {1024 << 10, 512 << 10};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 2; k++) {
            test_output o;
            run_as(&o, limit_stack, &bytes[k], cases[i]);
            if (o.code != 0)
                fail_msg("%s with %ld KB: exit code %d, signal %d: %s", cases[i], (long)(bytes[k] >> 10), o.code,
                         o.signal, o.err);
            test_run_fini(&o);
            pl_tree_remove(at("small"), NULL);
        }
}

static void limit_memory(const void *bytes) {
    setenv("PACELINE_MEMORY", bytes, 1);
}

// Every command asks before it fills memory, forked ranks for all of them together.
static void memory(void **state) {
    (void)state;
    if (!LEAN) skip();
    static const struct {
        const char *bytes, *says, *args;
    } cases[] = {
        {"30M", "a model's weights: ", "decode --target " TINY " --prompt Once -n 8"},
        {"60M",
         "the cache of keys and values: ", "decode --target " TINY " --prompt Once -n 1900 --kv fp32 --threads 1"},
        {"100M", "answers in the making: ", "generate @/r.yaml --quiet --out @/m --set data.max_new_tokens=1000"},
        {"300M", "answers in the making: ",
         "train @/r.yaml --quiet --out @/m --set data.mode=online --set data.max_new_tokens=1000"},
        {"30M", "a model's weights: ", "eval @/r.yaml --quiet --out @/run"},
        {"30M", "a model's weights: ", "inspect " TINY " --acceptance --drafter lookup --prompts @/prompts.jsonl"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_output o;
        run_as(&o, limit_memory, cases[i].bytes, cases[i].args);
        one_line(&o, 1, cases[i].says, cases[i].args);
        one_line(&o, 1, " of memory are needed, ", cases[i].args);
        test_run_fini(&o);
    }
}

static void memory_of_ranks(void **state) {
    (void)state;
    if (!LEAN) skip();
    static const char args[] = "train @/r.yaml --quiet --threads 4 --out @/m --set data.dataset=@/run/dataset";
    static const struct {
        const char *ranks;
        int         code;
    } cases[] = {{"", 0}, {" --ranks 2", 0}, {" --ranks 4", 1}};
    for (size_t i = 0; i < 3; i++) {
        test_output o;
        char        line[256];
        snprintf(line, sizeof line, "%s%s", args, cases[i].ranks);
        pl_tree_remove(at("m"), NULL);
        run_as(&o, limit_memory, "400M", line);
        if (cases[i].code)
            one_line(&o, 1, " of memory are needed, ", line);
        else if (o.code != 0)
            fail_msg("%s: %s", line, o.err);
        test_run_fini(&o);
    }
}

// ---- files that are none

static void make_fifo(const char *path) {
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_socket(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int                fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof a.sun_path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
}

static void make_device(const char *path) {
    assert_int_equal(symlink("/dev/zero", path), 0);
}

// The place of each reader takes a FIFO without a writer, a socket or an endless device and is refused at once.
static void special_files(void **state) {
    (void)state;
    static const struct {
        const char *name; // what takes the place of a file
        const char *args;
    } cases[] = {
        {"model/config.json", "decode --target @/model --prompt hi"},
        {"model/model.safetensors", "decode --target @/model --prompt hi"},
        {"model/tokenizer.model", "decode --target @/model --prompt hi"},
        {"model/generation_config.json", "decode --target @/model --prompt hi"},
        {"p.jsonl", "generate @/r.yaml --out @/f --set data.prompts=@/p.jsonl"},
        {"p.jsonl", "eval @/r.yaml --out @/f --set eval.benchmark=@/p.jsonl"},
        {"p.txt", "decode --target " TINY " --drafter retrieval:@/p.txt --prompt hi"},
        {"p.yaml", "train @/p.yaml"},
        {"p.txt", "vocab --tokenizer " TINY " --list @/l.json @/p.txt"},
        {"p.txt", "inspect @/p.txt"},
        {"p.json", "tokenize --tokenizer @/p.json --text hi"},
        {"data/manifest.json", "train @/r.yaml --out @/f --set data.dataset=@/data"},
        {"data/shard-00000.h5", "train @/r.yaml --out @/f --set data.dataset=@/data"},
        {"drafter/config.json", "decode --target " TINY " --drafter @/drafter --prompt hi"},
    };
    static void (*const make[])(const char *) = {make_fifo, make_socket, make_device};
    char command[1024];
    snprintf(command, sizeof command,
             "cp -r " TINY " %s/model && cp -r %s/run/dataset %s/data && cp -r %s/run/checkpoints/best %s/drafter && "
             "chmod -R u+w %s/model",
             base, base, base, base, base, base);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 3; k++) {
            test_output o;
            char        aside[256];
            const char *path = at(cases[i].name);
            snprintf(aside, sizeof aside, "%s/aside", base);
            bool there = rename(path, aside) == 0;
            make[k](path);
            run_as(&o, NULL, NULL, cases[i].args);
            if (o.signal || o.code == 0 || !strstr(o.err, k == 1 ? "" : "not a regular file"))
                fail_msg("%s with %s in the place of %s: exit code %d, signal %d: %s", cases[i].args,
                         k == 0   ? "a FIFO"
                         : k == 1 ? "a socket"
                                  : "a device",
                         cases[i].name, o.code, o.signal, o.err);
            test_run_fini(&o);
            unlink(path);
            if (there) assert_int_equal(rename(aside, path), 0);
        }
}

// Where a user may pipe a text in, a FIFO is read to its end.
static void piped(void **state) {
    (void)state;
    static const char *const cases[] = {"tokenize --tokenizer " TINY " --file @/pipe",
                                        "decode --quiet --threads 1 --target " TINY " -n 2 --prompt-file @/pipe"};
    make_fifo(at("pipe"));
    for (size_t i = 0; i < 2; i++) {
        test_output o;
        test_child  c;
        char        line[1024];
        expand(line, cases[i]);
        test_start(&c, NULL, NULL, "%s", line);
        int fd = open(at("pipe"), O_WRONLY);
        assert_true(fd >= 0 && write(fd, "Once upon", 9) == 9);
        close(fd);
        test_end(&c, PATIENCE, &o);
        if (o.code != 0 || o.out_bytes == 0) fail_msg("%s: exit code %d: %s", cases[i], o.code, o.err);
        test_run_fini(&o);
    }
}

// ---- a file that shrinks

// Until the file is there.
static void wait_for(const char *path) {
    for (double until = pl_now() + PATIENCE; !pl_path_exists(path); usleep(1000))
        if (pl_now() > until) fail_msg("%s: did not appear", path);
}

static void cut_while_mapped(void **state) {
    (void)state;
    char       command[256];
    test_child c;
    snprintf(command, sizeof command, "cp -r " TINY " %s/cut && chmod -R u+w %s/cut", base, base);
    assert_int_equal(system(command), 0);
    test_start(&c, NULL, NULL,
               "generate %s/r.yaml --quiet --threads 2 --out %s/shrinks --set target.path=%s/cut "
               "--set data.max_new_tokens=400 --set data.samples=20",
               base, base, base);
    wait_for(at("shrinks/dataset"));
    assert_int_equal(truncate(at("cut/model.safetensors"), 4096), 0);
    test_output o;
    test_end(&c, PATIENCE, &o);
    one_line(&o, 1, "cut/model.safetensors: cannot read: it became shorter while it was in use", "generate");
    test_run_fini(&o);
}

// ---- signals

// Until the program answers signals: its handlers stand in /proc/PID/status.
static void wait_for_handler(pid_t pid, int sig) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    for (double until = pl_now() + PATIENCE; pl_now() < until; usleep(1000)) {
        unsigned long long caught = 0;
        FILE              *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f))
            if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
        if (f) fclose(f);
        if (caught >> (sig - 1) & 1) return;
    }
    fail_msg("no handler of signal %d", sig);
}

// Commands with nothing to keep, in the midst of work of a minute and more: the first signal ends them, in a line.
static void ended_at_once(void **state) {
    (void)state;
    static const char *const cases[] = {
        "tokenize --threads 1 --tokenizer " TINY " --file @/big.txt",
        "vocab --threads 1 --tokenizer " TINY " --list @/l.json @/big.txt",
        "train @/target.yaml --threads 1 --quiet --out @/ended",
        "train @/r.yaml --threads 1 --quiet --out @/ended --set data.mode=online --set data.max_new_tokens=1000 "
        "--set data.samples=100",
        "bench bandwidth linear attention train --threads 1",
        "plan --target " TINY " --results @/run --threads 1 --seconds 60",
        "decode --threads 1 --target " TINY " --prompt Once -n 2000",
        "inspect " TINY " --acceptance --drafter @/run/checkpoints/best --prompts @/prompts.jsonl --threads 1",
        "train @/r.yaml --quiet --out @/ended --set data.dataset=@/run/dataset --rank 0 --world 2 --address "
        "127.0.0.1:#",
    };
    static const int         signals[] = {SIGINT, SIGTERM};
    static const char *const name[] = {"SIGINT", "SIGTERM"};
    enum { BIG = 24 << 20 };
    char *text = malloc(BIG + 1);
    assert_non_null(text);
    for (size_t i = 0; i < BIG; i++)
        text[i] = i % 6 == 5 ? (i % 60 == 59 ? '\n' : ' ') : (char)('a' + i * 7 / 6 % 23 * (1 + i / 600 % 3) % 26);
    text[BIG] = 0;
    test_put(base, "big.txt", text);
    free(text);
    char recipe[256];
    snprintf(recipe, sizeof recipe, "kind: target\ndata: {text: %s/big.txt}\ntarget: {new: {layers: 1}}\n", base);
    test_put(base, "target.yaml", recipe);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int         k = (int)(i % 2);
        char        line[1024], says[64];
        test_child  c;
        test_output o;
        expand(line, cases[i]);
        test_start(&c, NULL, NULL, "%s", line);
        wait_for_handler(c.pid, signals[k]);
        kill(c.pid, signals[k]);
        test_end(&c, 10, &o);
        snprintf(says, sizeof says, "paceline: %s: ended at once\n", name[k]);
        if (o.signal != signals[k] || !strstr(o.err, says) || strstr(o.err, says)[strlen(says)])
            fail_msg("%s: exit code %d, signal %d: %s", cases[i], o.code, o.signal, o.err);
        test_run_fini(&o);
        pl_tree_remove(at("ended"), NULL);
    }
}

// Until a temporary of this name holds so many lines.
static void wait_for_lines(const char *pattern, long lines) {
    char command[300];
    snprintf(command, sizeof command, "cat %s/%s 2>/dev/null | wc -l", base, pattern);
    for (double until = pl_now() + PATIENCE; pl_now() < until; usleep(10000)) {
        long  n = 0;
        FILE *f = popen(command, "r");
        assert_non_null(f);
        if (fscanf(f, "%ld", &n) != 1) n = 0;
        pclose(f);
        if (n >= lines) return;
    }
    fail_msg("%s: never had %ld lines", pattern, lines);
}

// Commands with something to keep end behind the step or answer in hand, in a line, and keep it.
static void ended_after_work(void **state) {
    (void)state;
    static const struct {
        const char *args, *marker;
        long        lines;
        const char *says, *kept;
    } cases[] = {
        {"eval @/r.yaml --threads 1 --quiet --out @/kept --set eval.repeats=1000", "kept/.trace.jsonl.tmp-*", 20,
         "kept has the results so far: stopped after ", "kept/results.json"},
        {"train @/r.yaml --threads 1 --quiet --out @/kept --set data.dataset=@/run/dataset --set train.steps=100000 "
         "--set train.holdout=0",
         "kept/metrics.jsonl", 3, "; the same command goes on", "kept/checkpoints/last/training_state"},
        {"generate @/r.yaml --threads 1 --quiet --out @/kept --set data.samples=5000 --set data.rows_per_shard=200",
         "kept/dataset/shard-00000.h5", 1, "run the same command to go on", "kept/dataset/shard-00000.h5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char        line[1024];
        test_child  c;
        test_output o;
        expand(line, cases[i].args);
        test_start(&c, NULL, NULL, "%s", line);
        wait_for_lines(cases[i].marker, cases[i].lines);
        kill(c.pid, i % 2 ? SIGTERM : SIGINT);
        test_end(&c, PATIENCE, &o);
        one_line(&o, 1, cases[i].says, cases[i].args);
        assert_true(pl_path_exists(at(cases[i].kept)));
        if (i == 0) {
            pl_json j;
            test_run_json(&j, "inspect %s --json", at("kept"));
            pl_json_close(&j);
        }
        test_run_fini(&o);
        assert_int_equal(pl_tree_remove(at("kept"), NULL), PL_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_descriptors),
        cmocka_unit_test(file_size),
        cmocka_unit_test(small_stack),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_ranks),
        cmocka_unit_test(special_files),
        cmocka_unit_test(piped),
        cmocka_unit_test(cut_while_mapped),
        cmocka_unit_test(ended_at_once),
        cmocka_unit_test(ended_after_work),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
