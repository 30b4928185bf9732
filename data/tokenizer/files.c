// Finds the files of a tokenizer, and copies them.
#include "kernels/base/files.h"
#include "checkpoints/gguf_model.h"
#include "checkpoints/hub.h"
#include "data/tokenizer/open.h"
#include "kernels/base/arena.h"
#include <string.h>

#define MAX_FILE ((size_t)256 << 20)

void pl_tokenizer_files_fini(pl_tokenizer_files *f) {
    pl_free(f->path);
    pl_free(f->merges);
    *f = (pl_tokenizer_files){0};
}

// Returns dir/name if there is such a file, else NULL; also NULL without memory, with *st set.
static char *there(const char *dir, const char *name, pl_status *st, pl_err *err) {
    char *file = pl_path_join(dir, name);
    if (!file) *st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (file && pl_path_exists(file)) return file;
    pl_free(file);
    return NULL;
}

static pl_status find_in_folder(pl_tokenizer_files *f, const char *dir, pl_err *err) {
    pl_status st = PL_OK;
    if ((f->path = there(dir, "tokenizer.json", &st, err)) || st != PL_OK) return st;
    if ((f->path = there(dir, "tokenizer.model", &st, err)) || st != PL_OK) return st;
    char *vocab = there(dir, "vocab.json", &st, err);
    if (vocab && (f->merges = there(dir, "merges.txt", &st, err))) f->path = vocab;
    if (!f->path) pl_free(vocab);
    if (f->path || st != PL_OK) return st;
    if ((f->path = there(dir, "tokenizer.bin", &st, err)) || st != PL_OK) return st;
    if ((f->path = there(dir, "tokenizer.gguf", &st, err)) || st != PL_OK) return st;
    if ((st = pl_gguf_model_find(&f->path, dir, err)) != PL_OK || f->path) return st;
    PL_TRY(pl_hub_refuse(dir, err));
    return pl_fail(
        err, PL_E_INPUT,
        "%s: no tokenizer.json, tokenizer.model, vocab.json with merges.txt, tokenizer.bin or tokenizer.gguf "
        "in this folder; name the tokenizer's file itself",
        dir);
}

// Returns path with its end `from` replaced by `to`.
static char *with_end(const char *path, const char *from, const char *to) {
    return pl_sprintf("%.*s%s", (int)(strlen(path) - strlen(from)), path, to);
}

pl_status pl_tokenizer_find_files(pl_tokenizer_files *f, const char *path, pl_err *err) {
    *f = (pl_tokenizer_files){0};
    pl_status st = PL_OK;
    if (pl_path_is_dir(path)) {
        st = find_in_folder(f, path, err);
    } else {
        // Also with a prefix: gpt2-vocab.json and gpt2-merges.txt.
        bool vocab = pl_path_ends(path, "vocab.json"), merges = pl_path_ends(path, "merges.txt");
        f->path = merges ? with_end(path, "merges.txt", "vocab.json") : pl_strdup(path);
        if (vocab) f->merges = with_end(path, "vocab.json", "merges.txt");
        if (merges) f->merges = pl_strdup(path);
        if (!f->path || ((vocab || merges) && !f->merges)) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    }
    if (st != PL_OK) pl_tokenizer_files_fini(f);
    return st;
}

static bool is_gguf(const char *path) {
    return pl_path_ends(path, ".gguf") || pl_gguf_is(path);
}

static pl_status has_vocabulary(bool *yes, const char *path, pl_err *err) {
    pl_gguf *g;
    PL_TRY(pl_gguf_open(&g, path, err));
    *yes = pl_gguf_find(g, "tokenizer.ggml.tokens") != NULL;
    pl_gguf_close(g);
    return PL_OK;
}

pl_status pl_tokenizer_brought(bool *yes, const char *model, pl_err *err) {
    pl_tokenizer_files f;
    pl_err             why = {0};
    *yes = false;
    if (!pl_path_is_dir(model) && !pl_gguf_is(model)) return PL_OK;
    pl_status st = pl_tokenizer_find_files(&f, model, &why);
    if (st == PL_E_MEMORY) return pl_fail(err, st, "%s", why.msg);
    if (st != PL_OK) return PL_OK;
    st = is_gguf(f.path) ? has_vocabulary(yes, f.path, err) : PL_OK;
    *yes |= !is_gguf(f.path);
    pl_tokenizer_files_fini(&f);
    return st;
}

static pl_status copy(const char *from, const char *dir, const char *name, pl_err *err) {
    char     *to = pl_path_join(dir, name);
    uint8_t  *data = NULL;
    size_t    n;
    pl_status st =
        to ? pl_file_read(from, &data, &n, MAX_FILE, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = pl_file_write_atomic(to, data, n, err);
    pl_free(data);
    pl_free(to);
    return st;
}

static pl_status copy_gguf(const char *from, const char *dir, pl_err *err) {
    char     *to = pl_path_join(dir, "tokenizer.gguf");
    pl_status st = to ? pl_tokenizer_copy_gguf(from, to, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(to);
    return st;
}

pl_status pl_tokenizer_copy(const pl_tokenizer *tok, const char *path, const char *dir, pl_err *err) {
    static const char *const names[][2] = {
        {"huggingface", "tokenizer.json"}, {"vocab+merges", "vocab.json"}, {"llama2c", "tokenizer.bin"}};
    const char        *name = "tokenizer.model"; // SentencePiece and rank files
    pl_tokenizer_files f;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(tok->vt->kind, names[i][0]) == 0) name = names[i][1];
    PL_TRY(pl_tokenizer_find_files(&f, path, err));
    pl_status st = is_gguf(f.path) ? copy_gguf(f.path, dir, err) : copy(f.path, dir, name, err);
    if (st == PL_OK && f.merges) st = copy(f.merges, dir, "merges.txt", err);
    pl_tokenizer_files_fini(&f);
    return st;
}
