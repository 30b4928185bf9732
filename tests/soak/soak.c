// Soak: one process generates a dataset, trains a drafter on it and decodes with it, over and over; beside it, every
// round starts a process of its own that decodes with that drafter. What must stay flat from round to round: memory
// in use on the heap, resident memory, file descriptors, threads, and the peak of the separate processes.
//   soak [--seconds=S] [--rounds=N] [--verbose]   ends with the first of the two that is reached (at least 10 rounds)
// Prints first and last figures and the slope of each, and fails when one grows.
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "kernels/base/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "kernels/base/parallel.h"
#include "paceline.h"
#include "train/keys.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"

#include <dirent.h>
#include <hdf5.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// Rounds until caches and arenas have their size; rounds that say anything; rounds there is room for.
enum { WARM = 5, LEAST = 10, MOST = 1 << 20 };

static const char recipe_text[] = "kind: drafter\n"
                                  "target: {path: " PACELINE_SOURCE_DIR "/checkpoints/tiny}\n"
                                  "data: {prompts: " PACELINE_SOURCE_DIR "/data/prompts/heldout.jsonl, "
                                  "max_new_tokens: 8, samples: 0}\n"
                                  "drafter: {head: {kind: lowrank, rank: 16}}\n"
                                  "train: {steps: 2, slots: 1, slot_rows: 64, unroll: 2, eval_every: 1, warmup: 1, "
                                  "checkpoint_every: 1}\n"
                                  "eval: {prompts: " PACELINE_SOURCE_DIR "/data/prompts/heldout.jsonl}\n";

static void must(int ok, const char *what, const char *why) {
    if (ok) return;
    fprintf(stderr, "soak: %s: %s\n", what, why);
    exit(1);
}

// ---- figures --------------------------------------------------------------------------------------------------------

typedef enum figure { HEAP, RESIDENT, FILES, THREADS, CHILD, FIGURES } figure;
static const struct {
    const char *name, *unit;
    double      scale;
    double      slack; // bytes that all rounds together may rise by; 0: the last must not be above the first
} figures[FIGURES] = {
    [HEAP] = {"heap in use", "KiB", 1024, 256},
    [RESIDENT] = {"resident", "MiB", 1048576, 524288}, // pages come and go with what else the machine does
    [FILES] = {"descriptors", "", 1, 0},
    [THREADS] = {"threads", "", 1, 0},
    [CHILD] = {"peak of a decode process", "MiB", 1048576, 524288},
};

static double entries(const char *dir) {
    DIR *d = opendir(dir);
    must(d != NULL, dir, "cannot open");
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static double resident(void) {
    long  size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    must(f && fscanf(f, "%ld %ld", &size, &pages) == 2, "/proc/self/statm", "cannot read");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

// What libraries and the allocator keep for later is given back first: then the heap's figure is what is in use.
static void sample(double at[FIGURES]) {
    H5garbage_collect();
    malloc_trim(0);
    struct mallinfo2 m = mallinfo2();
    at[HEAP] = (double)(m.uordblks + m.hblkhd);
    at[RESIDENT] = resident();
    at[FILES] = entries("/proc/self/fd");
    at[THREADS] = entries("/proc/self/task");
}

// Least squares over rounds WARM..n of one figure, per round, and its standard error: what lies in free lists when a
// figure is taken differs from round to round, so that only a slope of several errors is growth.
static double slope(double (*rows)[FIGURES], int n, figure f, double *error) {
    double x0 = (WARM + n - 1) / 2.0, y0 = 0, sxx = 0, sxy = 0, rest = 0;
    for (int i = WARM; i < n; i++)
        y0 += rows[i][f] / (n - WARM);
    for (int i = WARM; i < n; i++) {
        sxx += (i - x0) * (i - x0);
        sxy += (i - x0) * (rows[i][f] - y0);
    }
    for (int i = WARM; i < n; i++) {
        double miss = rows[i][f] - y0 - sxy / sxx * (i - x0);
        rest += miss * miss;
    }
    *error = sqrt(rest / (n - WARM - 2) / sxx);
    return sxy / sxx;
}

static bool report(double (*rows)[FIGURES], int n) {
    bool flat = true;
    for (figure f = 0; f < FIGURES; f++) {
        double error, per_round = slope(rows, n, f, &error), first = rows[WARM][f], last = rows[n - 1][f];
        bool   noise = per_round * (n - WARM) <= figures[f].slack || per_round <= 4 * error;
        bool   ok = figures[f].slack > 0 ? noise : last <= first;
        printf("%-26s first %8.1f %s, last %8.1f %s, slope %+.4f +- %.4f %s a round%s\n", figures[f].name,
               first / figures[f].scale, figures[f].unit, last / figures[f].scale, figures[f].unit,
               per_round / figures[f].scale, error / figures[f].scale, figures[f].unit, ok ? "" : "  GROWS");
        flat = flat && ok;
    }
    return flat;
}

// ---- one round ------------------------------------------------------------------------------------------------------

static void decode(const char *drafter) {
    char                     why[256];
    pl_decoder              *d;
    int32_t                 *ids;
    int64_t                  n;
    pl_decoder_stats         stats;
    static const char        prompt[] = "Once upon a time";
    const pl_decoder_options o = {.target = PACELINE_SOURCE_DIR "/checkpoints/tiny", .drafter = drafter, .threads = 1};
    must(pl_decoder_open(&d, &o, why, sizeof why) == 0, "decode", why);
    must(pl_decoder_encode(d, prompt, sizeof prompt - 1, &ids, &n, why, sizeof why) == 0, "encode", why);
    const pl_decoder_request r = {.prompt = ids, .n_prompt = n, .max_new_tokens = 48};
    must(pl_decoder_generate(d, &r, NULL, NULL, &stats, why, sizeof why) == 0, "decode", why);
    must(stats.tokens > 0, "decode", "no tokens");
    pl_decoder_free(ids);
    pl_decoder_close(d);
}

static void one_process(const char *out, uint64_t seed) {
    pl_err               err;
    pl_recipe           *r;
    char                 set[32], drafter[512];
    const char          *sets[] = {set};
    int                  n_keys;
    const pl_key *const *keys = pl_stage_tables(&n_keys);
    pl_env               env = {
                      .backend = pl_backend_cpu(), .quiet = true, .text = stdout, .keys = keys, .n_keys = n_keys, .seed = seed};
    snprintf(set, sizeof set, "seed=%llu", (unsigned long long)seed);
    snprintf(drafter, sizeof drafter, "%s/checkpoints/last", out);
    must(pl_tree_remove(out, &err) == PL_OK, "remove", err.msg);
    must(pl_dir_make(out, &err) == PL_OK, "make", err.msg);
    must(pl_pool_create(&env.pool, 2, &err) == PL_OK, "pool", err.msg);
    env.threads = pl_pool_threads(env.pool);
    must(pl_recipe_parse(&r, recipe_text, sizeof recipe_text - 1, "soak", keys, n_keys, sets, 1, &err) == PL_OK,
         "recipe", err.msg);
    must(pl_generate_run(r, NULL, out, &env, &err) == PL_OK, "generate", err.msg);
    must(pl_train_run(r, out, &env, &err) == PL_OK, "train", err.msg);
    pl_recipe_close(r);
    pl_pool_destroy(env.pool);
    decode(NULL);
    decode(drafter);
}

// Peak resident bytes of a process that decodes with the drafter.
static double other_process(const char *out) {
    char drafter[512];
    snprintf(drafter, sizeof drafter, "%s/checkpoints/last", out);
    fflush(stdout);
    pid_t pid = fork();
    must(pid >= 0, "fork", "failed");
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(3);
        execl(PACELINE_PROGRAM, "paceline", "decode", "--target", PACELINE_SOURCE_DIR "/checkpoints/tiny", "--drafter",
              drafter, "--prompt", "The little dog", "--max-new-tokens", "16", "--threads", "1", "--quiet", "--device",
              "cpu", (char *)NULL);
        _exit(127);
    }
    int           status;
    struct rusage use;
    must(wait4(pid, &status, 0, &use) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "decode process",
         "failed");
    return (double)use.ru_maxrss * 1024;
}

// Freed blocks that a thread keeps at hand count as in use: without them, a figure is what the program holds.
static void without_thread_caches(char **argv) {
    if (getenv("GLIBC_TUNABLES")) return;
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
    execv("/proc/self/exe", argv); // goes on with the caches if that fails
}

int main(int argc, char **argv) {
    without_thread_caches(argv);
    double seconds = 1e9;
    int    rounds = MOST, n = 0;
    bool   verbose = false;
    // Not from the heap, whose growth is measured.
    double(*rows)[FIGURES] =
        mmap(NULL, MOST * sizeof *rows, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(rows != MAP_FAILED, "memory", "none left");
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--seconds=", 10) == 0)
            seconds = strtod(argv[i] + 10, NULL);
        else if (strncmp(argv[i], "--rounds=", 9) == 0)
            rounds = (int)strtol(argv[i] + 9, NULL, 10);
        else if (strcmp(argv[i], "--verbose") == 0)
            verbose = true;
        else
            must(0, argv[i], "unknown argument; --seconds=S, --rounds=N, --verbose");
    }
    char        dir[256], out[300];
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.200s/paceline-soak-XXXXXX", base ? base : "/tmp");
    must(mkdtemp(dir) != NULL, dir, "cannot make");
    snprintf(out, sizeof out, "%s/run", dir);
    pl_log_set(PL_LOG_QUIET);
    double start = pl_now();
    while (n < LEAST || (n < MOST && n < rounds && pl_now() - start < seconds)) {
        one_process(out, (uint64_t)n + 1);
        rows[n][CHILD] = other_process(out);
        sample(rows[n]);
        for (figure f = 0; f < FIGURES && verbose; f++)
            printf("%s %.1f %s%s", figures[f].name, rows[n][f] / figures[f].scale, figures[f].unit,
                   f + 1 < FIGURES ? ", " : "\n");
        fflush(stdout);
        n++;
    }
    bool flat = report(rows, n);
    printf("%d rounds in %.0f s: %s\n", n, pl_now() - start, flat ? "flat" : "NOT FLAT");
    munmap(rows, MOST * sizeof *rows);
    pl_tree_remove(dir, NULL);
    return flat ? 0 : 1;
}
