// Opens a tokenizer from the file or files of a path, and from the files beside them.
#include "data/tokenizer/open.h"
#include "checkpoints/gguf.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include <string.h>

#define MAX_FILE ((size_t)256 << 20)
#define MAX_CONFIG ((size_t)64 << 20) // 100,000 added tokens have 20 MB

static pl_status open_bytes(pl_tokenizer *tok, const pl_tokenizer_files *f, const char *pre,
                            const pl_tokenizer_beside *beside, const uint8_t *data, size_t n, pl_err *err) {
    const char    *path = f->path;
    const pl_json *config = beside->config.root ? &beside->config : NULL;
    size_t         i = 0;
    while (i < n && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t'))
        i++;
    if (f->merges) return pl_tokenizer_open_pair(tok, path, f->merges, pre, config, data, n, err);
    if (pl_path_ends(path, ".json") || (i < n && data[i] == '{'))
        return pl_tokenizer_open_hf(tok, path, pre, beside, data, n, err);
    if (pl_path_ends(path, ".tiktoken") || pl_tokenizer_is_ranks(data, n))
        return pl_tokenizer_open_ranks(tok, path, pre, config, data, n, err);
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: has no pre-tokenizer; leave out the one given (%s)", path, pre);
    // Both binary kinds may begin with 0x0a: as a protobuf tag its length byte follows, as llama2.c's little-endian
    // int32 (longest piece) three zero bytes do.
    if (pl_path_ends(path, ".bin") || (!pl_path_ends(path, ".model") && n >= 4 && !data[1] && !data[2] && !data[3]))
        return pl_tokenizer_open_llama2c(tok, path, data, n, err);
    return pl_tokenizer_open_spm(tok, path, data, n, err);
}

// ---- the files beside it

const char *const pl_tokenizer_uses[] = {"bos_token", "eos_token", "unk_token",  "sep_token",
                                         "pad_token", "cls_token", "mask_token", NULL};

const cJSON *pl_tokenizer_beside_find(const pl_tokenizer_beside *b, const char *key, const pl_json **j) {
    bool         map = b->map.root && !pl_json_find(&b->config, NULL, "added_tokens_decoder");
    const cJSON *node = map ? pl_json_find(&b->map, NULL, key) : NULL;
    *j = node ? &b->map : &b->config;
    return node ? node : pl_json_find(&b->config, NULL, key);
}

// A special token in the configuration is a string or an object with "content".
static pl_status named_token(const pl_tokenizer_beside *b, const char *key, const pl_tokenizer *tok, int32_t *id,
                             pl_err *err) {
    const pl_json *j;
    const cJSON   *node = pl_tokenizer_beside_find(b, key, &j);
    const char    *s;
    if (!node) return PL_OK;
    if (cJSON_IsObject(node)) {
        PL_TRY(pl_json_get_str(j, node, "content", &s, err));
    } else {
        PL_TRY(pl_json_str_of(j, node, &s, err));
    }
    if (!*s) return PL_OK; // some files write an empty string for none
    int32_t found = pl_vocab_find(&tok->vocab, s, strlen(s));
    if (found < 0) return pl_json_fail(j, node, err, "'%s' is not in the tokenizer's vocabulary", s);
    *id = found;
    return PL_OK;
}

// *j is zeroed if the tokenizer's file has no such neighbour.
static pl_status open_beside(pl_json *j, const char *path, const char *name, pl_err *err) {
    size_t dir = (size_t)(pl_path_name(path) - path);
    char  *file = pl_sprintf("%.*s%s", (int)dir, path, name);
    *j = (pl_json){0};
    if (!file) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_path_exists(file) ? pl_json_open(j, file, MAX_CONFIG, PL_JSON_UNIQUE, err) : PL_OK;
    if (st == PL_OK && j->root && !cJSON_IsObject(j->root)) st = pl_json_fail(j, j->root, err, "not an object {...}");
    pl_free(file);
    return st;
}

static pl_status open_all_beside(pl_tokenizer_beside *b, const char *path, pl_err *err) {
    PL_TRY(open_beside(&b->config, path, "tokenizer_config.json", err));
    PL_TRY(open_beside(&b->map, path, "special_tokens_map.json", err));
    PL_TRY(open_beside(&b->added, path, "added_tokens.json", err));
    pl_status st = open_beside(&b->model, path, "config.json", err); // opening the model reports its errors
    return st == PL_E_MEMORY ? st : PL_OK;
}

static void close_beside(pl_tokenizer_beside *b) {
    pl_json_close(&b->config);
    pl_json_close(&b->map);
    pl_json_close(&b->added);
    pl_json_close(&b->model);
}

static pl_status read_beside(pl_tokenizer *tok, const pl_tokenizer_beside *b, pl_err *err) {
    const pl_json *j = &b->config;
    bool           add_eos, split;
    int32_t        eos = -1;
    PL_TRY(named_token(b, "bos_token", tok, &tok->bos, err));
    PL_TRY(named_token(b, "eos_token", tok, &eos, err));
    tok->states_eos = eos >= 0;
    if (eos >= 0) tok->eos = eos;
    bool template_adds = tok->add_bos;
    PL_TRY(pl_json_opt_bool(j, NULL, "add_bos_token", tok->add_bos, &tok->add_bos, err));
    if (tok->add_bos != template_adds && pl_hf_is_file(tok))
        pl_log_warn_once("%s: add_bos_token: %s counts, and tokenizer.json %s; transformers 5 goes by tokenizer.json, "
                         "older ones by either: let both say the same",
                         j->where, tok->add_bos ? "true" : "false",
                         template_adds ? "puts a BOS in front" : "puts none in front");
    PL_TRY(pl_json_opt_bool(j, NULL, "split_special_tokens", false, &split, err));
    if (split)
        pl_log_warn_once("%s: split_special_tokens: true is not followed: special tokens in texts are tokens here, "
                         "plain text in transformers; set it to false",
                         j->where);
    PL_TRY(pl_json_opt_bool(j, NULL, "add_eos_token", false, &add_eos, err));
    if (!add_eos) return PL_OK;
    return pl_json_fail(j, pl_json_find(j, NULL, "add_eos_token"), err,
                        "an EOS behind every text is not supported; set it to false");
}

// ---- opening

static pl_status open_files(pl_tokenizer *tok, const pl_tokenizer_files *f, const char *pre, pl_err *err) {
    pl_tokenizer_beside beside = {0};
    uint8_t            *data = NULL;
    size_t              n = 0;
    pl_status           st = PL_OK;
    if (pl_path_ends(f->path, ".gguf") || pl_gguf_is(f->path))
        return pl_tokenizer_open_gguf(tok, f->path, pre, err); // complete alone
    PL_TRY(pl_file_read(f->path, &data, &n, MAX_FILE, err));
    if (n == 0) {
        st = pl_fail(err, PL_E_INPUT, "%s: the tokenizer's file is empty", f->path);
        goto done;
    }
    PL_TRY_GOTO(st, done, open_all_beside(&beside, f->path, err));
    st = open_bytes(tok, f, pre, &beside, data, n, err);
    const char *what = st == PL_E_INPUT ? pl_sniff(data, n) : NULL;
    if (what) st = pl_fail(err, PL_E_INPUT, "%s: %s", f->path, what);
    if (st != PL_OK) goto done;
    PL_TRY_GOTO(st, done, read_beside(tok, &beside, err));
done:
    pl_free(data);
    close_beside(&beside);
    return st;
}

pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err) {
    return pl_tokenizer_open_pre(out, path, NULL, err);
}

pl_status pl_tokenizer_open_pre(pl_tokenizer **out, const char *path, const char *pre, pl_err *err) {
    *out = NULL;
    pl_status          st;
    pl_tokenizer_files f = {0};
    pl_tokenizer      *tok = pl_calloc(1, sizeof *tok);
    if (!tok) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    tok->bos = tok->eos = tok->keep = -1;
    PL_TRY_GOTO(st, done, pl_tokenizer_find_files(&f, path, err));
    PL_TRY_GOTO(st, done, open_files(tok, &f, pre, err));
    PL_CHECK(tok->surface.n == tok->vocab.n, "%d surfaces, %d pieces", tok->surface.n, tok->vocab.n);
    if (tok->bos < 0) tok->add_bos = false;
    for (int32_t i = 0; i < tok->surface.n; i++) {
        size_t len;
        pl_vocab_piece(&tok->surface, i, &len);
        if (len > tok->max_surface) tok->max_surface = len;
    }
    pl_hash_hex(tok->fingerprint,
                pl_hash_more(pl_vocab_hash(&tok->vocab, tok->hash), tok->vt->kind, strlen(tok->vt->kind)));
    *out = tok;
done:
    if (st != PL_OK) pl_tokenizer_close(tok);
    pl_tokenizer_files_fini(&f);
    return st;
}
