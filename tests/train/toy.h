// A task of a few lines for tests of the loop: it learns a vector by least squares from noisy samples, and slot s of a
// step draws where its cursor stands. By one process, or by ranks.
#ifndef PL_TEST_TRAIN_TOY_H
#define PL_TEST_TRAIN_TOY_H

#include "train/loop/trainer.h"

enum { TOY_STEPS = 23, TOY_SLOTS = 3 };

typedef struct toy {
    pl_task        task;
    pl_params      params;
    pl_tensor      w, bias;
    pl_param_block block;
    int64_t        cursor[2];
    int            evaluations;
} toy;

// How the next ones are: set and put back by tests.
typedef struct toy_setup {
    int64_t dim;   // of w, even
    int     slots; // 0: TOY_SLOTS
    bool    sharded;
    // What the slot's loss and gradient are multiplied by; NULL: 1.
    double (*factor)(int64_t step, int slot);
} toy_setup;
extern toy_setup toy_is;

void toy_create(toy *y, pl_pool *pool, pl_comm *comm);
void toy_destroy(toy *y);

// Options of a run into dir: evaluations every 4 steps, of which 12 scores best, and checkpoints every 5.
pl_trainer_options toy_options(const char *dir);
// A run by these options, by `ranks` processes (1: this one). Rank 0's status; the others have ended.
pl_status          toy_run(const pl_trainer_options *o, int ranks, pl_pool *pool, pl_err *err);

// cmocka's group setup and teardown of a folder; a path in it, the caller's.
int   toy_setup_folder(void **state);
int   toy_teardown_folder(void **state);
char *toy_path(const char *name);

// Both runs' checkpoints, byte for byte; and one file.
void toy_same_run(const char *a, const char *b);
void toy_same_file(const char *a, const char *b, const char *name);
// The lines of metrics.jsonl (or another file): their steps and losses (-1: none); how many.
int  toy_lines(const char *dir, const char *file, int64_t steps[], double losses[], int most);
void toy_same_metrics(const char *a, const char *b);
// Entries of a folder.
int  toy_entries(const char *dir);

#endif
