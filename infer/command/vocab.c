// `paceline vocab`: how often tokens occur, which lists of tokens cover how much, and what two vocabularies share.
#include "data/counts/tally.h"
#include "data/dataset/dataset.h"
#include "data/tokenizer/lexicon.h"
#include "infer/cli/cli.h"
#include "infer/report/svg.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIZES 6
#define POINTS 200
#define TITLE "Coverage of token lists"

static const pl_key options[] = {
    {PL_OPTION_TEXT("tokenizer", "PATH"),
     .help = "tokenizer file, or a model folder that holds one (not needed for datasets)"},
    PL_OPTION_PRE,
    {PL_OPTION_TEXT("field", "NAME"),
     .help = "of JSON records, count this member (\"output\", \"conversations\") instead of the prompt"},
    {PL_OPTION_INT("holdout", "N"), .deflt = PL_DATASET_HOLDOUT, .min = 0, .max = 1e9,
     .help = "leave out what train.holdout: N holds out of a dataset (0: nothing)"},
    {PL_OPTION_INT("seed", "N"), .min = 0, .max = 9e15,
     .help = "of the training that holds it out; default: the seed the dataset was generated with"},
    {PL_OPTION_TEXTS("against", "FILE"), .letter = 'a',
     .help = "also say how much of this text the list covers; may be given again"},
    {PL_OPTION_TEXT("against-field", "NAME"), .help = "--field of the files given with --against"},
    {PL_OPTION_TEXT("list", "FILE"), .letter = 'l',
     .help = "write the ids by rank, for drafter.head.vocab (counted over all documents)"},
    {PL_OPTION_INT("shortest", "N"), .deflt = "0", .min = 0, .max = 1e9,
     .help = "of ways, the N shortest tokens (0: all)"},
    {PL_OPTION_TEXT("plot", "FILE"), .help = "write the coverage curves as a page"},
    {0}};

// ---- report

typedef struct measured {
    const char *name;
    pl_tally    t;
} measured;

typedef struct report {
    const pl_env *env;
    measured     *m; // m[0]: the texts of the list; then those of --against
    int           n;
    int32_t      *rank, *half_rank; // token order by all of m[0]; by its even documents
    int32_t       occurred, vocab;
} report;

static void say_sizes(int32_t vocab, int32_t size[SIZES]) {
    for (int i = 0; i < SIZES; i++)
        size[i] = vocab >> (i + 1) > 0 ? vocab >> (i + 1) : 1;
}

// Returns the coverage of the first k tokens. The list of one half is measured on the other half: on its own texts the
// coverage would be biased upward.
static double coverage(const report *r, int which, int64_t k) {
    const pl_tally *t = &r->m[which].t;
    return which == 0 ? pl_counts_coverage(&t->half[1], r->half_rank, k) : pl_counts_coverage(&t->all, r->rank, k);
}

static void write_json(const report *r) {
    pl_json_out *o = r->env->result;
    int32_t      size[SIZES];
    say_sizes(r->vocab, size);
    pl_put_int(o, "vocab_size", r->vocab);
    pl_put_array(o, "inputs");
    for (int i = 0; i < r->n; i++) {
        const pl_tally *t = &r->m[i].t;
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
        const pl_tally  *t = &r->m[i].t;
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
    pl_page   page;
    pl_strbuf b = {0};
    pl_line  *line = pl_calloc((size_t)r->n, sizeof *line);
    double   *xy = pl_calloc((size_t)r->n * 2 * POINTS, sizeof *xy);
    pl_status st = pl_page_begin(&page, TITLE, err);
    if (st == PL_OK && !(line && xy)) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
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
        pl_svg_lines(&b, line, r->n, true);
        pl_page_put_svg(&page, page.tree.root, "coverage", &b);
        st = pl_page_write(&page, path, err);
    }
    pl_page_end(&page);
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
    pl_counts_rank(&r->m[0].t.half[0], r->half_rank);
    return PL_OK;
}

static bool is_page(const char *front, size_t n) {
    return pl_page_is(front, n, TITLE);
}

// Checks that the output file is none of the inputs, and is new or an earlier output.
static pl_status check_written(const pl_cli_args *a, const char *option, pl_ours_fn ours, pl_err *err) {
    const char *path = pl_cli_text(a, option), *tokenizer = pl_cli_text(a, "tokenizer");
    int         n = 0;
    char        name[16];
    if (!path) return PL_OK;
    snprintf(name, sizeof name, "--%s", option);
    const char **read = pl_calloc((size_t)(a->n_given + a->n_positional) + 1, sizeof *read);
    if (!read) return pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    pl_cli_list(a, "against", read, &n);
    for (int i = 0; i < a->n_positional; i++)
        read[n++] = a->positional[i];
    if (tokenizer) read[n++] = tokenizer;
    pl_status st = PL_OK;
    for (int i = 0; i < n && st == PL_OK; i++)
        if (pl_path_same(path, read[i]))
            st = pl_fail(err, PL_E_USAGE, "%s %s: is what is read; give another file", name, path);
    pl_free(read);
    return st == PL_OK ? pl_file_spares(path, ours, name, err) : st;
}

static pl_status count_and_say(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    report        r = {.env = env};
    uint64_t      seed = pl_cli_has(a, "seed") ? (uint64_t)pl_cli_int(a, "seed") : 0;
    pl_tally_held held = {.every = pl_cli_int(a, "holdout"), .seed = &seed, .n_seeds = pl_cli_has(a, "seed")};
    pl_tokenizer *tok = NULL;
    const char  **against = pl_calloc((size_t)a->n_given + 1, sizeof *against);
    int           n_against = 0;
    pl_status     st = check_written(a, "list", pl_counts_is, err);
    if (st == PL_OK) st = check_written(a, "plot", is_page, err);
    if (st != PL_OK) goto done;
    if (against) pl_cli_list(a, "against", against, &n_against);
    r.m = pl_calloc((size_t)n_against + 1, sizeof *r.m);
    if (!against || !r.m) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "arguments: out of memory"));
    r.n = n_against + 1;
    if (pl_cli_has(a, "tokenizer"))
        PL_TRY_GOTO(st, done, pl_tokenizer_open_pre(&tok, pl_cli_text(a, "tokenizer"), pl_cli_text(a, "pre"), err));
    r.m[0].name = a->positional[0];
    for (int i = 0; i < a->n_positional; i++)
        PL_TRY_GOTO(st, done, pl_tally_input(&r.m[0].t, tok, a->positional[i], pl_cli_text(a, "field"), &held, err));
    for (int i = 0; i < n_against; i++) {
        r.m[i + 1].name = against[i];
        PL_TRY_GOTO(st, done,
                    pl_tally_input(&r.m[i + 1].t, tok, against[i], pl_cli_text(a, "against-field"), NULL, err));
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
        pl_tally_fini(&r.m[i].t);
    pl_free(r.m);
    pl_free(r.rank);
    pl_free(r.half_rank);
    pl_free(against);
    pl_tokenizer_close(tok);
    return st;
}

// ---- overlap: tokens with the same bytes in both vocabularies

// Counts of a vocabulary's tokens in texts: those that the other vocabulary also has, and those that occur there too.
typedef struct met {
    int64_t tokens, documents, known, met; // distinct tokens of vocabulary a
    int64_t said, said_known;              // their occurrences
} met;

static pl_status meet(met *m, const pl_tokenizer *x, const pl_tokenizer *y, const pl_cli_args *a, pl_err *err) {
    pl_tally   tx = {0}, ty = {0};
    pl_lexicon lx = {0}, ly = {0};
    int32_t   *to = NULL;
    pl_status  st;
    *m = (met){0};
    for (int i = 3; i < a->n_positional; i++) {
        PL_TRY_GOTO(st, done, pl_tally_input(&tx, x, a->positional[i], pl_cli_text(a, "field"), NULL, err));
        PL_TRY_GOTO(st, done, pl_tally_input(&ty, y, a->positional[i], pl_cli_text(a, "field"), NULL, err));
    }
    PL_TRY_GOTO(st, done, pl_lexicon_init(&lx, x, err));
    PL_TRY_GOTO(st, done, pl_lexicon_init(&ly, y, err));
    PL_TRY_GOTO(st, done, pl_lexicon_map(&to, &lx, &ly, err));
    m->documents = tx.all.documents;
    for (int32_t i = 0; i < tx.all.vocab; i++) {
        if (tx.all.count[i] == 0 || i == pl_tokenizer_eos_id(x)) continue; // EOS ends every text
        m->tokens++;
        m->said += tx.all.count[i];
        m->said_known += to[i] >= 0 ? tx.all.count[i] : 0;
        m->known += to[i] >= 0;
        m->met += to[i] >= 0 && ty.all.count[to[i]] > 0;
    }
done:
    pl_free(to);
    pl_lexicon_fini(&lx);
    pl_lexicon_fini(&ly);
    pl_tally_fini(&tx);
    pl_tally_fini(&ty);
    return st;
}

static pl_status say_met(const pl_env *env, const pl_tokenizer *x, const pl_tokenizer *y, const pl_cli_args *a,
                         pl_err *err) {
    met m;
    PL_TRY(meet(&m, x, y, a, err));
    if (env->json) {
        pl_put_int(env->result, "documents", m.documents);
        pl_put_int(env->result, "text_tokens_a", m.tokens);
        pl_put_int(env->result, "text_shared", m.met);
        pl_put_int(env->result, "text_known_b", m.known);
        pl_put_int(env->result, "text_said_a", m.said);
        pl_put_int(env->result, "text_said_known_b", m.said_known);
        return PL_OK;
    }
    double n = m.tokens > 0 ? (double)m.tokens : 1, said = m.said > 0 ? (double)m.said : 1;
    fprintf(env->text,
            "of the %lld different tokens that %lld texts have in the first, %.1f %% stand in them in the second too; "
            "%.1f %% are in it, %.1f %% of what is said\n",
            (long long)m.tokens, (long long)m.documents, 100 * (double)m.met / n, 100 * (double)m.known / n,
            100 * (double)m.said_known / said);
    return PL_OK;
}

static void say_overlap(const pl_env *env, const pl_tokenizer *x, const pl_tokenizer *y, int64_t shared,
                        const pl_spelled_alike *alike) {
    if (env->json) {
        pl_put_int(env->result, "shared", shared);
        pl_put_int(env->result, "spelled_alike", alike->as_they_are);
        pl_put_int(env->result, "spelled_alike_with_spaces", alike->with_spaces);
        pl_put_int(env->result, "vocab_a", pl_tokenizer_vocab_size(x));
        pl_put_int(env->result, "vocab_b", pl_tokenizer_vocab_size(y));
        return;
    }
    fprintf(env->text, "%lld tokens stand for the same bytes: %.1f %% of %d and %.1f %% of %d\n", (long long)shared,
            100.0 * (double)shared / pl_tokenizer_vocab_size(x), pl_tokenizer_vocab_size(x),
            100.0 * (double)shared / pl_tokenizer_vocab_size(y), pl_tokenizer_vocab_size(y));
    fprintf(env->text, "%lld tokens are spelled alike, %lld where the marks of a space are\n",
            (long long)alike->as_they_are, (long long)alike->with_spaces);
}

static pl_status overlap(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_tokenizer *x = NULL, *y = NULL;
    pl_status     st = PL_OK;
    if (a->n_positional < 3)
        return pl_fail(err, PL_E_USAGE, "vocab overlap: give two tokenizers, vocab overlap A B [INPUT...]");
    static const char *const unread[] = {"list", "plot", "against", "tokenizer", "holdout"};
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (pl_cli_has(a, unread[i]))
            return pl_fail(err, PL_E_USAGE, "--%s: vocab overlap compares whole inputs; leave it out", unread[i]);
    PL_TRY_GOTO(st, done, pl_tokenizer_open(&x, a->positional[1], err));
    PL_TRY_GOTO(st, done, pl_tokenizer_open(&y, a->positional[2], err));
    int64_t          shared = pl_tokenizer_shared(x, y, err);
    pl_spelled_alike alike;
    if (shared < 0) PL_TRY_GOTO(st, done, PL_E_MEMORY);
    PL_TRY_GOTO(st, done, pl_lexicon_spelled_alike(&alike, x, y, err));
    say_overlap(env, x, y, shared, &alike);
    if (a->n_positional > 3) st = say_met(env, x, y, a, err);
done:
    pl_tokenizer_close(x);
    pl_tokenizer_close(y);
    return st;
}

// ---- ways: the number of token sequences that spell a token

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Returns a quantile, interpolated between the two nearest values.
static double quantile(const double *sorted, int32_t n, double q) {
    double  at = q * (n - 1);
    int32_t i = (int32_t)at;
    return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

#define WAYS_ROWS 7
static const char *const ways_row[WAYS_ROWS] = {"mean",   "standard_deviation", "minimum", "quartile_1",
                                                "median", "quartile_3",         "maximum"};

static void summarize(double *v, int32_t n, double row[WAYS_ROWS]) {
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++)
        sum += v[i];
    for (int32_t i = 0; i < n; i++)
        squares += (v[i] - sum / n) * (v[i] - sum / n);
    qsort(v, (size_t)n, sizeof *v, by_value);
    double of[WAYS_ROWS] = {sum / n,
                            sqrt(squares / (n > 1 ? n - 1 : 1)),
                            v[0],
                            quantile(v, n, 0.25),
                            quantile(v, n, 0.5),
                            quantile(v, n, 0.75),
                            v[n - 1]};
    memcpy(row, of, sizeof of);
}

// Lists the shortest tokens, equal lengths in the order of their ids.
static pl_status shortest(const pl_lexicon *x, int64_t most, double **length, double **ways, int32_t *n, pl_err *err) {
    int32_t left = most > 0 && most < x->n ? (int32_t)most : x->n, vocab = pl_tokenizer_vocab_size(x->tok);
    *n = 0;
    *length = pl_calloc((size_t)x->n + 1, sizeof **length);
    *ways = pl_calloc((size_t)x->n + 1, sizeof **ways);
    if (!*length || !*ways) return pl_fail(err, PL_E_MEMORY, "%d tokens: out of memory", x->n);
    for (size_t bytes = 1; left > 0; bytes++)
        for (int32_t id = 0; id < vocab && left > 0; id++) {
            size_t      len;
            const char *s = pl_lexicon_bytes(x, id, &len);
            if (len != bytes || pl_lexicon_find(x, s, len) != id) continue;
            double w = pl_lexicon_ways(x, s, len, NULL);
            if (w < 0) return pl_fail(err, PL_E_MEMORY, "a token of %zu bytes: out of memory", len);
            (*length)[*n] = (double)len;
            (*ways)[(*n)++] = w;
            left--;
        }
    return PL_OK;
}

static pl_status say_ways(const pl_env *env, const pl_lexicon *x, const char *const *texts, int n_texts, double *length,
                          double *ways, int32_t n, pl_err *err) {
    double row[2][WAYS_ROWS] = {{0}};
    if (n > 0) summarize(length, n, row[0]);
    if (n > 0) summarize(ways, n, row[1]);
    if (env->json) {
        pl_put_int(env->result, "tokens", n);
        for (int k = 0; k < 2; k++) {
            pl_put_object(env->result, k ? "ways" : "bytes");
            for (int i = 0; i < WAYS_ROWS; i++)
                pl_put_num(env->result, ways_row[i], row[k][i]);
            pl_json_out_close(env->result, '}');
        }
        pl_put_array(env->result, "texts");
    } else {
        fprintf(env->text, "%-20s %12s %12s\n", "", "bytes", "ways");
        for (int i = 0; i < WAYS_ROWS; i++)
            fprintf(env->text, "%-20s %12.2f %12.2f\n", ways_row[i], row[0][i], row[1][i]);
        fprintf(env->text, "of %d tokens, each written by tokens\n", n);
    }
    for (int i = 0; i < n_texts; i++) {
        double steps, w = pl_lexicon_ways(x, texts[i], strlen(texts[i]), &steps);
        if (w < 0) return pl_fail(err, PL_E_MEMORY, "\"%s\": out of memory", texts[i]);
        if (env->json) {
            pl_json_out_object(env->result);
            pl_put_str(env->result, "text", texts[i]);
            pl_put_num(env->result, "ways", w);
            pl_put_num(env->result, "forwards", steps);
            pl_json_out_close(env->result, '}');
        } else {
            fprintf(env->text, "\"%s\": %.0f ways, %.0f forwards of a drafter\n", texts[i], w, steps);
        }
    }
    if (env->json) pl_json_out_close(env->result, ']');
    return PL_OK;
}

static pl_status count_ways(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    pl_tokenizer *tok = NULL;
    pl_lexicon    x = {0};
    double       *length = NULL, *ways = NULL;
    int32_t       n;
    pl_status     st = PL_OK;
    if (a->n_positional < 2)
        return pl_fail(err, PL_E_USAGE, "vocab ways: give a tokenizer, vocab ways TOKENIZER [TEXT...]");
    if (pl_cli_has(a, "list") || pl_cli_has(a, "plot") || pl_cli_has(a, "against") || pl_cli_has(a, "tokenizer"))
        return pl_fail(err, PL_E_USAGE,
                       "vocab ways counts no text: leave out --tokenizer, --list, --plot and --against");
    PL_TRY_GOTO(st, done, pl_tokenizer_open_pre(&tok, a->positional[1], pl_cli_text(a, "pre"), err));
    PL_TRY_GOTO(st, done, pl_lexicon_init(&x, tok, err));
    PL_TRY_GOTO(st, done, shortest(&x, pl_cli_int(a, "shortest"), &length, &ways, &n, err));
    st = say_ways(env, &x, a->positional + 2, a->n_positional - 2, length, ways, n, err);
done:
    pl_free(length);
    pl_free(ways);
    pl_lexicon_fini(&x);
    pl_tokenizer_close(tok);
    return st;
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    if (pl_cli_has(a, "shortest") && strcmp(a->positional[0], "ways") != 0)
        return pl_fail(err, PL_E_USAGE, "--shortest is for vocab ways");
    if (strcmp(a->positional[0], "overlap") == 0) return overlap(env, a, err);
    if (strcmp(a->positional[0], "ways") == 0) return count_ways(env, a, err);
    return count_and_say(env, a, err);
}

const pl_command pl_command_vocab = {
    .name = "vocab",
    .summary = "counts tokens: makes lists for trimmed heads, measures their coverage; compares two vocabularies",
    .positional = "overlap A B [INPUT...] | ways TOKENIZER [TEXT...] | INPUT...",
    .min_positional = 1,
    .max_positional = 1 << 20,
    .options = options,
    .about =
        "Counts the tokens of texts (files, folders of *.txt), JSON or JSONL records (--field names the member) and\n"
        "datasets (what the target generated), and says which share of tokens the most frequent V/2, V/4, ... ids\n"
        "cover: of the inputs (a list counted on their even documents, tested on the odd ones) and of each --against\n"
        "(the list counted on all inputs). What an answer of a dataset ended with is counted too, and the\n"
        "tokenizer's EOS behind texts and records.\n"
        "Documents of a dataset that training holds out to choose the best drafter by are left out (--holdout), but "
        "for\n"
        "overlap.\n"
        "vocab overlap A B counts the tokens that two tokenizers have in common; with inputs also, of those that the\n"
        "inputs have in A, how many stand in them in B as well.\n"
        "vocab ways TOKENIZER counts in how many ways tokens, end to end, make each of the shortest tokens, and a "
        "TEXT.",
    .example = "paceline vocab --tokenizer checkpoints/tiny --against data/prompts/heldout.jsonl "
               "data/prompts/train.jsonl",
    .run = run,
};
