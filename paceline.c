// The program: its table of commands, their common options, ranks and device, and its exit codes.
#include "paceline.h"

#include "infer/cli/cli.h"
#include "infer/cli/machine.h"
#include "infer/eval/eval.h"
#include "infer/generate/generate.h"
#include "infer/generate/own_prompts.h"
#include "infer/model/tp.h"
#include "kernels/base/files.h"
#include "kernels/base/json.h"
#include "kernels/base/log.h"
#include "kernels/base/parallel.h"
#include "kernels/base/room.h"
#include "kernels/comm/reader.h"
#include "kernels/devices.h"
#include "recipes/folder.h"
#include "recipes/spell.h"
#include "train/keys.h"
#include "train/run/device.h"
#include "train/run/launch.h"
#include "train/run/pipeline.h"
#include "train/run/run.h"
#include "train/run/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const pl_key common_options[] = {
    {PL_OPTION_TEXT("device", pl_devices_syntax), .deflt = "auto",
     .help = "where to compute; auto: a GPU that runs the target and holds its weights, else the CPU"},
    {PL_OPTION_INT("threads", "N"), .min = 1, .max = 1024, .help = "threads [PACELINE_THREADS, else all cores]"},
    {PL_OPTION_INT("seed", "N"), .min = 0, .max = 9e15, .help = "seed of random draws [1, or the recipe's]"},
    {PL_OPTION_FLAG("json"), .help = "one JSON document on standard output and nothing else"},
    {PL_OPTION_FLAG("quiet"), .letter = 'q', .help = "nothing on standard error but warnings and errors"},
    {PL_OPTION_FLAG("help"), .letter = 'h', .help = "this text"},
    {PL_OPTION_FLAG("version"), .help = "the version"},
    {0}};

static const pl_key recipe_options[] = {
    {PL_OPTION_TEXTS("set", "KEY=VALUE"), .help = "overrides a key of the recipe"},
    {PL_OPTION_TEXT("out", "DIR"), .letter = 'o', .help = "the run's folder [runs/NAME of the recipe]"},
    {PL_OPTION_FLAG("keys"), .help = "lists every key with type, default and range"},
    {0}};

static const pl_key rank_options[] = {
    {PL_OPTION_INT("ranks", "N"), .deflt = "1", .min = 1, .max = PL_RANKS_MAX,
     .help = "processes that share the work, the slots (train.slots) of each training step, the shards of a dataset or "
             "the prompts "
             "of an evaluation, "
             "and the threads; with --device cuda each has a GPU of its own"},
    {PL_OPTION_INT("tensor-parallel", "N"), .deflt = "1", .min = 1, .max = PL_RANKS_MAX,
     .help =
         "processes over which the target's weights and caches are divided, as it is too large for one; logits keep "
         "their bits"},
    {PL_OPTION_TEXT("transport", PL_TRANSPORTS_SYNTAX), .deflt = "auto",
     .help = "how ranks exchange tensors: through the hosts' memory, or by NCCL between GPUs"},
    {PL_OPTION_INT("rank", "R"), .min = 0, .max = PL_RANKS_MAX - 1,
     .help = "this process is rank R of --world; torchrun, srun and mpirun say so themselves"},
    {PL_OPTION_INT("world", "N"), .min = 1, .max = PL_RANKS_MAX, .help = "ranks of all machines"},
    {PL_OPTION_TEXT("address", "HOST:PORT"), .help = "where rank 0 listens for the others [a launcher's]"},
    {PL_OPTION_TEXT("secret-file", "FILE"),
     .help =
         "by which ranks know each other over TCP: at least 32 random bytes, the same for all, readable by its owner "
         "alone [PACELINE_SECRET, else one that rank 0 draws where all are of one host]"},
    {PL_OPTION_TEXT("group", PL_GROUPS_SYNTAX), .deflt = "auto",
     .help = "how ranks that were started one by one join: over MPI where mpirun started them, this build has its MPI "
             "and no --address is given, else over TCP"},
    {PL_OPTION_REAL("patience", "SECONDS"), .deflt = "300", .min = 1, .max = 86400, .help = "for all ranks to come"},
    {0}};

// Returns all common options, those from --ranks on, or none.
static const pl_key *ranks_of(const pl_command *c) {
    return c->ranks ? rank_options : c->parts ? rank_options + 1 : NULL;
}

// ---- stages of a recipe ----

// Groups of processes of a command: `comm` shares its work; `tp` holds the target of each. NULL: one process.
typedef struct crew {
    pl_comm   *comm, *tp;
    pl_recipe *recipe;      // of the command, owned; NULL: the command has none
    int64_t    own_prompts; // of the recipe, see pl_env
} crew;

// --out, or runs/NAME for .../NAME.yaml.
static char *out_folder(const pl_cli_args *a) {
    const char *out = pl_cli_text(a, "out"), *name = pl_path_name(a->positional[0]), *dot = strrchr(name, '.');
    if (out) return pl_strdup(out);
    return pl_sprintf("runs/%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name), name);
}

// Opens the recipe; data.prompts: self:N becomes the file OUT/prompts.jsonl and *own_prompts N, which is 0 otherwise.
// sets: n, with room for one more.
static pl_status open_with(pl_recipe **r, int64_t *own_prompts, const pl_cli_args *a, const char **sets, int n,
                           pl_err *err) {
    int                  n_keys;
    const pl_key *const *keys = pl_stage_tables(&n_keys);
    *own_prompts = 0;
    PL_TRY(pl_recipe_open(r, a->positional[0], keys, n_keys, sets, n, err));
    if (!pl_own_prompts_wanted(*r)) return PL_OK;
    pl_status st = pl_own_prompts_count(own_prompts, *r, err);
    pl_recipe_close(*r);
    *r = NULL;
    PL_TRY(st);
    char *out = out_folder(a), *file = out ? pl_sprintf("data.prompts=%s/prompts.jsonl", out) : NULL;
    sets[n] = file;
    st = file ? pl_recipe_open(r, a->positional[0], keys, n_keys, sets, n + 1, err)
              : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    pl_free(file);
    pl_free(out);
    return st;
}

static pl_status open_recipe(crew *w, const pl_cli_args *a, pl_err *err) {
    char         seed[48];
    int          n;
    const char **sets = pl_calloc((size_t)a->n_given + 2, sizeof *sets);
    if (!sets) return pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    pl_cli_list(a, "set", sets, &n);
    if (pl_cli_has(a, "seed")) {
        snprintf(seed, sizeof seed, "seed=%llu", (unsigned long long)pl_cli_int(a, "seed"));
        sets[n++] = seed;
    }
    pl_status st = open_with(&w->recipe, &w->own_prompts, a, sets, n, err);
    pl_free(sets);
    return st;
}

// Writes the effective recipe into the run's folder and reports its path and hash.
static pl_status keep_recipe(const pl_recipe *r, const char *out, pl_err *err) {
    char *text = NULL, *path = NULL, hash[17];
    PL_TRY(pl_recipe_hash(r, 0, hash, err));
    PL_TRY(pl_recipe_dump(r, &text, err));
    path = pl_path_join(out, "recipe.yaml");
    pl_status st = path ? PL_OK : pl_fail(err, PL_E_MEMORY, "%s: out of memory", out);
    if (st == PL_OK) st = pl_file_write_atomic(path, text, strlen(text), err);
    if (st == PL_OK) pl_log("recipe: %s (hash %s)", path, hash);
    pl_free(text);
    pl_free(path);
    return st;
}

// Refuses to overwrite a file that a user wrote, such as the recipe that is being read.
static pl_status spare_recipe(const pl_env *env, const char *out, pl_err *err) {
    char *path = pl_path_join(out, "recipe.yaml");
    if (!path) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", out);
    pl_status st = pl_recipe_spares(path, env->keys, env->n_keys, err);
    pl_free(path);
    return st;
}

// Reads the recipe of an earlier run; text NULL: none.
static void read_kept(const char *out, uint8_t **text, size_t *n) {
    char *path = pl_path_join(out, "recipe.yaml");
    *text = NULL;
    if (path && pl_path_exists(path)) pl_file_read(path, text, n, PL_RECIPE_MAX_BYTES, NULL);
    pl_free(path);
}

// Restores the recipe from which the folder's products were made, after a new one was refused.
static void put_back(const char *out, const uint8_t *text, size_t n) {
    char *path = pl_path_join(out, "recipe.yaml");
    if (path) pl_file_write_atomic(path, text, n, NULL);
    pl_free(path);
}

// Checks a recipe by itself, before anything is printed or written.
typedef pl_status (*check_fn)(const pl_recipe *r, const char *out_dir, pl_err *err);

static pl_status lock_folder(const pl_env *env, const char *out, int *lock, pl_err *err) {
    PL_TRY(spare_recipe(env, out, err));
    PL_TRY(pl_dir_make(out, err));
    return pl_dir_lock(out, lock, err);
}

// Returns true if the stage begins with prompts that the target writes. Training and evaluation read those of the
// folder's dataset, whatever device made them.
static bool writes_prompts(const pl_env *env, pl_stage_fn stage) {
    const char *path = pl_generate_recipe_of(env->recipe)->data.prompts;
    return env->own_prompts > 0 && stage != pl_ranks_eval && !(stage == pl_train_run && pl_path_exists(path));
}

// goes_on: the stage resumes the folder's products, and refuses another recipe's.
static pl_status run_stage(const pl_env *env, const pl_cli_args *a, check_fn check, pl_stage_fn stage, bool goes_on,
                           pl_err *err) {
    const pl_recipe *r = env->recipe;
    char            *out = NULL;
    uint8_t         *before = NULL;
    size_t           before_n = 0;
    int              lock = -1;
    pl_status        st = PL_OK;
    out = out_folder(a);
    if (!out) PL_TRY_GOTO(st, done, pl_fail(err, PL_E_MEMORY, "arguments: out of memory"));
    if (writes_prompts(env, stage)) {
        PL_TRY_GOTO(st, done, lock_folder(env, out, &lock, err));
        PL_TRY_GOTO(st, done, pl_own_prompts_of_recipe(r, env->own_prompts, env, err));
    }
    PL_TRY_GOTO(st, done, check(r, out, err));
    if (lock < 0) PL_TRY_GOTO(st, done, lock_folder(env, out, &lock, err));
    pl_folder_sweep(out);
    if (goes_on) read_kept(out, &before, &before_n);
    PL_TRY_GOTO(st, done, keep_recipe(r, out, err));
    if (env->json) pl_put_str(env->result, "out", out);
    PL_TRY_GOTO(st, done, stage(r, out, env, err));
    pl_log("done: %s", out);
done:
    if (before && st == PL_E_INPUT) put_back(out, before, before_n);
    pl_dir_unlock(lock);
    pl_free(before);
    pl_free(out);
    return st;
}

static const pl_key generate_options[] = {
    {PL_OPTION_FLAG("texts"),
     .help = "instead of the dataset OUT/texts.jsonl, a line for each answer: prompt, answer, both as text; what "
             "data.text of a target reads"},
    {0}};

static pl_status generate(const pl_env *e, const pl_cli_args *a, pl_err *err) {
    if (pl_cli_has(a, "texts") && pl_comm_ranks(e->comm) > 1)
        return pl_fail(err, PL_E_USAGE, "--texts: one process writes them; leave --ranks out");
    if (pl_cli_has(a, "texts")) return run_stage(e, a, pl_pipeline_texts_check, pl_generate_texts, true, err);
    return run_stage(e, a, pl_pipeline_generate_check, pl_pipeline_generate, true, err);
}
static pl_status train(const pl_env *e, const pl_cli_args *a, pl_err *err) {
    return run_stage(e, a, pl_pipeline_train_check, pl_train_run, true, err);
}
static pl_status run(const pl_env *e, const pl_cli_args *a, pl_err *err) {
    return run_stage(e, a, pl_pipeline_check, pl_pipeline_run, false, err);
}
static pl_status eval(const pl_env *e, const pl_cli_args *a, pl_err *err) {
    return run_stage(e, a, pl_pipeline_eval_check, pl_ranks_eval, false, err);
}

#define STAGE(verb, what, more, own, shared)                                                                           \
    static const pl_command verb##_command = {.name = #verb,                                                           \
                                              .summary = what,                                                         \
                                              .positional = "RECIPE",                                                  \
                                              .min_positional = 1,                                                     \
                                              .max_positional = 1,                                                     \
                                              .recipe = true,                                                          \
                                              .ranks = shared,                                                         \
                                              .parts = true,                                                           \
                                              .devices = true,                                                         \
                                              .options = own,                                                          \
                                              .about = more,                                                           \
                                              .example =                                                               \
                                                  "paceline " #verb " recipes/quickstart.yaml --out runs/first",       \
                                              .run = verb}
STAGE(
    generate, "makes a training dataset: the target's answers to prompts, with its hidden states",
    "Writes OUT/dataset. The same command goes on with a run that was stopped; the dataset is the same one, with any\n"
    "number of ranks.",
    generate_options, true);
STAGE(train, "trains a drafter on a dataset or, with kind: target, a small target on text",
      "Writes OUT/checkpoints/last and best, and OUT/metrics.jsonl. The same command goes on with a run that was\n"
      "stopped; its weights are then, with any number of ranks, bit for bit those of a run that was not.",
      NULL, true);
STAGE(eval, "measures acceptance lengths and speed-ups of trained drafters",
      "Decodes the same prompts with every method; writes OUT/results.json and OUT/report.html.\n"
      "Ranks share the prompts: the answers and acceptance lengths of one process, times that say less.",
      NULL, true);

STAGE(run, "generate, train and eval in order, skipping what is up to date",
      "Products that were made from the same recipe and inputs are kept, one that was begun is finished, the rest are\n"
      "made anew: a dataset in the place of the old one; a drafter's last checkpoints are kept as checkpoints.HASH.",
      NULL, true);

#define PL_COMMAND(name) extern const pl_command pl_command_##name;
#include "infer/cli/commands.def"
#undef PL_COMMAND
#define PL_COMMAND(name) &pl_command_##name,
static const pl_command *const commands[] = {
    &generate_command,
    &train_command,
    &eval_command,
    &run_command,
#include "infer/cli/commands.def"
};
#undef PL_COMMAND
enum { COMMANDS = sizeof commands / sizeof *commands };

// ---- help ----

static void overview(FILE *f) {
    fprintf(f,
            "paceline %s: trains draft heads for a target model and decodes with them, losslessly.\n\n"
            "Usage: paceline COMMAND [OPTIONS]\n\nCommands:\n",
            pl_version());
    for (int i = 0; i < COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(f, "\npaceline COMMAND --help explains a command.\n");
}

static pl_status print_keys(pl_err *err) {
    char                *text;
    int                  n;
    const pl_key *const *tables = pl_stage_tables(&n);
    PL_TRY(pl_recipe_help(tables, n, &text, err));
    fputs(text, stdout);
    pl_free(text);
    return PL_OK;
}

static void print_version(bool json) {
    if (json)
        printf("{\"version\":\"%s\",\"commit\":\"%s\"}\n", pl_version(), pl_commit());
    else
        printf("paceline %s (%s)\n", pl_version(), pl_commit());
}

// ---- one command ----

// Finds a command by one word or two (plan train), the longer first, and moves *at past it.
static const pl_command *find_command(int argc, char **argv, int *at, pl_err *err) {
    const char *names[COMMANDS], *name = argv[*at], *second = *at + 1 < argc ? argv[*at + 1] : "";
    size_t      n = strlen(name);
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strncmp(names[i], name, n) != 0 || names[i][n] != ' ' || strcmp(names[i] + n + 1, second) != 0) continue;
        *at += 2;
        return commands[i];
    }
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *at += 1;
        return commands[i];
    }
    const char *near = pl_spell_nearest(name, names, COMMANDS);
    if (near)
        pl_fail(err, PL_E_USAGE, "%s: unknown command; did you mean %s?", name, near);
    else
        pl_fail(err, PL_E_USAGE, "%s: unknown command; paceline --help lists the known ones", name);
    return NULL;
}

static pl_status check_positional(const pl_command *c, const pl_cli_args *a, pl_err *err) {
    if (a->n_positional < c->min_positional)
        return pl_fail(err, PL_E_USAGE, "%s: is missing; e.g. %s", c->positional, c->example);
    if (a->n_positional > c->max_positional)
        return pl_fail(err, PL_E_USAGE, "%s: one argument too many; paceline %s --help explains",
                       a->positional[c->max_positional], c->name);
    return PL_OK;
}

static int all_ranks(const crew *w) {
    return pl_comm_ranks(w->comm) * pl_comm_ranks(w->tp);
}

static bool follows(const crew *w) {
    return pl_comm_rank(w->tp) > 0;
}

static bool is_first(const crew *w) {
    return pl_comm_rank(w->comm) == 0 && !follows(w);
}

static bool joined(const crew *w) {
    return pl_comm_joined(w->comm) || pl_comm_joined(w->tp);
}

static void tell_all(const crew *w, const pl_err *why) {
    if (!follows(w)) pl_comm_fail(w->comm, why);
    pl_comm_fail(w->tp, why);
}

// A follower inherits its leader's `comm` and is no member of it.
static void dismiss(const crew *w) {
    pl_comm_close(w->tp);
    if (!follows(w)) pl_comm_close(w->comm);
}

// Collects the inputs of the device's choice. The wish borrows *owned.
static pl_status find_wish(pl_device_wish *d, const pl_command *c, const pl_cli_args *a, const crew *w, char **owned,
                           pl_err *err) {
    *d = (pl_device_wish){
        .name = pl_cli_text(a, "device"), .needed = c->devices, .comm = w->comm, .tp = w->tp, .weights = PL_I64};
    if (c->runs) d->needed = c->runs(a, &d->target, &d->weights);
    if (!c->recipe || strcmp(d->name, "auto") != 0) return PL_OK;
    char *out = out_folder(a);
    bool  trains = c == &train_command || c == &run_command, generates = c == &generate_command || c == &run_command;
    pl_status st = out ? pl_pipeline_target(owned, w->recipe, out, c == &eval_command, err)
                       : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    d->target = *owned;
    d->weights = pl_target_dtype(pl_generate_recipe_of(w->recipe));
    if (st == PL_OK) pl_device_began(d->began, w->recipe, out, trains, generates);
    pl_free(out);
    return st;
}

// The device of a command.
typedef struct used_device {
    const pl_backend *backend;
    bool              told; // the command computes there: its first line and its JSON name the device
    pl_err            why;  // of pl_device_choose
} used_device;

static pl_status find_device(used_device *p, const pl_command *c, const pl_cli_args *a, const crew *w, pl_err *err) {
    pl_device_wish d;
    char          *owned = NULL;
    pl_status      st = find_wish(&d, c, a, w, &owned, err);
    if (st == PL_OK) st = pl_device_choose(&p->backend, &p->why, &d, err);
    pl_free(owned);
    p->told = d.needed;
    if (st != PL_OK || !p->told) return st;
    if (*p->why.msg)
        pl_log_first("device: %s (--device auto: %s)", p->backend->name, p->why.msg);
    else
        pl_log_first("device: %s", p->backend->name);
    return PL_OK;
}

static void put_device(pl_json_out *o, const used_device *p) {
    if (p->told) pl_put_str(o, "device", p->backend->name);
    if (p->told && *p->why.msg) pl_put_str(o, "device_why", p->why.msg);
}

static pl_status find_threads(const pl_cli_args *a, int *threads, pl_err *err) {
    const char *set = getenv("PACELINE_THREADS");
    *threads = 0;
    if (pl_cli_has(a, "threads")) {
        *threads = (int)pl_cli_int(a, "threads");
    } else if (set && *set) {
        char *end;
        long  n = strtol(set, &end, 10);
        if (*end || n < 1 || n > 1024)
            return pl_fail(err, PL_E_USAGE, "PACELINE_THREADS=%s: expected a number of threads, 1 to 1024", set);
        *threads = (int)n;
    }
    return PL_OK;
}

static pl_status write_out(const char *text, size_t n, pl_err *err) {
    for (size_t at = 0; at < n;) {
        ssize_t k = write(STDOUT_FILENO, text + at, n - at);
        if (k < 0 && errno == EINTR) continue;
        if (k == 0) errno = EIO;
        if (k <= 0) return pl_fail_errno(err, "standard output");
        at += (size_t)k;
    }
    return PL_OK;
}

// Flushes standard output: a full disk behind it is a failure.
static pl_status finish_output(pl_json_out *json, pl_err *err) {
    if (json) {
        pl_json_out_close(json, '}');
        PL_TRY(pl_json_out_end(json, err));
        json->text[json->len] = '\n'; // instead of the 0: a document leaves at once or, on a full disk, hardly at all
        pl_status st = write_out(json->text, json->len + 1, err);
        pl_free(json->text);
        json->text = NULL;
        return st;
    }
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (!errno) errno = EIO;
        return pl_fail_errno(err, "standard output");
    }
    return PL_OK;
}

// Returns the number of cores for a process with `neighbours` processes on its machine. Cores to which a launcher has
// bound it are its own.
static int own_cores(int neighbours) {
    cpu_set_t set;
    bool      bound = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
    return bound ? pl_cores() : pl_ranks_threads(pl_cores(), neighbours);
}

// Refuses ranks that were started with different recipes.
static pl_status same_recipe(const pl_env *env, const pl_cli_args *a, const pl_recipe *r, pl_err *err) {
    char own[17], first[17];
    PL_TRY(pl_recipe_hash(r, 0, own, err));
    memcpy(first, own, sizeof first);
    PL_TRY(pl_comm_broadcast(env->comm, first, sizeof first, err));
    pl_reader   in = pl_reader_of(0, "its recipe's hash", first, sizeof first, err);
    const char *theirs = pl_reader_text(&in, "it", sizeof first);
    if (in.status != PL_OK || strcmp(own, theirs) == 0) return in.status;
    return pl_fail(err, PL_E_USAGE, "%s: has the hash %s here, on rank 0 %s; start all ranks with one recipe",
                   a->positional[0], own, theirs);
}

// Reports at the end the memory and traffic of a target's ranks.
static pl_status end_parts(const pl_env *env, pl_err *err) {
    pl_tp_use use[PL_RANKS_MAX];
    int       ranks = pl_comm_ranks(env->tp);
    PL_TRY(pl_tp_used(env->tp, use, err));
    for (int r = 0; r < ranks; r++)
        pl_log("rank %d of %d by %s: peak memory %.2f GB, sent %.2f MB", r, ranks, pl_comm_transport(env->tp),
               use[r].peak / 1e9, use[r].sent / 1e6);
    if (env->json) {
        pl_put_array(env->result, "tensor_parallel");
        for (int r = 0; r < ranks; r++) {
            pl_json_out_object(env->result);
            pl_put_num(env->result, "peak_memory_bytes", use[r].peak);
            pl_put_num(env->result, "sent_bytes", use[r].sent);
            pl_json_out_close(env->result, '}');
        }
        pl_json_out_close(env->result, ']');
    }
    return pl_tp_end(env->tp, err);
}

// Threads of this process. Rank 0 has those of all that share the work, as it does much of it alone
// (train/run/run.h).
static int own_threads(const crew *w, int asked) {
    int all = asked > 0 ? asked : pl_cores();
    if (joined(w)) return asked > 0 ? asked : own_cores(pl_comm_neighbours(w->comm ? w->comm : w->tp));
    if (all_ranks(w) == 1) return asked;
    return pl_ranks_threads(all, is_first(w) ? pl_comm_ranks(w->tp) : all_ranks(w));
}

// The function by which a rank other than 0 takes part in a command that reads a recipe.
static const struct {
    const pl_command *command;
    unsigned          works;
} stages[] = {{&generate_command, PL_RANKS_GENERATE},
              {&train_command, PL_RANKS_TRAIN},
              {&eval_command, PL_RANKS_EVAL},
              {&run_command, PL_RANKS_GENERATE | PL_RANKS_TRAIN | PL_RANKS_EVAL}};

// Serves a part of the target until its leader ends; opens the target by its own command line.
static pl_status follow(const pl_command *c, const pl_cli_args *a, const crew *w, const pl_env *env, const char *out,
                        pl_err *err) {
    char *made = NULL;
    if (!c->recipe) return pl_tp_follow(w->tp, env->backend, env->pool, pl_cli_text(a, "target"), err);
    PL_TRY(pl_pipeline_target(&made, w->recipe, out, c == &eval_command, err));
    pl_status st = pl_tp_follow(w->tp, env->backend, env->pool, made, err);
    pl_free(made);
    return st;
}

// Runs a rank other than 0 until its leader ends it.
static pl_status serve(const pl_command *c, const pl_cli_args *a, const crew *w, const pl_env *env, pl_err *err) {
    char        *out = c->recipe ? out_folder(a) : NULL;
    pl_ranks_own own = {.recipe = w->recipe, .out_dir = out, .drafters = c == &run_command};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (stages[i].command == c) own.works = stages[i].works;
    pl_status st = !c->recipe || out ? PL_OK : pl_fail(err, PL_E_MEMORY, "arguments: out of memory");
    if (st == PL_OK && follows(w)) {
        st = follow(c, a, w, env, out, err);
    } else if (st == PL_OK) {
        st = pl_ranks_serve(env, &own, err);
        if (st == PL_OK) st = pl_tp_end(w->tp, err);
    }
    pl_free(out);
    return st;
}

// Runs the command after its ranks have joined.
static pl_status on_rank(const pl_command *c, const pl_cli_args *a, crew *w, pl_err *err) {
    pl_json_out json = {0};
    bool        first = is_first(w);
    pl_env      env = {.quiet = pl_cli_has(a, "quiet"),
                       .json = pl_cli_has(a, "json"),
                       .comm = follows(w) ? NULL : w->comm,
                       .tp = w->tp,
                       .has_seed = pl_cli_has(a, "seed"),
                       .seed = 1};

    used_device device = {0};
    int         threads;
    env.keys = pl_stage_tables(&env.n_keys);
    pl_log_set(!first ? PL_LOG_MUTE : env.quiet ? PL_LOG_QUIET : PL_LOG_NORMAL);
    if (!first && joined(w)) pl_stop_hold(); // rank 0 ends the work, which every rank's request reaches
    if (c->recipe && !w->recipe) PL_TRY(open_recipe(w, a, err));
    PL_TRY(find_device(&device, c, a, w, err));
    env.backend = device.backend;
    if (env.comm) PL_TRY(pl_comm_open(env.comm, pl_cli_text(a, "transport"), env.backend, err));
    if (env.tp) PL_TRY(pl_comm_open(env.tp, pl_cli_text(a, "transport"), env.backend, err));
    PL_TRY(find_threads(a, &threads, err));
    if (env.has_seed) env.seed = (uint64_t)pl_cli_int(a, "seed");
    PL_TRY(pl_pool_create(&env.pool, own_threads(w, threads), err));
    env.threads = pl_pool_threads(env.pool);
    pl_status same = c->recipe && pl_comm_joined(env.comm) ? same_recipe(&env, a, w->recipe, err) : PL_OK;
    env.recipe = w->recipe;
    env.own_prompts = w->own_prompts;
    if (!first || same != PL_OK) {
        pl_status st = same;
        if (st == PL_OK) st = serve(c, a, w, &env, err);
        pl_pool_destroy(env.pool);
        return st;
    }
    if (env.json) {
        pl_json_out_begin(&json, 0);
        pl_json_out_object(&json);
        env.result = &json;
        put_device(&json, &device);
    } else {
        env.text = stdout;
    }
    pl_status st = c->run(&env, a, err);
    if (st == PL_OK) st = pl_ranks_end(&env, err);
    if (st == PL_OK && env.tp) st = end_parts(&env, err);
    if (st == PL_OK) st = finish_output(env.result, err);
    if (st == PL_OK) pl_log_first_now();
    // A complete verdict is printed although it is a failure.
    if (st != PL_OK && c->verdict && env.json && json.depth == 1 && !json.first) finish_output(&json, NULL);
    fflush(stdout); // text that was streamed before a failure
    pl_free(json.text);
    pl_pool_destroy(env.pool);
    return st;
}

static const char *environment(void *arg, const char *name) {
    (void)arg;
    return getenv(name);
}

// Joins ranks that were started one by one, by a launcher or by hand.
static pl_status join(pl_comm **comm, const pl_cli_args *a, const pl_launch *l, pl_err *err) {
    char      identity[128];
    pl_secret secret = {.dir = -1};
    bool      quiet = pl_cli_has(a, "quiet");
    if (l->mpi && pl_cli_has(a, "secret-file"))
        return pl_fail(err, PL_E_USAGE, "--secret-file: ranks that join over MPI need none; leave it out");
    if (!l->mpi && l->ranks > 1)
        PL_TRY(pl_secret_open(&secret, l, pl_cli_text(a, "secret-file"), getenv("PACELINE_SECRET"), err));
    snprintf(identity, sizeof identity, "paceline %s (%s)", pl_version(), pl_commit());
    pl_comm_place place = {.rank = l->rank,
                           .ranks = l->ranks,
                           .local = l->local,
                           .address = l->address,
                           .mpi = l->mpi,
                           .identity = identity,
                           .patience = pl_cli_real(a, "patience"),
                           .find_key = pl_secret_key,
                           .key_arg = &secret};
    if (!quiet)
        fprintf(stderr, "rank %d of %d by %s, %s%s\n", l->rank, l->ranks, l->by, l->mpi ? "over MPI" : "at ",
                l->mpi ? "" : l->address);
    pl_log_set(quiet ? PL_LOG_QUIET : PL_LOG_NORMAL);
    pl_status st = pl_comm_join(comm, &place, err);
    pl_secret_close(&secret);
    return st;
}

// Reads the recipe before forking: a pipe can be read only once.
static pl_status fork_ranks(crew *w, const pl_command *c, const pl_cli_args *a, pl_comm **comm, int ranks,
                            pl_err *err) {
    if (c->recipe && !w->recipe) PL_TRY(open_recipe(w, a, err));
    pl_memory_divide(ranks, 2.0 * ranks * (double)PL_COMM_ROUND); // each shows the others its pieces in two windows
    return pl_comm_fork(comm, ranks, err);
}

// Forms the groups of a tensor-parallel target: all started ranks, or --tensor-parallel of them for each member of
// `comm`.
static pl_status find_parts(crew *w, const pl_command *c, const pl_cli_args *a, const pl_launch *l, int parts,
                            int ranks, pl_err *err) {
    if (!l->by && ranks > 1) PL_TRY(fork_ranks(w, c, a, &w->comm, ranks, err));
    if (!l->by) return fork_ranks(w, c, a, &w->tp, parts, err);
    if (l->ranks != parts || ranks > 1)
        return pl_fail(
            err, PL_E_USAGE,
            "--tensor-parallel %d: %s has started %d processes, over which the target is to lie; give "
            "--tensor-parallel %d and no --ranks, or start a single process on one machine by itself, with --ranks",
            parts, l->by, l->ranks, l->ranks);
    return join(&w->tp, a, l, err);
}

static bool given(const pl_command *c, const pl_cli_args *a, const char *name) {
    return (c->ranks || c->parts) && pl_cli_has(a, name);
}

// Refuses several processes for a command that runs in one.
static pl_status refuse_others(const pl_command *c, const pl_cli_args *a, const pl_launch *l, pl_err *err) {
    if (l->ranks > 1)
        return pl_fail(err, PL_E_USAGE, "%s: is one process's work, and %s started %d; start it by itself%s", c->name,
                       l->by, l->ranks, c->parts ? ", or give --tensor-parallel" : "");
    if (given(c, a, "transport"))
        return pl_fail(err, PL_E_USAGE, "--transport: there is one process; give --tensor-parallel");
    return PL_OK;
}

static pl_status find_ranks(crew *w, const pl_command *c, const pl_cli_args *a, pl_err *err) {
    pl_launch_options o = {.rank = given(c, a, "rank") ? (int)pl_cli_int(a, "rank") : -1,
                           .world = given(c, a, "world") ? (int)pl_cli_int(a, "world") : 0,
                           .address = given(c, a, "address") ? pl_cli_text(a, "address") : NULL,
                           .group = given(c, a, "group") ? pl_cli_text(a, "group") : NULL,
                           .has_mpi = pl_comm_mpi_kind()};
    bool              asks = o.rank >= 0 || o.world > 0 || o.address || o.group;
    int               parts = c->parts ? (int)pl_cli_int(a, "tensor-parallel") : 1;
    int               ranks = c->ranks ? (int)pl_cli_int(a, "ranks") : 1;
    pl_launch         l = {.ranks = 1};
    if (c->recipe || parts > 1 || asks) PL_TRY(pl_launch_find(&l, &o, environment, NULL, err));
    if (!l.by && given(c, a, "secret-file"))
        return pl_fail(err, PL_E_USAGE, "--secret-file: is for ranks that were started one by one; leave it out");
    if (!l.by && o.group && strcmp(o.group, "auto") != 0)
        return pl_fail(err, PL_E_USAGE, "--group %s: is how ranks meet that were started one by one; leave it out",
                       o.group);
    if (parts > 1) return find_parts(w, c, a, &l, parts, ranks, err);
    if (!c->ranks) return refuse_others(c, a, &l, err);
    if (l.by && ranks > 1)
        return pl_fail(err, PL_E_USAGE,
                       "--ranks %d: %s has started %d processes already, of which this is one; leave it out", ranks,
                       l.by, l.ranks);
    if (l.by) return join(&w->comm, a, &l, err);
    // An explicit --transport holds for a single rank too.
    if (ranks > 1 || pl_cli_has(a, "transport")) return fork_ranks(w, c, a, &w->comm, ranks, err);
    return PL_OK;
}

// *told: another process reports the failure.
static pl_status carry_out(const pl_command *c, const pl_cli_args *a, bool *told, pl_err *err) {
    crew w = {0};
    PL_TRY(check_positional(c, a, err));
    pl_stop_install(); // before ranks wait for each other; forked ones leave signals to rank 0
    pl_status st = find_ranks(&w, c, a, err);
    if (st == PL_OK) st = on_rank(c, a, &w, err);
    if (st != PL_OK) tell_all(&w, err);
    *told = !is_first(&w) && !joined(&w);
    dismiss(&w);
    pl_recipe_close(w.recipe);
    return st;
}

// Parses the command line; sets *c as soon as the command is known, for messages.
static pl_status work(int argc, char **argv, pl_cli_args *a, const pl_command **c, bool *told, pl_err *err) {
    int at = 1;
    a->table[0] = common_options;
    PL_TRY(pl_cli_parse(a, argc, argv, &at, true, err));
    if (at < argc) {
        *c = find_command(argc, argv, &at, err);
        if (!*c) return PL_E_USAGE;
        a->table[1] = (*c)->options;
        a->table[2] = (*c)->recipe ? recipe_options : NULL;
        a->table[3] = ranks_of(*c);
        PL_TRY(pl_cli_parse(a, argc, argv, &at, false, err));
    }
    if (pl_cli_has(a, "version")) {
        print_version(pl_cli_has(a, "json"));
        return finish_output(NULL, err);
    }
    if (pl_cli_has(a, "help")) {
        if (*c)
            pl_cli_help(stdout, *c, recipe_options, ranks_of(*c), common_options);
        else
            overview(stdout);
        return finish_output(NULL, err);
    }
    if (!*c) return pl_fail(err, PL_E_USAGE, "no command; paceline --help lists them");
    if ((*c)->recipe && pl_cli_has(a, "keys")) {
        if (pl_cli_has(a, "json")) return pl_fail(err, PL_E_USAGE, "--keys: is text; leave --json out");
        PL_TRY(print_keys(err));
        return finish_output(NULL, err);
    }
    return carry_out(*c, a, told, err);
}

// Opens descriptors 0, 1 and 2 where they are closed: the first opened file would get the number, and messages or
// results would go into it. Ignores SIGXFSZ: a write beyond `ulimit -f` fails as on a full disk, and temporaries are
// removed.
static void settle_process(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd) _exit(1);
    signal(SIGXFSZ, SIG_IGN);
    pl_map_guard();
    pl_thread_defaults();
}

int main(int argc, char **argv) {
    settle_process();
    pl_cli_args       a = {0};
    const pl_command *c = NULL;
    pl_err            err = {0};
    bool              told = false;
    pl_status         st = work(argc, argv, &a, &c, &told, &err);
    if (st != PL_OK && !told) fprintf(stderr, "paceline: %s%s%s\n", c ? c->name : "", c ? ": " : "", err.msg);
    pl_cli_args_fini(&a);
    return pl_status_exit(st);
}
