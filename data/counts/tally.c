#include "data/counts/tally.h"

#include "data/dataset/dataset.h"
#include "data/text/prompts.h"
#include "data/text/text.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"

#include <string.h>

#define CHUNK 4096      // bytes of a document of text
#define CORPUS_MAX 2000 // bytes of names; what comes after them is "..."

void pl_tally_fini(pl_tally *t) {
    pl_counts_fini(&t->all);
    pl_counts_fini(&t->half[0]);
    pl_counts_fini(&t->half[1]);
}

static pl_status name_corpus(pl_tally *t, const char *name, const char *field, pl_err *err) {
    size_t used = strlen(t->all.corpus);
    bool   full = used >= CORPUS_MAX;
    if (full && strcmp(t->all.corpus + used - 3, "...") == 0) return PL_OK;
    char *text = pl_sprintf("%s%s%s%s%s", t->all.corpus, used ? "; " : "", full ? "..." : name,
                            field && !full ? ": " : "", field && !full ? field : "");
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    pl_free(t->all.corpus);
    t->all.corpus = text;
    return PL_OK;
}

// One more input, of this vocabulary.
static pl_status begin(pl_tally *t, int32_t vocab, const char *tokenizer, const char *name, const char *field,
                       pl_err *err) {
    if (!t->all.count) {
        PL_TRY(pl_counts_init(&t->all, vocab, tokenizer, "", err));
        PL_TRY(pl_counts_init(&t->half[0], vocab, tokenizer, "", err));
        PL_TRY(pl_counts_init(&t->half[1], vocab, tokenizer, "", err));
    }
    if (t->all.vocab != vocab)
        return pl_fail(err, PL_E_INPUT, "%s: has a vocabulary of %d, the other inputs of %d", name, vocab,
                       t->all.vocab);
    return name_corpus(t, name, field, err);
}

static pl_status begin_text(pl_tally *t, const pl_tokenizer *tok, const char *name, const char *field, pl_err *err) {
    return begin(t, pl_tokenizer_vocab_size(tok), pl_tokenizer_fingerprint(tok), name, field, err);
}

static void add(pl_tally *t, const int32_t *ids, int64_t n, const int32_t *end, int n_end) {
    pl_counts *half = &t->half[t->all.documents % 2];
    pl_counts_add(&t->all, ids, n);
    pl_counts_add(half, ids, n);
    for (int i = 0; i < n_end; i++) {
        pl_counts_end(&t->all, end[i]);
        pl_counts_end(half, end[i]);
    }
}

// ends: with this text a document ends.
static pl_status add_text(pl_tally *t, const pl_tokenizer *tok, const char *text, size_t bytes, bool ends,
                          pl_err *err) {
    int32_t eos = pl_tokenizer_eos_id(tok), end[PL_TALLY_STOPS], *ids;
    int64_t n;
    int     n_end = 0;
    for (int i = 0; i < t->n_stop && ends; i++)
        if (t->stop[i] >= 0 && t->stop[i] < t->all.vocab) end[n_end++] = t->stop[i];
    if (t->n_stop == 0 && ends && eos >= 0) end[n_end++] = eos;
    PL_TRY(pl_tokenizer_encode(tok, text, bytes, PL_TOK_NO_SPECIAL, &ids, &n, err));
    add(t, ids, n, end, n_end);
    pl_free(ids);
    return PL_OK;
}

// The seed among the settings that a dataset was generated with.
static pl_status own_seed(uint64_t *seed, const pl_dataset_attrs *a, const char *path, pl_err *err) {
    pl_json j;
    int64_t v = -1;
    PL_TRY(pl_json_parse(&j, path, 0, a->generation, strlen(a->generation), 0, err));
    pl_status st = pl_json_opt_int(&j, NULL, "seed", 0, PL_JSON_INT_MAX, -1, &v, err);
    pl_json_close(&j);
    if (st == PL_OK && v < 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: does not say with which seed it was generated; give --seed, the seed of "
                       "training, or --holdout 0",
                       path);
    *seed = (uint64_t)v;
    return st;
}

// By any of the seeds that are named, or by the dataset's own.
static pl_status is_held(bool *yes, pl_dataset *ds, int64_t i, const pl_tally_held *held, uint64_t own, pl_err *err) {
    *yes = false;
    if (held && held->n_seeds == 0) return pl_dataset_doc_held_out(ds, i, own, held->every, yes, err);
    for (int k = 0; held && k < held->n_seeds && !*yes; k++)
        PL_TRY(pl_dataset_doc_held_out(ds, i, held->seed[k], held->every, yes, err));
    return PL_OK;
}

pl_status pl_tally_dataset(pl_tally *t, const pl_tokenizer *tok, const char *path, const pl_tally_held *held,
                           pl_err *err) {
    pl_dataset             *ds = NULL;
    pl_dataset_open_options o = {.lazy = true, .incomplete = true};
    int32_t                *ids = NULL;
    uint8_t                *mask = NULL;
    const pl_dataset_attrs *attrs;
    int64_t                 unsaid = 0, out = 0;
    uint64_t                own = 0;
    pl_status               st = PL_OK;
    PL_TRY(pl_dataset_open(&ds, path, &o, err));
    attrs = pl_dataset_get_attrs(ds);
    const char *fingerprint = attrs->tokenizer_fingerprint ? attrs->tokenizer_fingerprint : "";
    if (tok && *fingerprint && strcmp(fingerprint, pl_tokenizer_fingerprint(tok)) != 0)
        PL_TRY_GOTO(st, done,
                    pl_fail(err, PL_E_INPUT, "%s: was made with tokenizer %s, this one is %s", path, fingerprint,
                            pl_tokenizer_fingerprint(tok)));
    if (held && held->every > 0 && held->n_seeds == 0) PL_TRY_GOTO(st, done, own_seed(&own, attrs, path, err));
    // A model may have rows that its tokenizer has no pieces for; a list of the dataset alone has them too.
    int32_t vocab = t->all.count && t->all.vocab < attrs->vocab_size ? t->all.vocab : attrs->vocab_size;
    PL_TRY_GOTO(st, done, begin(t, vocab, fingerprint, path, NULL, err));
    for (int64_t i = 0; i < pl_dataset_docs(ds); i++) {
        int64_t      first, n, kept = 0;
        pl_doc_about about;
        bool         apart;
        PL_TRY_GOTO(st, done, is_held(&apart, ds, i, held, own, err));
        out += apart;
        if (apart) continue;
        PL_TRY_GOTO(st, done, pl_dataset_doc(ds, i, &first, &n, err));
        pl_free(ids);
        pl_free(mask);
        ids = pl_malloc((size_t)n * sizeof *ids);
        mask = pl_malloc((size_t)n);
        if (!ids || !mask) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", path));
        PL_TRY_GOTO(st, done, pl_dataset_read_doc(ds, i, &(pl_columns){.tokens = ids, .loss_mask = mask}, err));
        PL_TRY_GOTO(st, done, pl_dataset_doc_about(ds, i, &about, err));
        int32_t most = about.end;
        for (int64_t k = 0; k < n; k++) {
            if (!mask[k]) continue;
            if (ids[k] > most) most = ids[k];
            ids[kept++] = ids[k];
        }
        if (most >= vocab)
            PL_TRY_GOTO(
                st, done,
                pl_fail(err, PL_E_INPUT, "%s: token %d, the other inputs' vocabulary has %d", path, most, vocab));
        add(t, ids, kept, &about.end, about.end >= 0);
        unsaid += about.end < 0;
    }
    if (out > 0) pl_log("%s: %lld documents are held out of training and not counted", path, (long long)out);
    if (unsaid > 0)
        pl_log_warn("%s: %lld documents do not say which token they ended with, so that it is not counted and a list "
                    "may lack it; generate the dataset again",
                    path, (long long)unsaid);
done:
    pl_free(ids);
    pl_free(mask);
    pl_dataset_close(ds);
    return st;
}

pl_status pl_tally_records(pl_tally *t, const pl_tokenizer *tok, const char *path, const char *field, pl_err *err) {
    pl_prompts *p;
    PL_TRY(begin_text(t, tok, path, field, err));
    PL_TRY(field ? pl_prompts_read_field(&p, path, field, err) : pl_prompts_read(&p, path, err));
    pl_status st = PL_OK;
    for (int64_t i = 0; i < p->n && st == PL_OK; i++) {
        st = add_text(t, tok, p->p[i].text, strlen(p->p[i].text), true, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s:%lld", path, (long long)p->p[i].line);
    }
    pl_prompts_destroy(p);
    return st;
}

pl_status pl_tally_text(pl_tally *t, const pl_tokenizer *tok, const char *path, pl_err *err) {
    pl_corpus *whole = NULL, *cut = NULL;
    PL_TRY(begin_text(t, tok, path, NULL, err));
    pl_status st =
        pl_corpus_read(&whole, &path, 1, (pl_text_options){.gutenberg = true, .encoding = PL_TEXT_LATIN1}, err);
    if (st == PL_OK) st = pl_corpus_chunk(&cut, whole, CHUNK, err);
    pl_corpus_destroy(whole);
    for (int64_t i = 0; st == PL_OK && i < cut->n; i++) {
        const char *next = i + 1 < cut->n ? strrchr(cut->docs[i + 1].name, '#') : "#0";
        st = add_text(t, tok, cut->docs[i].text, cut->docs[i].bytes, strcmp(next, "#0") == 0, err);
        if (st != PL_OK) st = pl_fail_at(err, st, "%s", cut->docs[i].name);
    }
    pl_corpus_destroy(cut);
    return st;
}

static bool is_dataset(const char *path) {
    char *manifest = pl_path_join(path, "manifest.json");
    bool  is = manifest && pl_path_exists(manifest);
    pl_free(manifest);
    return is;
}

pl_status pl_tally_input(pl_tally *t, const pl_tokenizer *tok, const char *path, const char *field,
                         const pl_tally_held *held, pl_err *err) {
    if (is_dataset(path)) return pl_tally_dataset(t, tok, path, held, err);
    if (!tok && !pl_path_exists(path)) return pl_fail(err, PL_E_INPUT, "%s: no such file or folder", path);
    if (!tok) return pl_fail(err, PL_E_USAGE, "--tokenizer: is missing; it names a tokenizer file or a model folder");
    if (pl_path_ends(path, ".json") || pl_path_ends(path, ".jsonl")) return pl_tally_records(t, tok, path, field, err);
    return pl_tally_text(t, tok, path, err);
}
