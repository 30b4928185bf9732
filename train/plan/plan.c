#include "train/plan/plan.h"

#include "infer/drafter/backbone.h"
#include "train/loop/slots.h"

#include <math.h>

#define KEPT 1073741824.0     // the most bytes of logits that are kept
#define DOC_BYTES (8 + 5 * 4) // per document: doc_offsets, pl_doc_about
#define BF16 2.0
#define F32 4.0

const char *const pl_train_mode_names[PL_TRAIN_MODES] = {"offline", "bounded", "online"};

static double products(const pl_params *ps) {
    double n = 0;
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].kind == PL_PARAM_MATRIX) n += (double)ps->p[i].spec.rows * (double)ps->p[i].spec.cols;
    return n;
}

// Returns the elements of a layer's attention, or of its gated delta net.
static double mixer_elements(const pl_hf_config *c, int layer) {
    const pl_hf_delta *r = &c->delta;
    double             d = c->hidden_size, hd = c->head_dim, heads = c->num_attention_heads;
    double             k = (double)r->key_heads * r->key_dim, v = (double)r->value_heads * r->value_dim;
    if (r->value_heads > 0 && pl_hf_recurrent(c, layer)) return d * (2 * k + 3 * v + 2 * r->value_heads);
    return d * hd * (2 * (heads + c->num_key_value_heads) + (c->output_gate ? heads : 0));
}

// Computes the target's sizes from the config alone. Of a mixture of experts a token reads a part.
static void size_target(pl_train_sizes *z, const pl_hf_config *c) {
    double d = c->hidden_size, expert = 3 * d * c->expert_size;
    z->vocab = c->vocab_size;
    z->head = z->vocab * d;
    z->dense = (c->tie_word_embeddings ? 1 : 2) * z->head;
    for (int l = 0; l < c->num_hidden_layers; l++) {
        z->dense += mixer_elements(c, l);
        if (c->experts == 0 || pl_hf_dense(c, l)) {
            z->dense += 3 * d * c->intermediate_size;
            continue;
        }
        z->dense += d * c->experts + 3 * d * c->shared_expert;
        z->target += expert * c->experts;
        z->per_token += expert * c->experts_per_token;
    }
    z->target += z->dense;
}

pl_status pl_train_sizes_of(pl_train_sizes *z, const pl_hf_config *config, pl_feature_format format,
                            const pl_backend *be, pl_err *err) {
    pl_hf_config        one = *config; // with at most 64 positions: their tables do not count
    pl_llama            target;
    pl_backbone        *b = NULL;
    pl_backbone_options o = {.head = pl_hf_head_make("full", 0)};
    *z = (pl_train_sizes){0};
    one.max_position_embeddings = one.max_position_embeddings < 64 ? one.max_position_embeddings : 64;
    PL_TRY(pl_llama_init(&target, &one, be, false, err));
    pl_status st = pl_backbone_create(&b, pl_backbone_at(0), &target, &o, be, err);
    if (st == PL_OK) {
        size_target(z, config);
        z->trained = (double)pl_params_count(&b->params);
        z->products = products(&b->params);
        z->fuse = (double)pl_tensor_count(b->kind->fuse_only(b));
        z->width = config->hidden_size;
        z->heads = (double)b->shape.nh * (double)b->shape.hd;
        z->kv = (double)b->shape.nkv * (double)b->shape.hd;
        z->inter = config->intermediate_size;
        z->taps = b->n_taps;
        z->row_bytes = pl_dataset_row_bytes(
            &(pl_dataset_attrs){.d = config->hidden_size, .A = b->n_taps, .feature_format = format});
    }
    pl_backbone_destroy(b);
    pl_llama_fini(&target);
    return st;
}

// Returns the elements of the products that rows need at depth k if nothing learns from them: of keys and values.
static double keys_of(const pl_train_sizes *z, int k) {
    return k == 0 ? 2 * z->kv * 2 * z->width : 0;
}

static double slot_flops(const pl_train_sizes *z, const pl_train_setup *s) {
    double rows = s->slot_rows, runs = s->supervised * rows, flops = 4 * z->fuse * rows + 2 * z->head * runs;
    for (int k = 0; k < s->unroll; k++)
        flops += 6 * ((z->products - z->fuse) * runs + keys_of(z, k) * (rows - runs)) +
                 12 * z->heads * runs * ((s->tokens + 1) / 2 + k);
    return flops;
}

// Returns the seconds of network that overlap with backward of a rank's last slot.
static double hidden_of(const pl_train_sizes *z, const pl_train_setup *s, double network) {
    double rows = s->slot_rows, runs = s->supervised * rows;
    double head = 4 * s->unroll * z->head * runs / s->flops, rest = 2 * z->fuse * rows;
    if (!s->beside) return 0;
    for (int k = 0; k < s->unroll; k++)
        rest += 4 * ((z->products - z->fuse - z->head) * runs + keys_of(z, k) * (rows - runs)) +
                8 * z->heads * runs * ((s->tokens + 1) / 2 + k);
    double first = head * fmin(1, s->round / (F32 * z->head)); // until its first round is complete
    return fmin(z->head / z->trained * network, head + rest / s->flops - first);
}

static double memory_of(const pl_train_sizes *z, const pl_train_setup *s, pl_train_mode mode, int share, int ranks) {
    double rows = s->slot_rows, levels = share > 1 ? floor(log2(share - 1)) + 1 : 0;
    double kept = F32 * rows * s->unroll * z->vocab;
    double step = 14 * z->width + 2 * z->heads + 4 * z->kv + 4 * z->inter;
    double target = mode == PL_TRAIN_OFFLINE ? 2 * z->head : z->target;
    double held = s->sharded ? 3.0 / ranks : 3; // masters and moments
    return F32 * z->trained * (2 + held + levels) + BF16 * target + 2 * F32 * rows * s->unroll * step +
           F32 * rows * (z->taps + 1) * z->width + fmin(KEPT, kept);
}

// Returns one device's seconds per token of an answer.
static double token_seconds(const pl_train_sizes *z, const pl_train_setup *s) {
    double bytes = BF16 * fmin(z->target, z->dense + s->sessions * z->per_token);
    return fmax(2 * (z->dense + z->per_token) / s->flops, bytes / (s->sessions * s->memory_bandwidth));
}

static const char *limit_of(const pl_train_plan *p, const pl_train_setup *s) {
    if (p->memory > s->memory) return "memory";
    if (p->making > p->training) return "answers";
    return p->network - p->hidden > p->compute ? "network" : "compute";
}

// Returns how often one device makes all answers, possibly a fraction.
static double making_share(const pl_train_setup *s, pl_train_mode mode, int ranks) {
    return (mode == PL_TRAIN_OFFLINE ? 1 : s->epochs) / ranks;
}

pl_status pl_train_predict(pl_train_plan *p, const pl_train_sizes *z, const pl_train_setup *s, pl_train_mode mode,
                           int ranks, pl_err *err) {
    int first, share;
    *p = (pl_train_plan){0};
    pl_slots_share(s->slots, 0, ranks, &first, &share);
    if ((s->slots + share - 1) / share < ranks)
        return pl_fail(err, PL_E_USAGE, "--ranks %d: a step's %d slots give %d ranks work; use --slots %d", ranks,
                       s->slots, (s->slots + share - 1) / share, ranks);
    double rows = s->samples * s->tokens, bytes = F32 * z->trained, one = slot_flops(z, s) / s->flops;
    p->steps = ceil(s->epochs * rows / ((double)s->slots * s->slot_rows));
    p->compute = share * one;
    p->sent = 2.0 * (ranks - 1) / ranks * bytes;
    p->network = ranks > 1 ? p->sent / s->network + 2 * ceil(bytes / s->round) * s->latency : 0;
    p->hidden = hidden_of(z, s, p->network);
    p->step = p->compute + p->network - p->hidden;
    p->sent_all = p->sent * ranks * p->steps;
    p->efficiency = s->slots * one / (ranks * p->step);
    p->training = p->steps * p->step;
    p->making = rows * token_seconds(z, s) * making_share(s, mode, ranks);
    double stored = mode == PL_TRAIN_OFFLINE ? s->samples : mode == PL_TRAIN_BOUNDED ? fmin(s->window, s->samples) : 0;
    p->disk = stored * (s->tokens * (double)z->row_bytes + DOC_BYTES);
    p->memory = memory_of(z, s, mode, share, ranks);
    p->target_devices = (int)ceil(BF16 * z->target / s->memory);
    p->limit = limit_of(p, s);
    return PL_OK;
}
