// What fuzz targets share. A target is one file fuzz_<reader>.c: an input's bytes go to the reader as a file would, and
// whatever they are the reader answers with a product that can be used to its last byte, or with PL_E_INPUT or
// PL_E_UNSUPPORTED and one line; never a crash, never memory that the size of the input does not justify.
//
// CMake builds each target twice over: with driver.c (any compiler, a fixed number of repeatable mutations, in the
// suite) or, with the preset `fuzz`, with clang's libFuzzer. In both a mapped file is a heap block of its exact size,
// so that the sanitizers see the first byte behind it, and a single allocation above PL_FUZZ_ALLOC_MAX ends the
// program.
#ifndef PL_FUZZ_H
#define PL_FUZZ_H

#include "kernels/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The largest honest one is a vocabulary of PL_VOCAB_MAX ids, 8 bytes each.
#define PL_FUZZ_ALLOC_MAX ((size_t)64 << 20)

typedef struct pl_fuzz_target {
    const char *name;           // "safetensors"; its program is fuzz_safetensors
    void (*seeds)(void);        // hands every seed to pl_fuzz_seed
    const char *const *words;   // ends with NULL: what a mutation may insert; NULL: none
    int                runs;    // mutations in the suite
    size_t             max_len; // bytes of an input at most
    bool               library; // not our reader but a library behind our checks: mutated by tests/shown.sh alone
} pl_fuzz_target;

extern const pl_fuzz_target pl_fuzz; // each target's own
int                         LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

void pl_fuzz_seed(const void *data, size_t n);
void pl_fuzz_seed_text(const char *text);
void pl_fuzz_seed_file(const char *path);

// A folder of this process under TMPDIR, removed at the end; and a path in it (good for the next seven calls).
const char *pl_fuzz_dir(void);
const char *pl_fuzz_path(const char *name);
// A file in that folder with these bytes.
const char *pl_fuzz_file(const char *name, const void *data, size_t n);

// What every reader promises: true when it is PL_OK; a failure must be an allowed one, with one line and no product.
// product_at: the address of the pointer that the reader sets (read after the call, which may stand in the arguments).
bool pl_fuzz_result(pl_status st, const pl_err *err, const void *product_at);
// Ends the program as a finding.
void pl_fuzz_finding(const char *fmt, ...) __attribute__((noreturn)) PL_PRINTF(1, 2);
// Seeds and fixtures are ours: they must work.
void pl_fuzz_must(pl_status st, const pl_err *err);
// Reads every byte, so that the sanitizers see it.
void pl_fuzz_touch(const void *data, size_t n);

// Calls sink for every seed.
typedef void (*pl_fuzz_sink)(void *arg, const void *data, size_t n);
void pl_fuzz_each_seed(pl_fuzz_sink sink, void *arg);
// Handles --seeds=DIR (one file a seed) and --words=FILE (libFuzzer's dictionary); true when one was there.
bool pl_fuzz_export(int argc, char **argv);

// A tokenizer's file through everything a tokenizer does (tokenizer.c). pre: as pl_tokenizer_open_pre.
void pl_fuzz_tokenizer(const char *path, const char *pre);

#endif
