// Reads the parts of a tokenizer.json that are chains of steps: normalizer, pre_tokenizer, decoder.
#include "data/tokenizer/hf.h"
#include "kernels/base/arena.h"
#include "kernels/base/strbuf.h"
#include "kernels/base/utf8.h"

static pl_status out_of_memory(const pl_json *j, pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
}

static bool is_type(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

// what: "a pattern", "a content", ...
static pl_status check_length(const pl_json *j, const cJSON *node, const char *what, const char *s, pl_err *err) {
    size_t n = strlen(s);
    if (n <= PL_REPLACEMENT_MAX) return PL_OK;
    return pl_json_fail(j, node, err, "%s of %zu bytes, more than %d", what, n, PL_REPLACEMENT_MAX);
}

// {"pattern": {"String": ...}} or {"pattern": {"Regex": ...}}.
static pl_status read_pattern(const pl_json *j, const cJSON *node, const char **s, bool *is_regex, pl_err *err) {
    const cJSON *pattern;
    PL_TRY(pl_json_get_object(j, node, "pattern", &pattern, err));
    *is_regex = pl_json_find(j, pattern, "Regex") != NULL;
    PL_TRY(pl_json_get_str(j, pattern, *is_regex ? "Regex" : "String", s, err));
    if (!(*s)[0]) return pl_json_fail(j, node, err, "an empty pattern");
    return *is_regex ? PL_OK : check_length(j, node, "a pattern", *s, err);
}

// ---- normaliser

static pl_status read_replace(pl_hf_norm *r, const pl_json *j, const cJSON *node, bool regex, pl_err *err) {
    const char *s, *content;
    bool        is_regex;
    PL_TRY(read_pattern(j, node, &s, &is_regex, err));
    PL_TRY(pl_json_get_str(j, node, "content", &content, err));
    PL_TRY(check_length(j, node, "a content", content, err));
    if (is_regex && !regex) return pl_hf_refuse(j, err, "decoder", "Replace with a regular expression");
    pl_status st = is_regex ? pl_regex_compile(&r->regex, s, err) : PL_OK;
    if (st != PL_OK) return pl_fail_at(err, st, "%s", j->where);
    r->kind = PL_NORM_REPLACE;
    r->pattern = pl_strdup(s);
    r->content = pl_strdup(content);
    return r->pattern && r->content ? PL_OK : out_of_memory(j, err);
}

pl_status pl_hf_read_normalizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char              *type, *s;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (is_type(type, "Sequence")) {
        const cJSON *list, *e;
        PL_TRY(pl_json_get_array(j, node, "normalizers", &list, err));
        cJSON_ArrayForEach(e, list) PL_TRY(pl_hf_read_normalizer(h, j, e, err)); // depth is bounded by the parser
        return PL_OK;
    }
    int form = 0;
    while (form < 4 && !is_type(type, forms[form]))
        form++;
    bool known = form < 4 || is_type(type, "Prepend") || is_type(type, "Replace") || is_type(type, "Lowercase") ||
                 is_type(type, "Strip");
    if (!known) return pl_hf_refuse(j, err, "normalizer", type);
    if (h->n_norm == PL_HF_MAX_NORM) return pl_json_fail(j, node, err, "more than %d normalizers", PL_HF_MAX_NORM);
    pl_hf_norm *r = &h->norm[h->n_norm++];
    if (is_type(type, "Replace")) return read_replace(r, j, node, true, err);
    if (is_type(type, "Prepend")) {
        PL_TRY(pl_json_get_str(j, node, "prepend", &s, err));
        PL_TRY(check_length(j, node, "a beginning", s, err));
        r->kind = PL_NORM_PREPEND;
        r->content = pl_strdup(s);
        return r->content ? PL_OK : out_of_memory(j, err);
    }
    r->kind = form < 4 ? PL_NORM_FORM : is_type(type, "Lowercase") ? PL_NORM_LOWER : PL_NORM_STRIP;
    r->form = (pl_unicode_form)(form & 3);
    if (r->kind != PL_NORM_STRIP) return PL_OK;
    PL_TRY(pl_json_opt_bool(j, node, "strip_left", true, &r->left, err));
    return pl_json_opt_bool(j, node, "strip_right", true, &r->right, err);
}

// ---- pre-tokenizer

static pl_status read_metaspace(const pl_json *j, const cJSON *node, char mark[8], pl_hf_scheme *scheme, bool *split,
                                pl_err *err) {
    const char *s, *name;
    bool        add;
    PL_TRY(pl_json_opt_str(j, node, "replacement", PL_SPACE_MARK, &s, err));
    PL_TRY(pl_json_opt_bool(j, node, "add_prefix_space", true, &add, err)); // the older spelling of prepend_scheme
    PL_TRY(pl_json_opt_str(j, node, "prepend_scheme", add ? "always" : "never", &name, err));
    PL_TRY(pl_json_opt_bool(j, node, "split", true, split, err));
    if (!s[0] || strlen(s) > 4 || pl_utf8_next(s, strlen(s), NULL) != (int)strlen(s))
        return pl_json_fail(j, node, err, "'replacement' must be one character");
    strcpy(mark, s);
    *scheme = is_type(name, "always") ? PL_HF_ALWAYS : is_type(name, "first") ? PL_HF_FIRST : PL_HF_NEVER;
    return *scheme == PL_HF_NEVER && !is_type(name, "never") ? pl_hf_refuse(j, err, "prepend_scheme", name) : PL_OK;
}

static pl_status read_behavior(const pl_json *j, const cJSON *node, const char *def, pl_behavior *out, pl_err *err) {
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
    const char              *s;
    PL_TRY(pl_json_opt_str(j, node, "behavior", def, &s, err));
    int i = 0;
    while (i < 5 && !is_type(s, names[i]))
        i++;
    *out = (pl_behavior)i;
    return i < 5 ? PL_OK : pl_hf_refuse(j, err, "behavior", s);
}

// Adds file and member to a message of pretok.h.
static pl_status add_place(pl_status st, const pl_json *j, pl_err *err) {
    return st == PL_OK ? st : pl_fail_at(err, st, "%s: pre_tokenizer", j->where);
}

static bool is_number(uint32_t cp) {
    return pl_unicode_class(cp) == PL_CHAR_NUMBER;
}

static pl_status read_split(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    const char *s;
    bool        is_regex, invert;
    pl_behavior behavior;
    PL_TRY(read_pattern(j, node, &s, &is_regex, err));
    PL_TRY(read_behavior(j, node, "", &behavior, err));
    PL_TRY(pl_json_opt_bool(j, node, "invert", false, &invert, err));
    return add_place(pl_pretok_add_split(&h->pretok, s, is_regex, behavior, invert, err), j, err);
}

static pl_status read_step(pl_hf *h, const pl_json *j, const cJSON *node, const char *type, pl_err *err) {
    bool        flag, split;
    pl_behavior behavior;
    if (is_type(type, "ByteLevel")) {
        PL_TRY(pl_json_opt_bool(j, node, "add_prefix_space", true, &flag, err));
        PL_TRY(pl_json_opt_bool(j, node, "use_regex", true, &split, err));
        return add_place(pl_pretok_add_byte_level(&h->pretok, flag, split, err), j, err);
    }
    if (is_type(type, "Split")) return read_split(h, j, node, err);
    if (is_type(type, "Digits")) {
        PL_TRY(pl_json_opt_bool(j, node, "individual_digits", false, &flag, err));
        return add_place(pl_pretok_add_class(&h->pretok, is_number, flag ? PL_ISOLATED : PL_CONTIGUOUS, err), j, err);
    }
    if (is_type(type, "Punctuation")) {
        PL_TRY(read_behavior(j, node, "Isolated", &behavior, err));
        return add_place(pl_pretok_add_class(&h->pretok, pl_unicode_is_punct, behavior, err), j, err);
    }
    if (is_type(type, "WhitespaceSplit"))
        return add_place(pl_pretok_add_class(&h->pretok, pl_unicode_is_space, PL_REMOVED, err), j, err);
    return pl_hf_refuse(j, err, "pre_tokenizer", type);
}

pl_status pl_hf_read_pre_tokenizer(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    const char *type;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (h->metaspace) return pl_hf_refuse(j, err, "pre_tokenizer behind Metaspace", type);
    if (is_type(type, "Sequence")) {
        const cJSON *list, *e;
        PL_TRY(pl_json_get_array(j, node, "pretokenizers", &list, err));
        cJSON_ArrayForEach(e, list) PL_TRY(pl_hf_read_pre_tokenizer(h, j, e, err));
        return PL_OK;
    }
    if (is_type(type, "Metaspace")) {
        if (h->pretok.n > 0) return pl_hf_refuse(j, err, "pre_tokenizer behind another", type);
        h->metaspace = true;
        return read_metaspace(j, node, h->mark, &h->scheme, &h->split, err);
    }
    return read_step(h, j, node, type, err);
}

// ---- decoder

// fused: tokens have been joined, after which only Strip may follow.
static pl_status read_decoder(pl_hf *h, const pl_json *j, const cJSON *node, bool *fused, pl_err *err) {
    const char *type, *s;
    int64_t     start, stop;
    PL_TRY(pl_json_get_str(j, node, "type", &type, err));
    if (is_type(type, "Sequence")) {
        const cJSON *list, *e;
        PL_TRY(pl_json_get_array(j, node, "decoders", &list, err));
        cJSON_ArrayForEach(e, list) PL_TRY(read_decoder(h, j, e, fused, err));
        return PL_OK;
    }
    if (is_type(type, "Strip")) {
        PL_TRY(pl_json_get_str(j, node, "content", &s, err));
        PL_TRY(pl_json_get_int(j, node, "start", 0, 1, &start, err));
        PL_TRY(pl_json_get_int(j, node, "stop", 0, 0, &stop, err));
        if (!*fused || !is_type(s, " "))
            return pl_hf_refuse(j, err, "decoder", "Strip of anything but the text's leading space");
        h->decode_strip = (int)start;
        return PL_OK;
    }
    if (*fused && !is_type(type, "Fuse")) return pl_hf_refuse(j, err, "decoder behind Fuse", type);
    if (is_type(type, "Fuse")) {
        *fused = true;
    } else if (is_type(type, "ByteLevel")) {
        h->decode_level = *fused = true;
    } else if (is_type(type, "ByteFallback")) {
        h->decode_bytes = true;
    } else if (is_type(type, "Replace") || is_type(type, "Metaspace")) {
        if (h->n_decode == PL_HF_MAX_NORM) return pl_json_fail(j, node, err, "more than %d decoders", PL_HF_MAX_NORM);
        pl_hf_norm *r = &h->decode[h->n_decode++];
        if (is_type(type, "Replace")) return read_replace(r, j, node, false, err);
        char         mark[8];
        pl_hf_scheme scheme = PL_HF_NEVER;
        bool         split;
        PL_TRY(read_metaspace(j, node, mark, &scheme, &split, err));
        h->decode_strip = scheme != PL_HF_NEVER;
        r->pattern = pl_strdup(mark);
        r->content = pl_strdup(" ");
        if (!r->pattern || !r->content) return out_of_memory(j, err);
    } else {
        return pl_hf_refuse(j, err, "decoder", type);
    }
    return PL_OK;
}

pl_status pl_hf_read_decoder(pl_hf *h, const pl_json *j, const cJSON *node, pl_err *err) {
    bool fused = false;
    return read_decoder(h, j, node, &fused, err);
}
