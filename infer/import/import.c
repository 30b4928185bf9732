#include "infer/import/import.h"

#include "checkpoints/hf_tensors.h"
#include "infer/drafter/dflash.h"
#include "infer/head/draft_vocab.h"
#include "infer/model/llama.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

#define TENSORS 256
#define HEAD_TENSORS 5 // of these, tensors that check_wanted adds

typedef struct import {
    const pl_import_options *o;
    pl_import_told          *told;
    pl_hf_config             config, target;
    pl_weight_source        *src, *target_src, *factors; // factors NULL: there are none
    pl_st_source             tensor[TENSORS];
    char                     name[TENSORS][128];
    int                      n;
    pl_draft_vocab_tensors   map;
    int64_t                  rank; // of a low-rank head, 0: none
} import;

static bool parallel(const import *m) {
    return m->config.backbone == PL_HF_PEAGLE;
}

// Returns true for EAGLE-3 and drafters derived from it.
static bool eagle3(const import *m) {
    return m->config.backbone == PL_HF_EAGLE3 || parallel(m);
}

static bool is_block(const import *m) {
    return m->config.backbone == PL_HF_DFLASH;
}

// Returns true if the head has rows of its own, not the target's.
static bool own_head(const import *m) {
    return !m->config.target_head && strcmp(m->config.head.kind, "markov") != 0 &&
           strcmp(m->config.head.kind, "xpress") != 0;
}

// ---- config ----

static pl_status choose_numbering(import *m, const pl_import_format *format, bool stated, pl_err *err) {
    pl_hf_config       *c = &m->config;
    pl_hf_tap_numbering asked = m->o->numbering;
    bool                said = c->tap_numbering != PL_HF_TAPS_UNSTATED;
    if (is_block(m) && asked)
        return pl_fail(err, PL_E_USAGE, "--numbering: a block drafter's config.json says how it counts layers");
    if (is_block(m)) { // formats.c has converted it
        m->told->numbering = "format";
        c->tap_numbering = PL_HF_TAPS_OUTPUT;
        return PL_OK;
    }
    m->told->numbering = asked ? "option" : said && !stated ? "file" : "format";
    if (asked && said && !stated && asked != c->tap_numbering)
        return pl_fail(err, PL_E_INPUT, "--numbering: %s says itself that its layers are counted by %s", m->o->dir,
                       c->tap_numbering == PL_HF_TAPS_INPUT ? "input" : "output");
    if (asked) c->tap_numbering = asked;
    if (asked || said || c->n_taps == 0) return PL_OK;
    // Both numberings are in use for a list without one: lists of outputs begin with 1, and the usual inputs are no
    // list of outputs in use.
    c->tap_numbering = format->numbering;
    if (format->numbering == PL_HF_TAPS_INPUT || c->tap[0] == 1) return PL_OK;
    int usual[PL_HF_TAPS], n = pl_llama_default_taps(m->target.num_hidden_layers, usual); // the paper's, by inputs
    if (c->n_taps != n || memcmp(c->tap, usual, (size_t)n * sizeof *usual) != 0)
        return pl_fail(
            err, PL_E_INPUT,
            "%s: does not say whether its layers (%d, ...) are counted by input or by output, and both are in "
            "use; give --numbering",
            m->o->dir, c->tap[0]);
    c->tap_numbering = PL_HF_TAPS_INPUT;
    return PL_OK;
}

// Converts the list of layers to inputs.
static pl_status choose_layers(import *m, pl_err *err) {
    pl_hf_config *c = &m->config;
    int           layers = m->target.num_hidden_layers, shift = c->tap_numbering == PL_HF_TAPS_OUTPUT;
    if (c->n_taps == 0) {
        m->told->numbering = "default"; // the paper's three layers, which do not depend on the numbering
        shift = 0;
        c->n_taps = pl_llama_default_taps(layers, c->tap);
    }
    for (int i = 0; i < c->n_taps; i++) {
        c->tap[i] += shift;
        if (c->tap[i] > layers)
            return pl_fail(err, PL_E_INPUT, "%s: %sreads the %s of layer %d, %s has %d layers%s", m->o->dir,
                           is_block(m) ? "target_layer_ids: " : "", shift ? "output" : "input", c->tap[i] - shift,
                           m->o->target, layers,
                           shift && !is_block(m) ? "; counted by input? (--numbering input)" : "");
        for (int k = 0; k < i; k++)
            if (c->tap[k] == c->tap[i])
                return pl_fail(err, PL_E_INPUT, "%s: names layer %d twice", m->o->dir, c->tap[i] - shift);
        m->told->tap[i] = c->tap[i];
    }
    m->told->n_taps = c->n_taps;
    c->tap_numbering = PL_HF_TAPS_INPUT;
    if (!is_block(m)) return PL_OK;
    for (int i = 0; i < c->n_taps; i++)
        c->tap[i]--; // target_layer_ids count outputs by definition
    c->tap_numbering = PL_HF_TAPS_UNSTATED;
    return PL_OK;
}

static void warn_rope(const import *m) {
    const pl_hf_rope *a = &m->config.rope, *b = &m->target.rope;
    if (a->theta != b->theta || a->scaling != b->scaling || a->factor != b->factor)
        pl_log_warn("%s: its RoPE (base %g%s) is not its target's (base %g%s): right only if it was trained so",
                    m->o->dir, a->theta, a->scaling ? ", scaled" : "", b->theta, b->scaling ? ", scaled" : "");
}

static pl_status read_config(import *m, pl_err *err) {
    const pl_import_format *format;
    pl_hf_config           *c = &m->config;
    const pl_hf_config     *t = &m->target;
    bool                    stated;
    PL_TRY(pl_import_config(c, &format, &stated, m->o->dir, err));
    PL_TRY(pl_llama_config(&m->target, m->o->target, err));
    m->told->format = format->name;
    c->tie_word_embeddings = false; // copied from the target's config; a head has its own rows or the target's
    if (c->backbone == PL_HF_OTHER || (*c->head.kind && strcmp(format->name, "dflash") != 0))
        return pl_fail(err, PL_E_INPUT, "%s: is this program's own kind of checkpoint already", m->o->dir);
    int most = is_block(m) ? PL_DFLASH_LAYERS : eagle3(m) ? PL_STEP_LAYERS : 1;
    if (c->num_hidden_layers > most)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: %d layers, at most %d in such a drafter", m->o->dir,
                       c->num_hidden_layers, most);
    if (c->fc_norm && c->norm_before_fc)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: fc_norm and norm_before_fc, of which one is supported", m->o->dir);
    if (pl_hf_norms(c) && !eagle3(m))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: norms of EAGLE-3.1 in a drafter of another kind", m->o->dir);
    if (c->vocab_size != t->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: made for a vocabulary of %d, %s has %d", m->o->dir, c->vocab_size,
                       m->o->target, t->vocab_size);
    if (c->target_hidden_size == 0) c->target_hidden_size = t->hidden_size;
    if (c->target_hidden_size != t->hidden_size)
        return pl_fail(err, PL_E_INPUT, "%s: made for a target of width %d, %s has %d", m->o->dir,
                       c->target_hidden_size, m->o->target, t->hidden_size);
    if (c->hidden_size != t->hidden_size && !eagle3(m))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: of width %d, its target's is %d; eagle3 and peagle alone may differ",
                       m->o->dir, c->hidden_size, t->hidden_size);
    warn_rope(m);
    if (is_block(m)) {
        c->target_hidden_size = 0; // equals the target's; z-lab's config has no such member
        if (c->block.target_layers && c->block.target_layers != t->num_hidden_layers)
            return pl_fail(err, PL_E_INPUT, "%s: made for a target of %d layers, %s has %d", m->o->dir,
                           c->block.target_layers, m->o->target, t->num_hidden_layers);
        c->block.target_layers = t->num_hidden_layers;
    }
    if (c->backbone == PL_HF_EAGLE1) return PL_OK;
    if (eagle3(m))
        snprintf(c->architecture, sizeof c->architecture, "%s",
                 parallel(m) ? "PEagleDraftModel" : "LlamaForCausalLMEagle3");
    PL_TRY(choose_numbering(m, format, stated, err));
    return choose_layers(m, err);
}

// ---- tensors ----

static pl_status push(import *m, const char *name, const pl_weight_entry *w, pl_err *err) {
    if (m->n == TENSORS) return pl_fail(err, PL_E_INPUT, "%s: more tensors than a drafter has", w->name);
    pl_st_source *s = &m->tensor[m->n];
    snprintf(m->name[m->n], sizeof m->name[m->n], "%s", name);
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->name[i], name) == 0)
            return pl_fail(err, PL_E_INPUT, "%s: \"%.80s\" stands there twice, under two names", m->o->dir, name);
    *s = (pl_st_source){.name = m->name[m->n++]};
    pl_weight_copy(s, w);
    s->rank = pl_hf_unpad(name, s->shape, s->rank);
    return PL_OK;
}

// Renames norms of a drafter of several layers: SGLang names the input norm of layers after the first hidden_norm.
static void layers_name(const char *given, char *name, size_t size) {
    int  layer = 0, skip = 0;
    bool later = sscanf(given, "layers.%d.%n", &layer, &skip) == 1 && skip > 0 && layer > 0;
    if (later && strcmp(given + skip, "hidden_norm.weight") == 0)
        snprintf(name, size, "%.*sinput_layernorm.weight", skip, given);
    else
        snprintf(name, size, "%s", given);
}

// Strips prefixes that tools add to a tensor's name, and translates the layer's prefix.
static void plain_name(const import *m, const char *given, char *name, size_t size) {
    static const char model[] = "model.", first[] = "layers.0.", middle[] = "midlayer.";
    bool              several = eagle3(m) && m->config.num_hidden_layers > 1;
    if (strncmp(given, model, sizeof model - 1) == 0) given += sizeof model - 1;
    const char *layer = strncmp(given, first, sizeof first - 1) == 0     ? given + sizeof first - 1
                        : strncmp(given, middle, sizeof middle - 1) == 0 ? given + sizeof middle - 1
                                                                         : NULL;
    if (is_block(m)) layer = NULL; // blocks have several layers
    if (several && !layer)
        layers_name(given, name, size);
    else
        snprintf(name, size, "%s%s", !layer ? "" : eagle3(m) && !several ? middle : first, layer ? layer : given);
}

static const pl_weight_entry *target_matrix(const import *m, bool head) {
    return pl_llama_matrix(m->target_src, &m->target, head);
}

static bool is_real(pl_dtype t) {
    return t == PL_F32 || t == PL_BF16 || t == PL_F16;
}

// Compares a matrix with the target's, element by element, rounded to the coarser of both types.
static pl_status is_targets(const import *m, const pl_weight_entry *w, bool head, bool *same, pl_err *err) {
    const pl_weight_entry *t = target_matrix(m, head);
    *same = false;
    if (!t || !is_real(w->dtype) || !is_real(t->dtype) || w->rank != 2 || t->rank != 2 || w->shape[0] != t->shape[0] ||
        w->shape[1] != t->shape[1])
        return PL_OK;
    int64_t        cols = w->shape[1];
    pl_dtype       to = w->dtype == PL_BF16 || t->dtype == PL_BF16 ? PL_BF16 : w->dtype == PL_F32 ? t->dtype : w->dtype;
    float         *a = pl_malloc((size_t)cols * 2 * sizeof *a), *b = a + cols;
    uint8_t       *ra = pl_malloc((size_t)cols * 8), *rb = ra + cols * 4;
    pl_weight_spec mine = {.part = {{w->name, w->shape[0]}}, .n_parts = 1, .rows = w->shape[0], .cols = cols},
                   theirs = {.part = {{t->name, t->shape[0]}}, .n_parts = 1, .rows = t->shape[0], .cols = cols};
    pl_status st = a && ra ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->o->dir);
    *same = true;
    for (int64_t i = 0; i < w->shape[0] && *same && st == PL_OK; i++) {
        st = pl_weight_read_rows(m->src, &mine, i, 1, a, err);
        if (st == PL_OK) st = pl_weight_read_rows(m->target_src, &theirs, i, 1, b, err);
        if (st != PL_OK) break;
        pl_from_f32(ra, to, a, (size_t)cols);
        pl_from_f32(rb, to, b, (size_t)cols);
        *same = memcmp(ra, rb, (size_t)cols * pl_dtype_size(to)) == 0;
    }
    pl_free(a);
    pl_free(ra);
    return st;
}

static pl_status take_embeddings(import *m, const pl_weight_entry *w, pl_err *err) {
    bool same;
    PL_TRY(is_targets(m, w, false, &same, err));
    if (same) return PL_OK;
    m->told->own_embed = true;
    if (eagle3(m)) return push(m, PL_BACKBONE_EMBED, w, err);
    return pl_fail(err, PL_E_UNSUPPORTED,
                   "%s: %s is not its target's; eagle3 and peagle alone may have embeddings of their own", m->o->dir,
                   w->name);
}

// Takes the head's matrix. EAGLE-1 and block drafters use their target's, unless the file holds another one.
static pl_status take_head(import *m, const pl_weight_entry *w, pl_err *err) {
    bool same = false;
    if (!eagle3(m)) PL_TRY(is_targets(m, w, true, &same, err));
    if (same) return PL_OK;
    if (*m->config.head.kind)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: lm_head.weight is not its target's, which a %s head reads",
                       m->o->dir, m->config.head.kind);
    if (!eagle3(m)) {
        m->config.target_head = false;
        m->config.head = pl_hf_head_make("full", 0);
        snprintf(m->config.architecture, sizeof m->config.architecture, "%s",
                 is_block(m) ? "PacelineDFlash" : "PacelineEagle");
    }
    m->told->head = "full";
    m->told->rows = w->shape[0];
    return push(m, "lm_head.weight", w, err);
}

static pl_status take(import *m, const pl_weight_entry *w, pl_err *err) {
    static const char *const left_out[] = {"t2d", "d2t", "verifier_lm_head.weight", "verifier_norm.weight"};
    char                     name[128];
    plain_name(m, w->name, name, sizeof name);
    for (int i = 0; i < 4; i++)
        if (strcmp(name, left_out[i]) == 0) return PL_OK; // the map is read separately
    if (pl_path_ends(name, ".inv_freq")) return PL_OK;
    if (strcmp(name, PL_BACKBONE_EMBED) == 0) return take_embeddings(m, w, err);
    if (strcmp(name, "lm_head.weight") == 0) return m->factors ? PL_OK : take_head(m, w, err);
    return push(m, name, w, err);
}

// ---- required tensors ----

typedef enum how { NEEDED, MAY_BE, NONE } how; // NONE: this drafter has no such tensor

typedef struct wanted {
    const char *name;
    int64_t     size[3]; // dimensions; 0 after the last
    how         need;
} wanted;

static pl_status check_one(const import *m, const wanted *x, pl_err *err) {
    const pl_st_source *s = NULL;
    for (int i = 0; i < m->n && !s; i++)
        if (strcmp(m->tensor[i].name, x->name) == 0) s = &m->tensor[i];
    if (x->need == NONE || (!s && x->need == MAY_BE)) return PL_OK;
    if (!s) return pl_fail(err, PL_E_INPUT, "%s: has no %s", m->o->dir, x->name);
    if (!is_real(s->dtype))
        return pl_fail(err, PL_E_INPUT, "%s: %s holds %s; F32, BF16 and F16 are known", m->o->dir, x->name,
                       pl_dtype_name(s->dtype));
    char found[PL_ST_SHAPE_TEXT], expected[PL_ST_SHAPE_TEXT];
    int  rank = 0;
    bool right = true;
    for (; rank < 3 && x->size[rank] > 0; rank++)
        right &= rank < s->rank && s->shape[rank] == x->size[rank];
    if (right && s->rank == rank) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: %s is %s, expected %s", m->o->dir, x->name,
                   pl_st_shape_text(found, s->shape, s->rank), pl_st_shape_text(expected, x->size, rank));
}

static pl_status check_layers_read(const import *m, pl_err *err) {
    int64_t each = m->target.hidden_size;
    for (int i = 0; i < m->n; i++) {
        const pl_st_source *s = &m->tensor[i];
        if (strcmp(s->name, "fc.weight") != 0 || s->rank != 2 || s->shape[1] == m->config.n_taps * each) continue;
        return pl_fail(err, PL_E_INPUT, "%s: fc.weight reads %lld columns, %d layers of its target have %lld",
                       m->o->dir, (long long)s->shape[1], m->config.n_taps, (long long)(m->config.n_taps * each));
    }
    return PL_OK;
}

typedef struct wanted_list {
    wanted w[TENSORS];
    char   name[TENSORS][64];
    int    n;
} wanted_list;

static void want(wanted_list *l, const char *name, int64_t rows, int64_t cols, how need) {
    PL_CHECK(l->n < TENSORS, "more tensors than a drafter has");
    snprintf(l->name[l->n], sizeof l->name[l->n], "%s", name);
    l->w[l->n] = (wanted){l->name[l->n], {rows, cols}, need};
    l->n++;
}

static bool want_needed(void *arg, const char *name, const int64_t size[3]) {
    wanted_list *l = arg;
    if (l->n == TENSORS - HEAD_TENSORS) return false;
    want(l, name, size[0], size[1], NEEDED);
    l->w[l->n - 1].size[2] = size[2];
    return true;
}

static bool among(const wanted_list *l, const char *name) {
    for (int k = 0; k < l->n; k++)
        if (l->w[k].need != NONE && strcmp(l->w[k].name, name) == 0) return true;
    return false;
}

static pl_status check_wanted(const import *m, wanted_list *l, pl_err *err) {
    const pl_hf_config *c = &m->config;
    int64_t             d = c->hidden_size, rows = m->told->rows;
    bool                own = !m->rank && own_head(m);
    pl_hf_sizes         sizes = pl_hf_sizes_of(c, m->target.hidden_size);
    how                 bias = eagle3(m) || is_block(m) || c->fc_bias == PL_HF_BIAS_NO ? NONE
                               : c->fc_bias == PL_HF_BIAS_YES                          ? NEEDED
                                                                                       : MAY_BE;
    if (!pl_hf_tensors(&sizes, want_needed, l))
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: config.json has num_hidden_layers %d, more than a drafter has",
                       m->o->dir, c->num_hidden_layers);
    want(l, "fc.bias", d, 0, bias);
    want(l, PL_BACKBONE_EMBED, c->vocab_size, d, !eagle3(m) ? NONE : d != c->target_hidden_size ? NEEDED : MAY_BE);
    want(l, "lm_head.weight", rows, d, own ? NEEDED : NONE);
    want(l, "efficient_lm_head.weight", rows, m->rank, m->rank ? NEEDED : NONE);
    want(l, "efficient_lm_head_down_proj.weight", m->rank, d, m->rank ? NEEDED : NONE);
    for (int i = 0; i < l->n; i++)
        PL_TRY(check_one(m, &l->w[i], err));
    for (int i = 0; i < m->n; i++)
        if (!among(l, m->tensor[i].name))
            return pl_fail(err, PL_E_UNSUPPORTED, "%s: tensor \"%.80s\": none that this program computes with",
                           m->o->dir, m->tensor[i].name);
    if (c->backbone == PL_HF_EAGLE1 && rows != c->vocab_size)
        return pl_fail(err, PL_E_UNSUPPORTED, "%s: an EAGLE-1 head of %lld rows for %d tokens", m->o->dir,
                       (long long)rows, c->vocab_size);
    return PL_OK;
}

static pl_status check_tensors(const import *m, pl_err *err) {
    if (m->config.backbone != PL_HF_EAGLE1) PL_TRY(check_layers_read(m, err));
    wanted_list *l = pl_calloc(1, sizeof *l);
    if (!l) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->o->dir);
    pl_status st = check_wanted(m, l, err);
    pl_free(l);
    return st;
}

// ---- the draft vocabulary ----

// Returns true if the entries, read as offsets or as ids, are distinct tokens of the vocabulary, and equal t2d's if
// there is one.
static bool names_tokens(const pl_weight_entry *w, const pl_weight_entry *marks, bool offsets, int64_t vocab,
                         uint8_t *seen, int32_t *ids) {
    int64_t marked = 0;
    memset(seen, 0, (size_t)vocab);
    for (int64_t i = 0; marks && i < vocab; i++)
        marked += ((const uint8_t *)marks->data)[i] != 0;
    if (marks && marked != w->shape[0]) return false;
    for (int64_t i = 0; i < w->shape[0]; i++) {
        int64_t v = pl_draft_vocab_entry(w->data, w->dtype, i);
        if (v < -vocab || v > vocab) return false;
        if (offsets) v += i;
        if (v < 0 || v >= vocab || seen[v]) return false;
        if (marks && !((const uint8_t *)marks->data)[v]) return false;
        seen[v] = 1;
        ids[i] = (int32_t)v;
    }
    return true;
}

static pl_status read_map(import *m, pl_err *err) {
    const pl_weight_entry *w = pl_weight_source_find(m->src, "d2t"), *marks = pl_weight_source_find(m->src, "t2d");
    int64_t                vocab = m->config.vocab_size, rows = m->told->rows;
    bool                   whole = rows == vocab;
    if (!w) w = pl_weight_source_find(m->src, "model.d2t");
    if (!marks) marks = pl_weight_source_find(m->src, "model.t2d");
    m->told->map = "none";
    m->config.draft_vocab_size = eagle3(m) || (is_block(m) && own_head(m)) ? (int)rows : 0;
    if (!w && !whole)
        return pl_fail(err, PL_E_INPUT, "%s: a head of %lld rows for %lld tokens, and no d2t", m->o->dir,
                       (long long)rows, (long long)vocab);
    if (!w) return PL_OK;
    if (w->dtype != PL_I64 && w->dtype != PL_I32)
        return pl_fail(err, PL_E_INPUT, "%s: d2t holds %s; I64 and I32 are known", m->o->dir, pl_dtype_name(w->dtype));
    if (w->rank != 1 || w->shape[0] != rows)
        return pl_fail(err, PL_E_INPUT, "%s: d2t must be %lld integers, as the head has rows", m->o->dir,
                       (long long)rows);
    if (marks && marks->dtype != PL_BOOL && marks->dtype != PL_U8)
        return pl_fail(err, PL_E_INPUT, "%s: t2d holds %s; BOOL and U8 are known", m->o->dir,
                       pl_dtype_name(marks->dtype));
    if (marks && (marks->rank != 1 || marks->shape[0] != vocab))
        return pl_fail(err, PL_E_INPUT, "%s: t2d must be %lld marks, as the vocabulary has tokens", m->o->dir,
                       (long long)vocab);
    uint8_t  *seen = pl_malloc((size_t)vocab);
    int32_t  *ids = pl_malloc((size_t)rows * sizeof *ids);
    pl_status st = seen && ids ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->o->dir);
    if (st == PL_OK) {
        // Ascending ids are also valid as offsets, since they then rise faster; offsets are valid as ids only if no two
        // tokens of the list are adjacent.
        bool named = names_tokens(w, marks, false, vocab, seen, ids), offsets = !named;
        if (offsets) named = names_tokens(w, marks, true, vocab, seen, ids);
        m->told->map = offsets ? "offsets" : "ids";
        if (!named)
            st = pl_fail(err, PL_E_INPUT,
                         "%s: d2t names, neither as offsets nor as ids, %lld different tokens of %lld%s", m->o->dir,
                         (long long)rows, (long long)vocab, marks ? " that t2d marks" : "");
    }
    bool    identity = whole;
    int64_t unfilled = st == PL_OK && !whole ? pl_draft_vocab_unfilled(ids, rows) : 0;
    if (unfilled > 0)
        pl_log_warn(
            "%s: d2t: the last %lld of %lld rows draft the tokens of their own numbers, as a map that was never "
            "filled does; acceptance suffers, the text does not",
            m->o->dir, (long long)unfilled, (long long)rows);
    for (int64_t i = 0; st == PL_OK && i < rows; i++)
        identity = identity && ids[i] == i;
    if (st == PL_OK && identity) m->told->map = "none";
    if (st == PL_OK && !identity) st = pl_draft_vocab_tensors_init(&m->map, ids, rows, vocab, err);
    for (int i = 0; st == PL_OK && !identity && i < 2; i++)
        m->tensor[m->n++] = m->map.tensor[i];
    pl_free(seen);
    pl_free(ids);
    return st;
}

// ---- the head ----

// Reads the factors that an export stores beside a multiplied-out head.
static pl_status take_factors(import *m, pl_err *err) {
    char *dir = pl_path_join(m->o->dir, "factors");
    if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->o->dir);
    bool      there = pl_path_is_dir(dir);
    pl_status st = there ? pl_weight_source_open(&m->factors, dir, err) : PL_OK;
    pl_free(dir);
    if (st != PL_OK || !there) return st;
    const pl_weight_entry *up = pl_weight_source_find(m->factors, "efficient_lm_head.weight"),
                          *down = pl_weight_source_find(m->factors, "efficient_lm_head_down_proj.weight");
    if (!up || !down || up->rank != 2 || pl_weight_source_count(m->factors) != 2)
        return pl_fail(err, PL_E_INPUT, "%s/factors: not the two factors of a low-rank head", m->o->dir);
    m->rank = up->shape[1];
    m->told->rows = up->shape[0];
    m->told->head = "lowrank";
    if (m->rank < 1 || m->rank > m->config.hidden_size)
        return pl_fail(err, PL_E_INPUT, "%s/factors: a rank of %lld", m->o->dir, (long long)m->rank);
    m->config.head = pl_hf_head_make("lowrank", (int)m->rank);
    m->config.target_head = false;
    snprintf(m->config.architecture, sizeof m->config.architecture, "%s",
             is_block(m)   ? "PacelineDFlash"
             : parallel(m) ? "PacelinePEagle"
                           : "PacelineEagle3");
    PL_TRY(push(m, up->name, up, err));
    return push(m, down->name, down, err);
}

static pl_status find_head(import *m, pl_err *err) {
    if (m->told->head) return PL_OK;
    const char *kind = m->config.head.kind; // the texts below are static and outlive the import
    m->told->head = strcmp(kind, "xpress") == 0 ? "xpress" : *kind ? "markov" : "target";
    m->told->rows = m->config.vocab_size;
    if (!eagle3(m)) return PL_OK;
    // A full head equal to the target's is not in the file: copy the target's.
    const pl_weight_entry *w = target_matrix(m, true);
    if (!w || (m->config.draft_vocab_size && m->config.draft_vocab_size != m->config.vocab_size))
        return pl_fail(err, PL_E_INPUT, "%s: has no lm_head.weight", m->o->dir);
    return push(m, "lm_head.weight", w, err);
}

static pl_status list_tensors(import *m, pl_err *err) {
    PL_TRY(pl_weight_source_open(&m->src, m->o->dir, err));
    PL_TRY(pl_llama_source(&m->target_src, &m->target, m->o->target, err));
    if (m->config.backbone != PL_HF_EAGLE1) PL_TRY(take_factors(m, err));
    for (int64_t i = 0; i < pl_weight_source_count(m->src); i++)
        PL_TRY(take(m, pl_weight_source_at(m->src, i), err));
    PL_TRY(find_head(m, err));
    PL_TRY(check_tensors(m, err));
    m->config.dtype = pl_weight_source_stored_dtype(m->src, NULL, 0);
    return read_map(m, err);
}

// ---- writing ----

static pl_status write(const import *m, const char *dir, pl_err *err) {
    static const pl_st_pair format = {"format", "pt"}; // transformers refuses a file without it
    char                   *config = pl_path_join(dir, "config.json"), *model = pl_path_join(dir, "model.safetensors");
    pl_status               st = config && model ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    if (st == PL_OK) st = pl_hf_config_write(config, &m->config, err);
    if (st == PL_OK) st = pl_st_write(model, m->tensor, m->n, &format, 1, err);
    pl_free(config);
    pl_free(model);
    return st;
}

pl_status pl_import(const pl_import_options *o, pl_import_told *told, pl_err *err) {
    import       *m = pl_calloc(1, sizeof *m);
    pl_atomic_dir out;
    pl_status     st;
    *told = (pl_import_told){0};
    if (!m) return pl_fail(err, PL_E_MEMORY, "import: out of memory");
    m->o = o;
    m->told = told;
    PL_TRY_GOTO(st, done, read_config(m, err));
    PL_TRY_GOTO(st, done, list_tensors(m, err));
    if (pl_path_same(o->out, o->dir) || pl_path_same(o->out, o->target))
        PL_TRY_GOTO(st, done, pl_fail(err, PL_E_INPUT, "--out %s: is what is read; give another folder", o->out));
    PL_TRY_GOTO(st, done, pl_dir_spares(o->out, NULL, NULL, err));
    PL_TRY_GOTO(st, done, pl_atomic_dir_begin(&out, o->out, err));
    st = write(m, pl_atomic_dir_path(&out), err);
    if (st == PL_OK) st = pl_dir_spares(o->out, NULL, NULL, err); // files that appeared meanwhile
    if (st == PL_OK)
        st = pl_atomic_dir_commit(&out, err);
    else
        pl_atomic_dir_abort(&out);
done:
    pl_draft_vocab_tensors_fini(&m->map);
    pl_weight_source_close(m->src);
    pl_weight_source_close(m->target_src);
    pl_weight_source_close(m->factors);
    pl_free(m);
    return st;
}
