#define _GNU_SOURCE 1 // lstat, scandir
#include "train/loop/checkpoint.h"

#include "checkpoints/state.h"
#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/comm/reader.h"
#include "recipes/folder.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATE_FILE "training_state"
#define CONFIG_MAX ((size_t)1 << 20) // bytes of a config.json
#define BEGUN_FILE "recipe.yaml"

// Files of a checkpoint: the model of a drafter or of a target with its tokenizer, and the state.
static const char *const held[] = {"config.json",
                                   "model.safetensors",
                                   "acceptance_head.safetensors",
                                   "generation_config.json",
                                   STATE_FILE,
                                   "tokenizer_config.json",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "tokenizer.bin",
                                   "vocab.json",
                                   "tokenizer.gguf",
                                   "merges.txt",
                                   NULL};
// The last two belong to another recipe's product while they are moved (train/source/stamp.h).
const char *const        pl_checkpoint_kinds[] = {"last/",    "best/",         "evaluated/",    "step-*/",
                                                  BEGUN_FILE, "metrics.jsonl", "skipped.jsonl", NULL};

static const char *const part_name[PL_BLOCK_PARTS] = {"w", "m", "v"};

static pl_status fail_memory(pl_err *err) {
    return pl_fail(err, PL_E_MEMORY, "training: out of memory");
}

// ---- parts of the block, on any rank ----

// Brings elements [at, at + n) of a part to rank 0; `room` has space for them on every rank.
static pl_status bring_part(const pl_task *t, int part, int64_t at, int64_t n, uint8_t *room, pl_err *err) {
    const pl_param_block *b = t->block;
    size_t                each = pl_dtype_size(b->real);
    int                   rank = pl_comm_rank(t->comm);
    bool                  others = false; // another rank holds some of it
    pl_comm_parcels       p = {0};
    for (int64_t done = 0, m; done < n; done += m) {
        int      owner = (int)((at + done) / b->piece);
        int64_t  left = (owner + 1) * b->piece - (at + done);
        uint8_t *to = room + (size_t)done * each;
        m = n - done < left ? n - done : left;
        if (rank == owner) PL_TRY(pl_param_block_take(b, part, at + done, m, to, err));
        if (owner == 0) continue;
        others = true;
        if (rank == owner) p.out[0] = to, p.out_bytes[0] = (size_t)m * each;
        if (rank == 0) p.in[owner] = to, p.in_bytes[owner] = (size_t)m * each;
    }
    return others ? pl_comm_exchange(t->comm, &p, err) : PL_OK;
}

typedef struct stream {
    const pl_task *t;
    int            part;
} stream;

static pl_status fill(void *arg, int64_t at, void *data, int64_t n, pl_err *err) {
    const stream *s = arg;
    return bring_part(s->t, s->part, at, n, data, err);
}

// Returns the number of elements of a part to stream next, from `at` on.
static int64_t stretch_at(const pl_param_block *b, int64_t at) {
    return b->n - at < PL_STATE_STREAM ? b->n - at : PL_STATE_STREAM;
}

static uint8_t *stretch_room(const pl_param_block *b) {
    return pl_malloc(PL_STATE_STREAM * pl_dtype_size(b->real));
}

// On ranks above 0 while rank 0 writes a state: sends the pieces held here, in the state's order.
static pl_status give_parts(const pl_task *t, pl_err *err) {
    uint8_t  *room = stretch_room(t->block);
    pl_status st = room ? PL_OK : fail_memory(err);
    for (int part = 0; part < PL_BLOCK_PARTS; part++)
        for (int64_t at = 0; at < t->block->n && st == PL_OK; at += PL_STATE_STREAM)
            st = bring_part(t, part, at, stretch_at(t->block, at), room, err);
    pl_free(room);
    return st;
}

// All ranks: writes the parts of rank 0's state into the held pieces, and all of the working copy.
static pl_status take_parts(const pl_task *t, const void *const part[PL_BLOCK_PARTS], pl_err *err) {
    pl_param_block *b = t->block;
    size_t          each = pl_dtype_size(b->real);
    bool            first = pl_comm_rank(t->comm) == 0;
    uint8_t        *room = stretch_room(b);
    pl_status       st = room ? PL_OK : fail_memory(err);
    for (int i = 0; i < PL_BLOCK_PARTS; i++)
        for (int64_t at = 0; at < b->n && st == PL_OK; at += PL_STATE_STREAM) {
            int64_t n = stretch_at(b, at);
            if (first) memcpy(room, (const uint8_t *)part[i] + (size_t)at * each, (size_t)n * each);
            st = pl_comm_broadcast(t->comm, room, (size_t)n * each, err);
            if (st == PL_OK) st = pl_param_block_put(b, i, at, n, room, err);
        }
    pl_free(room);
    return st;
}

// ---- writing ----

static pl_status write_state(const pl_checkpoints *c, const pl_run_state *s, const char *dir, pl_err *err) {
    const pl_task        *t = c->t;
    const pl_param_block *b = t->block;
    char                  arithmetic[PL_ARITHMETIC_ROOM] = {0};
    uint8_t               supervised = t->supervised && *t->supervised;
    stream                from[PL_BLOCK_PARTS];
    char                 *path = pl_path_join(dir, STATE_FILE);
    if (!path) return fail_memory(err);
    snprintf(arithmetic, sizeof arithmetic, "%s", t->backend->arithmetic);
    pl_state_item item[] = {
        {.name = "identity", .dtype = PL_U8, .count = (int64_t)sizeof t->identity, .data = t->identity},
        {.name = "arithmetic", .dtype = PL_U8, .count = sizeof arithmetic, .data = arithmetic},
        {.name = "supervised", .dtype = PL_U8, .count = 1, .data = &supervised},
        {.name = "step", .dtype = PL_I64, .count = 1, .data = &s->step},
        {.name = "best_score", .dtype = PL_F64, .count = 1, .data = &s->best_score},
        {.name = "best_step", .dtype = PL_I64, .count = 1, .data = &s->best_step},
        {.name = "guard", .dtype = PL_F64, .count = s->guard.n, .data = s->guard.state},
        {.name = "cursor", .dtype = PL_I64, .count = t->n_cursor, .data = t->cursor},
        {.name = NULL},
        {.name = NULL},
        {.name = NULL},
    };
    enum { ITEMS = sizeof item / sizeof *item };
    for (int i = 0; i < PL_BLOCK_PARTS; i++) {
        from[i] = (stream){t, i};
        item[ITEMS - PL_BLOCK_PARTS + i] =
            (pl_state_item){.name = part_name[i], .dtype = b->real, .count = b->n, .fill = fill, .arg = &from[i]};
    }
    pl_status st = pl_state_write(path, item, ITEMS, err);
    pl_free(path);
    return st;
}

// s NULL: the model alone.
static pl_status write_folder(const pl_checkpoints *c, const pl_run_state *s, const char *dir, pl_err *err) {
    pl_atomic_dir a;
    PL_TRY(pl_atomic_dir_begin(&a, dir, err));
    const char *to = pl_atomic_dir_path(&a);
    pl_status   st = c->t->save_model(c->t, to, err);
    if (st == PL_OK && s) st = write_state(c, s, to, err);
    if (st == PL_OK) return pl_atomic_dir_commit(&a, err);
    pl_atomic_dir_abort(&a);
    return st;
}

pl_status pl_checkpoints_save_best(pl_checkpoints *c, pl_err *err) {
    return write_folder(c, NULL, c->best, err);
}

// ---- previous checkpoints ----

// Returns N of a folder "step-N"; -1: another name.
static int64_t step_of(const char *name) {
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
    errno = 0;
    long long n = strtoll(name + 5, &end, 10);
    return *end || errno ? -1 : n;
}

static int is_step(const struct dirent *d) {
    return step_of(d->d_name) >= 0;
}

static int newest_first(const struct dirent **a, const struct dirent **b) {
    int64_t x = step_of((*a)->d_name), y = step_of((*b)->d_name);
    return (x < y) - (x > y);
}

// Lists their steps, the newest first; the caller frees *list.
static pl_status list_steps(const char *dir, int64_t **list, int *n, pl_err *err) {
    struct dirent **name;
    int             found = scandir(dir, &name, is_step, newest_first);
    *list = NULL;
    *n = 0;
    if (found < 0) return errno == ENOENT ? PL_OK : pl_fail_errno(err, "%s", dir);
    *list = pl_calloc((size_t)found + 1, sizeof **list);
    for (int i = 0; i < found; i++) {
        if (*list) (*list)[(*n)++] = step_of(name[i]->d_name);
        free(name[i]); // allocated by scandir
    }
    free(name);
    return *list ? PL_OK : fail_memory(err);
}

static char *step_folder(const char *dir, int64_t step) {
    return pl_sprintf("%s/step-%lld", dir, (long long)step);
}

// Removes a step's folder; one that also holds a user's files stays, with a warning.
static void remove_step(const char *folder) {
    pl_err why = {0};
    if (pl_dir_drop(folder, NULL, held, &why) == PL_E_INPUT) pl_log_warn("%.*s", (int)strcspn(why.msg, ";"), why.msg);
}

// Keeps the last keep - 1 of those before the newest; folders with a later step were left by a run that resumed from an
// earlier checkpoint. A folder that cannot be removed now is removed the next time.
static void prune_steps(const pl_checkpoints *c, int64_t newest) {
    int64_t *list;
    int      n;
    if (list_steps(c->dir, &list, &n, NULL) != PL_OK) n = 0;
    for (int i = 0, kept = 0; i < n; i++) {
        if (list[i] < newest && kept < c->keep - 1) {
            kept++;
            continue;
        }
        char *folder = step_folder(c->dir, list[i]);
        if (folder) remove_step(folder);
        pl_free(folder);
    }
    pl_free(list);
}

// Renames the new checkpoint to last/, which stays until then and is kept by its step. If last/ was damaged, the run's
// starting point is already there by its step; if there was none, `before` is folder itself.
static pl_status put_in_place(pl_checkpoints *c, const char *folder, const char *before, pl_err *err) {
    if (c->damaged || strcmp(folder, before) != 0) PL_TRY(pl_dir_drop(c->damaged ? c->last : before, NULL, held, err));
    c->damaged = false;
    return pl_path_succeed(folder, c->last, before, err);
}

pl_status pl_checkpoints_save(pl_checkpoints *c, const pl_run_state *s, pl_err *err) {
    if (c->saved == s->step) return PL_OK;
    int64_t saved = c->saved;
    c->saved = s->step;
    if (pl_comm_rank(c->t->comm) > 0) return give_parts(c->t, err);
    char     *folder = step_folder(c->dir, s->step), *before = step_folder(c->dir, saved < 0 ? s->step : saved);
    pl_status st = folder && before ? PL_OK : fail_memory(err);
    if (st == PL_OK) st = write_folder(c, s, folder, err);
    if (st == PL_OK) st = put_in_place(c, folder, before, err);
    if (st == PL_OK) prune_steps(c, s->step);
    pl_free(folder);
    pl_free(before);
    return st;
}

// ---- existing files ----

// Contents of a folder of checkpoints.
typedef struct found {
    bool best, state, begun; // best: present and not empty
} found;

static bool has_file(const char *folder, const char *name) {
    char *path = pl_path_join(folder, name);
    bool  yes = path && pl_path_exists(path);
    pl_free(path);
    return yes;
}

static pl_status look_at(found *f, const char *dir, const char *name, pl_err *err) {
    bool best = strcmp(name, "best") == 0, last = strcmp(name, "last") == 0;
    if (strcmp(name, BEGUN_FILE) == 0) f->begun = true;
    if (!best && !last && step_of(name) < 0) return PL_OK;
    char *folder = pl_path_join(dir, name);
    if (!folder) return fail_memory(err);
    pl_status st = pl_dir_spares(folder, NULL, held, err);
    f->best |= st == PL_OK && best && (has_file(folder, "config.json") || has_file(folder, "model.safetensors"));
    f->state |= st == PL_OK && !best && has_file(folder, STATE_FILE);
    pl_free(folder);
    return st;
}

// A linked model belongs to this run if its description is the last checkpoint's.
static pl_status check_link(const char *dir, pl_err *err) {
    static const char *const side[] = {"best", "last"};
    uint8_t                 *text[2] = {NULL, NULL};
    size_t                   n[2] = {0, 0};
    struct stat              s;
    pl_status                st = PL_OK;
    char                    *best = pl_path_join(dir, side[0]);
    if (!best) return fail_memory(err);
    bool link = lstat(best, &s) == 0 && S_ISLNK(s.st_mode);
    for (int i = 0; i < 2 && link && st == PL_OK; i++) {
        char *path = pl_sprintf("%s/%s/config.json", dir, side[i]);
        st = path ? PL_OK : fail_memory(err);
        if (st == PL_OK && pl_path_exists(path)) st = pl_file_read(path, &text[i], &n[i], CONFIG_MAX, err);
        pl_free(path);
    }
    bool same = text[0] && text[1] && n[0] == n[1] && memcmp(text[0], text[1], n[0]) == 0;
    if (st == PL_OK && link && !same)
        st = pl_fail(err, PL_E_INPUT,
                     "%s: leads to a model that is not of this run and would be lost; remove the link, or give another "
                     "--out",
                     best);
    pl_free(text[0]);
    pl_free(text[1]);
    pl_free(best);
    return st;
}

// Checks that the checkpoints in dir hold no other files.
static pl_status look_through(found *f, const char *dir, pl_err *err) {
    DIR      *d = opendir(dir);
    pl_status st = d || errno == ENOENT ? PL_OK : pl_fail_errno(err, "%s: cannot look into", dir);
    *f = (found){0};
    for (struct dirent *e; d && st == PL_OK && (e = readdir(d));)
        st = look_at(f, dir, e->d_name, err);
    if (d) closedir(d);
    return st;
}

pl_status pl_checkpoints_spare(const char *out_dir, pl_err *err) {
    found f;
    char *dir = pl_path_join(out_dir, "checkpoints");
    if (!dir) return fail_memory(err);
    pl_status st = look_through(&f, dir, err);
    if (st == PL_OK && f.best && !f.state && !f.begun)
        st = pl_fail(err, PL_E_INPUT,
                     "%s/best: no training_state beside it says that a run made it, and it would be lost; move it "
                     "away, or give another --out",
                     dir);
    if (st == PL_OK && f.best) st = check_link(dir, err);
    pl_free(dir);
    return st;
}

// ---- reading ----

static pl_status take_array(const pl_state *s, const char *name, pl_dtype t, int64_t n, void *to, pl_err *err) {
    const void *data;
    PL_TRY(pl_state_get(s, name, t, n, &data, err));
    if (n > 0) memcpy(to, data, (size_t)n * pl_dtype_size(t));
    return PL_OK;
}

// Checks that this process computes in the state's arithmetic, or is allowed to continue in another.
static pl_status check_arithmetic(const pl_checkpoints *c, const pl_state *s, const char *path, pl_err *err) {
    char        was[PL_ARITHMETIC_ROOM] = "an older one";
    const char *is = c->t->backend->arithmetic;
    if (pl_state_find(s, "arithmetic")) PL_TRY(take_array(s, "arithmetic", PL_U8, sizeof was, was, err));
    was[sizeof was - 1] = 0;
    if (strcmp(was, is) == 0) return PL_OK;
    if (!c->any_arithmetic)
        return pl_fail(err, PL_E_INPUT,
                       "%s: computed in arithmetic %s, this is %s (%s), whose bits differ; continue where it began, or "
                       "set train.resume=any",
                       path, was, is, c->t->backend->name);
    pl_log_warn("%s: goes on in arithmetic %s, was computed in %s: its bits are neither's", path, is, was);
    return PL_OK;
}

// Sets which rows run to the state's, older states' to all; or keeps this run's, if that is allowed.
static pl_status take_rows(const pl_checkpoints *c, const pl_state *s, const char *path, pl_err *err) {
    bool   *is = c->t->supervised;
    uint8_t was = 0;
    if (!is) return PL_OK;
    if (pl_state_find(s, "supervised")) PL_TRY(take_array(s, "supervised", PL_U8, 1, &was, err));
    if ((was != 0) == *is) return PL_OK;
    if (c->any_arithmetic) {
        pl_log_warn("%s: goes on with %s rows, began with %s: its bits are neither run's", path,
                    *is ? "supervised" : "all", *is ? "all" : "supervised");
        return PL_OK;
    }
    if (was)
        return pl_fail(err, PL_E_INPUT,
                       "%s: trained with train.rows=supervised, this run has all, whose sums have other bits; continue "
                       "as it began, or set train.resume=any",
                       path);
    pl_log("%s: goes on with all rows, as it began; train.resume=any would leave out those that nothing learns from",
           path);
    *is = false;
    return PL_OK;
}

static pl_status check_identity(const pl_task *t, const pl_state *s, const char *path, pl_err *err) {
    char identity[sizeof t->identity];
    PL_TRY(take_array(s, "identity", PL_U8, (int64_t)sizeof identity, identity, err));
    if (memcmp(identity, t->identity, sizeof identity) == 0) return PL_OK;
    identity[sizeof identity - 1] = 0;
    return pl_fail(err, PL_E_INPUT,
                   "%s: belongs to another run (%s, this one is %s); restore the recipe and the data, or give another "
                   "--out",
                   path, identity, t->identity);
}

// Reads all but the block's parts; `part` points to those, while the state is open.
static pl_status read_state(const pl_checkpoints *c, const pl_state *f, const char *path, pl_run_state *s,
                            const void *part[PL_BLOCK_PARTS], pl_err *err) {
    pl_task *t = c->t;
    PL_TRY(check_identity(t, f, path, err));
    PL_TRY(check_arithmetic(c, f, path, err));
    PL_TRY(take_rows(c, f, path, err));
    PL_TRY(take_array(f, "step", PL_I64, 1, &s->step, err));
    PL_TRY(take_array(f, "best_score", PL_F64, 1, &s->best_score, err));
    PL_TRY(take_array(f, "best_step", PL_I64, 1, &s->best_step, err));
    PL_TRY(take_array(f, "cursor", PL_I64, t->n_cursor, t->cursor, err));
    if (pl_state_find(f, "guard"))
        PL_TRY(take_array(f, "guard", PL_F64, s->guard.n, s->guard.state, err)); // old states lack it
    for (int i = 0; i < PL_BLOCK_PARTS; i++)
        PL_TRY(pl_state_get(f, part_name[i], t->block->real, t->block->n, &part[i], err));
    if (s->step >= 0) return PL_OK;
    return pl_fail(err, PL_E_INPUT, "%s: step %lld; remove the folder", path, (long long)s->step);
}

// Opens and verifies the state in a folder.
static pl_status open_folder(const char *folder, pl_state **f, char **path, pl_err *err) {
    *f = NULL;
    *path = pl_path_join(folder, STATE_FILE);
    return *path ? pl_state_open(f, *path, err) : fail_memory(err);
}

// Opens the newest whole state of a run with its file's path (both the caller's); NULL if there is none. why: the error
// of a damaged last/, else empty.
static pl_status open_newest(const char *dir, const char *last, pl_state **f, char **path, pl_err *why, pl_err *err) {
    int64_t  *list;
    int       n;
    pl_err    more;
    pl_status st = PL_OK;
    *f = NULL;
    *path = NULL;
    *why = (pl_err){0};
    PL_TRY(list_steps(dir, &list, &n, err));
    if (pl_path_exists(last)) st = open_folder(last, f, path, why);
    more = *why;
    for (int i = 0; i < n && !*f && (st == PL_OK || st == PL_E_INPUT); i++) {
        char *folder = step_folder(dir, list[i]);
        pl_free(*path);
        *path = NULL;
        st = folder ? open_folder(folder, f, path, &more) : fail_memory(&more);
        if (why->status == PL_OK) *why = more;
        pl_free(folder);
    }
    pl_free(list);
    if (*f) return PL_OK;
    pl_free(*path);
    *path = NULL;
    if (st == PL_E_INPUT)
        return pl_fail(err, st, "%.*s; no checkpoint in %s is whole: remove that folder to begin anew",
                       (int)strcspn(why->msg, ";"), why->msg, dir);
    return st == PL_OK ? PL_OK : pl_fail(err, st, "%s", more.msg);
}

// Compares the run's identity with rank 0's; the ranks' file names may differ.
static pl_status same_run(const pl_task *t, pl_err *err) {
    char first[sizeof t->identity];
    memcpy(first, t->identity, sizeof first);
    PL_TRY(pl_comm_broadcast(t->comm, first, sizeof first, err));
    if (memcmp(first, t->identity, sizeof first) == 0) return PL_OK;
    pl_reader   in = pl_reader_of(0, "what it trains", first, sizeof first, err);
    const char *theirs = pl_reader_text(&in, "it", sizeof first);
    PL_TRY(in.status);
    return pl_fail(err, PL_E_INPUT,
                   "%s: this rank would train %s, rank 0 trains %s; give all the same recipe, data and target", t->name,
                   t->identity, theirs);
}

// Takes n numbers from rank 0, steps or positions in the data, each at least `least`.
static pl_status share_ints(const pl_task *t, int64_t *x, int n, int64_t least, pl_err *err) {
    PL_TRY(pl_comm_broadcast(t->comm, x, (size_t)n * sizeof *x, err));
    pl_reader in = pl_reader_of(0, "where its run stands", x, (size_t)n * sizeof *x, err);
    for (int i = 0; i < n; i++)
        pl_reader_int(&in, "a number of it", least, INT64_MAX / 2);
    return in.status;
}

// Sends rank 0's state to the others, which need no file of it.
static pl_status share_state(pl_checkpoints *c, pl_run_state *s, const void *const part[PL_BLOCK_PARTS], pl_err *err) {
    pl_task *t = c->t;
    PL_TRY(same_run(t, err));
    PL_TRY(share_ints(t, &c->saved, 1, -1, err));
    if (c->saved < 0) return PL_OK; // a new run: all ranks begin alike
    s->step = c->saved;
    if (t->supervised) {
        uint8_t is = *t->supervised;
        PL_TRY(pl_comm_broadcast(t->comm, &is, sizeof is, err));
        *t->supervised = is != 0;
    }
    PL_TRY(share_ints(t, t->cursor, t->n_cursor, 0, err));
    PL_TRY(pl_comm_broadcast(t->comm, s->guard.state, (size_t)s->guard.n * sizeof *s->guard.state, err));
    PL_TRY(pl_guard_check(&s->guard, err));
    return take_parts(t, part, err);
}

// Removes leftovers of earlier runs, and restores the last checkpoint if a run died while swapping it.
static pl_status take_folders(const pl_checkpoints *c, pl_err *err) {
    PL_TRY(pl_dir_make(c->out, err));
    found f;
    PL_TRY(look_through(&f, c->dir, err));
    PL_TRY(pl_atomic_dir_recover(c->last, err));
    pl_folder_sweep(c->out);
    pl_dir_sweep(c->dir, pl_checkpoint_kinds);
    return PL_OK;
}

// A run that was killed while replacing last/ left the previous one under the new one's step or, where names cannot be
// exchanged, no last/ at all.
static pl_status restore_last(const pl_checkpoints *c, pl_err *err) {
    if (c->damaged) return PL_OK;
    pl_state *f = NULL;
    char     *folder = step_folder(c->dir, c->saved), *path = NULL, *own = NULL;
    int64_t   step = -1;
    pl_status st = folder ? PL_OK : fail_memory(err);
    if (st == PL_OK && !pl_path_exists(c->last)) st = pl_path_succeed(folder, c->last, folder, err);
    if (st == PL_OK && pl_path_exists(folder) && open_folder(folder, &f, &path, NULL) == PL_OK &&
        take_array(f, "step", PL_I64, 1, &step, NULL) == PL_OK && step >= 0 && step < c->saved) {
        own = step_folder(c->dir, step);
        st = !own ? fail_memory(err) : pl_path_exists(own) ? PL_OK : pl_path_succeed(folder, own, own, err);
    }
    if (f) pl_state_close(f);
    pl_free(own);
    pl_free(path);
    pl_free(folder);
    if (st == PL_OK) prune_steps(c, c->saved);
    return st;
}

pl_status pl_checkpoints_resume(pl_checkpoints *c, pl_run_state *s, pl_err *err) {
    const void *part[PL_BLOCK_PARTS] = {NULL};
    pl_state   *f = NULL;
    char       *path = NULL;
    pl_err      why;
    pl_status   st = PL_OK;
    if (pl_comm_rank(c->t->comm) == 0) {
        PL_TRY(take_folders(c, err));
        PL_TRY(open_newest(c->dir, c->last, &f, &path, &why, err));
        c->damaged = why.status != PL_OK && pl_path_exists(c->last);
        if (f) st = read_state(c, f, path, s, part, err);
        if (f && st == PL_OK) c->saved = s->step;
        if (f && st == PL_OK) st = restore_last(c, err);
        if (c->damaged && st == PL_OK) pl_log_warn("%.*s; goes on from %s", (int)strcspn(why.msg, ";"), why.msg, path);
    }
    if (st == PL_OK) st = share_state(c, s, part, err);
    if (f) pl_state_close(f);
    pl_free(path);
    return st;
}

// Reads one member of the newest whole state of a run's folder; without one nothing changes. mend: as
// pl_atomic_dir_recover.
static pl_status peek_state(const char *out_dir, bool mend, const char *name, pl_dtype t, int64_t n, void *to,
                            pl_err *err) {
    char     *dir = pl_path_join(out_dir, "checkpoints"), *last = dir ? pl_path_join(dir, "last") : NULL, *path = NULL;
    pl_state *f = NULL;
    pl_err    why;
    pl_status st = last ? PL_OK : fail_memory(err);
    if (st == PL_OK && mend) st = pl_atomic_dir_recover(last, err);
    if (st == PL_OK) st = open_newest(dir, last, &f, &path, &why, err);
    if (f) st = take_array(f, name, t, n, to, err);
    if (f) pl_state_close(f);
    pl_free(dir);
    pl_free(last);
    pl_free(path);
    return st;
}

void pl_trainer_arithmetic(char arithmetic[PL_ARITHMETIC_ROOM], const char *out_dir) {
    memset(arithmetic, 0, PL_ARITHMETIC_ROOM);
    if (peek_state(out_dir, false, "arithmetic", PL_U8, PL_ARITHMETIC_ROOM, arithmetic, NULL) != PL_OK) *arithmetic = 0;
    arithmetic[PL_ARITHMETIC_ROOM - 1] = 0;
}

pl_status pl_trainer_done_steps(const char *out_dir, int64_t *step, pl_err *err) {
    *step = 0;
    return peek_state(out_dir, true, "step", PL_I64, 1, step, err);
}

// ---- create and destroy ----

pl_status pl_checkpoints_init(pl_checkpoints *c, pl_task *t, const pl_trainer_options *o, pl_err *err) {
    *c = (pl_checkpoints){.t = t, .keep = o->keep, .any_arithmetic = o->any_arithmetic, .saved = -1};
    c->out = o->out_dir;
    c->dir = pl_path_join(o->out_dir, "checkpoints");
    if (c->dir) c->last = pl_path_join(c->dir, "last");
    if (c->dir) c->best = pl_path_join(c->dir, "best");
    if (c->last && c->best) return PL_OK;
    pl_checkpoints_fini(c);
    return fail_memory(err);
}

void pl_checkpoints_fini(pl_checkpoints *c) {
    pl_free(c->dir);
    pl_free(c->last);
    pl_free(c->best);
    *c = (pl_checkpoints){0};
}
