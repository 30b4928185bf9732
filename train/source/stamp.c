#include "train/source/stamp.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"

#include <stdio.h>
#include <string.h>

#define DONE ".done"

static char *stamp_path(const char *out_dir, const char *name) {
    char *dir = pl_path_join(out_dir, ".stamps");
    char *path = dir ? pl_path_join(dir, name) : NULL;
    pl_free(dir);
    return path;
}

bool pl_stage_stamped(const char *out_dir, const char *name, const char *hash) {
    char    *path = stamp_path(out_dir, name);
    uint8_t *data = NULL;
    size_t   n = 0;
    bool     same = path && pl_path_exists(path) && pl_file_read(path, &data, &n, 64, NULL) == PL_OK && n == 16 &&
                memcmp(data, hash, 16) == 0;
    pl_free(data);
    pl_free(path);
    return same;
}

pl_status pl_stage_stamp(const char *out_dir, const char *name, const char *hash, pl_err *err) {
    char     *dir = pl_path_join(out_dir, ".stamps"), *path = stamp_path(out_dir, name);
    pl_status st = dir && path ? pl_dir_make(dir, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK) st = pl_file_write_atomic(path, hash, 16, err);
    pl_free(dir);
    pl_free(path);
    return st;
}

// What dead processes left where a stage writes, and in its product where that is a folder.
static void sweep(const char *out_dir, const char *product) {
    char *path[] = {pl_path_join(out_dir, ".stamps"), pl_path_join(out_dir, product)};
    pl_dir_sweep(out_dir);
    for (int i = 0; i < 2; i++) {
        if (path[i]) pl_dir_sweep(path[i]);
        pl_free(path[i]);
    }
}

// OUT/.stamps/FROM becomes OUT/.stamps/TO, which there is none of where there is none of FROM.
static pl_status move_stamp(const char *out_dir, const char *from, const char *to, pl_err *err) {
    char     *old = stamp_path(out_dir, from), *new = to ? stamp_path(out_dir, to) : NULL;
    pl_status st = old && (new || !to) ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && to && pl_path_exists(old)) {
        if (rename(old, new) != 0) st = pl_fail_errno(err, "%s: cannot rename it to %s", old, new);
    } else if (st == PL_OK) {
        st = pl_tree_remove(to ? new : old, err);
    }
    pl_free(new);
    pl_free(old);
    return st;
}

// Both stamps of a product. to NULL: away.
static pl_status move_stamps(const char *out_dir, const char *from, const char *to, pl_err *err) {
    char done[256], to_done[256];
    snprintf(done, sizeof done, "%.200s" DONE, from);
    if (to) snprintf(to_done, sizeof to_done, "%.200s" DONE, to);
    PL_TRY(move_stamp(out_dir, done, to ? to_done : NULL, err));
    return move_stamp(out_dir, from, to, err);
}

static pl_status move(const char *from, const char *to, pl_err *err) {
    return rename(from, to) == 0 ? PL_OK : pl_fail_errno(err, "%s: cannot rename it to %s", from, to);
}

// What a stage made before goes from `path` to `kept`, whose name is `aside`; what was there, if it is what is wanted,
// to path. A kill in between leaves each of them whole and, at worst, a product without a stamp, which is refused.
static pl_status set_aside(const char *out_dir, const char *name, const char *hash, const char *path, const char *kept,
                           const char *aside, bool *back, pl_err *err) {
    char     *third = pl_sprintf("%s.swap", kept), swap[64];
    pl_status st = third ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    snprintf(swap, sizeof swap, "%.50s.swap", aside);
    *back = pl_path_exists(kept) && pl_stage_stamped(out_dir, aside, hash);
    if (st == PL_OK) st = pl_tree_remove(*back ? third : kept, err);
    if (st == PL_OK) st = move_stamps(out_dir, name, swap, err);
    if (st == PL_OK) st = move(path, *back ? third : kept, err);
    if (st == PL_OK && *back) st = move(kept, path, err);
    if (st == PL_OK && *back) st = move(third, kept, err);
    if (st == PL_OK && *back) st = move_stamps(out_dir, aside, name, err);
    if (st == PL_OK) st = move_stamps(out_dir, swap, aside, err);
    pl_free(third);
    return st;
}

// What was made from something else makes room. No stamp: somebody else's, or copied without .stamps.
static pl_status make_room(const char *out_dir, const char *name, const char *hash, const char *path, const char *stamp,
                           const char *kept, const char *aside, bool *back, pl_err *err) {
    char done[256];
    snprintf(done, sizeof done, "%.200s" DONE, name);
    *back = false;
    if (!pl_path_exists(path)) return move_stamp(out_dir, done, NULL, err);
    if (!pl_path_exists(stamp))
        return pl_fail(err, PL_E_INPUT,
                       "%s: nothing says that a run made it here (%s is missing); move it away, or give another --out",
                       path, stamp);
    if (aside) {
        PL_TRY(set_aside(out_dir, name, hash, path, kept, aside, back, err));
        pl_log(*back ? "%s: made from another recipe; kept as %s, where that of this recipe was, which is back"
                     : "%s: made from another recipe; kept as %s, making it anew",
               path, kept);
        return PL_OK;
    }
    pl_log("%s: made from another recipe, making it anew", path);
    PL_TRY(move_stamp(out_dir, done, NULL, err)); // first: what is half removed is not done
    return pl_tree_remove(path, err);
}

pl_status pl_stage_begin(const char *out_dir, const char *name, const char *hash, const char *product,
                         const char *aside, pl_err *err) {
    bool back;
    sweep(out_dir, product);
    if (pl_stage_stamped(out_dir, name, hash)) return PL_OK;
    char     *path = pl_path_join(out_dir, product), *stamp = stamp_path(out_dir, name);
    char     *kept = aside ? pl_path_join(out_dir, aside) : NULL;
    pl_status st = path && stamp && (kept || !aside)
                       ? make_room(out_dir, name, hash, path, stamp, kept, aside, &back, err)
                       : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && !back) st = pl_stage_stamp(out_dir, name, hash, err);
    pl_free(kept);
    pl_free(stamp);
    pl_free(path);
    return st;
}

pl_status pl_stage_end(const char *out_dir, const char *name, const char *hash, pl_err *err) {
    char done[256];
    snprintf(done, sizeof done, "%.200s" DONE, name);
    return pl_stage_stamp(out_dir, done, hash, err);
}

bool pl_stage_ended(const char *out_dir, const char *name, const char *hash, const char *product) {
    char done[256], *path = pl_path_join(out_dir, product);
    snprintf(done, sizeof done, "%.200s" DONE, name);
    bool there = path && pl_path_exists(path);
    pl_free(path);
    return there && pl_stage_stamped(out_dir, name, hash) && pl_stage_stamped(out_dir, done, hash);
}

pl_status pl_stage_dataset(const char *dir, const pl_dataset_attrs *want, bool *yes, pl_err *err) {
    pl_dataset *ds;
    char       *manifest = pl_path_join(dir, "manifest.json");
    bool        begun = manifest && pl_path_exists(manifest);
    *yes = false;
    if (!manifest) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", dir);
    pl_free(manifest);
    if (!begun) return PL_OK;
    PL_TRY(pl_dataset_open(&ds, dir, &(pl_dataset_open_options){.want = want, .lazy = true, .incomplete = true}, err));
    *yes = pl_dataset_complete(ds);
    pl_dataset_close(ds);
    return PL_OK;
}

pl_status pl_stage_names(const pl_recipe *r, const void *items, int n, size_t size, pl_err *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char       *at = items;
    for (int i = 0; i < n; i++) {
        const char *const *field = (const void *)(at + (size_t)i * size);
        PL_TRY(pl_recipe_require(r, field, err));
        if (!**field || **field == '.' || strspn(*field, letters) != strlen(*field))
            return pl_recipe_fail(r, field, err, "\"%s\" is no folder name; use letters, digits, '.', '_', '-'",
                                  *field);
        for (int k = 0; k < i; k++)
            if (strcmp(*(const char *const *)(const void *)(at + (size_t)k * size), *field) == 0)
                return pl_recipe_fail(r, field, err, "\"%s\" stands twice", *field);
    }
    return PL_OK;
}
