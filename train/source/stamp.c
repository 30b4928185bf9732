#include "train/source/stamp.h"

#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/log.h"
#include "recipes/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define DONE ".done"

// tail: "" or DONE.
static pl_status stamp_path(char **path, const char *out_dir, const char *name, const char *tail, pl_err *err) {
    *path = pl_sprintf("%s/.stamps/%s%s", out_dir, name, tail);
    return *path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
}

static bool is_stamp(const char *front, size_t n) {
    size_t digits = 0;
    while (digits < n && strchr("0123456789abcdef", front[digits]) && front[digits])
        digits++;
    return n == 16 && digits == 16;
}

// was: the stamp, "" if there is none.
static pl_status read_stamp(char was[17], const char *out_dir, const char *name, const char *tail, pl_err *err) {
    uint8_t *text = NULL;
    size_t   n = 0;
    char    *path;
    *was = 0;
    PL_TRY(stamp_path(&path, out_dir, name, tail, err));
    pl_status st = pl_path_exists(path) ? pl_file_read(path, &text, &n, 64, err) : PL_OK;
    if (st == PL_OK && n == 16) snprintf(was, 17, "%s", (const char *)text);
    pl_free(text);
    pl_free(path);
    return st == PL_E_INPUT ? PL_OK : st;
}

// Checks that a file of that name, if there is one, is a stamp.
static pl_status check_stamp(const char *out_dir, const char *name, const char *tail, pl_err *err) {
    char *path;
    PL_TRY(stamp_path(&path, out_dir, name, tail, err));
    pl_status st = pl_file_spares(path, is_stamp, "--out", err);
    pl_free(path);
    return st;
}

// hash NULL: removes the stamp.
static pl_status set_stamp(const char *out_dir, const char *name, const char *tail, const char *hash, pl_err *err) {
    char *path;
    PL_TRY(check_stamp(out_dir, name, tail, err));
    PL_TRY(stamp_path(&path, out_dir, name, tail, err));
    char     *dir = pl_path_join(out_dir, ".stamps");
    pl_status st = dir ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    if (st == PL_OK && hash) st = pl_dir_make(dir, err);
    if (st == PL_OK) st = hash ? pl_file_write_atomic(path, hash, 16, err) : pl_tree_remove(path, err);
    pl_free(dir);
    pl_free(path);
    return st;
}

bool pl_stage_stamped(const char *out_dir, const char *name, const char *hash) {
    char was[17];
    return read_stamp(was, out_dir, name, "", NULL) == PL_OK && strcmp(was, hash) == 0;
}

// Removes leftovers of dead processes in a stage's folder, and in its product if that is a folder.
static void sweep_leftovers(const char *out_dir, const pl_stage_product *product) {
    static const char *const stamps[] = {"*", NULL};
    char                    *path[] = {pl_path_join(out_dir, ".stamps"), pl_path_join(out_dir, product->path)};
    pl_folder_sweep(out_dir);
    if (path[0]) pl_dir_sweep(path[0], stamps);
    if (path[1]) pl_dir_sweep(path[1], product->holds);
    pl_free(path[0]);
    pl_free(path[1]);
}

// Moves files of out_dir that belong to a kept product into its folder, or back. An existing file of that name stays:
// nothing is moved out, and moving in is refused.
static pl_status move_beside(const char *out_dir, const char *folder, const char *const *beside, bool in, pl_err *err) {
    pl_status st = PL_OK;
    for (; *beside && st == PL_OK; beside++) {
        char *out = pl_path_join(out_dir, *beside), *kept = pl_path_join(folder, *beside);
        if (!out || !kept) st = pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        bool goes = st == PL_OK && pl_path_exists(in ? out : kept), taken = goes && pl_path_exists(in ? kept : out);
        if (goes && taken && in)
            st = pl_fail(err, PL_E_INPUT, "%s: would be lost; move it away, or give another --out", kept);
        if (goes && !taken) st = pl_path_rename(in ? out : kept, in ? kept : out, err);
        pl_free(kept);
        pl_free(out);
    }
    return st;
}

static pl_status remove_beside(const char *out_dir, const char *const *beside, pl_err *err) {
    pl_status st = PL_OK;
    for (; *beside && st == PL_OK; beside++) {
        char *path = pl_path_join(out_dir, *beside);
        st = path ? pl_tree_remove(path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
        pl_free(path);
    }
    return st;
}

// A product of another recipe, by its stamp, and the paths at which it and this recipe's are kept.
typedef struct room {
    const char             *out_dir, *name, *hash;
    const pl_stage_product *of;
    char                    was[17]; // the stamp of the product that is there
    char                   *path, *kept, *mine;
} room;

// Removes a kept product for good, if path is one; refuses one that holds other files too.
static pl_status remove_kept(const room *m, const char *path, pl_err *err) {
    return pl_dir_drop(path, m->of->if_holds, m->of->holds, err);
}

// Removes the kept products except those of two hashes; other folders stay.
static pl_status prune_kept(const room *m, pl_err *err) {
    DIR      *d = opendir(m->out_dir);
    size_t    n = strlen(m->of->path);
    pl_status st = PL_OK;
    if (!d) return pl_fail_errno(err, "%s: cannot look into", m->out_dir);
    for (struct dirent *e; st == PL_OK && (e = readdir(d));) {
        const char *hash = e->d_name + n + 1;
        if (strncmp(e->d_name, m->of->path, n) != 0 || e->d_name[n] != '.' || strlen(hash) != 16 ||
            strspn(hash, "0123456789abcdef") != 16 || strcmp(hash, m->was) == 0 || strcmp(hash, m->hash) == 0)
            continue;
        char *path = pl_path_join(m->out_dir, e->d_name);
        st = path ? remove_kept(m, path, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->out_dir);
        if (st == PL_E_INPUT) st = PL_OK;
        pl_free(path);
    }
    closedir(d);
    return st;
}

static pl_status put_back(const room *m, pl_err *err) {
    PL_TRY(pl_path_rename(m->mine, m->path, err));
    pl_log("%s: made by this recipe before, and back", m->path);
    return move_beside(m->out_dir, m->path, m->of->beside, false, err);
}

// If the process ends after any step, the next begin repairs it: a stamp always describes the product under its name,
// or there is none; kept products have their hash in their name.
static pl_status keep_product(const room *m, pl_err *err) {
    bool back = pl_path_exists(m->mine);
    PL_TRY(remove_kept(m, m->kept, err));
    PL_TRY(move_beside(m->out_dir, m->path, m->of->beside, true, err));
    PL_TRY(pl_path_rename(m->path, m->kept, err));
    PL_TRY(prune_kept(m, err));
    PL_TRY(set_stamp(m->out_dir, m->name, "", m->hash, err));
    pl_log("%s: made from another recipe; kept as %s%s", m->path, m->kept, back ? "" : ", making it anew");
    return back ? put_back(m, err) : PL_OK;
}

// Returns true if the product is worth keeping.
static bool is_worthy(const room *m) {
    char *held = m->of->if_holds ? pl_path_join(m->path, m->of->if_holds) : NULL;
    bool  yes = held && pl_path_exists(held);
    pl_free(held);
    return yes;
}

// Removes it for good, with the files that belong to it.
static pl_status discard_product(const room *m, pl_err *err) {
    bool back = m->of->if_holds && pl_path_exists(m->mine);
    pl_log("%s: made from another recipe%s", m->path, back ? "" : ", making it anew");
    if (m->of->holds) PL_TRY(pl_dir_spares(m->path, NULL, m->of->holds, err));
    if (m->of->if_holds) PL_TRY(remove_beside(m->out_dir, m->of->beside, err));
    PL_TRY(m->of->holds ? pl_dir_drop(m->path, NULL, m->of->holds, err) : pl_tree_remove(m->path, err));
    PL_TRY(set_stamp(m->out_dir, m->name, "", m->hash, err));
    return back ? put_back(m, err) : PL_OK;
}

static pl_status fail_unstamped(const char *path, const char *out_dir, const char *name, pl_err *err) {
    return pl_fail(err, PL_E_INPUT,
                   "%s: nothing says that a run made it here (no %s/.stamps/%s); move it away, or give another --out",
                   path, out_dir, name);
}

pl_status pl_stage_spares(const char *out_dir, const char *name, const pl_stage_product *product, pl_err *err) {
    char was[17];
    PL_TRY(check_stamp(out_dir, name, "", err));
    PL_TRY(check_stamp(out_dir, name, DONE, err));
    char *path = pl_path_join(out_dir, product->path);
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_status st = read_stamp(was, out_dir, name, "", err);
    if (st == PL_OK && pl_path_exists(path) && !*was) st = fail_unstamped(path, out_dir, name, err);
    pl_free(path);
    return st;
}

static pl_status make_room(room *m, pl_err *err) {
    PL_TRY(read_stamp(m->was, m->out_dir, m->name, "", err));
    if (!*m->was) return fail_unstamped(m->path, m->out_dir, m->name, err);
    if (!is_worthy(m)) return discard_product(m, err);
    m->kept = pl_sprintf("%s.%s", m->path, m->was);
    return m->kept ? keep_product(m, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", m->out_dir);
}

static pl_status begin_product(room *m, pl_err *err) {
    bool stamped = pl_stage_stamped(m->out_dir, m->name, m->hash), there = pl_path_exists(m->path);
    if (stamped && there) return m->of->if_holds ? move_beside(m->out_dir, m->path, m->of->beside, false, err) : PL_OK;
    PL_TRY(set_stamp(m->out_dir, m->name, DONE, NULL, err)); // first of all: a product that is half removed is not done
    if (there) return make_room(m, err);
    PL_TRY(set_stamp(m->out_dir, m->name, "", m->hash, err));
    return m->of->if_holds && pl_path_exists(m->mine) ? put_back(m, err) : PL_OK;
}

pl_status pl_stage_begin(const char *out_dir, const char *name, const char *hash, const pl_stage_product *product,
                         pl_err *err) {
    room m = {.out_dir = out_dir, .name = name, .hash = hash, .of = product};
    sweep_leftovers(out_dir, product);
    m.path = pl_path_join(out_dir, product->path);
    m.mine = m.path ? pl_sprintf("%s.%s", m.path, hash) : NULL;
    pl_status st = m.mine ? begin_product(&m, err) : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    pl_free(m.kept);
    pl_free(m.mine);
    pl_free(m.path);
    return st;
}

pl_status pl_stage_end(const char *out_dir, const char *name, const char *hash, pl_err *err) {
    return set_stamp(out_dir, name, DONE, hash, err);
}

bool pl_stage_ended(const char *out_dir, const char *name, const char *hash, const char *product) {
    char was[17], *path = pl_path_join(out_dir, product);
    bool there = path && pl_path_exists(path);
    pl_free(path);
    return there && pl_stage_stamped(out_dir, name, hash) && read_stamp(was, out_dir, name, DONE, NULL) == PL_OK &&
           strcmp(was, hash) == 0;
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
