#include "infer/drafter/datastore.h"

#include "checkpoints/state.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"

#include <string.h>

static const char *fingerprint_of(const pl_datastore *d) {
    return d->tok ? pl_tokenizer_fingerprint(d->tok) : "";
}

pl_status pl_datastore_write(const char *path, const pl_datastore *d, const int32_t *ids, int64_t n, pl_err *err) {
    const char         *of = fingerprint_of(d);
    const pl_state_item items[] = {
        {.name = "datastore", .dtype = PL_U8, .count = (int64_t)strlen(d->kind), .data = d->kind},
        {.name = "tokenizer", .dtype = PL_U8, .count = (int64_t)strlen(of), .data = of},
        {.name = "vocab", .dtype = PL_I64, .count = 1, .data = &d->vocab},
        {.name = "ids", .dtype = PL_I32, .count = n, .data = ids}};
    return pl_state_write_private(path, items, sizeof items / sizeof *items, err);
}

static bool is_text(const pl_state_item *i, const char *text) {
    return i && i->dtype == PL_U8 && i->count == (int64_t)strlen(text) && memcmp(i->data, text, strlen(text)) == 0;
}

static pl_status check_state(const pl_state *s, const pl_datastore *d, const char *path, const pl_state_item **ids,
                             pl_err *err) {
    const pl_state_item *kind = pl_state_find(s, "datastore"), *of = pl_state_find(s, "tokenizer");
    const void          *vocab;
    if (!is_text(kind, PL_DATASTORE_ANSWERS) && !is_text(kind, PL_DATASTORE_RECYCLING))
        return pl_fail(err, PL_E_INPUT, "%s: is no datastore; name a new file, or one that was kept", path);
    if (!is_text(kind, d->kind))
        return pl_fail(err, PL_E_INPUT, "%s: holds %.*s, not %s; name another file", path, (int)kind->count,
                       (const char *)kind->data, d->kind);
    if (pl_state_get(s, "vocab", PL_I64, 1, &vocab, err) != PL_OK)
        return pl_fail(err, PL_E_INPUT, "%s: does not say for what vocab it was kept; name a new file", path);
    if (*(const int64_t *)vocab != d->vocab)
        return pl_fail(err, PL_E_INPUT, "%s: was kept for a vocabulary of %lld, the target has %lld; name another file",
                       path, (long long)*(const int64_t *)vocab, (long long)d->vocab);
    if (d->tok && of && of->count > 0 && !is_text(of, fingerprint_of(d)))
        return pl_fail(err, PL_E_INPUT, "%s: was kept for another tokenizer than the target's; name another file",
                       path);
    *ids = pl_state_find(s, "ids");
    if (!*ids || (*ids)->dtype != PL_I32) return pl_fail(err, PL_E_INPUT, "%s: holds no ids", path);
    for (int64_t i = 0; i < (*ids)->count; i++) {
        int32_t id = ((const int32_t *)(*ids)->data)[i];
        if (id < -1 || id >= d->vocab)
            return pl_fail(err, PL_E_INPUT, "%s: id %d at %lld is none of %lld", path, id, (long long)i,
                           (long long)d->vocab);
    }
    return PL_OK;
}

// Checks the folder at opening, so that a wrong path fails before the answers are generated.
static pl_status folder_of(const char *path, pl_err *err) {
    int at = (int)(pl_path_name(path) - path);
    if (at == 0) return PL_OK;
    char *dir = pl_strdup(path);
    if (!dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    dir[at] = 0;
    bool there = pl_path_is_dir(dir);
    pl_free(dir);
    return there ? PL_OK : pl_fail(err, PL_E_INPUT, "%s: there is no folder %.*s; make it first", path, at, path);
}

pl_status pl_datastore_read(const char *path, const pl_datastore *d, int32_t **ids, int64_t *n, pl_err *err) {
    pl_state            *s;
    const pl_state_item *i = NULL;
    *ids = NULL;
    *n = 0;
    if (!pl_path_exists(path)) return folder_of(path, err);
    pl_status opened = pl_state_open(&s, path, err);
    if (opened == PL_E_INPUT)
        return pl_fail(err, PL_E_INPUT, "%s: is no datastore, or damaged; name a new file or remove it", path);
    PL_TRY(opened);
    pl_status st = check_state(s, d, path, &i, err);
    if (st == PL_OK && i->count > 0) {
        *ids = pl_malloc((size_t)i->count * sizeof **ids);
        if (*ids)
            memcpy(*ids, i->data, (size_t)(*n = i->count) * sizeof **ids);
        else
            st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    }
    pl_state_close(s);
    return st;
}
