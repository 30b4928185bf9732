// Offline data larger than the disk (data.disk_budget): generation and training alternate.
//
// The dataset is the one that `generate` would write, shard for shard (infer/generate/shards.h), in OUT/bounded. All
// ranks make shards, in shares, when the order (train/source/order.h, data.window) comes to their window, and delete
// them when new ones need their room, first those that are used again last. A deleted shard is made again when it is
// needed, in a later epoch or by a resumed run, and must get the same bytes as before. As many windows are made at a
// time as fit, and while their last answers are generated the first of the next window have begun
// (shard_queue below), so that the target always answers full batches. Since documents and their order depend on
// none of this, a bounded run is the run over the whole dataset with the same window, bit for bit.
//
// Prompts decide which documents are held out, so no document is made for that; held-out documents are made when an
// evaluation first needs them, and stay in memory.
//
// Shard sizes are estimated beforehand, with answers of full length; so the files of OUT/bounded never exceed the
// budget (plus the manifest's few hundred bytes a shard).
#include "infer/generate/generate.h"
#include "infer/generate/shards.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/comm/reader.h"
#include "train/keys.h"
#include "train/source/answers.h"
#include "train/source/order.h"
#include "train/source/sources.h"

#include <string.h>

// Queue of shards to make next: the missing shards of one window after the other, in training's order. A window's turn
// is its position in that order, over all epochs. A function of the set of existing shards alone, so that all ranks
// that fill it at the same moments have the same queue.
typedef struct shard_queue {
    int64_t  n;            // entries
    int64_t *shard, *turn; // [n] of room for all shards; owned; turns ascend, and shards within a turn
    int64_t  next;         // the turn to check next
    int64_t  epoch, *of;   // scratch: turns of an epoch; -1: none
} shard_queue;

typedef struct bounded {
    pl_feature_source  base;
    pl_answers         s;
    pl_dataset_attrs   attrs;
    char              *settings; // its text
    pl_generator      *g;
    pl_shard_plan      plan;
    pl_shard_share     share;
    pl_doc_order       order;
    pl_dataset_writer *w; // rank 0's
    pl_dataset        *ds;
    char              *dir;
    int64_t            budget, present, most; // bytes: allowed, on disk, most on disk so far
    int64_t            made, again;           // shards; those that had been made before
    int64_t           *there;                 // [plan.n] bytes on disk, 0: missing
    shard_queue        queue;                 // shards to make
    bool              *pinned;                // [order.windows] needed by the current step
    int64_t           *far;                   // [order.windows] scratch: turns until the next use
    bool               stepping;              // begin announces the needed windows
    int64_t            at;                    // current document, -1: none
    pl_columns         doc;
} bounded;

// ---- the queue

// Returns the window of a turn.
static int64_t window_of(bounded *b, int64_t turn) {
    shard_queue *q = &b->queue;
    int64_t      epoch = turn / b->order.windows;
    if (epoch != q->epoch) pl_doc_order_turns(&b->order, epoch, q->of);
    q->epoch = epoch;
    return q->of[turn % b->order.windows];
}

static bool is_queued(const shard_queue *q, int64_t shard) {
    for (int64_t i = 0; i < q->n; i++)
        if (q->shard[i] == shard) return true;
    return false;
}

// Checks one more window and appends its missing shards, unless they are queued already. An empty queue begins with
// turn `now`. Returns false if an epoch's windows from there on have been checked.
static bool look_further(bounded *b, int64_t now) {
    shard_queue *q = &b->queue;
    if (q->n == 0) q->next = now;
    if (q->next >= now + b->order.windows) return false;
    int64_t turn = q->next++, w = window_of(b, turn);
    for (int64_t k = b->order.shard[w]; k < b->order.shard[w + 1]; k++) {
        if (b->there[k] > 0 || is_queued(q, k)) continue;
        q->shard[q->n] = k;
        q->turn[q->n++] = turn;
    }
    return true;
}

// Returns the index after the last entry of entry i's turn.
static int64_t turn_end(const shard_queue *q, int64_t i) {
    int64_t end = i;
    while (end < q->n && q->turn[end] == q->turn[i])
        end++;
    return end;
}

// Removes the first n entries.
static void drop_entries(shard_queue *q, int64_t n) {
    q->n -= n;
    memmove(q->shard, q->shard + n, (size_t)q->n * sizeof *q->shard);
    memmove(q->turn, q->turn + n, (size_t)q->n * sizeof *q->turn);
}

// ---- room

// Returns shard k's size, estimated before it is made.
static int64_t room_of(const bounded *b, int64_t k) {
    int64_t known = pl_dataset_shard_bytes(b->ds, k), docs = b->plan.first[k + 1] - b->plan.first[k];
    return known ? known : pl_dataset_shard_room(&b->attrs, b->plan.rows[k], docs);
}

// Measures the turns from `now` until each window's next use.
static void measure_turns(bounded *b, int64_t now) {
    int64_t n = b->order.windows;
    for (int64_t turn = (now / n + 2) * n - 1; turn >= now; turn--)
        b->far[window_of(b, turn)] = turn - now;
}

// Returns the bytes of the window's shards on disk.
static int64_t bytes_present(const bounded *b, int64_t w) {
    int64_t bytes = 0;
    for (int64_t k = b->order.shard[w]; k < b->order.shard[w + 1]; k++)
        bytes += b->there[k];
    return bytes;
}

static bool is_missing(const bounded *b, int64_t w) {
    for (int64_t k = b->order.shard[w]; k < b->order.shard[w + 1]; k++)
        if (b->there[k] == 0) return true;
    return false;
}

// Returns true if the window's shards may be deleted for a window that is used within `far` turns.
static bool may_go(const bounded *b, int64_t w, int64_t far) {
    return !b->pinned[w] && b->far[w] > far && bytes_present(b, w) > 0;
}

static int64_t may_be_freed(const bounded *b, int64_t far) {
    int64_t bytes = 0;
    for (int64_t w = 0; w < b->order.windows; w++)
        if (may_go(b, w, far)) bytes += bytes_present(b, w);
    return bytes;
}

// Returns the deletable window that is used last; -1: none.
static int64_t wanted_last(const bounded *b, int64_t far) {
    int64_t best = -1;
    for (int64_t w = 0; w < b->order.windows; w++)
        if (may_go(b, w, far) && (best < 0 || b->far[w] > b->far[best])) best = w;
    return best;
}

static pl_status does_not_fit(const bounded *b, int64_t w, int64_t need, pl_err *err) {
    int64_t docs = b->plan.first[b->order.shard[w + 1]] - b->plan.first[b->order.shard[w]];
    return pl_fail(err, PL_E_INPUT,
                   "data.disk_budget: %.1f MB are too few: the %lld documents of a window take up to %.1f MB, %.1f MB "
                   "of what a step needs are there; raise it, or lower data.window or data.rows_per_shard",
                   (double)b->budget / 1e6, (long long)docs, (double)need / 1e6, (double)b->present / 1e6);
}

// Deletes windows until `need` bytes have room for window w. Rank 0 deletes files, once no rank has them open.
static pl_status make_room(bounded *b, int64_t w, int64_t need, int64_t far, pl_err *err) {
    while (b->present + need > b->budget) {
        int64_t last = wanted_last(b, far);
        if (last < 0) return does_not_fit(b, w, need, err);
        for (int64_t k = b->order.shard[last]; k < b->order.shard[last + 1]; k++)
            if (b->there[k] > 0) pl_dataset_forget(b->ds, k);
        PL_TRY(pl_comm_barrier(b->s.env->comm, err));
        for (int64_t k = b->order.shard[last]; k < b->order.shard[last + 1]; k++) {
            if (b->there[k] > 0 && b->w) PL_TRY(pl_dataset_writer_drop(b->w, k, err));
            b->present -= b->there[k];
            b->there[k] = 0;
        }
    }
    return PL_OK;
}

// ---- making shards

static int64_t room_of_entries(const bounded *b, int64_t from, int64_t end) {
    int64_t bytes = 0;
    for (int64_t i = from; i < end; i++)
        bytes += room_of(b, b->queue.shard[i]);
    return bytes;
}

// Queues the shards of window w, of turn `now`, and those of later turns that fit without deleting a window that is
// used before them: entries [0, *end) of the queue.
static pl_status choose_shards(bounded *b, int64_t w, int64_t now, int64_t *end, pl_err *err) {
    shard_queue *q = &b->queue;
    bool         more = true;
    int64_t      need = 0;
    *end = 0;
    while (more) {
        while (more && q->n == *end)
            more = look_further(b, now);
        if (q->n == *end) break;
        int64_t next = turn_end(q, *end), room = need + room_of_entries(b, *end, next);
        int64_t far = *end == 0 ? 0 : q->next - now;
        if (*end > 0 && (!b->stepping || b->present + room - may_be_freed(b, far) > b->budget)) break;
        PL_TRY(make_room(b, w, room, far, err));
        need = room;
        *end = next;
    }
    return PL_OK;
}

// Queues further shards for the generators to continue with: as many documents as all of them process at a time.
static void look_ahead(bounded *b, int64_t now, int64_t end) {
    shard_queue *q = &b->queue;
    int64_t      docs = 0, want = 2 * (int64_t)b->s.opt.sessions * b->share.ranks;
    bool         more = b->stepping;
    while (more) {
        for (; end < q->n; end++)
            docs += b->plan.first[q->shard[end] + 1] - b->plan.first[q->shard[end]];
        if (docs >= want) break;
        more = look_further(b, now);
    }
}

static pl_status write_share(bounded *b, int64_t end, pl_err *err) {
    pl_comm           *comm = b->s.env->comm;
    int                rank = pl_comm_rank(comm);
    pl_dataset_writer *w = b->w;
    b->share.shard = b->queue.shard;
    b->share.group = b->queue.turn;
    b->share.n = b->queue.n;
    b->share.end = end;
    if (rank > 0) PL_TRY(pl_dataset_writer_open(&w, b->dir, &b->attrs, rank, true, err));
    PL_TRY(pl_comm_barrier(comm, err)); // all ranks have read the manifest
    pl_status st = pl_shards_write(&b->share, b->g, w, comm, 0, err);
    if (rank > 0 && st == PL_OK) return pl_dataset_writer_close(w, err);
    if (rank > 0) pl_dataset_writer_destroy(w);
    return st;
}

// Removes entries [0, end) from the queue: their shards are on disk.
static pl_status drop_made(bounded *b, int64_t end, pl_err *err) {
    for (int64_t i = 0; i < end; i++) {
        int64_t k = b->queue.shard[i];
        b->there[k] = pl_dataset_shard_bytes(b->ds, k);
        if (b->there[k] == 0)
            return pl_fail(err, PL_E_INPUT,
                           "%s: shard %lld is not here; was it written on another machine? --out must be a folder that "
                           "all ranks see",
                           b->dir, (long long)k);
        b->present += b->there[k];
    }
    if (b->present > b->most) b->most = b->present;
    drop_entries(&b->queue, end);
    b->share.at -= end;
    b->share.made -= end;
    return PL_OK;
}

// Makes entries [0, end) of the queue, by all ranks.
static pl_status make_shards(bounded *b, int64_t end, pl_err *err) {
    pl_comm *comm = b->s.env->comm;
    PL_TRY(write_share(b, end, err));
    PL_TRY(pl_comm_barrier(comm, err));
    if (b->w) PL_TRY(pl_dataset_writer_join(b->w, pl_comm_ranks(comm), err));
    for (int64_t i = 0; i < end; i++)
        b->again += pl_dataset_shard_bytes(b->ds, b->queue.shard[i]) > 0;
    b->made += end;
    PL_TRY(pl_comm_barrier(comm, err));
    PL_TRY(pl_dataset_refresh(b->ds, err));
    return drop_made(b, end, err);
}

// Restarts the generators if they work on other documents than needed: after resuming elsewhere, or if shards that were
// to come soon were deleted again.
static void begin_anew(bounded *b) {
    pl_generator_forget(b->g);
    b->queue.n = 0;
    b->share.n = b->share.end = b->share.at = b->share.units = b->share.made = b->share.made_units = 0;
}

// Makes window w available; the same on all ranks.
static pl_status make_window(bounded *b, int64_t w, int64_t now, pl_err *err) {
    int64_t end = 0;
    measure_turns(b, now);
    if (!is_missing(b, w)) return make_room(b, w, 0, 0, err); // the budget may have been lowered
    if (b->queue.n > 0 && b->queue.turn[0] != now) begin_anew(b);
    PL_TRY(choose_shards(b, w, now, &end, err));
    look_ahead(b, now, end);
    return make_shards(b, end, err);
}

// Makes the window of document `at` available.
static pl_status ensure_window(bounded *b, int64_t at, pl_err *err) {
    int64_t w = pl_doc_order_window(&b->order, at), now = b->order.epoch * b->order.windows;
    if (b->pinned[w]) return PL_OK;
    if (!b->stepping) memset(b->pinned, 0, (size_t)b->order.windows * sizeof *b->pinned);
    while (b->order.turn[now % b->order.windows] != w)
        now++;
    while (is_missing(b, w) || b->present > b->budget)
        PL_TRY(make_window(b, w, now, err));
    b->pinned[w] = true;
    return PL_OK;
}

// ---- the source

static pl_status begin(pl_feature_source *s, int64_t at, pl_err *err) {
    bounded *b = (bounded *)s;
    (void)at, (void)err;
    b->stepping = true;
    memset(b->pinned, 0, (size_t)b->order.windows * sizeof *b->pinned);
    return PL_OK;
}

static int64_t number(pl_feature_source *s, int64_t at) {
    return pl_doc_order_number(&((bounded *)s)->order, at);
}

static pl_status rows(pl_feature_source *s, int64_t at, int64_t *n, pl_err *err) {
    bounded *b = (bounded *)s;
    int64_t  first;
    PL_TRY(ensure_window(b, at, err));
    return pl_dataset_doc(b->ds, pl_doc_order_number(&b->order, at), &first, n, err);
}

static pl_status get(pl_feature_source *s, int64_t at, pl_columns *doc, pl_err *err) {
    bounded *b = (bounded *)s;
    int64_t  n;
    PL_TRY(rows(s, at, &n, err));
    if (at != b->at) {
        pl_columns_shape shape = {.d = s->d, .taps = s->taps};
        b->at = -1;
        PL_TRY(pl_columns_reserve(&b->doc, &shape, n, err));
        PL_TRY(pl_dataset_read_doc(b->ds, pl_doc_order_number(&b->order, at), &b->doc, err));
        b->doc.n = n;
        b->at = at;
    }
    *doc = b->doc;
    doc->room = 0; // lent
    return PL_OK;
}

static void destroy(pl_feature_source *s) {
    bounded *b = (bounded *)s;
    if (b->w && b->made > 0)
        pl_log("bounded data: %.1f MB on disk at most, %.1f MB allowed; %lld shards made, %lld of them again",
               (double)b->most / 1e6, (double)b->budget / 1e6, (long long)b->made, (long long)b->again);
    pl_dataset_writer_destroy(b->w);
    if (b->ds) pl_dataset_close(b->ds);
    pl_generator_destroy(b->g);
    pl_shard_plan_fini(&b->plan);
    pl_doc_order_fini(&b->order);
    pl_columns_free(&b->doc);
    pl_answers_close(&b->s);
    pl_free(b->dir);
    pl_free(b->there);
    pl_free(b->pinned);
    pl_free(b->far);
    pl_free(b->queue.shard);
    pl_free(b->queue.turn);
    pl_free(b->queue.of);
    pl_free(b->settings);
    pl_free(b);
}

// ---- opening

pl_status pl_bounded_check(const pl_recipe *r, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    int64_t                   bytes;
    PL_TRY(pl_data_budget(&bytes, r, err));
    if (gen->data.mode == PL_DATA_ONLINE)
        return pl_recipe_fail(r, &gen->data.disk_budget, err, "data.mode: online stores nothing; give one of them");
    if (gen->data.hidden_states.path)
        return pl_recipe_fail(r, &gen->data.disk_budget, err, "data.hidden_states are not made again; leave it out");
    if (tr->data.dataset)
        return pl_recipe_fail(r, &gen->data.disk_budget, err, "data.dataset is there already; leave it out");
    return PL_OK;
}

static int64_t docs_of_shard(void *plan, int64_t k) {
    const pl_shard_plan *p = plan;
    return p->first[k + 1] - p->first[k];
}

// Documents are held out by the hash of their prompts; no answer is needed.
static pl_status divide_prompts(bounded *b, pl_feature_source **held, uint64_t seed, int64_t every, pl_err *err) {
    int64_t jobs = pl_generator_jobs(b->g), longest = 0, held_docs = 0, n;
    PL_TRY(pl_doc_order_init(&b->order, seed, jobs, err));
    for (int64_t j = 0; j < jobs; j++) {
        pl_generator_opening(b->g, j, &n);
        if (n > longest) longest = n;
    }
    int64_t *number = pl_calloc((size_t)jobs + 1, sizeof *number);
    uint8_t *mask = pl_calloc((size_t)longest + 1, 1);
    for (int64_t j = 0; j < jobs && number && mask; j++) {
        const int32_t *ids = pl_generator_opening(b->g, j, &n);
        if (pl_dataset_held_out(ids, mask, n, seed, every))
            number[held_docs++] = j;
        else
            b->order.member[b->order.docs++] = j;
    }
    pl_status st = number && mask ? PL_OK : pl_fail(err, PL_E_MEMORY, "held-out documents: out of memory");
    b->base.docs = b->order.docs;
    if (st == PL_OK && b->base.docs == 0)
        st = pl_fail(err, PL_E_INPUT, "data.prompts: all %lld documents are held out; make train.holdout larger",
                     (long long)jobs);
    if (st == PL_OK && every > 0 && held_docs == 0)
        pl_log_warn("none of %lld documents is held out, acceptance is not estimated; make train.holdout smaller",
                    (long long)jobs);
    pl_free(mask);
    if (st == PL_OK && held_docs > 0) return pl_answers_hold(held, &b->s, number, held_docs, &b->attrs, err);
    pl_free(number);
    return st;
}

static void set_identity(bounded *b) {
    const pl_dataset_attrs *a = &b->attrs;
    uint64_t                h = pl_prompts_hash(b->s.prompts, pl_hash(a->target_fingerprint, 16));
    h = pl_hash_more(h, a->tokenizer_fingerprint, strlen(a->tokenizer_fingerprint));
    h = pl_hash_more(h, a->template_name, strlen(a->template_name));
    h = pl_hash_more(h, a->generation, strlen(a->generation));
    h = pl_hash_more(h, a->tap_layer_ids, (size_t)a->A * sizeof *a->tap_layer_ids);
    if (a->feature_format == PL_FEATURES_INT8) h = pl_hash_more(h, "int8", 4);
    h = pl_hash_more(h, b->plan.first, ((size_t)b->plan.n + 1) * sizeof *b->plan.first);
    pl_hash_hex(b->base.identity, h);
}

// Finds the shards on disk, as rank 0 sees them.
static pl_status find_present(bounded *b, pl_err *err) {
    pl_comm *comm = b->s.env->comm;
    size_t   n = (size_t)b->plan.n + 1;
    b->there = pl_calloc(n, sizeof *b->there);
    b->pinned = pl_calloc((size_t)b->order.windows + 1, sizeof *b->pinned);
    b->far = pl_calloc((size_t)b->order.windows + 1, sizeof *b->far);
    b->queue = (shard_queue){.epoch = -1,
                             .shard = pl_calloc(n, sizeof *b->queue.shard),
                             .turn = pl_calloc(n, sizeof *b->queue.turn),
                             .of = pl_calloc((size_t)b->order.windows + 1, sizeof *b->queue.of)};
    if (!b->there || !b->pinned || !b->far || !b->queue.shard || !b->queue.turn || !b->queue.of)
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", b->dir);
    for (int64_t k = 0; b->w && k < b->plan.n; k++)
        b->there[k] = pl_dataset_writer_has(b->w, k);
    PL_TRY(pl_comm_broadcast(comm, b->there, n * sizeof *b->there, err));
    pl_reader in = pl_reader_of(0, "the shards that are there", b->there, n * sizeof *b->there, err);
    for (int64_t k = 0; k < b->plan.n && in.status == PL_OK; k++)
        b->present += pl_reader_int(&in, "the bytes of a shard", 0, INT64_MAX / b->plan.n);
    PL_TRY(in.status);
    b->most = b->present;
    return PL_OK;
}

static pl_status open_folder(bounded *b, const char *out_dir, pl_err *err) {
    pl_comm *comm = b->s.env->comm;
    b->dir = pl_path_join(out_dir, "bounded");
    if (!b->dir) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out_dir);
    PL_TRY(pl_comm_enter(comm, err));
    if (pl_comm_rank(comm) == 0) PL_TRY(pl_dataset_writer_open(&b->w, b->dir, &b->attrs, 0, true, err));
    PL_TRY(pl_comm_leave(comm, err));
    return pl_dataset_open_planned(&b->ds, b->dir, &b->attrs, b->plan.first, b->plan.n, err);
}

// A step may pass from one window to any other: checks that two fit before anything is made.
static pl_status check_windows(const bounded *b, pl_err *err) {
    int64_t most[2] = {0}, need;
    for (int64_t w = 0; w < b->order.windows; w++) {
        need = 0;
        for (int64_t k = b->order.shard[w]; k < b->order.shard[w + 1]; k++)
            need += room_of(b, k);
        if (need > most[0])
            most[1] = most[0], most[0] = need;
        else if (need > most[1])
            most[1] = need;
    }
    if (most[0] + most[1] <= b->budget) return PL_OK;
    return pl_fail(err, PL_E_INPUT,
                   "data.disk_budget: %.1f MB are too few: two windows are there at a time, which take up to %.1f MB; "
                   "raise it, or lower data.window (%s) or data.rows_per_shard",
                   (double)b->budget / 1e6, (double)(most[0] + most[1]) / 1e6,
                   b->order.windows == 1 ? "0 and large ones: all documents" : "whole shards");
}

static pl_status open_all(bounded *b, pl_feature_source **held, const pl_recipe *r, const char *out_dir,
                          const pl_env *env, const pl_llama *target, const int *taps, int n_taps, pl_err *err) {
    const pl_generate_recipe *gen = pl_generate_recipe_of(r);
    const pl_train_recipe    *tr = pl_train_recipe_of(r);
    pl_comm                  *comm = env->comm;
    PL_TRY(pl_data_budget(&b->budget, r, err));
    PL_TRY(pl_answers_open(&b->s, r, env, target, taps, n_taps, err));
    PL_TRY(
        pl_generate_describe(&b->attrs, &b->settings, r, target, b->s.tok, b->s.prompts, &b->s.opt, env->backend, err));
    pl_answers_describe(&b->base, &b->s);
    b->share =
        (pl_shard_share){.plan = &b->plan, .rank = pl_comm_rank(comm), .ranks = pl_comm_ranks(comm), .through = true};
    pl_generator_options o = b->s.opt;
    o.work = (pl_generator_work){pl_shard_share_next, &b->share};
    PL_TRY(pl_generator_create(&b->g, env, target, b->s.tok, b->s.prompts, &o, err));
    b->share.g = b->g;
    PL_TRY(pl_shard_plan_make(&b->plan, b->g, gen->data.rows_per_shard, err));
    PL_TRY(divide_prompts(b, held, (uint64_t)gen->seed, tr->train.holdout, err));
    PL_TRY(pl_doc_order_windows(&b->order, tr->data.window, b->plan.n, docs_of_shard, &b->plan, err));
    set_identity(b);
    PL_TRY(open_folder(b, out_dir, err));
    PL_TRY(find_present(b, err));
    PL_TRY(check_windows(b, err));
    pl_log("bounded data: %lld training documents in %lld shards and %lld windows; %lld documents held out",
           (long long)b->base.docs, (long long)b->plan.n, (long long)b->order.windows,
           (long long)(*held ? (*held)->docs : 0));
    return PL_OK;
}

pl_status pl_bounded_sources(pl_feature_source **train, pl_feature_source **held, const pl_recipe *r,
                             const char *out_dir, const pl_env *env, const pl_llama *target, const int *taps,
                             int n_taps, pl_err *err) {
    bounded *b = pl_calloc(1, sizeof *b);
    *train = *held = NULL;
    if (!b) return pl_fail(err, PL_E_MEMORY, "bounded data: out of memory");
    *b = (bounded){.base = {.get = get, .rows = rows, .number = number, .begin = begin, .destroy = destroy}, .at = -1};
    pl_status st = open_all(b, held, r, out_dir, env, target, taps, n_taps, err);
    if (st == PL_OK) {
        *train = &b->base;
        return PL_OK;
    }
    if (*held) (*held)->destroy(*held);
    *held = NULL;
    destroy(&b->base);
    return st;
}
