#include "checkpoints/hf_head.h"

#include "kernels/base/check.h"
#include "kernels/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pl_hf_is_lattice(const pl_hf_selector *s) {
    return strcmp(s->kind, PL_HF_LATTICE) == 0;
}

const char *pl_hf_law_name(int law) {
    static const char *const names[] = {[PL_HF_LAW_FULL] = "full", [PL_HF_LAW_LIST] = "list"};
    return law >= 0 && law < (int)(sizeof names / sizeof *names) ? names[law] : NULL;
}

static pl_hf_setting *find(pl_hf_head *h, const char *name) {
    for (int i = 0; i < h->n; i++)
        if (strcmp(h->setting[i].name, name) == 0) return &h->setting[i];
    return NULL;
}

const pl_hf_setting *pl_hf_head_find(const pl_hf_head *h, const char *name) {
    for (int i = 0; i < h->n; i++)
        if (strcmp(h->setting[i].name, name) == 0) return &h->setting[i];
    return NULL;
}

int64_t pl_hf_head_int(const pl_hf_head *h, const char *name) {
    const pl_hf_setting *s = pl_hf_head_find(h, name);
    return s ? s->value : 0;
}

// The setting of that name, emptied; NULL: no room, or the name is too long.
static pl_hf_setting *place(pl_hf_head *h, const char *name) {
    pl_hf_setting *s = find(h, name);
    if (!s && (h->n == PL_HF_HEAD_SETTINGS || strlen(name) >= PL_HF_HEAD_NAME)) return NULL;
    if (!s) s = &h->setting[h->n++];
    *s = (pl_hf_setting){0};
    memcpy(s->name, name, strlen(name) + 1);
    return s;
}

static void drop(pl_hf_head *h, const char *name) {
    pl_hf_setting *s = find(h, name);
    if (!s) return;
    memmove(s, s + 1, (size_t)(&h->setting[--h->n] - s) * sizeof *s);
    h->setting[h->n] = (pl_hf_setting){0};
}

static void set(pl_hf_head *h, const char *name, pl_hf_form form, int64_t value) {
    if (value == 0) {
        drop(h, name);
        return;
    }
    pl_hf_setting *s = place(h, name);
    PL_CHECK(s && value > 0 && value <= INT32_MAX, "head setting %s: %lld", name, (long long)value);
    s->form = form;
    s->value = value;
}

void pl_hf_head_set(pl_hf_head *h, const char *name, int64_t value) {
    set(h, name, PL_HF_INT, value);
}

void pl_hf_head_set_flag(pl_hf_head *h, const char *name, bool on) {
    set(h, name, PL_HF_FLAG, on);
}

void pl_hf_head_set_text(pl_hf_head *h, const char *name, const char *text) {
    if (!*text) {
        drop(h, name);
        return;
    }
    pl_hf_setting *s = place(h, name);
    PL_CHECK(s && strlen(text) < sizeof s->text, "head setting %s: %s", name, text);
    s->form = PL_HF_TEXT;
    memcpy(s->text, text, strlen(text) + 1);
}

pl_hf_head pl_hf_head_make(const char *kind, int rank) {
    pl_hf_head h = {0};
    PL_CHECK(!kind || strlen(kind) < sizeof h.kind, "head kind %s", kind);
    if (kind) memcpy(h.kind, kind, strlen(kind) + 1);
    pl_hf_head_set(&h, "rank", rank);
    return h;
}

// ---- as text

static bool parse_setting(pl_hf_head *h, char *text) {
    char       *value = strchr(text, '='), *end;
    const char *name = text;
    if (value) *value++ = 0;
    if (!value && *text >= '0' && *text <= '9') {
        value = text;
        name = "rank";
    }
    if (!*name || strlen(name) >= PL_HF_HEAD_NAME || pl_hf_head_find(h, name) || h->n == PL_HF_HEAD_SETTINGS)
        return false;
    if (!value) {
        pl_hf_head_set_flag(h, name, true);
        return true;
    }
    long long n = strtoll(value, &end, 10);
    if (*value >= '0' && *value <= '9') {
        if (*end || n > INT32_MAX) return false;
        pl_hf_head_set(h, name, n);
        return true;
    }
    if (!*value || strlen(value) >= PL_HF_HEAD_NAME) return false;
    pl_hf_head_set_text(h, name, value);
    return true;
}

pl_status pl_hf_head_parse(pl_hf_head *h, const char *text, pl_err *err) {
    char   copy[256];
    size_t kind = strcspn(text, ":");
    *h = (pl_hf_head){0};
    bool ok = kind > 0 && kind < sizeof h->kind && strlen(text) < sizeof copy;
    if (ok) memcpy(h->kind, text, kind);
    snprintf(copy, sizeof copy, "%s", ok && text[kind] ? text + kind + 1 : "");
    if (ok && text[kind] && !*copy) ok = false;
    for (char *at = copy; ok && *at;) {
        char *next = at + strcspn(at, ",");
        bool  more = *next;
        *next = 0;
        ok = parse_setting(h, at);
        at = next + more;
        if (more && !*at) ok = false;
    }
    return ok ? PL_OK
              : pl_fail(err, PL_E_USAGE, "head \"%.100s\": expected KIND or KIND:NAME=VALUE,..., as in lowrank:rank=64",
                        text);
}

pl_hf_head pl_hf_head_of(const char *text) {
    pl_hf_head h;
    pl_err     err = {0};
    PL_CHECK(pl_hf_head_parse(&h, text, &err) == PL_OK, "%s", err.msg);
    return h;
}

// ---- as JSON

static pl_status read_text(const pl_json *j, const cJSON *at, const char *text, char to[PL_HF_HEAD_NAME], pl_err *err) {
    if (strlen(text) >= PL_HF_HEAD_NAME) return pl_json_fail(j, at, err, "longer than %d bytes", PL_HF_HEAD_NAME - 1);
    memcpy(to, text, strlen(text) + 1);
    return PL_OK;
}

static pl_status read_setting(pl_hf_head *h, const pl_json *j, const cJSON *object, const cJSON *k, pl_err *err) {
    char    name[PL_HF_HEAD_NAME], text[PL_HF_HEAD_NAME];
    int64_t value;
    if (h->n == PL_HF_HEAD_SETTINGS) return pl_json_fail(j, k, err, "more than %d settings", PL_HF_HEAD_SETTINGS);
    if (strlen(k->string) >= sizeof name) return pl_json_fail(j, k, err, "unknown; written by a newer paceline?");
    memcpy(name, k->string, strlen(k->string) + 1);
    if (cJSON_IsBool(k)) {
        pl_hf_head_set_flag(h, name, cJSON_IsTrue(k));
        return PL_OK;
    }
    if (cJSON_IsString(k)) {
        PL_TRY(read_text(j, k, k->valuestring, text, err));
        pl_hf_head_set_text(h, name, text);
        return PL_OK;
    }
    PL_TRY(pl_json_opt_int(j, object, name, 1, INT32_MAX, 0, &value, err));
    pl_hf_head_set(h, name, value);
    return PL_OK;
}

pl_status pl_hf_head_read(pl_hf_head *h, const pl_json *j, const cJSON *object, pl_err *err) {
    const char *text;
    *h = (pl_hf_head){0};
    PL_TRY(pl_json_get_str(j, object, "kind", &text, err));
    PL_TRY(read_text(j, pl_json_find(j, object, "kind"), text, h->kind, err));
    for (const cJSON *k = object->child; k; k = k->next)
        if (strcmp(k->string, "kind") != 0) PL_TRY(read_setting(h, j, object, k, err));
    return PL_OK;
}

void pl_hf_head_put(pl_json_out *o, const pl_hf_head *h) {
    pl_put_str(o, "kind", h->kind);
    for (int i = 0; i < h->n; i++) {
        const pl_hf_setting *s = &h->setting[i];
        pl_json_out_key(o, s->name);
        if (s->form == PL_HF_TEXT)
            pl_json_out_str(o, s->text);
        else if (s->form == PL_HF_FLAG)
            pl_json_out_bool(o, true);
        else
            pl_json_out_int(o, s->value);
    }
}

uint64_t pl_hf_head_hash(uint64_t hash, const pl_hf_head *h) {
    uint64_t sum = 0; // of hashes of their own: the order in which a file has them means nothing
    hash = pl_hash_more(hash, h->kind, strlen(h->kind) + 1);
    if (h->n == 0) return hash;
    for (int i = 0; i < h->n; i++) {
        const pl_hf_setting *s = &h->setting[i];
        uint64_t             one = pl_hash(s->name, strlen(s->name) + 1);
        one = pl_hash_more(one, &s->value, sizeof s->value);
        sum += pl_hash_more(one, s->text, strlen(s->text) + 1);
    }
    return pl_hash_more(hash, &sum, sizeof sum);
}
