#include "train/source/vocabularies.h"

#include "data/counts/tally.h"
#include "data/dataset/dataset.h"
#include "data/text/text.h"
#include "infer/generate/generate.h"
#include "infer/model/target.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/base/strbuf.h"
#include "train/keys.h"
#include "train/source/stamp.h"

#include <glob.h>
#include <string.h>

static const pl_key item_keys[] = {
    {PL_KEY_FIELD_STRING(pl_vocabulary_recipe, name), .help = "name of the list, for drafter.head.vocab",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_STRINGS(pl_vocabulary_recipe, text),
     .help = "count these text files, folders of *.txt or glob patterns", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_STRINGS(pl_vocabulary_recipe, jsonl),
     .help = "count records of these JSON or JSONL files or glob patterns", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_STRING(pl_vocabulary_recipe, field),
     .help = "jsonl: count this member of each record instead of "
             "the prompt",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_BOOL(pl_vocabulary_recipe, dataset), .deflt = "false",
     .help = "count the target's answers in the dataset", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_ENUM(pl_vocabulary_recipe, size), .deflt = "all", .choices = {"all", "bcl"},
     .help = "how many ids are drafted where a drafter names no vocab_size; bcl: by coverage against latency",
     .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_vocabulary_recipe, alpha), .deflt = "0.5", .min = 0, .max = 1,
     .help = "size: bcl: weight of coverage, 1 - alpha of latency", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_vocabulary_recipe, min_coverage), .deflt = "0.9", .min = 0, .max = 1,
     .help = "size: bcl: share of the counted tokens that the list holds at least", .stages = PL_KEY_NO_STAGE},
    {PL_KEY_FIELD_REAL(pl_vocabulary_recipe, head_share), .deflt = "1", .min = 0, .max = 1,
     .help = "size: bcl: the head's share of a draft step over the whole vocabulary; 1: only the head's time counts",
     .stages = PL_KEY_NO_STAGE},
    PL_KEYS_END(pl_vocabulary_recipe)};

const pl_key pl_vocabularies_keys[] = {
    {PL_KEY_FIELD_ITEMS(pl_vocabularies_recipe, vocabularies, pl_vocabulary_recipe), .item = item_keys,
     .stages = PL_KEY_NO_STAGE,
     .help =
         "token lists for trimmed heads, counted in text or in the target's answers; drafter.head.vocab names them"},
    PL_KEYS_END(pl_vocabularies_recipe)};

// ---- sources

// Finds the files of glob patterns, each pattern's in order. g: zeroed; end it with globfree.
static pl_status find_paths(glob_t *g, const pl_recipe *r, const pl_strings *list, pl_err *err) {
    for (int i = 0; i < list->n; i++) {
        int rc = glob(list->at[i], i > 0 ? GLOB_APPEND : 0, NULL, g);
        if (rc == GLOB_NOMATCH) return pl_recipe_fail(r, list, err, "\"%s\" matches no file", list->at[i]);
        if (rc == GLOB_NOSPACE) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", list->at[i]);
        if (rc != 0) return pl_fail(err, PL_E_IO, "%s: cannot be listed", list->at[i]);
    }
    return PL_OK;
}

static pl_status dataset_path(char **path, const pl_recipe *r, const pl_vocabulary_recipe *item, const char *out_dir,
                              pl_err *err) {
    const char *given = pl_train_recipe_of(r)->data.dataset;
    if (!given && pl_data_made_meanwhile(pl_generate_recipe_of(r)))
        return pl_recipe_fail(r, &item->dataset, err, "%s: not all answers are stored; leave it out, or count text",
                              pl_generate_recipe_of(r)->data.disk_budget ? "data.disk_budget" : "data.mode: online");
    *path = given ? pl_strdup(given) : pl_path_join(out_dir, "dataset");
    return *path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
}

typedef struct sources {
    const pl_recipe            *r;
    const pl_vocabulary_recipe *item;
    const pl_tokenizer         *tok;
    const pl_hf_config         *target;
    glob_t                      text, jsonl;
    char                       *dataset; // NULL: not counted
    pl_tally_held               held;    // held-out documents of it
} sources;

static pl_status check_item(const pl_recipe *r, const pl_vocabulary_recipe *item, pl_err *err) {
    const double *only_bcl[] = {&item->alpha, &item->min_coverage, &item->head_share};
    if (item->text.n + item->jsonl.n == 0 && !item->dataset)
        return pl_recipe_fail(r, &item->name, err, "\"%s\" names nothing to count; give text, jsonl or dataset: true",
                              item->name);
    if (pl_recipe_given(r, &item->field) && item->jsonl.n == 0)
        return pl_recipe_fail(r, &item->field, err, "is for jsonl, which is not given");
    for (size_t i = 0; i < sizeof only_bcl / sizeof *only_bcl; i++)
        if (pl_recipe_given(r, only_bcl[i]) && item->size != PL_VOCABULARY_BCL)
            return pl_recipe_fail(r, only_bcl[i], err, "is for size: bcl");
    return PL_OK;
}

static pl_status find_sources(sources *s, const char *out_dir, pl_err *err) {
    PL_TRY(check_item(s->r, s->item, err));
    PL_TRY(find_paths(&s->text, s->r, &s->item->text, err));
    PL_TRY(find_paths(&s->jsonl, s->r, &s->item->jsonl, err));
    return s->item->dataset ? dataset_path(&s->dataset, s->r, s->item, out_dir, err) : PL_OK;
}

static pl_status hash_file(uint64_t *h, const char *path, pl_err *err) {
    pl_map m;
    PL_TRY(pl_map_open(&m, path, err));
    *h = pl_hash_more(*h, path, strlen(path) + 1);
    *h = pl_hash_more(*h, m.data, m.size);
    pl_map_close(&m);
    return PL_OK;
}

static pl_status hash_text(uint64_t *h, const char *path, pl_err *err) {
    pl_corpus *c;
    PL_TRY(pl_corpus_read(&c, &path, 1, (pl_text_options){.encoding = PL_TEXT_LATIN1}, err));
    for (int64_t i = 0; i < c->n; i++) {
        *h = pl_hash_more(*h, c->docs[i].name, strlen(c->docs[i].name) + 1);
        *h = pl_hash_more(*h, c->docs[i].text, c->docs[i].bytes + 1);
    }
    pl_corpus_destroy(c);
    return PL_OK;
}

_Static_assert(PL_MAX_STOP <= PL_TALLY_STOPS, "a target's stop tokens");

// Version of the counting rules: change the text with them, so that older lists are made anew.
static const char counting[] = "what documents end with counts";

// Hashes the list's inputs.
static pl_status hash_sources(const sources *s, char out[17], pl_err *err) {
    char    keys[17];
    int32_t stop[PL_MAX_STOP];
    int     n_stop = pl_target_stops(stop, s->target, s->tok);
    PL_TRY(pl_recipe_item_hash(s->r, s->item, keys, err));
    uint64_t h = pl_hash(keys, 16);
    h = pl_hash_more(h, counting, sizeof counting);
    h = pl_hash_more(h, stop, (size_t)n_stop * sizeof *stop);
    h = pl_hash_more(h, pl_tokenizer_fingerprint(s->tok), 16);
    for (size_t i = 0; i < s->text.gl_pathc; i++)
        PL_TRY(hash_text(&h, s->text.gl_pathv[i], err));
    for (size_t i = 0; i < s->jsonl.gl_pathc; i++)
        PL_TRY(hash_file(&h, s->jsonl.gl_pathv[i], err));
    if (s->dataset) {
        pl_dataset *ds;
        PL_TRY(pl_dataset_open(&ds, s->dataset, &(pl_dataset_open_options){.lazy = true}, err));
        h = pl_hash_more(h, pl_dataset_fingerprint(ds), 16);
        h = pl_hash_more(h, &s->held.every, sizeof s->held.every);
        if (s->held.every > 0) h = pl_hash_more(h, s->held.seed, (size_t)s->held.n_seeds * sizeof *s->held.seed);
        pl_dataset_close(ds);
    }
    pl_hash_hex(out, h);
    return PL_OK;
}

static pl_status count_sources(const sources *s, pl_tally *t, pl_err *err) {
    t->n_stop = pl_target_stops(t->stop, s->target, s->tok);
    for (size_t i = 0; i < s->text.gl_pathc; i++)
        PL_TRY(pl_tally_text(t, s->tok, s->text.gl_pathv[i], err));
    for (size_t i = 0; i < s->jsonl.gl_pathc; i++)
        PL_TRY(pl_tally_records(t, s->tok, s->jsonl.gl_pathv[i], s->item->field, err));
    return s->dataset ? pl_tally_dataset(t, s->tok, s->dataset, &s->held, err) : PL_OK;
}

// ---- the list

static pl_status choose_size(pl_counts *c, const pl_vocabulary_recipe *item, const char *path, pl_err *err) {
    pl_bcl o = {.alpha = item->alpha, .min_coverage = item->min_coverage, .head_share = item->head_share};
    double coverage, utility;
    if (item->size != PL_VOCABULARY_BCL) return PL_OK;
    PL_TRY(pl_counts_bcl(&c->size, c, &o, &coverage, &utility, err));
    pl_log("%s: bcl: %lld of %d ids, coverage %.4f, utility %.4f", path, (long long)c->size, c->vocab, coverage,
           utility);
    return PL_OK;
}

static pl_status write_list(const pl_tally *t, const char *path, pl_err *err) {
    int32_t *id = pl_malloc((size_t)t->all.vocab * sizeof *id);
    if (!id) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_log("%s: %lld tokens in %lld documents, %d ids", path, (long long)t->all.tokens, (long long)t->all.documents,
           pl_counts_rank(&t->all, id));
    pl_counts_rank(&t->half[0], id);
    if (t->half[1].tokens > 0)
        pl_log("%s: of every second document a list from the others holds %.1f %% in V/4 ids, %.1f %% in V/8", path,
               100 * pl_counts_coverage(&t->half[1], id, t->all.vocab / 4),
               100 * pl_counts_coverage(&t->half[1], id, t->all.vocab / 8));
    pl_free(id);
    return pl_counts_write(&t->all, path, err);
}

// file: relative to out_dir.
static pl_status make_list(const sources *s, const char *out_dir, const char *file, const char *path, const char *stamp,
                           pl_err *err) {
    char     hash[17];
    pl_tally t = {0};
    PL_TRY(hash_sources(s, hash, err));
    // The list is written atomically: if it exists with the right stamp, it is complete.
    if (pl_stage_stamped(out_dir, stamp, hash) && pl_path_exists(path)) {
        pl_log("%s: up to date", path);
        return PL_OK;
    }
    PL_TRY(pl_stage_begin(out_dir, stamp, hash, &(pl_stage_product){.path = file}, err));
    pl_status st = count_sources(s, &t, err);
    if (st == PL_OK) st = choose_size(&t.all, s->item, path, err);
    if (st == PL_OK) st = write_list(&t, path, err);
    pl_tally_fini(&t);
    return st;
}

// out_dir NULL: relative to it.
static char *list_path(const char *out_dir, const char *name) {
    return out_dir ? pl_sprintf("%s/vocab/%s.json", out_dir, name) : pl_sprintf("vocab/%s.json", name);
}

pl_status pl_vocabularies_spare(const pl_recipe *r, const char *out_dir, pl_err *err) {
    const pl_vocabularies_recipe *voc = pl_vocabularies_recipe_of(r);
    pl_status                     st = PL_OK;
    for (int i = 0; i < voc->vocabularies.n && st == PL_OK; i++) {
        const char *name = voc->vocabularies.at[i].name;
        char       *file = list_path(NULL, name), *stamp = pl_sprintf("vocab.%s", name);
        st = file && stamp ? pl_stage_spares(out_dir, stamp, &(pl_stage_product){.path = file}, err)
                           : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        pl_free(file);
        pl_free(stamp);
    }
    return st;
}

pl_status pl_vocabularies_run(const pl_recipe *r, const uint64_t *seeds, int n_seeds, const char *out_dir,
                              pl_err *err) {
    const pl_tally_held      held = {.every = pl_train_recipe_of(r)->train.holdout, .seed = seeds, .n_seeds = n_seeds};
    static const char *const lists[] = {"*.json", NULL};
    const pl_vocabularies_recipe *voc = pl_vocabularies_recipe_of(r);
    const pl_generate_recipe     *gen = pl_generate_recipe_of(r);
    int                           n = voc->vocabularies.n;
    pl_tokenizer                 *tok = NULL;
    pl_hf_config                  target;
    char                         *dir = NULL;
    pl_status                     st = PL_OK;
    if (n == 0) return PL_OK;
    PL_TRY(pl_stage_names(r, voc->vocabularies.at, n, sizeof *voc->vocabularies.at, err));
    PL_TRY(pl_llama_config(&target, gen->target.path, err));
    PL_TRY(pl_target_tokenizer(&tok, gen->target.path, gen->target.tokenizer, gen->target.pre, err));
    if (!tok)
        return pl_recipe_fail(r, &voc->vocabularies, err,
                              "the target brings no tokenizer; name it with target.tokenizer");
    dir = pl_path_join(out_dir, "vocab");
    st = dir ? pl_dir_make(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK) pl_dir_sweep(dir, lists);
    for (int i = 0; i < n && st == PL_OK; i++) {
        sources     s = {.r = r, .item = &voc->vocabularies.at[i], .tok = tok, .target = &target, .held = held};
        const char *name = s.item->name;
        char *path = list_path(out_dir, name), *file = list_path(NULL, name), *stamp = pl_sprintf("vocab.%s", name);
        if (!path || !file || !stamp) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        if (st == PL_OK) st = find_sources(&s, out_dir, err);
        if (st == PL_OK) st = make_list(&s, out_dir, file, path, stamp, err);
        globfree(&s.text);
        globfree(&s.jsonl);
        pl_free(s.dataset);
        pl_free(path);
        pl_free(file);
        pl_free(stamp);
    }
    pl_free(dir);
    pl_tokenizer_close(tok);
    return st;
}

// Returns true if the recipe makes a list of this name.
static bool is_listed(const pl_vocabularies_recipe *voc, const char *name) {
    for (int i = 0; i < voc->vocabularies.n; i++)
        if (voc->vocabularies.at[i].name && strcmp(voc->vocabularies.at[i].name, name) == 0) return true;
    return false;
}

static pl_status fail_unknown(const pl_vocabularies_recipe *voc, const char *name, pl_err *err) {
    pl_strbuf known = {0};
    for (int i = 0; i < voc->vocabularies.n; i++) {
        const char *other = voc->vocabularies.at[i].name;
        if (!other) continue;
        if (known.n) pl_strbuf_add(&known, ", ", 2);
        pl_strbuf_add(&known, other, strlen(other));
    }
    char *names = pl_strbuf_take(&known);
    if (!names) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    pl_status st = pl_fail(err, PL_E_INPUT, "head.vocab: \"%s\" is no file and none of the recipe's vocabularies (%s)",
                           name, *names ? names : "it has none");
    pl_free(names);
    return st;
}

pl_status pl_vocabulary_check(const pl_recipe *r, const char *name, pl_err *err) {
    const pl_vocabularies_recipe *voc = pl_vocabularies_recipe_of(r);
    return !name || is_listed(voc, name) || pl_path_exists(name) ? PL_OK : fail_unknown(voc, name, err);
}

pl_status pl_vocabulary_path(char **path, const pl_recipe *r, const char *name, const char *out_dir, pl_err *err) {
    const pl_vocabularies_recipe *voc = pl_vocabularies_recipe_of(r);
    *path = NULL;
    if (!name) return PL_OK;
    bool listed = is_listed(voc, name);
    *path = listed ? list_path(out_dir, name) : pl_strdup(name);
    if (!*path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    if (pl_path_exists(*path)) return PL_OK;
    pl_status st = listed
                       ? pl_fail(err, PL_E_INPUT, "head.vocab: %s is not there yet; make it with paceline run", *path)
                       : fail_unknown(voc, name, err);
    pl_free(*path);
    *path = NULL;
    return st;
}
