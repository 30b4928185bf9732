// What one of two ranks sends: the first byte says which of the consumers hears it, the rest is what comes over the
// comm, whose calls CMake has this file answer (-Wl,--wrap). A consumer ends with PL_OK or with one line.
#include "infer/eval/gather.h"
#include "infer/model/tp_orders.h"
#include "kernels/backend.h"
#include "kernels/base/arena.h"
#include "kernels/base/files.h"
#include "kernels/base/hash.h"
#include "kernels/base/strbuf.h"
#include "tests/fuzz/dataset_seed.h"
#include "tests/infer/fixture.h"
#include "train/loop/guard.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/source/ranks.h"

#include <string.h>

enum { EVAL, SURVEY_FIRST, SURVEY_OTHER, CARRY, FOLLOW, SERVE, GUARD, CONSUMERS };

// ---- the comm: this rank and what the other one sends

static struct {
    int            rank;
    const uint8_t *at, *end;
} wire;
static char           here;
static pl_comm *const comm = (pl_comm *)(void *)&here;

int       __wrap_pl_comm_rank(const pl_comm *c);
int       __wrap_pl_comm_ranks(const pl_comm *c);
pl_status __wrap_pl_comm_barrier(pl_comm *c, pl_err *err);
pl_status __wrap_pl_comm_settle(pl_comm *c, pl_ctx *ctx, pl_err *err);
uint64_t  __wrap_pl_comm_sent(const pl_comm *c);
pl_status __wrap_pl_comm_broadcast(pl_comm *c, void *data, size_t bytes, pl_err *err);
pl_status __wrap_pl_comm_gather(pl_comm *c, const void *mine, size_t n, size_t most, uint8_t **all, size_t *bytes,
                                pl_err *err);
pl_status __wrap_pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err);
pl_status __wrap_pl_comm_sum_doubles(pl_comm *c, double *x, int n, pl_err *err);
pl_tensor __wrap_pl_comm_columns(pl_comm *c, pl_ctx *ctx, pl_tensor x, const int64_t *width, int to);

int __wrap_pl_comm_rank(const pl_comm *c) {
    return c ? wire.rank : 0;
}

int __wrap_pl_comm_ranks(const pl_comm *c) {
    return c ? 2 : 1;
}

pl_status __wrap_pl_comm_barrier(pl_comm *c, pl_err *err) {
    (void)c, (void)err;
    return PL_OK;
}

pl_status __wrap_pl_comm_settle(pl_comm *c, pl_ctx *ctx, pl_err *err) {
    (void)c, (void)ctx, (void)err;
    return PL_OK;
}

uint64_t __wrap_pl_comm_sent(const pl_comm *c) {
    (void)c;
    return 0;
}

static pl_status hear(void *to, size_t n, pl_err *err) {
    if ((size_t)(wire.end - wire.at) < n) return pl_fail(err, PL_E_IO, "rank %d: has ended", 1 - wire.rank);
    if (n) memcpy(to, wire.at, n);
    wire.at += n;
    return PL_OK;
}

// Caches that are right, and larger than the rest of the input may take time for.
static bool is_long(const pl_tp_order *o) {
    return o->what == PL_TP_CACHES && (o->sizes.rows > 16 || o->sizes.sessions > 4);
}

pl_status __wrap_pl_comm_broadcast(pl_comm *c, void *data, size_t bytes, pl_err *err) {
    pl_tp_order o;
    if (!c || wire.rank == 0) return PL_OK;
    PL_TRY(hear(data, bytes, err));
    if (bytes == sizeof o) memcpy(&o, data, sizeof o);
    bool within = bytes == sizeof o && o.sizes.rows <= PL_TP_ROWS_MAX && o.sizes.sessions <= PL_TP_SESSIONS_MAX;
    return within && is_long(&o) ? pl_fail(err, PL_E_IO, "caches of more rows than the test takes") : PL_OK;
}

pl_status __wrap_pl_comm_gather(pl_comm *c, const void *mine, size_t n, size_t most, uint8_t **all, size_t *bytes,
                                pl_err *err) {
    uint32_t  theirs = 0;
    int       other = 1 - wire.rank;
    pl_status st = PL_OK;
    *all = NULL;
    if (c) PL_TRY(hear(&theirs, sizeof theirs, err));
    if (theirs > most || theirs > (size_t)(wire.end - wire.at)) return pl_fail(err, PL_E_IO, "more bytes than can be");
    *all = pl_malloc(n + theirs);
    if (!*all) return pl_fail(err, PL_E_MEMORY, "out of memory");
    bytes[c ? wire.rank : 0] = n;
    if (n) memcpy(*all + (c && wire.rank ? theirs : 0), mine, n);
    if (c) bytes[other] = theirs;
    if (c) st = hear(*all + (wire.rank ? 0 : n), theirs, err);
    return st;
}

pl_status __wrap_pl_comm_exchange(pl_comm *c, const pl_comm_parcels *p, pl_err *err) {
    int other = 1 - wire.rank;
    return c ? hear(p->in[other], p->in_bytes[other], err) : PL_OK;
}

pl_status __wrap_pl_comm_sum_doubles(pl_comm *c, double *x, int n, pl_err *err) {
    return c ? hear(x, (size_t)n * sizeof *x, err) : PL_OK;
}

pl_tensor __wrap_pl_comm_columns(pl_comm *c, pl_ctx *ctx, pl_tensor x, const int64_t *width, int to) {
    (void)c, (void)to;
    pl_tensor y = pl_ctx_const(ctx, x.dim[0], width[0] + width[1]);
    if (!ctx->measuring) memset(y.data, 0, (size_t)(x.dim[0] * (width[0] + width[1])) * sizeof(float));
    return y;
}

// The host's memory, which bounds texts and traces: no more than one allocation of a target may be.
pl_status __wrap_pl_memory_lacks(double bytes, bool *lacks, double *have, pl_err *err);
pl_status __wrap_pl_memory_lacks(double bytes, bool *lacks, double *have, pl_err *err) {
    (void)err;
    *have = (double)PL_FUZZ_ALLOC_MAX / 2;
    *lacks = bytes > *have;
    return PL_OK;
}

// ---- consumers

static const char *dataset_dir(void) {
    static bool made;
    const char *dir = pl_fuzz_path("set");
    if (!made) seed_dataset(dir);
    made = true;
    return dir;
}

// A dataset whose only shard the other rank has.
static const char *empty_dir(void) {
    static bool made;
    pl_err      err;
    const char *dir = pl_fuzz_path("empty");
    if (!made) {
        seed_dataset(dir);
        pl_fuzz_must(pl_tree_remove(pl_fuzz_path("empty/shard-00000.h5"), &err), &err);
    }
    made = true;
    return dir;
}

static const char *target_dir(char fingerprint[17]) {
    static bool made;
    static char print[17], dir[256];
    pl_llama    m;
    pl_err      err;
    if (!made) {
        snprintf(dir, sizeof dir, "%s", pl_fuzz_path("model"));
        pl_fuzz_must(pl_dir_make(dir, &err), &err);
        test_target(&m, dir, 2, 5, PL_F32);
        memcpy(print, m.fingerprint, sizeof print);
        pl_llama_fini(&m);
    }
    made = true;
    memcpy(fingerprint, print, sizeof print);
    return dir;
}

enum { PROMPTS = 4, SEEDS = 2 };

static void write_eval(pl_strbuf *b, pl_eval_part *p) {
    for (int i = 0; i < PROMPTS; i++)
        p->prompt_n[i] = 5;
    for (int i = 0; i < PROMPTS * SEEDS; i++)
        p->r->method[0].answer[i] = (pl_answer){.seconds = 1, .tokens = 4, .repeated = 1};
    pl_strbuf_add(&p->r->method[0].samples, "{\"a\"}\n{}\n", 9);
    if (b) pl_eval_part_write(b, p, 1);
}

static pl_status run_eval(pl_strbuf *seed, pl_err *err) {
    static int64_t record[PROMPTS] = {0, 1, 2, 3};
    static uint8_t sampled[PROMPTS] = {1, 1};
    pl_answer      answer[PROMPTS * SEEDS] = {{0}};
    int64_t        prompt_n[PROMPTS];
    uint8_t        cut[PROMPTS] = {0};
    pl_method      method = {.seeds = SEEDS, .answer = answer};
    pl_results     r = {.method = &method, .n_methods = 1, .n_prompts = PROMPTS, .record = record};
    pl_eval_part   part = {.comm = comm, .r = &r, .prompt_n = prompt_n, .cut = cut, .sampled = sampled};
    write_eval(seed, &part);
    pl_status st = seed ? PL_OK : pl_eval_gather(&part, err);
    pl_fuzz_touch(answer, sizeof answer);
    pl_fuzz_touch(method.samples.s, method.samples.n);
    pl_free(method.samples.s);
    return st;
}

static pl_status run_survey(const char *dir, pl_err *err) {
    const pl_dataset_open_options o = {.lazy = true};
    pl_dataset                   *ds;
    pl_survey                     v;
    pl_fuzz_must(pl_dataset_open(&ds, dir, &o, err), err);
    pl_status st = pl_survey_take(&v, ds, dir, 1, 2, comm, err);
    for (int64_t i = 0, first, n; st == PL_OK && i < v.docs; i++) {
        pl_fuzz_must(pl_dataset_doc(ds, i, &first, &n, err), err);
        if (first < 0 || n < 1 || first + n > pl_dataset_rows(ds)) pl_fuzz_finding("document %lld", (long long)i);
    }
    pl_survey_fini(&v);
    pl_dataset_close(ds);
    return st;
}

enum { ROWS = 3, WIDTH = 2 };

static int64_t rows_of(void *arg, int64_t at) {
    (void)arg, (void)at;
    return ROWS;
}

static int sender_of(void *arg, int64_t at, int to) {
    (void)arg, (void)at;
    return to == 0 ? 1 : -1;
}

static pl_status take_doc(void *arg, int64_t at, pl_columns *room, pl_err *err) {
    pl_columns *doc = arg;
    (void)at;
    PL_TRY(pl_columns_reserve(doc, &(pl_columns_shape){.d = WIDTH}, ROWS, err));
    *room = *doc;
    return PL_OK;
}

static pl_status run_carry(pl_err *err) {
    static int   table[SEED_VOCAB];
    pl_columns   doc = {0};
    pl_doc_carry carry = {.comm = comm,
                          .shape = {.d = WIDTH},
                          .vocab = SEED_VOCAB,
                          .arg = &doc,
                          .rows = rows_of,
                          .sender = sender_of,
                          .take = take_doc};
    pl_status    st = pl_doc_carry_out(&carry, (const pl_doc_span[]){{0, 2}, {0, 0}}, err);
    for (int i = 0; st == PL_OK && i < ROWS; i++)
        table[doc.tokens[i]] += doc.argmax[i];
    pl_columns_free(&doc);
    return st;
}

static pl_recipe *make_recipe(void) {
    static const char *const set[] = {"target.path=none", "data.prompts=none", "drafters.0.name=a"};
    int                      n;
    const pl_key *const     *tables = pl_stage_tables(&n);
    pl_recipe               *r;
    pl_err                   err;
    pl_fuzz_must(pl_recipe_open(&r, NULL, tables, n, set, 3, &err), &err);
    return r;
}

static pl_status run_serve(pl_err *err) {
    static pl_recipe *r;
    if (!r) r = make_recipe();
    pl_env       env = {.backend = pl_backend_cpu(), .comm = comm};
    pl_ranks_own own = {.works = PL_RANKS_GENERATE, .drafters = true, .recipe = r, .out_dir = "out"};
    return pl_ranks_serve(&env, &own, err);
}

static pl_status run_guard(pl_err *err) {
    const pl_guard_options o = {.spike = 2, .window = 3};
    pl_guard               g;
    char                   why[160];
    pl_fuzz_must(pl_guard_init(&g, &o, 1, 1, err), err);
    pl_status st = hear(g.state, (size_t)g.n * sizeof *g.state, err);
    if (st == PL_OK) st = pl_guard_check(&g, err);
    for (int i = 0; st == PL_OK && i < 5; i++)
        pl_guard_counts(&g, 1 + i, 2, 1, why);
    pl_guard_fini(&g);
    return st;
}

static pl_status run(int consumer, pl_err *err) {
    char print[17];
    wire.rank = consumer == SURVEY_OTHER || consumer == FOLLOW || consumer == SERVE;
    switch (consumer) {
    case EVAL: return run_eval(NULL, err);
    case SURVEY_FIRST: return run_survey(empty_dir(), err);
    case SURVEY_OTHER: return run_survey(dataset_dir(), err);
    case CARRY: return run_carry(err);
    case FOLLOW: return pl_tp_follow(comm, pl_backend_cpu(), NULL, target_dir(print), err);
    case SERVE: return run_serve(err);
    default: return run_guard(err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    pl_err err = {0};
    if (n < 1) return 0;
    wire.at = data + 1;
    wire.end = data + n;
    pl_status st = run(data[0] % CONSUMERS, &err);
    if (st == PL_OK) return 0;
    if (err.status != st || !err.msg[0] || strchr(err.msg, '\n')) pl_fuzz_finding("a failure without a line");
    if (st == PL_E_INTERNAL) pl_fuzz_finding("%s", err.msg);
    return 0;
}

// ---- seeds: what honest ranks send

static void put(pl_strbuf *b, const void *x, size_t n) {
    pl_strbuf_add(b, x, n);
}

static void begin(pl_strbuf *b, int consumer) {
    uint8_t first = (uint8_t)consumer;
    b->n = 0;
    put(b, &first, 1);
}

static void put_gathered(pl_strbuf *b, const void *x, uint32_t n) {
    put(b, &n, sizeof n);
    put(b, x, n);
}

static void seed_eval(pl_strbuf *b) {
    pl_strbuf part = {0};
    pl_err    err;
    wire.rank = 1;
    pl_fuzz_must(run_eval(&part, &err), &err);
    uint64_t size = part.n;
    begin(b, EVAL);
    put_gathered(b, &size, sizeof size);
    put(b, part.s, part.n);
    pl_fuzz_seed(b->s, b->n);
    pl_free(part.s);
}

static void seed_survey(pl_strbuf *b, int consumer, bool there) {
    const pl_dataset_open_options o = {.lazy = true};
    pl_doc_said                   docs[SEED_DOCS] = {{0}};
    uint8_t                       has = there;
    pl_dataset                   *ds;
    pl_err                        err;
    for (int i = 0; i < SEED_DOCS; i++)
        docs[i] = (pl_doc_said){.rows = SEED_ROWS, .answers = 4, .about = {.end = i, .turn = i, .back = i}};
    begin(b, consumer);
    pl_fuzz_must(pl_dataset_open(&ds, dataset_dir(), &o, &err), &err);
    if (consumer == SURVEY_OTHER) put(b, pl_dataset_fingerprint(ds), 17);
    pl_dataset_close(ds);
    put_gathered(b, &has, 1);
    put_gathered(b, docs, there ? sizeof docs : 0);
    pl_fuzz_seed(b->s, b->n);
}

static void put_order(pl_strbuf *b, pl_tp_order o, const void *data) {
    put(b, &o, sizeof o);
    if (data) put(b, data, (size_t)o.bytes);
}

static void seed_follow(pl_strbuf *b) {
    static const int32_t     rows[] = {PL_TP_ROW, 3, 0, 0, 0, 1, 0, 0, 0, PL_TP_ROW, 4, 1, 0, 0, 2, 1, 1, 0};
    static const int32_t     tree[] = {PL_TP_MOVE, 0, 1, 1, 1, PL_TP_ROW, 3, 2, 1, 0, 2, 5, 1, 1, 4, 5};
    static const int32_t     state[] = {PL_TP_STATE, 0, 2, 1, PL_TP_ROW, 3, 0, 0, 0, 1, 0, 0, 0};
    static const pl_tp_sizes sizes = {.sessions = 2, .slots = 20, .rows = 4, .logits = 2, .path = 4, .kv = PL_F32};
    char                     print[17];
    double                   uses[2 * PL_TP_USES] = {0};
    target_dir(print);
    begin(b, FOLLOW);
    put_order(b, (pl_tp_order){.what = PL_TP_OPEN, .id = 1, .n = PL_F32}, NULL);
    put(b, print, sizeof print);
    put_order(b, (pl_tp_order){.what = PL_TP_CACHES, .id = 2, .n = 1, .sizes = sizes}, NULL);
    put_order(b, (pl_tp_order){.what = PL_TP_RUN, .id = 2, .bytes = sizeof rows}, rows);
    put_order(b, (pl_tp_order){.what = PL_TP_RUN, .id = 2, .bytes = sizeof tree}, tree);
    put_order(b, (pl_tp_order){.what = PL_TP_RUN, .id = 2, .bytes = sizeof state}, state);
    put_order(b, (pl_tp_order){.what = PL_TP_USED}, NULL);
    put(b, uses, sizeof uses);
    put_order(b, (pl_tp_order){.what = PL_TP_DROP, .id = 2}, NULL);
    put_order(b, (pl_tp_order){.what = PL_TP_CLOSE, .id = 1}, NULL);
    put_order(b, (pl_tp_order){.what = PL_TP_END}, NULL);
    pl_fuzz_seed(b->s, b->n);
}

static void seed_serve(pl_strbuf *b) {
    static const char *const folders[] = {"out", "out/drafters/a"};
    pl_recipe               *r = make_recipe();
    pl_err                   err;
    for (int i = 0; i < 2; i++) {
        pl_job j = {.what = PL_RANKS_GENERATE, .taps = {.n = 1, .layer = {1}}}, end = {0};
        pl_fuzz_must(pl_recipe_hash(r, 0, j.recipe, &err), &err);
        pl_hash_hex(j.out_dir, pl_hash(folders[i], strlen(folders[i])));
        begin(b, SERVE);
        if (i) put(b, &end, sizeof end);
        put(b, &j, sizeof j);
        pl_fuzz_seed(b->s, b->n);
    }
    pl_recipe_close(r);
}

static void seeds(void) {
    static const double  guard[] = {1, 0, 4, 1, 2, 3, 1, 2, 3};
    static const uint8_t docs[2 * ROWS * (4 + 1 + 4 + 2 * WIDTH)] = {0};
    pl_strbuf            b = {0};
    seed_eval(&b);
    seed_survey(&b, SURVEY_FIRST, true);
    seed_survey(&b, SURVEY_OTHER, false);
    begin(&b, CARRY);
    put(&b, docs, sizeof docs);
    pl_fuzz_seed(b.s, b.n);
    seed_follow(&b);
    seed_serve(&b);
    begin(&b, GUARD);
    put(&b, guard, sizeof guard);
    pl_fuzz_seed(b.s, b.n);
    pl_free(b.s);
}

const pl_fuzz_target pl_fuzz = {.name = "ranks", .seeds = seeds, .runs = 2500, .max_len = 1 << 14};
