#define _GNU_SOURCE 1 // memfd_create
#include "walk.h"

#include "fixture.h"
#include "kernels/base/files.h"
#include "tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int paceline_main(int argc, char **argv); // paceline.c

enum { MAX_ARGS = 64, SECONDS = 600 }; // of wall time: a machine under load is no hang

typedef struct outcome {
    fault_report r;
    int          signal; // that ended it; 0: none
    char        *out, *err;
    size_t       out_n, err_n;
} outcome;

static void stop(const char *what) {
    perror(what);
    abort();
}

static char *take(int fd, size_t *n) {
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = malloc((size_t)size + 1);
    if (size < 0 || !text || pread(fd, text, (size_t)size, 0) != (ssize_t)size) stop("output");
    text[size] = 0;
    *n = (size_t)size;
    close(fd);
    return text;
}

static void child(const char *args, const fault_plan *p, fault_report *r, int out, int err) {
    char  line[2048], *argv[MAX_ARGS] = {"paceline"};
    int   argc = 1;
    char *at = line;
    snprintf(line, sizeof line, "%s", args);
    for (char *word; (word = strsep(&at, " ")) != NULL && argc < MAX_ARGS - 1;)
        argv[argc++] = word;
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    alarm(SECONDS);
    fault_catch(r);
    fault_arm(r, p);
    r->code = paceline_main(argc, argv);
    fault_disarm();
    r->ended = true;
    fflush(stdout);
    _exit(0);
}

static void run(const char *args, const fault_plan *p, outcome *o) {
    static fault_report *shared;
    if (!shared) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) stop("mmap");
    memset(shared, 0, sizeof *shared);
    int out = memfd_create("out", 0), err = memfd_create("err", 0), status;
    if (out < 0 || err < 0) stop("memfd");
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) stop("fork");
    if (pid == 0) child(args, p, shared, out, err);
    if (waitpid(pid, &status, 0) != pid) stop("wait");
    *o = (outcome){.r = *shared, .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    o->out = take(out, &o->out_n);
    o->err = take(err, &o->err_n);
    if (!o->signal && WEXITSTATUS(status) != 0) o->r.ended = false; // somebody called exit
}

static void outcome_fini(outcome *o) {
    free(o->out);
    free(o->err);
    *o = (outcome){0};
}

static void prepare(const command *c) {
    if (pl_tree_remove("out", NULL) != PL_OK) stop("out");
    if (c->before) tree_copy(c->before, "out");
}

// ---- fixtures ----

static char start_dir[1024], scratch[256];

static void put(const char *name, const char *text) {
    pl_err err;
    if (pl_file_write_atomic(name, text, strlen(text), &err) != PL_OK) stop(err.msg);
}

static void make(const char *args) {
    outcome o;
    run(args, &(fault_plan){0}, &o);
    if (!o.r.ended || o.r.code != 0) {
        fprintf(stderr, "paceline %s: %s", args, o.err);
        abort();
    }
    outcome_fini(&o);
}

// Shared memory where there is some: thousands of products are made durable.
static const char *scratch_root(void) {
    const char *tmp = getenv("TMPDIR");
    if (tmp && *tmp) return tmp;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

void walk_setup(void) {
    snprintf(scratch, sizeof scratch, "%.200s/paceline-fault-XXXXXX", scratch_root());
    if (!getcwd(start_dir, sizeof start_dir) || !mkdtemp(scratch) || chdir(scratch) != 0) stop(scratch);
    if (pl_dir_make("books", NULL) != PL_OK) stop("books");
    for (int i = 0; i < 3; i++) {
        char name[32], *text = fixture_text(i);
        snprintf(name, sizeof name, "books/%d.txt", i);
        put(name, text);
        free(text);
    }
    put("target.yaml", fixture_target);
    put("drafter.yaml", fixture_drafter);
    put("both.yaml", fixture_both);
    put("routed.yaml", fixture_routed);
    put("prompts.jsonl", fixture_prompts);
    put("heldout.jsonl", fixture_heldout);
    make("train target.yaml -q --threads 1 --out made");
    tree_copy("made/checkpoints/best", "target");
    make("generate drafter.yaml -q --threads 1 --out out");
    tree_copy("out", "generated");
    make("train drafter.yaml -q --threads 1 --set drafter.head.kind=full --set drafter.head.rank=null --set "
         "data.dataset=generated/dataset --out "
         "full");
    make("train drafter.yaml -q --threads 1 --out out");
    tree_copy("out", "trained");
    make("eval drafter.yaml -q --threads 1 --out out");
    tree_copy("out", "evaluated");
    prepare(&(command){0});
}

void walk_teardown(void) {
    if (chdir(start_dir) != 0) stop(start_dir);
    pl_tree_remove(scratch, NULL);
}

#define COMMON " -q --threads 1"

const command walk_commands[] = {
    {.name = "pretrain", .args = "train target.yaml" COMMON " --out out"},
    {.name = "generate", .args = "generate drafter.yaml" COMMON " --out out", .once = true},
    {.name = "train", .args = "train drafter.yaml" COMMON " --out out", .before = "generated"},
    {.name = "route", .args = "train routed.yaml" COMMON " --out out", .before = "generated"},
    {.name = "eval", .args = "eval drafter.yaml" COMMON " --out out", .before = "trained"},
    {.name = "decode",
     .args = "decode -q --threads 2 --target target --drafter trained/checkpoints/best --tree chain:2 --prompt then "
             "--max-new-tokens 8 --json",
     .stdout_is_product = true},
    {.name = "slem",
     .args = "decode -q --threads 2 --target target --drafter slem:target --tree chain:2 --prompt then "
             "--max-new-tokens 8 --json",
     .stdout_is_product = true},
    {.name = "slrs",
     .args = "decode -q --threads 2 --target target --drafter slrs:target --tree chain:2 --verify block "
             "--temperature 1 --prompt then --max-new-tokens 8 --json",
     .stdout_is_product = true},
    {.name = "keep",
     .args = "decode -q --threads 2 --target target --drafter suffix:4,keep=out/kept --prompt then "
             "--max-new-tokens 8 --json",
     .before = "trained",
     .adds = true,
     .stdout_is_product = true},
    {.name = "omni",
     .args = "decode -q --threads 2 --target target --drafter omni:target --tree chain:2 --verify block "
             "--temperature 1 --prompt then --max-new-tokens 8 --json",
     .stdout_is_product = true},
    {.name = "report", .args = "report out -q --out out", .before = "evaluated"},
    {.name = "inspect", .args = "inspect out -q --json", .before = "evaluated", .stdout_is_product = true},
    {.name = "ceilings",
     .args =
         "inspect -q --threads 1 --json --ceilings target --drafter trained/checkpoints/best --positions 4 --depth 2",
     .stdout_is_product = true},
    // What nobody accepts cannot be recommended, however long it took: the same answer every time.
    {.name = "plan",
     .args = "plan -q --threads 1 --json --target target --results evaluated --heads none --tree chain:2 --seconds 0 "
             "--assume 0 --acceptance eagle3-lowrank=0",
     .stdout_is_product = true},
    {.name = "run", .args = "run both.yaml" COMMON " --out out"},
};
const int walk_command_count = sizeof walk_commands / sizeof *walk_commands;

const command *walk_command(const char *name) {
    for (int i = 0; i < walk_command_count; i++)
        if (strcmp(walk_commands[i].name, name) == 0) return &walk_commands[i];
    return NULL;
}

// ---- one point ----

typedef struct walker {
    const command      *c;
    const walk_options *o;
    tree                old, whole; // before a run, and after an undisturbed one
    uint64_t            printed;    // sense of standard output
    fault_report        calm;       // of the undisturbed run
} walker;

static uint64_t printed(const outcome *o) {
    return tree_sense("stdout", o->out, o->out_n);
}

static void start(walker *w) {
    outcome o;
    tree    now;
    char    why[512];
    prepare(w->c);
    tree_read(&w->old, "out");
    run(w->c->args, &(fault_plan){0}, &o);
    if (!o.r.ended || o.r.code != 0 || o.err_n) {
        fprintf(stderr, "paceline %s: signal %d, code %d: %s\n", w->c->args, o.signal, o.r.code, o.err);
        abort();
    }
    w->calm = o.r;
    w->printed = printed(&o);
    outcome_fini(&o);
    tree_read(&w->whole, "out");
    // The undisturbed run must be reproducible, or nothing below means anything.
    prepare(w->c);
    run(w->c->args, &(fault_plan){0}, &o);
    tree_read(&now, "out");
    if (!tree_same(&now, &w->whole, why) || (w->c->stdout_is_product && printed(&o) != w->printed)) {
        fprintf(stderr, "paceline %s: two runs differ: %s\n", w->c->args, why);
        abort();
    }
    tree_fini(&now);
    outcome_fini(&o);
}

static bool one_line(const char *text) {
    const char *end = strchr(text, '\n');
    return strncmp(text, "paceline: ", 10) == 0 && end && !end[1];
}

// A library that ended the process, or spoke for itself before our one line: not ours to mend.
static bool library_finding(const fault_plan *p, const outcome *o) {
    if (p->side != FAULT_LIBS) return false;
    if (!o->r.ended) return o->r.culprit[0] && !o->r.ours;
    if (strncmp(o->err, "paceline: ", 10) == 0) return false;
    const char *last = strstr(o->err, "\npaceline: ");
    return o->r.code == 0 ? o->err_n > 0 : last && one_line(last + 1);
}

// Whether a failure may be taken for bad input: a look that fails once cannot be told from a file of another kind, and
// what a library could not do from what it could not read.
static bool may_be_input(const fault_plan *p) {
    return p->kind == FAULT_LOOK || p->side == FAULT_LIBS;
}

// What failed may have been the removal of the old product after the new one took its name, or everything from here on;
// it goes when the product is made again.
static bool may_leave(const fault_plan *p, const fault_report *r) {
    bool on_the_way = p->kind == FAULT_OPEN || p->kind == FAULT_READ || p->kind == FAULT_LOOK || p->kind == FAULT_ALLOC;
    return p->kind == FAULT_REMOVE || (on_the_way && (r->code == 0 || p->onward));
}

// What is wrong with a run that met a failure, or NULL.
static const char *judge(const walker *w, const fault_plan *p, const outcome *o, char text[1024]) {
    const fault_report *r = &o->r;
    tree                now;
    char                why[512] = "";
    bool                libs = p->side == FAULT_LIBS;
    if (!r->ended) {
        snprintf(text, 1024, "%s in %s (signal %d)",
                 o->signal == SIGALRM ? "hangs"
                 : o->signal          ? "crashes"
                                      : "exits",
                 r->culprit, o->signal);
        return text;
    }
    tree_read(&now, "out");
    if (r->code == 0 && !tree_same(&now, &w->whole, why))
        snprintf(text, 1024, "exit 0, but %s", why);
    else if (r->code == 0 && w->c->stdout_is_product && printed(o) != w->printed)
        snprintf(text, 1024, "exit 0, but another output");
    else if (r->code == 0 && o->err_n)
        snprintf(text, 1024, "exit 0, but says");
    else if (r->code != 0 && r->code != 1 && !(may_be_input(p) && r->code == 2))
        snprintf(text, 1024, "exit %d", r->code);
    else if (r->code != 0 && !one_line(o->err))
        snprintf(text, 1024, "not one line");
    else if (r->code != 0 && o->out_n)
        snprintf(text, 1024, "something on standard output");
    else if (r->blocks != w->calm.blocks)
        snprintf(text, 1024, "%lld blocks still held", (long long)r->blocks);
    else if (!libs && r->maps != w->calm.maps)
        snprintf(text, 1024, "%lld mapped pages still held", (long long)r->maps);
    else if (!libs && r->files != w->calm.files)
        snprintf(text, 1024, "%lld files still open", (long long)r->files);
    else if (r->cjson || r->yaml)
        snprintf(text, 1024, "objects of cJSON (%lld blocks) or libyaml (%lld) still held", (long long)r->cjson,
                 (long long)r->yaml);
    else if (now.left_over && !may_leave(p, r))
        snprintf(text, 1024, "%d temporaries left", now.left_over);
    else if (!tree_whole("out", &now, &w->old, &w->whole, why))
        snprintf(text, 1024, "partial product: %s", why);
    else
        text = NULL;
    tree_fini(&now);
    return text;
}

static const char *judge_again(const walker *w, char text[1024]) {
    outcome o;
    tree    now;
    char    why[512] = "";
    tree_read(&now, "out");
    bool left_before = now.left_over > 0, done = w->c->adds && tree_same(&now, &w->whole, why);
    tree_fini(&now);
    if (done) return NULL;
    run(w->c->args, &(fault_plan){0}, &o);
    tree_read(&now, "out");
    bool complete = w->c->once && o.r.code == 2 && strstr(o.err, "is complete");
    if (!o.r.ended || (o.r.code != 0 && !complete))
        snprintf(text, 1024, "the next run: %s", o.err);
    else if (!tree_same(&now, &w->whole, why))
        snprintf(text, 1024, "the next run: %s", why);
    else if (now.left_over && !left_before)
        snprintf(text, 1024, "the next run: %d temporaries left", now.left_over);
    else
        text = NULL;
    tree_fini(&now);
    outcome_fini(&o);
    return text;
}

static void say_point(const walker *w, const fault_plan *p, const char *what, const outcome *o) {
    size_t n = strcspn(o->err, "\n");
    fprintf(stderr, "%s %s %s%s %llu: %s%s%.*s\n", w->c->name, p->side == FAULT_OWN ? "own" : "libs",
            fault_kind_name(p->kind), p->onward ? "+" : "", (unsigned long long)p->n, what, n ? ": " : "",
            n < 300 ? (int)n : 300, o->err);
}

// False when the failure was not reached any more.
static bool point(const walker *w, const fault_plan *p, bool again, walk_counts *k) {
    outcome     o;
    char        text[1024];
    const char *what;
    prepare(w->c);
    run(w->c->args, p, &o);
    what = judge(w, p, &o, text);
    bool reached = o.r.fired > 0 || !o.r.ended;
    if (!what && reached && again) {
        what = judge_again(w, text);
        k->again++;
    }
    if (reached) {
        k->points++;
        k->survived += !what && o.r.code == 0;
        k->clean += !what && o.r.code != 0;
    }
    if (what && library_finding(p, &o)) {
        k->libraries++;
        if (w->o->verbose) say_point(w, p, what, &o);
    } else if (what) {
        k->findings++;
        say_point(w, p, what, &o);
    } else if (w->o->verbose && reached && o.r.code == 0) {
        say_point(w, p, "survived", &o);
    }
    outcome_fini(&o);
    return reached;
}

// Once a rename or an fsync has failed, every point is gone on from: that is where products change places.
static bool always_again(fault_kind k) {
    return k == FAULT_RENAME || k == FAULT_SYNC;
}

static void walk_kind(const walker *w, fault_side side, fault_kind kind, bool onward, walk_counts *k) {
    uint64_t   total = w->calm.seen[side][kind];
    uint64_t   most = (uint64_t)(side == FAULT_OWN ? w->o->own : w->o->libs);
    uint64_t   step = most == 0 || total <= most ? 1 : total / most;
    // Where the walk starts within its stride is drawn, the same for everybody.
    uint64_t   n = step == 1 ? 1 : 1 + (0x9e3779b97f4a7c15u * (kind + 1) >> 33) % step;
    fault_plan p = {.kind = kind, .side = side, .onward = onward};
    for (int i = 0; n <= total || step == 1; n += step, i++) {
        p.n = n;
        bool again = always_again(kind) || i % w->o->again == 0;
        if (!point(w, &p, again, k)) break;
    }
}

void walk_all(const command *c, const walk_options *o, walk_counts own[FAULT_KIND_COUNT],
              walk_counts libs[FAULT_KIND_COUNT]) {
    walker w = {.c = c, .o = o};
    start(&w);
    for (int k = 0; k < FAULT_KIND_COUNT; k++) {
        walk_kind(&w, FAULT_OWN, (fault_kind)k, false, &own[k]);
        if (k == FAULT_ALLOC || k == FAULT_WRITE || k == FAULT_CREATE || k == FAULT_LOOK || k == FAULT_READ)
            walk_kind(&w, FAULT_OWN, (fault_kind)k, true, &own[k]);
        if (w.calm.seen[FAULT_LIBS][k]) walk_kind(&w, FAULT_LIBS, (fault_kind)k, false, &libs[k]);
    }
    tree_fini(&w.old);
    tree_fini(&w.whole);
}

void walk_one(const command *c, fault_side side, fault_kind kind, uint64_t n, bool onward) {
    walk_options o = {.again = 1, .verbose = true};
    walk_counts  k = {0};
    walker       w = {.c = c, .o = &o};
    outcome      out;
    start(&w);
    fault_plan p = {.kind = kind, .side = side, .n = n, .onward = onward};
    point(&w, &p, true, &k);
    fprintf(stderr, "points %d, survived %d, clean %d, findings %d\n", k.points, k.survived, k.clean, k.findings);
    p.trace = true;
    prepare(c);
    run(c->args, &p, &out);
    fprintf(stderr, "signal %d, exit %d, blocks %lld, pages %lld, files %lld\n%s%s", out.signal, out.r.code,
            (long long)out.r.blocks, (long long)out.r.maps, (long long)out.r.files, out.out, out.err);
    outcome_fini(&out);
    tree_fini(&w.old);
    tree_fini(&w.whole);
}
