#include "infer/eval/questions.h"

#include "data/benchmarks/score.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NEW 128 // default without a value in recipe and benchmark

static pl_status refuse(const pl_recipe *r, const char *name, pl_err *err) {
    pl_strbuf b = {0};
    for (int i = 0; pl_benchmark_at(i); i++) {
        const char *s = pl_benchmark_at(i)->name;
        if (i > 0) pl_strbuf_add(&b, ", ", 2);
        pl_strbuf_add(&b, s, strlen(s));
    }
    char     *names = pl_strbuf_take(&b);
    pl_status st = pl_recipe_fail(r, &pl_eval_recipe_of(r)->eval.benchmark, err,
                                  "\"%s\" is no benchmark and no file; known: %s", name, names ? names : "...");
    pl_free(names);
    return st;
}

// Finds the prompts' file or benchmark; *all: none of its prompts are training data.
static pl_status name_prompts(const pl_recipe *r, const char **name, bool *all, pl_err *err) {
    const char *benchmark = pl_eval_recipe_of(r)->eval.benchmark;
    *name = benchmark ? benchmark : pl_split_recipe_of(r)->eval.prompts;
    *all = *name != NULL;
    if (!*all) *name = pl_generate_recipe_of(r)->data.prompts;
    if (!*name)
        return pl_fail(err, PL_E_INPUT, "eval.prompts: is missing, and so is data.prompts; name a file of prompts");
    if (!*all && pl_split_recipe_of(r)->eval.holdout == 0)
        return pl_recipe_fail(r, &pl_split_recipe_of(r)->eval.holdout, err,
                              "0 keeps none of data.prompts to evaluate on; give a number, or name other prompts in "
                              "eval.prompts");
    if (benchmark && !pl_benchmark_find(benchmark) && !pl_path_exists(benchmark)) return refuse(r, benchmark, err);
    return PL_OK;
}

// Finds the folder of a benchmark's files; fails if a file is missing.
static pl_status find_folder(const char **dir, const pl_recipe *r, const pl_benchmark *b, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    *dir = ev->eval.benchmark_data ? ev->eval.benchmark_data : getenv("PACELINE_BENCHMARKS");
    if (!*dir || !**dir)
        return pl_recipe_fail(r, &ev->eval.benchmark, err,
                              "where are its files? put %s below a folder and name that in eval.benchmark_data or "
                              "PACELINE_BENCHMARKS; it comes from %s",
                              b->set[0]->file, b->set[0]->origin);
    for (int i = 0; i < PL_BENCHMARK_SETS && b->set[i]; i++) {
        char *path;
        PL_TRY(pl_benchmark_file(&path, b->set[i], *dir, err));
        pl_free(path);
    }
    return PL_OK;
}

pl_status pl_questions_check(const pl_recipe *r, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    const pl_benchmark   *b = ev->eval.benchmark ? pl_benchmark_find(ev->eval.benchmark) : NULL;
    const char           *name, *dir;
    bool                  all;
    if (ev->eval.max_new_tokens == 1)
        return pl_recipe_fail(r, &ev->eval.max_new_tokens, err, "1 leaves nothing to time; 2 at least");
    PL_TRY(name_prompts(r, &name, &all, err));
    if (ev->eval.benchmark_data && !ev->eval.benchmark)
        return pl_recipe_fail(r, &ev->eval.benchmark_data, err, "needs eval.benchmark");
    return b ? find_folder(&dir, r, b, err) : PL_OK;
}

// Appends all of `more` to the questions.
static pl_status append(pl_questions *q, pl_prompts *more, pl_err *err) {
    if (!q->prompts) q->prompts = pl_calloc(1, sizeof *q->prompts);
    pl_status st = q->prompts ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", q->name);
    int64_t   moved = 0;
    while (st == PL_OK && moved < more->n)
        st = pl_prompts_push(q->prompts, more->p[moved++], q->name, err); // takes it over, also on failure
    for (; moved < more->n; moved++)
        pl_prompt_fini(&more->p[moved]);
    more->n = 0;
    pl_prompts_destroy(more);
    return st;
}

static pl_status read_set(pl_questions *q, const pl_question_set *s, const char *dir, const pl_recipe *r,
                          const pl_prompt_form *form, pl_err *err) {
    pl_question_reader *reader = NULL;
    pl_prompts         *more = NULL;
    char               *path;
    PL_TRY(pl_benchmark_file(&path, s, dir, err));
    pl_status st = pl_question_reader_create(&reader, s, form->chat != NULL, err);
    if (st == PL_OK) st = pl_prompts_to_evaluate(r, form, path, pl_question_reader_rewrite(reader), &more, err);
    pl_question_reader_destroy(reader);
    pl_free(path);
    PL_TRY(st);
    for (int64_t i = 0; i < more->n; i++)
        more->p[i].scoring = (int32_t)s->scoring;
    return append(q, more, err);
}

pl_status pl_questions_read(pl_questions *q, const pl_recipe *r, const pl_prompt_form *form, pl_err *err) {
    const pl_eval_recipe *ev = pl_eval_recipe_of(r);
    const pl_benchmark   *b = ev->eval.benchmark ? pl_benchmark_find(ev->eval.benchmark) : NULL;
    pl_prompts           *train = NULL;
    const char           *dir;
    bool                  all;
    *q = (pl_questions){.max_new = (int)ev->eval.max_new_tokens};
    if (q->max_new == 0) q->max_new = b ? b->max_new_tokens : MAX_NEW;
    PL_TRY(name_prompts(r, &q->name, &all, err));
    if (b) {
        PL_TRY(find_folder(&dir, r, b, err));
        for (int i = 0; i < PL_BENCHMARK_SETS && b->set[i]; i++)
            PL_TRY(read_set(q, b->set[i], dir, r, form, err));
        return PL_OK;
    }
    if (all) return pl_prompts_to_evaluate(r, form, q->name, NULL, &q->prompts, err);
    pl_status st = pl_recipe_prompts(r, form, &train, &q->prompts, err);
    pl_prompts_destroy(train);
    return st;
}

void pl_questions_close(pl_questions *q) {
    pl_prompts_destroy(q->prompts);
    *q = (pl_questions){0};
}

pl_status pl_question_score(const pl_prompt *p, const pl_tokenizer *tok, bool chat, const int32_t *tokens, int64_t n,
                            pl_method *a, pl_answer *x, pl_err *err) {
    char  *text;
    size_t at;
    if (p->scoring == PL_SCORE_NONE || !p->reference) return PL_OK;
    PL_TRY(pl_chat_answer_text(&text, tok, tokens, n, err));
    if (p->scoring != PL_SCORE_CODE) {
        x->scored = true;
        x->correct = pl_score((pl_scoring)p->scoring, text, p->reference);
        pl_free(text);
        return PL_OK;
    }
    size_t      bytes = pl_code_of(text, chat, &at);
    pl_json_out o;
    pl_json_out_begin(&o, 0);
    pl_json_out_object(&o);
    pl_put_str(&o, "task_id", p->reference);
    pl_json_out_key(&o, "completion");
    pl_json_out_strn(&o, text + at, bytes);
    pl_json_out_close(&o, '}');
    pl_free(text);
    PL_TRY(pl_json_out_end(&o, err));
    pl_strbuf_add(&a->samples, o.text, o.len);
    pl_strbuf_add(&a->samples, "\n", 1);
    pl_free(o.text);
    return a->samples.failed ? pl_fail(err, PL_E_MEMORY, "answers: out of memory") : PL_OK;
}
