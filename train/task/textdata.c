#include "train/task/textdata.h"

#include "data/text/text.h"
#include "data/tokenizer/spm_train.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"
#include "train/keys.h"

#include <stdio.h>
#include <string.h>

#define STAMP_BYTES 16

typedef struct texts {
    pl_corpus *train, *held; // held NULL: no text is held out
} texts;

static void texts_fini(texts *t) {
    if (t->train) pl_corpus_destroy(t->train);
    if (t->held) pl_corpus_destroy(t->held);
    *t = (texts){0};
}

static pl_status split_texts(texts *t, pl_corpus *all, const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const pl_strings      *names = &tr->data.holdout.names;
    int64_t                every = tr->data.holdout.every;
    if (names->n > 0 && every > 0)
        return pl_recipe_fail(r, &tr->data.holdout.every, err, "give either this or data.holdout.names, not both");
    if (every == 1)
        return pl_recipe_fail(r, &tr->data.holdout.every, err, "1 leaves nothing to train on; use 2 or more");
    pl_status st = PL_OK;
    if (names->n > 0)
        st = pl_corpus_split_names(all, names->at, names->n, &t->train, &t->held, err);
    else if (every > 0)
        st = pl_corpus_split_every(all, every, &t->train, &t->held, err);
    else
        return PL_OK;
    if (st == PL_OK && t->held->n == 0) {
        pl_corpus_destroy(t->held);
        t->held = NULL;
    }
    return st;
}

// Appends the documents of `more` to those of `all` and frees `more`.
static pl_status join_corpora(pl_corpus *all, pl_corpus *more, pl_err *err) {
    pl_document *docs = pl_realloc(all->docs, (size_t)(all->n + more->n) * sizeof *docs);
    if (!docs) {
        pl_corpus_destroy(more);
        return pl_fail(err, PL_E_MEMORY, "%lld documents: out of memory", (long long)(all->n + more->n));
    }
    memcpy(docs + all->n, more->docs, (size_t)more->n * sizeof *docs);
    all->docs = docs;
    all->n += more->n;
    all->bytes += more->bytes;
    more->n = 0;
    pl_corpus_destroy(more);
    return PL_OK;
}

static pl_status read_texts(texts *t, const pl_recipe *r, pl_err *err) {
    const pl_train_recipe *tr = pl_train_recipe_of(r);
    const pl_strings      *text = &tr->data.text, *code = &tr->data.code;
    int64_t                chunk = tr->data.chunk_bytes;
    pl_corpus             *all = NULL, *cut = NULL;
    pl_text_options        o = {.gutenberg = tr->data.gutenberg, .unwrap = tr->data.unwrap};
    o.encoding = (pl_text_encoding)tr->data.encoding;
    *t = (texts){0};
    if (text->n == 0)
        return pl_recipe_fail(r, &tr->data.text, err, "a target is trained on text; name files or folders here");
    if (chunk != 0 && chunk < 64) return pl_recipe_fail(r, &tr->data.chunk_bytes, err, "pieces below 64 bytes");
    PL_TRY(pl_corpus_read(&all, text->at, text->n, o, err));
    if (code->n > 0) {
        // Line ends are significant in code, and code has no headers of books.
        pl_corpus *more = NULL;
        pl_status  st = pl_corpus_read(&more, code->at, code->n, (pl_text_options){.encoding = o.encoding}, err);
        if (st == PL_OK) st = join_corpora(all, more, err);
        if (st != PL_OK) {
            pl_corpus_destroy(all);
            return st;
        }
    }
    if (chunk > 0) {
        pl_status st = pl_corpus_chunk(&cut, all, (size_t)chunk, err);
        pl_corpus_destroy(all);
        if (st != PL_OK) return st;
        all = cut;
    }
    pl_status st = split_texts(t, all, r, err);
    if (st == PL_OK && !t->train)
        t->train = all; // no text is held out
    else
        pl_corpus_destroy(all);
    if (st == PL_OK && t->train->n == 0) st = pl_recipe_fail(r, &tr->data.text, err, "no text is left to train on");
    if (st != PL_OK) texts_fini(t);
    return st;
}

static uint64_t corpus_hash(uint64_t h, const pl_corpus *c) {
    for (int64_t i = 0; c && i < c->n; i++) {
        h = pl_hash_more(h, &c->docs[i].bytes, sizeof c->docs[i].bytes);
        h = pl_hash_more(h, c->docs[i].text, c->docs[i].bytes);
    }
    return h;
}

// ---- stamps

static bool is_stamped(const char *path, const char stamp[17]) {
    uint8_t *data;
    size_t   n;
    if (pl_file_read(path, &data, &n, 64, NULL) != PL_OK) return false;
    bool same = n >= STAMP_BYTES && memcmp(data, stamp, STAMP_BYTES) == 0;
    pl_free(data);
    return same;
}

static pl_status put_stamp(const char *path, const char stamp[17], pl_err *err) {
    char line[STAMP_BYTES + 1];
    memcpy(line, stamp, STAMP_BYTES);
    line[STAMP_BYTES] = '\n';
    return pl_file_write_atomic(path, line, sizeof line, err);
}

// ---- existing files

static bool is_stamp(const char *front, size_t n) {
    if (n != STAMP_BYTES + 1 || front[STAMP_BYTES] != '\n') return false;
    for (size_t i = 0; i < STAMP_BYTES; i++)
        if (!strchr("0123456789abcdef", front[i]) || !front[i]) return false;
    return true;
}

// A tokenizer belongs to a run if its stamp exists or, as a kill may have come between the two, a run has begun.
static pl_status check_tokenizer(const char *out_dir, pl_err *err) {
    char     *model = pl_path_join(out_dir, "tokenizer.model"), *stamp = pl_path_join(out_dir, "tokenizer.stamp");
    char     *begun = pl_path_join(out_dir, PL_TRAIN_BEGUN);
    pl_status st = model && stamp && begun ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK) st = pl_file_spares(stamp, is_stamp, "--out", err);
    if (st == PL_OK) st = pl_file_look(model, err);
    if (st == PL_OK && !pl_path_exists(stamp) && !pl_path_exists(begun)) st = pl_file_spares(model, NULL, "--out", err);
    pl_free(model);
    pl_free(stamp);
    pl_free(begun);
    return st;
}

pl_status pl_textdata_spares(const pl_recipe *r, const char *out_dir, pl_err *err) {
    static const struct {
        const char *name;
        pl_ours_fn  ours;
    } files[] = {
        {"tokens/stamp", is_stamp}, {"tokens/train.tokens", pl_tokens_is}, {"tokens/held.tokens", pl_tokens_is}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char     *path = pl_path_join(out_dir, files[i].name);
        pl_status st = path ? pl_file_spares(path, files[i].ours, "--out", err)
                            : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        pl_free(path);
        PL_TRY(st);
    }
    bool given = pl_generate_recipe_of(r)->target.tokenizer || pl_train_recipe_of(r)->target.start;
    return given ? PL_OK : check_tokenizer(out_dir, err);
}

// ---- stages

static const char *const tokenizer_type[] = {[PL_TOKENIZER_BPE] = "bpe", [PL_TOKENIZER_UNIGRAM] = "unigram"};

// Opens the tokenizer of the run: the recipe's, or one trained here.
static pl_status tokenizer_stage(pl_textdata *d, const texts *t, const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    const char               *given = gen->target.tokenizer ? gen->target.tokenizer : tr->target.start;
    char                     *stamp_path = NULL, recipe[17], stamp[17];
    pl_status                 st = PL_OK;
    d->tokenizer_path = given ? pl_strdup(given) : pl_path_join(out_dir, "tokenizer.model");
    if (!given) stamp_path = pl_path_join(out_dir, "tokenizer.stamp");
    if (!d->tokenizer_path || (!given && !stamp_path))
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir));
    if (given) goto done;

    PL_TRY_GOTO(st, done, pl_recipe_hash(r, PL_STAGE_TOKENIZER, recipe, err));
    pl_hash_hex(stamp, corpus_hash(pl_hash(recipe, STAMP_BYTES), t->train));
    if (pl_path_exists(d->tokenizer_path) && is_stamped(stamp_path, stamp)) goto done;
    pl_spm_train_options o = {.vocab_size = (int)tr->data.tokenizer.vocab_size,
                              .model_type = tokenizer_type[tr->data.tokenizer.type],
                              .byte_fallback = true,
                              .character_coverage = tr->data.tokenizer.coverage,
                              .max_lines = tr->data.tokenizer.max_lines,
                              .seed = (uint64_t)gen->seed,
                              .quiet = true};
    pl_log("tokenizer: training %d pieces on %.1f MB of text", o.vocab_size, (double)t->train->bytes / 1e6);
    PL_TRY_GOTO(st, done, pl_spm_train(d->tokenizer_path, t->train, &o, err));
    st = put_stamp(stamp_path, stamp, err);
done:
    pl_free(stamp_path);
    if (st == PL_OK) st = pl_tokenizer_open_pre(&d->tok, d->tokenizer_path, given ? gen->target.pre : NULL, err);
    return st;
}

static pl_status tokens_stage(pl_textdata *d, const texts *t, const pl_recipe *r, const char *out_dir, pl_err *err) {
    static const char *const files[] = {"train.tokens", "held.tokens", "stamp", NULL};
    const char              *print = pl_tokenizer_fingerprint(d->tok);
    bool                     eos = pl_train_recipe_of(r)->data.eos;
    char                    *dir = pl_path_join(out_dir, "tokens");
    char                    *train = pl_path_join(dir, "train.tokens"), *held = pl_path_join(dir, "held.tokens");
    char                    *stamp = pl_path_join(dir, "stamp");
    pl_status                st;
    if (!dir || !train || !held || !stamp)
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir));
    uint64_t h = corpus_hash(pl_hash(print, strlen(print)), t->train);
    h = pl_hash_more(corpus_hash(h, t->held), &eos, sizeof eos);
    pl_hash_hex(d->stamp, pl_hash_more(h, &t->train->n, sizeof t->train->n));

    PL_TRY_GOTO(st, done, pl_dir_make(dir, err));
    pl_dir_sweep(dir, files);
    if (!is_stamped(stamp, d->stamp) || !pl_path_exists(train) || (t->held && !pl_path_exists(held))) {
        pl_log("tokens: %lld documents, %.1f MB", (long long)t->train->n, (double)t->train->bytes / 1e6);
        PL_TRY_GOTO(st, done, pl_tree_remove(stamp, err));
        PL_TRY_GOTO(st, done, pl_tree_remove(held, err));
        PL_TRY_GOTO(st, done, pl_tokens_write(train, t->train, d->tok, eos, err));
        if (t->held) PL_TRY_GOTO(st, done, pl_tokens_write(held, t->held, d->tok, eos, err));
        PL_TRY_GOTO(st, done, put_stamp(stamp, d->stamp, err));
    }
    PL_TRY_GOTO(st, done, pl_tokens_open(&d->train, train, print, err));
    if (t->held) st = pl_tokens_open(&d->held, held, print, err);
done:
    pl_free(dir);
    pl_free(train);
    pl_free(held);
    pl_free(stamp);
    return st;
}

pl_status pl_textdata_prepare(pl_textdata *d, const pl_recipe *r, const char *out_dir, pl_err *err) {
    texts t;
    *d = (pl_textdata){0};
    PL_TRY(pl_dir_make(out_dir, err));
    PL_TRY(read_texts(&t, r, err));
    pl_status st = tokenizer_stage(d, &t, r, out_dir, err);
    if (st == PL_OK) st = tokens_stage(d, &t, r, out_dir, err);
    texts_fini(&t);
    if (st != PL_OK) pl_textdata_close(d);
    return st;
}

void pl_textdata_close(pl_textdata *d) {
    pl_tokenizer_close(d->tok);
    if (d->train) pl_tokens_close(d->train);
    if (d->held) pl_tokens_close(d->held);
    pl_free(d->tokenizer_path);
    *d = (pl_textdata){0};
}
