// Benchmarks in the words, numbers and lengths of those who publish figures of them. Their files are not part of the
// project: they are read where a user has put them.
#ifndef PL_BENCHMARK_H
#define PL_BENCHMARK_H

#include "data/benchmarks/score.h"
#include "data/text/prompts.h"

// Questions of one file, and the words around them.
typedef struct pl_question_set {
    const char *name;   // the category of questions whose records have none
    const char *file;   // below the folder of benchmarks
    const char *origin; // where it is published
    const char *member; // of a record: what is asked; NULL: its "turns"
    int         count;  // questions at most, the first ones; 0: all
    int         shots;  // so many records stand before each question with their answers, and are not asked
    const char *system; // a system message, in chats
    struct {
        const char *before, *after; // NULL: nothing
    } chat, plain;                  // around a question
    pl_scoring scoring;
    // The category of a record of question_id where the harness has groups of its own; NULL: the record's.
    const char *(*group)(int64_t id);
} pl_question_set;

enum { PL_BENCHMARK_SETS = 4 };
typedef struct pl_benchmark {
    const char            *name; // data/README.md says what each one is
    int                    max_new_tokens;
    const pl_question_set *set[PL_BENCHMARK_SETS]; // up to the first NULL
} pl_benchmark;

// NULL: no benchmark has that name.
const pl_benchmark *pl_benchmark_find(const char *name);
const pl_benchmark *pl_benchmark_at(int i); // the i-th, NULL past the last

// dir/the set's file; refused with where to get it. The caller's.
pl_status pl_benchmark_file(char **path, const pl_question_set *s, const char *dir, pl_err *err);

// What a set's records are taken for: `rewrite` for pl_prompts_read_as or pl_chat_prompts_read_as.
typedef struct pl_question_reader pl_question_reader;
pl_status pl_question_reader_create(pl_question_reader **out, const pl_question_set *s, bool chat, pl_err *err);
void      pl_question_reader_destroy(pl_question_reader *r);
const pl_prompts_rewrite *pl_question_reader_rewrite(const pl_question_reader *r);

#endif
