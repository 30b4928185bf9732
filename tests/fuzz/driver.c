// A fuzz target without libFuzzer: its seeds, the inputs that once failed (tests/fuzz/regressions/NAME), and a fixed
// number of mutations that are the same on every machine.
//   fuzz_NAME [--runs=N] [--start=SEED] [--keep=FILE] [FILE...]      FILEs: only those
//   fuzz_NAME --seeds=DIR --words=FILE                               writes the seeds and the dictionary
// --keep: the input under test stands in FILE, so that it is there after a crash; removed when all went well.
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/rng.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

typedef struct bytes {
    uint8_t *p;
    size_t   n;
} bytes;

static bytes *pool; // seeds and regressions
static int    pool_n, pool_cap;

static pl_rng   rng;
static uint64_t drawn;

static size_t below(size_t n) {
    return n ? (size_t)pl_rng_below(rng, drawn++, n) : 0;
}

// ---- the input under test -------------------------------------------------------------------------------------------

static const char *keep_path;
static uint8_t    *keep;
static int         keep_fd = -1;

static void open_keep(const char *path) {
    keep_path = path;
    keep_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (keep_fd < 0) pl_fuzz_finding("cannot write %s", path);
    void *p = mmap(NULL, pl_fuzz.max_len, PROT_READ | PROT_WRITE, MAP_SHARED, keep_fd, 0);
    if (p == MAP_FAILED) pl_fuzz_finding("cannot map %s", path);
    keep = p;
}

static void run(const uint8_t *data, size_t n) {
    if (keep) {
        if (ftruncate(keep_fd, (off_t)n) != 0) pl_fuzz_finding("cannot resize %s", keep_path);
        if (n) memcpy(keep, data, n);
    }
    uint8_t *exact = malloc(n ? n : 1); // a block of exactly n bytes: the sanitizers see the next one
    if (!exact) pl_fuzz_finding("no memory for %zu bytes", n);
    if (n) memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

static void add(void *arg, const void *data, size_t n) {
    (void)arg;
    if (pool_n == pool_cap) {
        pool_cap = pool_cap ? 2 * pool_cap : 16;
        pool = realloc(pool, (size_t)pool_cap * sizeof *pool);
        if (!pool) pl_fuzz_finding("no memory");
    }
    uint8_t *p = malloc(n ? n : 1);
    if (!p) pl_fuzz_finding("no memory");
    if (n) memcpy(p, data, n);
    pool[pool_n++] = (bytes){p, n};
}

static void add_file(const char *path) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    pl_fuzz_must(pl_file_read(path, &data, &n, pl_fuzz.max_len, &err), &err);
    add(NULL, data, n);
    pl_free(data);
}

static int visible(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static void add_regressions(void) {
    char            dir[512], path[1024];
    struct dirent **entry = NULL;
    snprintf(dir, sizeof dir, "%s/tests/fuzz/regressions/%s", PACELINE_SOURCE_DIR, pl_fuzz.name);
    int n = scandir(dir, &entry, visible, alphasort); // none: no folder
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, entry[i]->d_name);
        add_file(path);
        free(entry[i]);
    }
    free(entry);
}

// ---- mutations ------------------------------------------------------------------------------------------------------

static bytes now; // of max_len bytes

static void insert(size_t at, const void *data, size_t n) {
    if (n > pl_fuzz.max_len - now.n) n = pl_fuzz.max_len - now.n;
    memmove(now.p + at + n, now.p + at, now.n - at);
    memmove(now.p + at, data, n);
    now.n += n;
}

static void cut(size_t at, size_t n) {
    memmove(now.p + at, now.p + at + n, now.n - at - n);
    now.n -= n;
}

static void overwrite_number(void) {
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   7,
                                   8,
                                   63,
                                   64,
                                   127,
                                   128,
                                   255,
                                   256,
                                   1023,
                                   1024,
                                   4096,
                                   65535,
                                   65536,
                                   0x7fffffff,
                                   0x80000000u,
                                   0xffffffffu,
                                   (uint64_t)1 << 32,
                                   ((uint64_t)1 << 53) + 1,
                                   INT64_MAX,
                                   (uint64_t)1 << 63,
                                   UINT64_MAX};
    static const size_t   size[] = {1, 2, 4, 8};
    size_t                n = size[below(4)];
    uint64_t              v = odd[below(sizeof odd / sizeof *odd)];
    if (now.n < n) return;
    size_t at = below(now.n - n + 1);
    if (below(2)) at -= at % n;
    if (below(3) == 0) { // a little more or less than there is
        memcpy(&v, now.p + at, n);
        v += below(9) - 4;
    }
    memcpy(now.p + at, &v, n);
}

// Digits become others, for texts.
static void change_digits(void) {
    static const char *const odd[] = {"0",          "-1",  "1e400", "1.5", "4294967296", "9223372036854775808",
                                      "2147483647", "1e3", "-0",    "007", "1048577",    "9007199254740993"};
    size_t                   from = below(now.n);
    while (from < now.n && (now.p[from] < '0' || now.p[from] > '9'))
        from++;
    size_t n = 0;
    while (from + n < now.n && now.p[from + n] >= '0' && now.p[from + n] <= '9')
        n++;
    const char *word = odd[below(sizeof odd / sizeof *odd)];
    cut(from, n);
    insert(from, word, strlen(word));
}

static size_t n_words(void) {
    size_t n = 0;
    while (pl_fuzz.words && pl_fuzz.words[n])
        n++;
    return n;
}

static void mutate_once(void) {
    size_t at = below(now.n), n = below(1 + (now.n - at < 64 ? now.n - at : 64));
    if (now.n == 0) {
        insert(0, (uint8_t[]){(uint8_t)below(256)}, 1);
        return;
    }
    switch (below(10)) {
    case 0: now.p[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: now.p[at] = (uint8_t)below(256); break;
    case 2: overwrite_number(); break;
    case 3: change_digits(); break;
    case 4: cut(at, n); break;
    case 5: { // a part again, somewhere
        uint8_t part[64];
        memcpy(part, now.p + at, n);
        insert(below(now.n + 1), part, n);
        break;
    }
    case 6: { // a part of another input
        const bytes *other = &pool[below((size_t)pool_n)];
        if (other->n == 0) break;
        size_t from = below(other->n), m = below(1 + (other->n - from < 256 ? other->n - from : 256));
        insert(at, other->p + from, m);
        break;
    }
    case 7: now.n = at; break;
    default: {
        size_t words = n_words();
        if (words == 0) {
            now.p[at] = (uint8_t)below(256);
            break;
        }
        const char *w = pl_fuzz.words[below(words)];
        if (below(2) && now.n - at >= strlen(w))
            memcpy(now.p + at, w, strlen(w));
        else
            insert(at, w, strlen(w));
    }
    }
}

static void mutate(void) {
    const bytes *from = &pool[below((size_t)pool_n)];
    now.n = from->n;
    if (now.n) memcpy(now.p, from->p, now.n);
    for (size_t k = 1 + below(4); k > 0; k--)
        mutate_once();
    run(now.p, now.n);
}

static const char *option(const char *arg, const char *name) {
    size_t n = strlen(name);
    return strncmp(arg, name, n) == 0 ? arg + n : NULL;
}

int main(int argc, char **argv) {
    long     runs = pl_fuzz.library ? 0 : pl_fuzz.runs;
    uint64_t start = 1;
    bool     files = false;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // What libraries ask for counts too. (A sanitizer's shadow takes terabytes of addresses.)
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)8 << 30, (rlim_t)8 << 30});
#endif
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        const char *v;
        if ((v = option(argv[i], "--runs=")))
            runs = strtol(v, NULL, 10);
        else if ((v = option(argv[i], "--start=")))
            start = strtoull(v, NULL, 10);
        else if ((v = option(argv[i], "--keep=")))
            open_keep(v);
        else {
            files = true;
            add_file(argv[i]);
        }
    }
    int seeds = 0;
    if (!files) {
        pl_fuzz_each_seed(add, NULL);
        seeds = pool_n;
        if (seeds == 0) pl_fuzz_finding("no seeds");
        add_regressions();
    }
    for (int i = 0; i < pool_n; i++)
        run(pool[i].p, pool[i].n);
    now.p = malloc(pl_fuzz.max_len);
    if (!now.p) pl_fuzz_finding("no memory");
    rng = pl_rng_make(start, PL_STREAM_TEST, 0);
    for (long i = 0; i < runs && !files; i++)
        mutate();
    if (keep_path) unlink(keep_path);
    printf("fuzz_%s: %d seeds, %d inputs that once failed, %ld mutations\n", pl_fuzz.name, seeds, pool_n - seeds,
           files ? 0 : runs);
    for (int i = 0; i < pool_n; i++)
        free(pool[i].p);
    free(pool);
    free(now.p);
    return 0;
}
