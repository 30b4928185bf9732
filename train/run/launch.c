#include "train/run/launch.h"

#include "kernels/base/hash.h"
#include "kernels/comm/comm.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 20000, PORTS = 10000, TORCH_PORT = 29500 };

typedef struct finder {
    pl_launch_get get;
    void         *arg;
    pl_err       *err;
} finder;

// One launcher's variables.
typedef struct source {
    const char *by, *rank_name, *size_name;
    int         rank, size, local, local_size; // local_size 0: not given
    bool        one_host;                      // all ranks are known to run on this host
} source;

static const char *get(const finder *f, const char *name) {
    const char *v = f->get(f->arg, name);
    return v && *v ? v : NULL;
}

// Reads a whole number >= `least`; *there: true if the variable is set.
static pl_status number(const finder *f, const char *name, int least, int *v, bool *there) {
    const char *text = get(f, name);
    char       *end;
    *there = text != NULL;
    if (!text) return PL_OK;
    long n = strtol(text, &end, 10);
    if (*end || n < least || n > PL_RANKS_MAX)
        return pl_fail(f->err, PL_E_USAGE,
                       "%s=%s: expected a number from %d to %d; unset it if nothing started this run", name, text,
                       least, PL_RANKS_MAX);
    *v = (int)n;
    return PL_OK;
}

// Reads a launcher's rank and size; size 0: it did not start this process. local, local_size: names of further
// variables, or NULL.
static pl_status read_source(const finder *f, source *s, const char *local, const char *local_size) {
    bool rank, size, there;
    PL_TRY(number(f, s->rank_name, 0, &s->rank, &rank));
    PL_TRY(number(f, s->size_name, 1, &s->size, &size));
    if (!rank || !size) s->size = 0;
    if (s->size == 0) return PL_OK;
    if (s->rank >= s->size)
        return pl_fail(f->err, PL_E_USAGE, "%s=%d and %s=%d: no such rank", s->rank_name, s->rank, s->size_name,
                       s->size);
    s->local = s->rank;
    if (local) PL_TRY(number(f, local, 0, &s->local, &there));
    if (local_size) PL_TRY(number(f, local_size, 1, &s->local_size, &there));
    s->one_host = s->local_size == s->size;
    return PL_OK;
}

// Reads torchrun's variables, of which it sets all four. With only some of them, exported for other programs, each
// process would start a run of its own.
static pl_status read_torchrun(const finder *f, source *s) {
    static const char *const all[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"};
    const char              *set = NULL, *unset = NULL;
    int                      world = 0;
    bool                     there;
    *s = (source){.by = "torchrun", .rank_name = "RANK", .size_name = "WORLD_SIZE"};
    for (int i = 0; i < 4; i++)
        *(get(f, all[i]) ? &set : &unset) = all[i];
    if (set && unset) {
        PL_TRY(number(f, "WORLD_SIZE", 1, &world, &there));
        if (world > 1)
            return pl_fail(
                f->err, PL_E_USAGE,
                "WORLD_SIZE=%d is set and %s is not: start by torchrun, by --rank, --world and --address, or "
                "unset WORLD_SIZE",
                world, unset);
        return PL_OK;
    }
    return set ? read_source(f, s, "LOCAL_RANK", "LOCAL_WORLD_SIZE") : PL_OK;
}

// Reads a Slurm step's tasks. The shell of an allocation and a batch script are no step.
static pl_status read_slurm(const finder *f, source *s) {
    const char *step = get(f, "SLURM_STEP_ID");
    *s = (source){.by = "srun",
                  .rank_name = "SLURM_PROCID",
                  .size_name = get(f, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"};
    bool is_step = step && strlen(step) < 10; // 4294967290 and up: interactive, extern, batch
    if (!is_step) return PL_OK;
    PL_TRY(read_source(f, s, "SLURM_LOCALID", NULL));
    const char *nodes = get(f, "SLURM_STEP_NUM_NODES");
    s->one_host = nodes && strcmp(nodes, "1") == 0;
    return PL_OK;
}

// Returns true if `outer` starts one launcher for each host and `inner` is one of these.
static bool around(const source *outer, const source *inner) {
    return inner->local_size > 0 && outer->size * inner->local_size == inner->size &&
           inner->rank / inner->local_size == outer->rank;
}

// ---- where rank 0 listens

bool pl_launch_first_host(char *host, int room, const char *list) {
    size_t n = strcspn(list, "[,");
    int    used;
    if (list[n] != '[') {
        used = snprintf(host, (size_t)room, "%.*s", (int)n, list);
        return n > 0 && used < room;
    }
    const char *in = list + n + 1;
    size_t      first = strcspn(in, "-,]"), rest = strcspn(in, "]");
    if (first == 0 || in[rest] != ']') return false;
    const char *after = in + rest + 1;
    used = snprintf(host, (size_t)room, "%.*s%.*s%.*s", (int)n, list, (int)first, in, (int)strcspn(after, ","), after);
    return used < room && !strchr(host, '[');
}

static void put_address(pl_launch *l, const char *host, int port) {
    snprintf(l->address, sizeof l->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
}

// Returns true if HOST:PORT is a loopback address.
static bool names_loopback(const char *address) {
    char            host[256];
    struct in_addr  four;
    struct in6_addr six;
    const char     *colon = strrchr(address, ':');
    bool            bracket = address[0] == '[';
    if (!colon || colon - address >= (int)sizeof host) return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * bracket, address + bracket);
    return strcmp(host, "localhost") == 0 ||
           (inet_pton(AF_INET, host, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
           (inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}

static void listen_at_loopback(pl_launch *l) {
    char port[8];
    snprintf(port, sizeof port, "%s", strrchr(l->address, ':') + 1);
    snprintf(l->address, sizeof l->address, "127.0.0.1:%s", port);
}

static int port_of(const char *text) {
    return PORT + (int)(pl_hash(text, strlen(text)) % PORTS);
}

static pl_status torchrun_address(const finder *f, pl_launch *l) {
    const char *host = get(f, "MASTER_ADDR"), *port = get(f, "MASTER_PORT");
    long        at = port ? strtol(port, NULL, 10) : TORCH_PORT;
    if (at < 1 || at > 65534)
        return pl_fail(f->err, PL_E_USAGE, "MASTER_PORT=%s: expected a port below 65535", port ? port : "");
    put_address(l, host, (int)at + 1);
    return PL_OK;
}

static pl_status slurm_address(const finder *f, pl_launch *l, const source *s) {
    const char *list = get(f, "SLURM_STEP_NODELIST"), *job = get(f, "SLURM_JOB_ID");
    char        host[256], name[64];
    if (!list) list = get(f, "SLURM_JOB_NODELIST");
    if (!list || !pl_launch_first_host(host, sizeof host, list))
        return pl_fail(f->err, PL_E_USAGE, "%s=%d, but SLURM_JOB_NODELIST names no host; give --address HOST:PORT",
                       s->size_name, s->size);
    snprintf(name, sizeof name, "%s.%s", job ? job : "", get(f, "SLURM_STEP_ID"));
    put_address(l, host, port_of(name));
    return PL_OK;
}

// Sets the address of ranks of one host to loopback; for several hosts mpirun does not export rank 0's host.
static pl_status mpi_address(const finder *f, pl_launch *l, const source *s) {
    const char *job = get(f, "PMIX_NAMESPACE"), *master = get(f, "MASTER_ADDR");
    char        parent[32];
    if (s->local_size != s->size && !master)
        return pl_fail(f->err, PL_E_USAGE,
                       "%s=%d on several hosts: this build joins them over TCP, and mpirun does not say where number 0 "
                       "is; give --address HOST:PORT, set MASTER_ADDR, or build with the MPI that started them "
                       "(PACELINE_MPI=ON)",
                       s->size_name, s->size);
    snprintf(parent, sizeof parent, "%ld", (long)getppid()); // mpirun's id, the same for all ranks
    put_address(l, s->local_size == s->size ? "127.0.0.1" : master,
                port_of(job                        ? job
                        : s->local_size == s->size ? parent
                                                   : ""));
    return PL_OK;
}

// ---- selection

enum { TORCHRUN, OPEN_MPI, MPICH, SLURM, SOURCES };

static pl_status read_all(const finder *f, source s[SOURCES]) {
    PL_TRY(read_torchrun(f, &s[TORCHRUN]));
    s[OPEN_MPI] = (source){.by = "mpirun", .rank_name = "OMPI_COMM_WORLD_RANK", .size_name = "OMPI_COMM_WORLD_SIZE"};
    PL_TRY(read_source(f, &s[OPEN_MPI], "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"));
    s[MPICH] = (source){.by = "mpirun", .rank_name = "PMI_RANK", .size_name = "PMI_SIZE"};
    PL_TRY(read_source(f, &s[MPICH], "MPI_LOCALRANKID", "MPI_LOCALNRANKS"));
    return read_slurm(f, &s[SLURM]);
}

static pl_status contradict(const finder *f, const source *a, const source *b) {
    return pl_fail(f->err, PL_E_USAGE,
                   "%s=%d of %s=%d and %s=%d of %s=%d: two launchers say different things; unset the variables of one",
                   a->rank_name, a->rank, a->size_name, a->size, b->rank_name, b->rank, b->size_name, b->size);
}

static bool agree(const source *a, const source *b) {
    return a->rank == b->rank && a->size == b->size;
}

// Selects the innermost launcher that started several processes; NULL: none did.
static pl_status pick(const finder *f, const source s[SOURCES], const source **best) {
    *best = NULL;
    for (int i = 0; i < SOURCES; i++) {
        if (s[i].size <= 1) continue;
        if (*best && !agree(*best, &s[i]) && !around(&s[i], *best)) return contradict(f, *best, &s[i]);
        if (!*best) *best = &s[i];
    }
    // Slurm sets MPI variables for its own tasks; its own variables name their hosts.
    if ((*best == &s[OPEN_MPI] || *best == &s[MPICH]) && s[SLURM].size > 1 && agree(*best, &s[SLURM]))
        *best = &s[SLURM];
    // One launcher counts a single process, another one several: a contradiction.
    for (int i = 0; i < SOURCES && *best; i++)
        if (s[i].size == 1 && i != SLURM && !around(&s[i], *best)) return contradict(f, *best, &s[i]);
    return PL_OK;
}

static pl_status by_options(pl_launch *l, const pl_launch_options *o, const source *launcher, const finder *f) {
    if (o->rank < 0 || o->world < 1 || !o->address)
        return pl_fail(f->err, PL_E_USAGE, "%s: is missing; --rank, --world and --address go together",
                       o->rank < 0    ? "--rank"
                       : o->world < 1 ? "--world"
                                      : "--address");
    if (o->rank >= o->world)
        return pl_fail(f->err, PL_E_USAGE, "--rank %d: the last of --world %d is %d", o->rank, o->world, o->world - 1);
    if (launcher && (launcher->rank != o->rank || launcher->size != o->world))
        return pl_fail(f->err, PL_E_USAGE,
                       "--rank %d --world %d, but %s=%d of %s=%d: leave the options out, or unset the variables",
                       o->rank, o->world, launcher->rank_name, launcher->rank, launcher->size_name, launcher->size);
    *l =
        (pl_launch){.by = "options", .rank = o->rank, .ranks = o->world, .local = launcher ? launcher->local : o->rank};
    return PL_OK;
}

// Decides whether ranks join over MPI.
static pl_status choose_group(const finder *f, pl_launch *l, const pl_launch_options *o, const source s[SOURCES],
                              const source *best) {
    bool asked = o->group && strcmp(o->group, "mpi") == 0, tcp = o->group && strcmp(o->group, "tcp") == 0;
    if (o->group && !asked && !tcp && strcmp(o->group, "auto") != 0)
        return pl_fail(f->err, PL_E_USAGE, "--group %s: expected " PL_GROUPS_SYNTAX, o->group);
    if (asked && o->has_mpi == PL_MPI_NONE)
        return pl_fail(f->err, PL_E_UNSUPPORTED,
                       "--group mpi: this build has no MPI (PACELINE_MPI=ON builds it in); use --group tcp with "
                       "--address HOST:PORT");
    if (asked && (o->rank >= 0 || o->world > 0 || !best || best == &s[TORCHRUN]))
        return pl_fail(f->err, PL_E_USAGE, "--group mpi: %s; start by mpirun, or use --group tcp",
                       o->rank >= 0 || o->world > 0 ? "it is mpirun that says ranks, not --rank and --world"
                       : best                       ? "torchrun starts no MPI"
                                                    : "nothing started this process as one of several");
    const source *own = o->has_mpi == PL_MPI_OPEN ? &s[OPEN_MPI] : o->has_mpi == PL_MPI_MPICH ? &s[MPICH] : NULL;
    bool          by_own = own && best && own->size > 1 && agree(own, best);
    // Slurm may set MPICH's variables for tasks of another MPI.
    if (best == &s[SLURM] && own == &s[MPICH]) by_own = false;
    l->mpi = asked || (by_own && !tcp && !o->address && o->rank < 0 && o->world <= 0);
    return PL_OK;
}

pl_status pl_launch_find(pl_launch *l, const pl_launch_options *o, pl_launch_get fn, void *arg, pl_err *err) {
    finder        f = {.get = fn, .arg = arg, .err = err};
    source        s[SOURCES];
    const source *best;
    *l = (pl_launch){.ranks = 1};
    PL_TRY(read_all(&f, s));
    PL_TRY(pick(&f, s, &best));
    PL_TRY(choose_group(&f, l, o, s, best));
    bool mpi = l->mpi;
    if (o->rank >= 0 || o->world > 0) {
        PL_TRY(by_options(l, o, best, &f));
    } else if (best) {
        *l = (pl_launch){.by = best->by, .rank = best->rank, .ranks = best->size, .local = best->local, .mpi = mpi};
        bool look = !o->address && !mpi;
        if (look && best == &s[TORCHRUN]) PL_TRY(torchrun_address(&f, l));
        if (look && best == &s[SLURM]) PL_TRY(slurm_address(&f, l, best));
        if (look && (best == &s[OPEN_MPI] || best == &s[MPICH])) PL_TRY(mpi_address(&f, l, best));
        if (look && best->one_host && !names_loopback(l->address)) listen_at_loopback(l);
    } else if (o->address) {
        return pl_fail(err, PL_E_USAGE, "--address: nothing says which rank this is; give --rank and --world too");
    }
    if (o->address && snprintf(l->address, sizeof l->address, "%s", o->address) >= (int)sizeof l->address)
        return pl_fail(err, PL_E_USAGE, "--address: more than %zu characters", sizeof l->address - 1);
    l->one_host = (best && best->one_host) || names_loopback(l->address);
    return PL_OK;
}
