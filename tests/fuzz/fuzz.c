#include "tests/fuzz/fuzz.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- findings -------------------------------------------------------------------------------------------------------

void pl_fuzz_finding(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "fuzz_%s: FINDING: ", pl_fuzz.name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

bool pl_fuzz_result(pl_status st, const pl_err *err, const void *product_at) {
    const void *product = NULL;
    if (st == PL_OK) return true;
    if (product_at) memcpy(&product, product_at, sizeof product);
    if (product) pl_fuzz_finding("a product beside the failure \"%s\"", err->msg);
    if (st != PL_E_INPUT && st != PL_E_UNSUPPORTED)
        pl_fuzz_finding("status \"%s\" for the bytes of a file: %s", pl_status_text(st), err->msg);
    if (err->status != st || !err->msg[0]) pl_fuzz_finding("a failure without a line");
    for (const char *p = err->msg; *p; p++)
        if ((unsigned char)*p < ' ') pl_fuzz_finding("byte 0x%02x in the line \"%s\"", (unsigned)*p, err->msg);
    return false;
}

void pl_fuzz_must(pl_status st, const pl_err *err) {
    if (st != PL_OK) pl_fuzz_finding("a fixture failed: %s", err->msg);
}

void pl_fuzz_touch(const void *data, size_t n) {
    static volatile uint64_t sink;
    sink = sink ^ pl_hash(data, n);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static char folder[256];

static void remove_folder(void) {
    pl_tree_remove(folder, NULL);
}

const char *pl_fuzz_dir(void) {
    if (folder[0]) return folder;
    // Every input becomes a file: in memory where there is such a folder.
    const char *base = getenv("TMPDIR");
    if (!base) base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%.200s/paceline-fuzz-XXXXXX", base);
    if (!mkdtemp(folder)) pl_fuzz_finding("cannot make %s", folder);
    atexit(remove_folder);
    return folder;
}

const char *pl_fuzz_path(const char *name) {
    static char ring[8][512];
    static int  next;
    char       *p = ring[next++ % 8];
    snprintf(p, sizeof ring[0], "%s/%s", pl_fuzz_dir(), name);
    return p;
}

const char *pl_fuzz_file(const char *name, const void *data, size_t n) {
    const char *path = pl_fuzz_path(name);
    FILE       *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) pl_fuzz_finding("cannot write %s", path);
    return path;
}

// ---- seeds ----------------------------------------------------------------------------------------------------------

static pl_fuzz_sink seed_sink;
static void        *seed_arg;

void pl_fuzz_seed(const void *data, size_t n) {
    if (n > pl_fuzz.max_len) pl_fuzz_finding("a seed of %zu bytes, max_len is %zu", n, pl_fuzz.max_len);
    seed_sink(seed_arg, data, n);
}

void pl_fuzz_seed_text(const char *text) {
    pl_fuzz_seed(text, strlen(text));
}

void pl_fuzz_seed_file(const char *path) {
    pl_err   err;
    uint8_t *data;
    size_t   n;
    pl_fuzz_must(pl_file_read(path, &data, &n, (size_t)1 << 26, &err), &err);
    pl_fuzz_seed(data, n);
    pl_free(data);
}

void pl_fuzz_each_seed(pl_fuzz_sink sink, void *arg) {
    seed_sink = sink;
    seed_arg = arg;
    pl_fuzz.seeds();
}

typedef struct export_to {
    const char *dir;
    int         n;
} export_to;

static void export_seed(void *arg, const void *data, size_t n) {
    export_to *e = arg;
    char       path[512];
    snprintf(path, sizeof path, "%s/seed-%03d", e->dir, e->n++);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) pl_fuzz_finding("cannot write %s", path);
}

static void export_words(const char *path) {
    FILE *f = fopen(path, "w");
    if (!f) pl_fuzz_finding("cannot write %s", path);
    for (const char *const *w = pl_fuzz.words; w && *w; w++) {
        fputc('"', f);
        for (const char *p = *w; *p; p++)
            fprintf(f, "\\x%02x", (unsigned char)*p);
        fputs("\"\n", f);
    }
    if (fclose(f) != 0) pl_fuzz_finding("cannot write %s", path);
}

bool pl_fuzz_export(int argc, char **argv) {
    bool did = false;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--seeds=", 8) == 0) {
            pl_fuzz_each_seed(export_seed, &(export_to){.dir = argv[i] + 8});
            did = true;
        } else if (strncmp(argv[i], "--words=", 8) == 0) {
            export_words(argv[i] + 8);
            did = true;
        }
    }
    return did;
}

// libFuzzer calls this first; driver.c does so itself.
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    pl_log_set(PL_LOG_QUIET);
    pl_fuzz_dir();
    if (pl_fuzz_export(*argc, *argv)) exit(0);
    return 0;
}

// ---- the linker puts these in front of the library's own ------------------------------------------------------------

static void check_size(size_t n) {
    if (n > PL_FUZZ_ALLOC_MAX) pl_fuzz_finding("%zu bytes in one allocation", n);
}

void     *__real_pl_malloc(size_t n);
void     *__real_pl_calloc(size_t count, size_t size);
void     *__real_pl_realloc(void *p, size_t n);
pl_status __real_pl_map_open(pl_map *m, const char *path, pl_err *err);
void      __real_pl_map_close(pl_map *m);
void     *__wrap_pl_malloc(size_t n);
void     *__wrap_pl_calloc(size_t count, size_t size);
void     *__wrap_pl_realloc(void *p, size_t n);
pl_status __wrap_pl_map_open(pl_map *m, const char *path, pl_err *err);
void      __wrap_pl_map_close(pl_map *m);
void      __wrap_pl_map_drop(const void *p, size_t bytes);

void *__wrap_pl_malloc(size_t n) {
    check_size(n);
    return __real_pl_malloc(n);
}

void *__wrap_pl_calloc(size_t count, size_t size) {
    check_size(pl_size_mul(count, size, 1));
    return __real_pl_calloc(count, size);
}

void *__wrap_pl_realloc(void *p, size_t n) {
    check_size(n);
    return __real_pl_realloc(p, n);
}

pl_status __wrap_pl_map_open(pl_map *m, const char *path, pl_err *err) {
    pl_map    file;
    pl_status st = __real_pl_map_open(&file, path, err);
    *m = (pl_map){0};
    if (st != PL_OK || file.size == 0) return st;
    void *copy = NULL;
    if (posix_memalign(&copy, PL_ALIGN, file.size) != 0) pl_fuzz_finding("no memory for %zu bytes", file.size);
    memcpy(copy, file.data, file.size);
    *m = (pl_map){.data = copy, .size = file.size};
    __real_pl_map_close(&file);
    return PL_OK;
}

void __wrap_pl_map_close(pl_map *m) {
    free((void *)m->data);
    *m = (pl_map){0};
}

void __wrap_pl_map_drop(const void *p, size_t bytes) {
    (void)p, (void)bytes; // the block is no mapping: dropping its pages would clear it
}
