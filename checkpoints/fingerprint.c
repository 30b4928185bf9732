#include "checkpoints/fingerprint.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
    const pl_weight_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static uint64_t hash_text(uint64_t h, const char *s) {
    return pl_hash_more(h, s, strlen(s) + 1);
}

static uint64_t hash_int(uint64_t h, int64_t v) {
    return pl_hash_more(h, &v, sizeof v);
}

static uint64_t hash_num(uint64_t h, double v) {
    return pl_hash_more(h, &v, sizeof v);
}

// What a target has beside Llama's; nothing of those that have nothing, which keep the print they had.
static uint64_t hash_unlike_llama(uint64_t h, const pl_hf_config *c) {
    const int    flags[] = {c->activation,       c->fused,         c->norm_plus_one, c->post_norms,
                            c->embedding_scaled, c->sliding_window};
    const double numbers[] = {c->query_scalar, c->attention_softcap, c->final_softcap, c->local_theta, c->rope.partial};
    const int    n_flags = sizeof flags / sizeof *flags, n_numbers = sizeof numbers / sizeof *numbers;
    bool         unlike = false;
    for (int i = 0; i < n_flags; i++)
        unlike |= flags[i] != 0;
    for (int i = 0; i < n_numbers; i++)
        unlike |= numbers[i] != 0;
    for (int i = 0; i < n_flags && unlike; i++)
        h = hash_int(h, flags[i]);
    for (int i = 0; i < n_numbers && unlike; i++)
        h = hash_num(h, numbers[i]);
    for (int l = 0; l < c->num_hidden_layers && c->sliding_window > 0; l++)
        h = hash_int(h, pl_hf_windowed(c, l));
    if (c->experts > 0) {
        const int mixture[] = {c->experts, c->experts_per_token, c->expert_size, c->expert_norm};
        for (size_t i = 0; i < sizeof mixture / sizeof *mixture; i++)
            h = hash_int(h, mixture[i]);
        for (int l = 0; l < c->num_hidden_layers; l++)
            h = hash_int(h, pl_hf_dense(c, l));
        if (c->biased || c->sinks) h = hash_int(h, c->biased + 2 * c->sinks);
    }
    if (c->delta.value_heads > 0) {
        const pl_hf_delta *d = &c->delta;
        const int          of[] = {d->key_heads, d->value_heads, d->key_dim, d->value_dim, d->taps, c->shared_expert};
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            h = hash_int(h, of[i]);
        for (int l = 0; l < c->num_hidden_layers; l++)
            h = hash_int(h, pl_hf_recurrent(c, l));
    }
    if (c->rope.scaling != PL_HF_ROPE_LONG) return h;
    const double *divisor = pl_hf_long_divisors(c); // here the longest context does say what is computed
    for (int i = 0; i < c->rope.n_divisors; i++)
        h = hash_num(h, divisor[i]);
    return hash_num(h, c->rope.attention_factor);
}

// Not the special tokens and not the longest context: they say how a model is used, not what it computes.
static uint64_t hash_config(uint64_t h, const pl_hf_config *c) {
    const int sizes[] = {c->hidden_size,
                         c->intermediate_size,
                         c->num_hidden_layers,
                         c->num_attention_heads,
                         c->num_key_value_heads,
                         c->head_dim,
                         c->vocab_size,
                         c->tie_word_embeddings,
                         c->draft_vocab_size,
                         c->target_hidden_size,
                         c->fc_norm,
                         c->norm_output,
                         c->norm_before_fc,
                         c->norm_before_residual,
                         (int)c->tap_numbering,
                         (int)pl_hf_head_int(&c->head, "rank"),
                         (int)c->rope.scaling,
                         c->rope.original_max_position_embeddings,
                         c->n_taps};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        h = hash_int(h, sizes[i]);
    for (int i = 0; i < c->n_taps; i++)
        h = hash_int(h, c->tap[i]);
    h = pl_hf_head_hash(h, &c->head);
    if (c->backbone == PL_HF_OTHER) h = hash_text(h, c->backbone_name);
    if (c->qkv_bias || c->qk_norm) h = hash_int(h, c->qkv_bias + 2 * c->qk_norm); // others keep the print they had
    h = hash_unlike_llama(h, c);
    h = hash_num(h, c->rms_norm_eps);
    h = hash_num(h, c->rope.theta);
    h = hash_num(h, c->rope.factor);
    h = hash_num(h, c->rope.low_freq_factor);
    h = hash_num(h, c->rope.high_freq_factor);
    if (c->rope.scaling != PL_HF_ROPE_YARN) return h;
    h = hash_num(h, c->rope.beta_fast);
    h = hash_num(h, c->rope.beta_slow);
    h = hash_num(h, c->rope.attention_factor);
    return hash_int(h, c->rope.truncate);
}

// From an entry's first byte to its last, whatever lies between.
static size_t span_of(const pl_weight_entry *e) {
    int64_t cols = e->rank == 2 ? e->shape[1] : 1, past = (e->shape[0] - 1) * e->row_stride;
    if (e->code) return e->code->span(e);
    if (e->row_stride == 0) return e->bytes;
    return (size_t)(past + (cols - 1) * e->column_stride + 1) * pl_dtype_size(e->dtype);
}

static uint64_t hash_tensor(uint64_t h, const pl_weight_entry *e, bool full) {
    h = hash_text(h, e->name);
    h = hash_text(h, pl_dtype_name(e->dtype));
    h = hash_int(h, e->rank);
    for (int i = 0; i < e->rank; i++)
        h = hash_int(h, e->shape[i]);
    h = hash_int(h, e->rope_heads);
    const pl_weight_tiles *tiles[] = {&e->row_tiles, &e->column_tiles};
    for (int i = 0; i < 2; i++)
        if (tiles[i]->keys > 0) h = hash_int(hash_int(h, tiles[i]->keys), tiles[i]->width);
    if (e->code) h = e->code->hash(e, h);
    const uint8_t *p = e->data;
    size_t         n = span_of(e), block = PL_FINGERPRINT_BLOCK;
    if (full || n <= 3 * block) {
        h = pl_hash_more(h, p, n);
        pl_map_drop(p, n);
        return h;
    }
    h = pl_hash_more(h, p, block);
    h = pl_hash_more(h, p + (n - block) / 2, block);
    return pl_hash_more(h, p + n - block, block);
}

pl_status pl_fingerprint(char out[17], const pl_weight_source *src, const pl_hf_config *cfg, bool full, pl_err *err) {
    out[0] = 0;
    int64_t                 n = pl_weight_source_count(src);
    const pl_weight_entry **sorted = pl_malloc((size_t)n * sizeof *sorted);
    if (!sorted) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", pl_weight_source_path(src));
    for (int64_t i = 0; i < n; i++)
        sorted[i] = pl_weight_source_at(src, i);
    qsort(sorted, (size_t)n, sizeof *sorted, by_name);
    uint64_t h = hash_text(0, full ? "paceline model 1, full" : "paceline model 1, sampled");
    h = hash_int(h, cfg != NULL);
    if (cfg) h = hash_config(h, cfg);
    h = hash_int(h, n);
    for (int64_t i = 0; i < n; i++)
        h = hash_tensor(h, sorted[i], full);
    pl_free(sorted);
    pl_hash_hex(out, h);
    return PL_OK;
}
