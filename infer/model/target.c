#include "infer/model/target.h"

#include "checkpoints/gguf_model.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/base/room.h"

pl_status pl_target_tokenizer(pl_tokenizer **out, const char *path, const char *tokenizer, const char *pre,
                              pl_err *err) {
    *out = NULL;
    bool brings = false;
    if (!tokenizer) PL_TRY(pl_tokenizer_brought(&brings, path, err));
    if (brings) tokenizer = path;
    if (tokenizer) return pl_tokenizer_open_pre(out, tokenizer, pre, err);
    if (pre) return pl_fail(err, PL_E_INPUT, "%s: has no tokenizer for the pre-tokenizer given (%s)", path, pre);
    return PL_OK;
}

// Whether most of a GGUF file's matrices are exact in bf16, or are opened so because they are quantised. Others of its
// matrices are in fp32 whatever the file's type is (routers).
static bool is_mostly_bf16(const pl_weight_source *src) {
    int64_t n[2] = {0};
    for (int64_t i = 0; i < pl_weight_source_count(src); i++) {
        const pl_weight_entry *e = pl_weight_source_at(src, i);
        if (e->rank == 2) n[e->dtype == PL_BF16] += e->shape[0] * e->shape[1];
    }
    return n[1] > n[0];
}

pl_status pl_target_stored(pl_dtype *out, const char *path, pl_err *err) {
    bool  folder;
    char *gguf;
    *out = PL_F32;
    PL_TRY(pl_path_look_dir(path, &folder, err));
    PL_TRY(pl_gguf_model_find(&gguf, path, err));
    if (!gguf && !folder) return PL_OK; // llama2.c files are fp32
    pl_weight_source *src;
    pl_status         st = gguf ? pl_gguf_model_open(&src, NULL, gguf, err) : pl_weight_source_open(&src, path, err);
    if (st == PL_OK && (gguf ? is_mostly_bf16(src) : pl_weight_source_stored_dtype(src, NULL, 0) == PL_BF16))
        *out = PL_BF16;
    if (st == PL_OK) pl_weight_source_close(src);
    pl_free(gguf);
    return st;
}

pl_status pl_target_fits(const char *path, pl_dtype t, int parts, const pl_backend *be, double room, pl_err *err) {
    pl_hf_config config;
    pl_llama     m;
    char         needed[32], left[32];
    PL_TRY(pl_llama_config(&config, path, err));
    PL_TRY(pl_llama_computable(&config, be, err));
    PL_TRY(pl_llama_init(&m, &config, pl_backend_cpu(), false, err));
    double bytes = 1.25 * (double)pl_params_count(&m.params) * (double)pl_dtype_size(t) / parts;
    pl_llama_fini(&m);
    if (bytes <= room) return PL_OK;
    pl_memory_words(bytes, needed);
    pl_memory_words(room, left);
    return pl_fail(err, PL_E_MEMORY, "%s takes about %s, and %s has %s free", path, needed, be->name, left);
}

static bool is_among(const int32_t *list, int n, int32_t id) {
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

// A list with ids beyond the vocabulary alone would never end an answer.
static int take_config_stops(int32_t stop[PL_MAX_STOP], const pl_hf_config *c) {
    int n = 0;
    for (int i = 0; i < c->n_eos; i++) {
        if (c->eos_token_id[i] < c->vocab_size)
            stop[n++] = c->eos_token_id[i];
        else
            pl_log_warn_once("eos_token_id: %d is not below vocab_size %d and ends no answer", c->eos_token_id[i],
                             c->vocab_size);
    }
    return n;
}

int pl_target_stops(int32_t stop[PL_MAX_STOP], const pl_hf_config *c, const pl_tokenizer *tok) {
    int     n = take_config_stops(stop, c);
    int32_t eos = tok ? pl_tokenizer_eos_id(tok) : -1;
    bool    counts = tok && (n == 0 || pl_tokenizer_states_eos(tok));
    if (eos < 0 || eos >= c->vocab_size || !counts || is_among(stop, n, eos)) return n;
    if (n > 0)
        pl_log_warn_once("the tokenizer's EOS, '%s' (%d), is not among the eos_token_id of config.json and "
                         "generation_config.json; answers end at each of them, as engines have it",
                         pl_tokenizer_piece(tok, eos), eos);
    stop[n++] = eos;
    return n;
}

uint64_t pl_target_stops_hash(const pl_hf_config *c, const pl_tokenizer *tok) {
    int32_t stop[PL_MAX_STOP];
    int     n = pl_target_stops(stop, c, tok);
    bool    same = n == c->n_eos;
    for (int i = 0; i < n && same; i++)
        same = stop[i] == c->eos_token_id[i];
    return same ? 0 : pl_hash(stop, (size_t)n * sizeof *stop);
}

// A tokenizer may have special and added tokens without rows in the model (a prompt that contains one is refused), but
// no text tokens.
static bool tokenizer_fits(const pl_target *t) {
    for (int64_t i = t->model.vocab; t->tok && i < pl_tokenizer_vocab_size(t->tok); i++)
        if (!pl_tokenizer_is_special(t->tok, (int32_t)i) && !pl_tokenizer_is_added(t->tok, (int32_t)i)) return false;
    return true;
}

pl_status pl_target_open(pl_target *t, const char *path, const char *tokenizer, const char *pre, pl_weights weights,
                         const pl_backend *be, pl_err *err) {
    return pl_target_open_over(t, path, tokenizer, pre, weights, be, NULL, err);
}

pl_status pl_target_open_over(pl_target *t, const char *path, const char *tokenizer, const char *pre,
                              pl_weights weights, const pl_backend *be, pl_comm *comm, pl_err *err) {
    *t = (pl_target){.dtype = weights == PL_WEIGHTS_BF16 ? PL_BF16 : PL_F32};
    if (!pl_path_exists(path))
        return pl_fail(err, PL_E_INPUT, "%s: no such file or folder%s", path,
                       *pl_sniff_path(path) ? pl_sniff_path(path)
                                            : "; models are read from this disk, download it first");
    pl_status st = PL_OK;
    if (weights == PL_WEIGHTS_AUTO) PL_TRY(pl_target_stored(&t->dtype, path, err));
    PL_TRY(pl_target_tokenizer(&t->tok, path, tokenizer, pre, err));
    PL_TRY_GOTO(st, fail, pl_llama_open_over(&t->model, path, t->dtype, be, comm, err));
    if (!tokenizer_fits(t))
        PL_TRY_GOTO(st, fail,
                    pl_fail(err, PL_E_INPUT,
                            "%s: the tokenizer has %d ids, the model %lld: it is another model's tokenizer",
                            tokenizer ? tokenizer : path, pl_tokenizer_vocab_size(t->tok), (long long)t->model.vocab));
    t->n_stop = pl_target_stops(t->stop, &t->model.config, t->tok);
    PL_TRY_GOTO(st, fail, pl_hf_warn_generation(path, err));
    return PL_OK;
fail:
    pl_target_close(t);
    return st;
}

void pl_target_close(pl_target *t) {
    pl_llama_fini(&t->model);
    pl_tokenizer_close(t->tok);
    *t = (pl_target){0};
}

const char *pl_weights_name(pl_dtype t) {
    return t == PL_BF16 ? "bf16" : "fp32";
}
