// Folders of drafters as engines read them, changed by hand.
#ifndef PL_TEST_INFER_SERVED_H
#define PL_TEST_INFER_SERVED_H

#include "checkpoints/safetensors.h"
#include "infer/export/export.h"
#include "tests/infer/fixture.h"

// A target, and drafters for it that read layers 2, 4 and 5: EAGLE-3 with a head of all rows and of those in d2t, DFlash,
// DSpark with both of its heads, DFlash 2, DSpark with the recurrent form of its Markov head, EAGLE-3 of another
// width, and P-EAGLE.
enum {
    SERVED_LAYERS = 8,
    SERVED_ROWS = 31,
    SERVED_FLASH = 2,
    SERVED_SPARK,
    SERVED_SECOND,
    SERVED_RECURRENT,
    SERVED_WIDE,
    SERVED_PARALLEL,
    SERVED_ALL,
    SERVED_OTHER = SERVED_ALL
};
typedef struct served_world {
    char     base[64], target[80], checkpoint[SERVED_OTHER + 1][80];
    char     out[80]; // where exports go
    pl_llama model;
    int32_t  d2t[SERVED_ROWS];
} served_world;

static inline bool served_is_block(int which) {
    return which >= SERVED_FLASH && which < SERVED_WIDE;
}

void served_make(served_world *w);
void served_end(served_world *w);
// Writes another drafter in the place of checkpoint[SERVED_OTHER].
void served_other(served_world *w, const pl_backbone_kind *kind, const pl_backbone_options *o);
// Writes the members of a target's .gguf file that exports and checks read.
void served_gguf(const char *path, int layers, int tokens);
// Exports checkpoint[which] to w->out.
void served_export(const served_world *w, const char *engine, int which, const char *target, bool f32);

// The rules that were broken or could not be told, each with a blank behind it.
typedef struct served_told {
    int  rules;
    char broken[800], unseen[800], why[2000];
} served_told;

served_told served_check(const char *engine, const char *path, const char *target);
// Fails unless the rule was broken ("?rule": could not be told), and with it one other at most: what one change breaks
// is one rule, or two that look at the same.
void        served_expect(const served_told *t, const char *rule, int number);

pl_st *served_open(const char *dir);
char  *served_text(const char *dir, const char *name); // the caller's
// config.json with `from`, the first time that it stands there, replaced.
void   served_edit(const char *dir, const char *from, const char *to);
// Without the member ("eagle_config", or "eagle_config.list").
void   served_drop(const char *dir, const char *key);
// model.safetensors with tensor `name` as `to` says: data NULL: left out; not there: added.
void   served_replace(const char *dir, const char *name, const pl_st_source *to);
void   served_rename(const char *dir, const char *from, const char *to);

#endif
