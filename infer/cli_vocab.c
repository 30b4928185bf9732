#include "infer/cli_vocab.h"

#include "data/counts.h"
#include "data/dataset.h"
#include "data/prompts.h"
#include "data/strbuf.h"
#include "data/text.h"
#include "data/tokenizer.h"
#include "infer/put.h"
#include "infer/svg.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <math.h>
#include <string.h>

#define CHUNK 4096 // bytes: texts are cut into documents of about this size, so that halves of one book can be compared
#define SIZES 6
#define POINTS 200

static const pl_cli_option options[] = {
    {.name = "tokenizer",
     .type = PL_CLI_TEXT,
     .arg = "PATH",
     .help = "tokenizer file, or a model folder that holds one (not needed for datasets)"},
    {.name = "pre", .type = PL_CLI_TEXT, .arg = "NAME", .help = PL_TOK_PRE_HELP},
    {.name = "field",
     .type = PL_CLI_TEXT,
     .arg = "NAME",
     .help = "of JSON records, count this member (\"output\", \"conversations\") instead of the prompt"},
    {.name = "against",
     .letter = 'a',
     .type = PL_CLI_TEXT,
     .arg = "FILE",
     .many = true,
     .help = "also say how much of this text the list covers; may be given again"},
    {.name = "against-field", .type = PL_CLI_TEXT, .arg = "NAME", .help = "--field of the files given with --against"},
    {.name = "list",
     .letter = 'l',
     .type = PL_CLI_TEXT,
     .arg = "FILE",
     .help = "write the ids by rank, for drafter.head.vocab (counted over all documents)"},
    {.name = "plot", .type = PL_CLI_TEXT, .arg = "FILE", .help = "write the coverage curves as a page"},
    {0}};

// Counts of one input: of all its documents, and of the even and odd ones.
typedef struct tally {
    pl_counts all, half[2];
} tally;

static void tally_fini(tally *t) {
    pl_counts_fini(&t->all);
    pl_counts_fini(&t->half[0]);
    pl_counts_fini(&t->half[1]);
}

static pl_status tally_init(tally *t, int32_t vocab, const char *tokenizer, const char *corpus, pl_err *err) {
    PL_TRY(pl_counts_init(&t->all, vocab, tokenizer, corpus, err));
    PL_TRY(pl_counts_init(&t->half[0], vocab, tokenizer, corpus, err));
    return pl_counts_init(&t->half[1], vocab, tokenizer, corpus, err);
}

static void tally_add(tally *t, const int32_t *ids, int64_t n) {
    pl_counts *half = &t->half[t->all.documents % 2];
    pl_counts_add(&t->all, ids, n);
    pl_counts_add(half, ids, n);
}

static pl_status add_text(tally *t, const pl_tokenizer *tok, const char *text, size_t bytes, pl_err *err) {
    int32_t *ids;
    int64_t  n;
    PL_TRY(pl_tokenizer_encode(tok, text, bytes, PL_TOK_NO_SPECIAL, &ids, &n, err));
    tally_add(t, ids, n);
    pl_free(ids);
    return PL_OK;
}

// ---- inputs

static bool is_dataset(const char *path) {
    char *manifest = pl_path_join(path, "manifest.json");
    bool  is = manifest && pl_path_exists(manifest);
    pl_free(manifest);
    return is;
}

// Of a dataset the target's own tokens count: the rows that the loss mask marks.
static pl_status count_dataset(tally *t, const pl_tokenizer *tok, const char *path, pl_err *err) {
    pl_dataset             *ds = NULL;
    pl_dataset_open_options o = {.lazy = true, .incomplete = true};
    int32_t                *ids = NULL;
    uint8_t                *mask = NULL;
    const pl_dataset_attrs *attrs;
    pl_status               st = PL_OK;
    PL_TRY(pl_dataset_open(&ds, path, &o, err));
    attrs = pl_dataset_get_attrs(ds);
    const char *fingerprint = attrs->tokenizer_fingerprint ? attrs->tokenizer_fingerprint : "";
    if (tok && *fingerprint && strcmp(fingerprint, pl_tokenizer_fingerprint(tok)) != 0)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT, "%s: was made with tokenizer %s, --tokenizer is %s", path, fingerprint,
                            pl_tokenizer_fingerprint(tok)));
    if (!t->all.count) PL_TRY_GOTO(st, done, tally_init(t, attrs->vocab_size, fingerprint, path, err));
    if (t->all.vocab != attrs->vocab_size)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT, "%s: has a vocabulary of %d, the other inputs of %d", path,
                            attrs->vocab_size, t->all.vocab));
    for (int64_t i = 0; i < pl_dataset_docs(ds); i++) {
        int64_t first, n, kept = 0;
        PL_TRY_GOTO(st, done, pl_dataset_doc(ds, i, &first, &n, err));
        pl_free(ids);
        pl_free(mask);
        ids = pl_malloc((size_t)n * sizeof *ids);
        mask = pl_malloc((size_t)n);
        if (!ids || !mask) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", path));
        PL_TRY_GOTO(st, done, pl_dataset_read_doc(ds, i, &(pl_dataset_rows_out){.tokens = ids, .mask = mask}, err));
        for (int64_t k = 0; k < n; k++)
            if (mask[k]) ids[kept++] = ids[k];
        tally_add(t, ids, kept);
    }
done:
    pl_free(ids);
    pl_free(mask);
    pl_dataset_close(ds);
    return st;
}

static pl_status count_records(tally *t, const pl_tokenizer *tok, const char *path, const char *field, pl_err *err) {
    pl_prompts *p;
    PL_TRY(field ? pl_prompts_read_field(&p, path, field, err) : pl_prompts_read(&p, path, err));
    pl_status st = PL_OK;
    for (int64_t i = 0; i < p->n && st == PL_OK; i++) {
        st = add_text(t, tok, p->p[i].text, strlen(p->p[i].text), err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s:%lld", path, (long long)p->p[i].line);
    }
    pl_prompts_destroy(p);
    return st;
}

static pl_status count_corpus(tally *t, const pl_tokenizer *tok, const char *path, pl_err *err) {
    pl_corpus *whole = NULL, *cut = NULL;
    pl_status  st =
        pl_corpus_read(&whole, &path, 1, (pl_text_options){.gutenberg = true, .encoding = PL_TEXT_LATIN1}, err);
    if (st == PL_OK) st = pl_corpus_chunk(&cut, whole, CHUNK, err);
    pl_corpus_destroy(whole);
    for (int64_t i = 0; st == PL_OK && i < cut->n; i++) {
        st = add_text(t, tok, cut->docs[i].text, cut->docs[i].bytes, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", cut->docs[i].name);
    }
    pl_corpus_destroy(cut);
    return st;
}

static bool ends_in(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

static pl_status count(tally *t, const pl_tokenizer *tok, const char *path, const char *field, pl_err *err) {
    if (is_dataset(path)) return count_dataset(t, tok, path, err);
    if (!tok) return pl_fail(err, PL_E_USAGE, "--tokenizer: is missing; it names a tokenizer file or a model folder");
    if (!t->all.count) PL_TRY(tally_init(t, pl_tokenizer_vocab_size(tok), pl_tokenizer_fingerprint(tok), path, err));
    if (ends_in(path, ".json") || ends_in(path, ".jsonl")) return count_records(t, tok, path, field, err);
    return count_corpus(t, tok, path, err);
}

// ---- what is said

typedef struct measured {
    const char *name;
    tally       t;
} measured;

typedef struct report {
    const pl_env *env;
    measured     *m; // 0: what the list is made of; then --against
    int           n;
    int32_t      *rank, *half_rank; // by all of m[0]; by its even documents
    int32_t       occurred, half_occurred, vocab;
} report;

static void say_sizes(int32_t vocab, int32_t size[SIZES]) {
    for (int i = 0; i < SIZES; i++)
        size[i] = vocab >> (i + 1) > 0 ? vocab >> (i + 1) : 1;
}

// The list of a half is judged by the other half: on what it was counted in, a list flatters itself.
static double coverage(const report *r, int which, int64_t k) {
    const tally *t = &r->m[which].t;
    return which == 0 ? pl_counts_coverage(&t->half[1], r->half_rank, k) : pl_counts_coverage(&t->all, r->rank, k);
}

static void write_json(const report *r) {
    pl_json_out *o = r->env->result;
    int32_t      size[SIZES];
    say_sizes(r->vocab, size);
    pl_put_int(o, "vocab_size", r->vocab);
    pl_put_array(o, "inputs");
    for (int i = 0; i < r->n; i++) {
        const tally *t = &r->m[i].t;
        pl_json_out_object(o);
        pl_put_str(o, "name", r->m[i].name);
        pl_put_str(o, "judged_on", i == 0 ? "its odd documents, the list from its even ones" : "all of it");
        pl_put_int(o, "documents", t->all.documents);
        pl_put_int(o, "tokens", t->all.tokens);
        if (i == 0) pl_put_int(o, "ids_that_occur", r->occurred);
        pl_put_array(o, "coverage");
        for (int k = 0; k < SIZES; k++) {
            pl_json_out_object(o);
            pl_put_int(o, "size", size[k]);
            pl_put_num(o, "share", coverage(r, i, size[k]));
            pl_json_out_close(o, '}');
        }
        pl_json_out_close(o, ']');
        int64_t need = i == 0 ? pl_counts_needed(&t->half[1], r->half_rank, r->vocab, 0.95)
                              : pl_counts_needed(&t->all, r->rank, r->vocab, 0.95);
        pl_put_int(o, "ids_for_95_percent", need);
        pl_json_out_close(o, '}');
    }
    pl_json_out_close(o, ']');
}

static void write_table(const report *r) {
    FILE   *f = r->env->text;
    int32_t size[SIZES];
    say_sizes(r->vocab, size);
    fprintf(f, "vocabulary of %d; list from %s: %lld tokens in %lld documents, %d ids occur\n", r->vocab, r->m[0].name,
            (long long)r->m[0].t.all.tokens, (long long)r->m[0].t.all.documents, r->occurred);
    fprintf(f, "%-44s %12s", "coverage of", "tokens");
    for (int k = 0; k < SIZES; k++)
        fprintf(f, "  V/%-2d=%-6d", 1 << (k + 1), size[k]);
    fprintf(f, "  95 %% needs\n");
    for (int i = 0; i < r->n; i++) {
        const tally     *t = &r->m[i].t;
        const char      *name = pl_path_name(r->m[i].name);
        const pl_counts *on = i == 0 ? &t->half[1] : &t->all;
        int64_t          need = pl_counts_needed(on, i == 0 ? r->half_rank : r->rank, r->vocab, 0.95);
        fprintf(f, "%-30.30s %-13s %12lld", name, i == 0 ? "(held-out)" : "", (long long)on->tokens);
        for (int k = 0; k < SIZES; k++)
            fprintf(f, "  %9.2f %%", 100 * coverage(r, i, size[k]));
        fprintf(f, "  %lld (%.1f %% of V)\n", (long long)need, 100 * (double)need / r->vocab);
    }
}

static pl_status plot(const report *r, const char *path, pl_err *err) {
    pl_strbuf b = {0};
    pl_line  *line = pl_calloc((size_t)r->n, sizeof *line);
    double   *xy = pl_calloc((size_t)r->n * 2 * POINTS, sizeof *xy);
    pl_status st = line && xy ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    for (int i = 0; st == PL_OK && i < r->n; i++) {
        double *x = xy + (int64_t)i * 2 * POINTS, *y = x + POINTS;
        for (int k = 0; k < POINTS; k++) {
            int64_t size = 1 + (int64_t)((double)(r->vocab - 1) * k / (POINTS - 1));
            x[k] = 100 * (double)size / r->vocab;
            y[k] = 100 * coverage(r, i, size);
        }
        line[i] = (pl_line){.label = pl_path_name(r->m[i].name), .x = x, .y = y, .n = POINTS, .colour = i};
    }
    if (st == PL_OK) {
        pl_html_page_begin(&b, "Coverage of token lists");
        pl_svg_lines(&b, "share of tokens covered, % (list by frequency)", "% of the vocabulary", line, r->n, true);
        pl_html_page_end(&b);
        size_t n = b.n;
        char  *text = pl_strbuf_take(&b);
        st = text ? pl_file_write_atomic(path, text, n, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
        pl_free(text);
    }
    pl_strbuf_fini(&b);
    pl_free(line);
    pl_free(xy);
    return st;
}

static pl_status rank(report *r, pl_err *err) {
    r->vocab = r->m[0].t.all.vocab;
    r->rank = pl_malloc((size_t)r->vocab * sizeof *r->rank);
    r->half_rank = pl_malloc((size_t)r->vocab * sizeof *r->half_rank);
    if (!r->rank || !r->half_rank) return pl_fail(err, PL_E_MEMORY, "ranks: out of memory");
    r->occurred = pl_counts_rank(&r->m[0].t.all, r->rank);
    r->half_occurred = pl_counts_rank(&r->m[0].t.half[0], r->half_rank);
    return PL_OK;
}

static pl_status count_and_say(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    report        r = {.env = env};
    pl_tokenizer *tok = NULL;
    const char  **against = pl_calloc((size_t)a->n_given + 1, sizeof *against);
    int           n_against = 0;
    pl_status     st = PL_OK;
    if (against) pl_cli_list(a, "against", against, &n_against);
    r.m = pl_calloc((size_t)n_against + 1, sizeof *r.m);
    if (!against || !r.m) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "arguments: out of memory"));
    r.n = n_against + 1;
    if (pl_cli_has(a, "tokenizer"))
        PL_TRY_GOTO(st, done, pl_tokenizer_open_pre(&tok, pl_cli_text(a, "tokenizer"), pl_cli_text(a, "pre"), err));
    r.m[0].name = a->positional[0];
    for (int i = 0; i < a->n_positional; i++)
        PL_TRY_GOTO(st, done, count(&r.m[0].t, tok, a->positional[i], pl_cli_text(a, "field"), err));
    for (int i = 0; i < n_against; i++) {
        r.m[i + 1].name = against[i];
        PL_TRY_GOTO(st, done, count(&r.m[i + 1].t, tok, against[i], pl_cli_text(a, "against-field"), err));
    }
    PL_TRY_GOTO(st, done, rank(&r, err));
    if (pl_cli_has(a, "list")) {
        PL_TRY_GOTO(st, done, pl_counts_write(&r.m[0].t.all, pl_cli_text(a, "list"), err));
        pl_log("vocab: %d ids by rank in %s", r.occurred, pl_cli_text(a, "list"));
    }
    if (pl_cli_has(a, "plot")) PL_TRY_GOTO(st, done, plot(&r, pl_cli_text(a, "plot"), err));
    if (env->json)
        write_json(&r);
    else
        write_table(&r);
done:
    for (int i = 0; r.m && i < r.n; i++)
        tally_fini(&r.m[i].t);
    pl_free(r.m);
    pl_free(r.rank);
    pl_free(r.half_rank);
    pl_free(against);
    pl_tokenizer_close(tok);
    return st;
}

// ---- overlap: tokens that stand for the same bytes in both vocabularies

static pl_status overlap(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_tokenizer *x = NULL, *y = NULL;
    pl_status     st = PL_OK;
    if (a->n_positional != 3) return pl_fail(err, PL_E_USAGE, "vocab overlap: give two tokenizers, vocab overlap A B");
    PL_TRY_GOTO(st, done, pl_tokenizer_open(&x, a->positional[1], err));
    PL_TRY_GOTO(st, done, pl_tokenizer_open(&y, a->positional[2], err));
    int64_t shared = pl_tokenizer_shared(x, y, err);
    if (shared < 0) {
        st = PL_E_MEMORY;
        goto done;
    }
    if (env->json) {
        pl_put_int(env->result, "shared", shared);
        pl_put_int(env->result, "vocab_a", pl_tokenizer_vocab_size(x));
        pl_put_int(env->result, "vocab_b", pl_tokenizer_vocab_size(y));
    } else {
        fprintf(env->text, "%lld tokens stand for the same bytes: %.1f %% of %d and %.1f %% of %d\n", (long long)shared,
                100.0 * (double)shared / pl_tokenizer_vocab_size(x), pl_tokenizer_vocab_size(x),
                100.0 * (double)shared / pl_tokenizer_vocab_size(y), pl_tokenizer_vocab_size(y));
    }
done:
    pl_tokenizer_close(x);
    pl_tokenizer_close(y);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    if (strcmp(a->positional[0], "overlap") == 0) return overlap(env, a, err);
    return count_and_say(env, a, err);
}

const pl_command pl_command_vocab = {
    .name = "vocab",
    .summary = "counts tokens: lists for trimmed heads, their coverage; overlap of two vocabularies",
    .positional = "overlap A B | INPUT...",
    .min_positional = 1,
    .max_positional = 1 << 20,
    .options = options,
    .about =
        "Counts the tokens of texts (files, folders of *.txt), JSON or JSONL records (--field names the member) and\n"
        "datasets (what the target generated), and says which share of tokens the most frequent V/2, V/4, ... ids\n"
        "cover: of the inputs by halves (list from even documents, judged on odd ones), of --against as they are.\n"
        "vocab overlap A B counts the tokens that two tokenizers have in common.",
    .example = "paceline vocab --tokenizer checkpoints/tiny --against data/prompts/heldout.jsonl "
               "data/prompts/train.jsonl",
    .run = run,
};
