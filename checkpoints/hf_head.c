#include "checkpoints/hf_head.h"

#include "kernels/base/check.h"
#include "kernels/base/hash.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MANY (1 << 22) // rows of a vocabulary
#define INT(field, most)                                                                                               \
    { .name = #field, .offset = offsetof(pl_hf_head, field), .max = (most) }
#define FLAG(field)                                                                                                    \
    { .name = #field, .flag = true, .offset = offsetof(pl_hf_head, field) }

// In the order in which they are written.
static const pl_hf_head_member member[] = {INT(rank, 65536),    FLAG(position_aware),  INT(candidates, MANY),
                                           INT(clusters, MANY), INT(width, 1 << 20),   INT(k0, MANY),
                                           INT(k1, MANY),       INT(kmin, MANY),       FLAG(fixed),
                                           FLAG(floored),       INT(redistribute, 999)};
enum { MEMBERS = sizeof member / sizeof *member };

const pl_hf_head_member *pl_hf_head_member_at(int i) {
    return i < MEMBERS ? &member[i] : NULL;
}

pl_hf_head pl_hf_head_make(const char *kind, int rank) {
    pl_hf_head h = {.rank = rank};
    PL_CHECK(!kind || strlen(kind) < sizeof h.kind, "head kind %s", kind);
    if (kind) strcpy(h.kind, kind);
    return h;
}

static bool known(const char *name) {
    for (int i = 0; i < MEMBERS; i++)
        if (strcmp(name, member[i].name) == 0) return true;
    return strcmp(name, "kind") == 0 || strcmp(name, "router") == 0;
}

static pl_status read_text(const pl_json *j, const cJSON *object, const char *key, const char *text, char *to,
                           size_t room, pl_err *err) {
    if (strlen(text) >= room)
        return pl_json_fail(j, pl_json_find(j, object, key), err, "longer than %zu bytes", room - 1);
    strcpy(to, text);
    return PL_OK;
}

pl_status pl_hf_head_read(pl_hf_head *h, const pl_json *j, const cJSON *object, pl_err *err) {
    const char *text;
    for (const cJSON *k = object->child; k; k = k->next)
        if (!known(k->string)) return pl_json_fail(j, k, err, "unknown; written by a newer paceline?");
    PL_TRY(pl_json_get_str(j, object, "kind", &text, err));
    PL_TRY(read_text(j, object, "kind", text, h->kind, sizeof h->kind, err));
    PL_TRY(pl_json_opt_str(j, object, "router", "", &text, err));
    PL_TRY(read_text(j, object, "router", text, h->router, sizeof h->router, err));
    for (int i = 0; i < MEMBERS; i++) {
        const pl_hf_head_member *m = &member[i];
        void                    *to = (char *)h + m->offset;
        int64_t                  v;
        if (m->flag) {
            PL_TRY(pl_json_opt_bool(j, object, m->name, false, to, err));
            continue;
        }
        PL_TRY(pl_json_opt_int(j, object, m->name, 1, m->max, 0, &v, err));
        *(int *)to = (int)v;
    }
    return PL_OK;
}

void pl_hf_head_put(pl_json_out *o, const pl_hf_head *h) {
    pl_json_out_key(o, "kind");
    pl_json_out_str(o, h->kind);
    for (int i = 0; i < MEMBERS; i++) {
        const void *from = (const char *)h + member[i].offset;
        int64_t     v = member[i].flag ? *(const bool *)from : *(const int *)from;
        if (v == 0) continue;
        pl_json_out_key(o, member[i].name);
        if (member[i].flag)
            pl_json_out_bool(o, true);
        else
            pl_json_out_int(o, v);
    }
    if (!*h->router) return;
    pl_json_out_key(o, "router");
    pl_json_out_str(o, h->router);
}

uint64_t pl_hf_head_hash(uint64_t hash, const pl_hf_head *h) {
    hash = pl_hash_more(hash, h->kind, strlen(h->kind) + 1);
    for (int i = 0; i < MEMBERS; i++) {
        const void *from = (const char *)h + member[i].offset;
        int64_t     v[2] = {i, member[i].flag ? *(const bool *)from : *(const int *)from};
        if (v[1] != 0) hash = pl_hash_more(hash, v, sizeof v);
    }
    return *h->router ? pl_hash_more(hash, h->router, strlen(h->router) + 1) : hash;
}
