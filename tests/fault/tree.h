// A folder as it stands: what every file holds, so that two runs can be compared and a broken product be seen.
#ifndef PL_TEST_FAULT_TREE_H
#define PL_TEST_FAULT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tree_file {
    char    *path;  // relative
    uint64_t hash;  // of all bytes
    uint64_t sense; // of what does not change from run to run: without times and rates
} tree_file;

typedef struct tree {
    tree_file *file;
    int        n, cap;
    int        left_over; // temporaries: hidden names that are neither .lock nor .stamps
} tree;

// Empty where there is no such folder.
void             tree_read(tree *t, const char *dir);
void             tree_fini(tree *t);
const tree_file *tree_find(const tree *t, const char *path);
// Both hold the same files of the same sense; else *why (512 bytes) names the first that differs.
bool             tree_same(const tree *a, const tree *b, char why[512]);
// Every file is old, or as in `whole`, or of a kind that changes while a run goes on and then whole in itself.
bool             tree_whole(const char *dir, const tree *now, const tree *old, const tree *whole, char why[512]);
// cp -r of a small tree; `from` may be missing.
void             tree_copy(const char *from, const char *to);
// Hash of JSON (or lines of it) without the numbers that measure time.
uint64_t         tree_sense(const char *name, const char *text, size_t n);

#endif
