#include "data/dataset/h5.h"
#include "kernels/base/arena.h"
#include <stdio.h>
#include <string.h>

// Of the attribute and manifests; bf16 goes without saying.
static const char *const format_names[] = {
    [PL_FEATURES_ANY] = "any", [PL_FEATURES_BF16] = "bf16", [PL_FEATURES_INT8] = "int8"};

const char *pl_dataset_format_name(pl_feature_format f) {
    return format_names[f];
}

bool pl_dataset_format_find(const char *name, pl_feature_format *f) {
    *f = PL_FEATURES_BF16;
    if (name && strcmp(name, format_names[PL_FEATURES_INT8]) == 0) *f = PL_FEATURES_INT8;
    return !name || *f == PL_FEATURES_INT8 || strcmp(name, format_names[PL_FEATURES_BF16]) == 0;
}

// The strings of attributes, in the order of pl_dataset_own_attrs.text; the last ones are traces' alone.
enum { TEXTS = PL_DATASET_TEXTS, COMMON = 4 };
static const char *const text_names[TEXTS] = {"target_fingerprint",  "tokenizer_fingerprint", "template", "generation",
                                              "drafter_fingerprint", "head_fingerprint",      "tree"};

const char **pl_dataset_text(pl_dataset_attrs *a, int i) {
    const char **at[TEXTS] = {&a->target_fingerprint,  &a->tokenizer_fingerprint, &a->template_name, &a->generation,
                              &a->drafter_fingerprint, &a->head_fingerprint,      &a->tree};
    return at[i];
}

int pl_dataset_texts(const pl_dataset_attrs *a) {
    return a->top ? TEXTS : COMMON;
}

const char *pl_dataset_text_name(int i) {
    return text_names[i];
}

const char *pl_dataset_kind_name(const pl_dataset_attrs *a) {
    return a->top ? "traces" : "features";
}

void pl_dataset_own_fini(pl_dataset_own_attrs *o) {
    for (int i = 0; i < TEXTS; i++)
        pl_free(o->text[i]);
    *o = (pl_dataset_own_attrs){0};
}

void pl_dataset_own_point(pl_dataset_own_attrs *o) {
    for (int i = 0; i < TEXTS; i++)
        *pl_dataset_text(&o->a, i) = o->text[i];
}

pl_status pl_dataset_own_copy(pl_dataset_own_attrs *o, const pl_dataset_attrs *a, pl_err *err) {
    pl_dataset_attrs from = *a;
    bool             ok = true;
    *o = (pl_dataset_own_attrs){.a = *a};
    for (int i = 0; i < pl_dataset_texts(a); i++) {
        o->text[i] = pl_strdup(*pl_dataset_text(&from, i));
        ok = ok && o->text[i];
    }
    pl_dataset_own_point(o);
    if (ok) return PL_OK;
    pl_dataset_own_fini(o);
    return pl_fail(err, PL_E_MEMORY, "dataset: out of memory");
}

static void list_taps(char to[160], const pl_dataset_attrs *a) {
    size_t n = 0;
    to[0] = 0;
    for (int32_t i = 0; i < a->A && n < 140; i++)
        n += (size_t)snprintf(to + n, 160 - n, i ? ",%d" : "%d", a->tap_layer_ids[i]);
}

pl_status pl_dataset_attrs_check(const char *path, const pl_dataset_attrs *have, const pl_dataset_attrs *want,
                                 pl_err *err) {
    if ((want->top != 0) != (have->top != 0))
        return pl_fail(err, PL_E_INPUT, "%s: holds %s, wanted are %s; choose another folder", path,
                       pl_dataset_kind_name(have), pl_dataset_kind_name(want));
    const struct {
        const char *what, *have, *want, *mend; // mend: what else than generating again helps
    } s[] = {{"target", have->target_fingerprint, want->target_fingerprint, ""},
             {"tokenizer", have->tokenizer_fingerprint, want->tokenizer_fingerprint, ""},
             {"template", have->template_name, want->template_name, "set data.form and data.chat as it was made, or "},
             {"generation settings", have->generation, want->generation, ""},
             {"drafter", have->drafter_fingerprint, want->drafter_fingerprint, ""},
             {"head", have->head_fingerprint, want->head_fingerprint, ""},
             {"tree", have->tree, want->tree, ""}};
    for (size_t i = 0; i < sizeof s / sizeof *s; i++)
        if (s[i].want && s[i].have && strcmp(s[i].have, s[i].want) != 0)
            return pl_fail(err, PL_E_INPUT, "%s: made with %s %s, wanted is %s; %sgenerate the dataset again", path,
                           s[i].what, s[i].have, s[i].want, s[i].mend);
    if (want->vocab_size && have->vocab_size != want->vocab_size)
        return pl_fail(err, PL_E_INPUT, "%s: made with a vocabulary of %d, wanted is %d; generate the dataset again",
                       path, have->vocab_size, want->vocab_size);
    if (want->d && have->d != want->d)
        return pl_fail(err, PL_E_INPUT, "%s: its hidden states have width %d, wanted is %d; generate the dataset again",
                       path, have->d, want->d);
    if (want->feature_format && have->feature_format != want->feature_format)
        return pl_fail(err, PL_E_INPUT,
                       "%s: its features are stored as %s, wanted is %s; set data.feature_format as it was made, or "
                       "generate the dataset again",
                       path, format_names[have->feature_format], format_names[want->feature_format]);
    if (want->top > 0 && have->top != want->top)
        return pl_fail(err, PL_E_INPUT, "%s: holds the %d best ids, wanted are %d; capture the traces again", path,
                       have->top, want->top);
    if (want->A < 0) return PL_OK;
    char h[160], w[160];
    list_taps(h, have);
    list_taps(w, want);
    if (have->A != want->A || memcmp(have->tap_layer_ids, want->tap_layer_ids, (size_t)want->A * 4) != 0)
        return pl_fail(err, PL_E_INPUT,
                       "%s: it holds the inputs of layers [%s], wanted are [%s]; generate the dataset "
                       "again",
                       path, h, w);
    return PL_OK;
}

pl_status pl_dataset_taps_find(int place[PL_DATASET_MAX_TAPS], const char *path, const pl_dataset_attrs *have,
                               const pl_dataset_attrs *want, pl_err *err) {
    char h[160], w[160];
    list_taps(h, have);
    list_taps(w, want);
    for (int32_t i = 0; i < want->A; i++) {
        place[i] = 0;
        while (place[i] < have->A && have->tap_layer_ids[place[i]] != want->tap_layer_ids[i])
            place[i]++;
        if (place[i] == have->A)
            return pl_fail(
                err, PL_E_INPUT,
                "%s: it holds the inputs of layers [%s], wanted are [%s], %d is not among them; generate the "
                "dataset again",
                path, h, w, want->tap_layer_ids[i]);
    }
    return PL_OK;
}
