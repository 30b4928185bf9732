#include "infer/cli/machine.h"

#include "kernels/base/json.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void cpu_name(char *out, size_t room, const char *otherwise) {
    snprintf(out, room, "%s", otherwise);
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    char line[512];
    while (fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += strspn(colon + 1, " \t") + 1;
        snprintf(out, room, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    fclose(f);
}

static void isa_names(char *out, size_t room) {
    const char *isa;
    size_t      n = 0;
    out[0] = 0;
    for (int i = 0; (isa = pl_backend_cpu_level(i)) && n < room; i++)
        if (pl_backend_cpu_isa(isa)) n += (size_t)snprintf(out + n, room - n, "%s%s", n ? " " : "", isa);
}

void pl_machine_describe(pl_machine *m, const pl_env *env) {
    *m = (pl_machine){.backend = env->backend->name,
                      .arithmetic = env->backend->arithmetic,
                      .cores = pl_cores(),
                      .threads = env->threads,
                      .parts = pl_comm_ranks(env->tp)};
    struct utsname u;
    if (uname(&u) != 0) u = (struct utsname){0};
    cpu_name(m->cpu, sizeof m->cpu, u.machine);
    snprintf(m->os, sizeof m->os, "%.60s %.60s %.30s", u.sysname, u.release, u.machine);
    isa_names(m->isa, sizeof m->isa);
    m->memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

void pl_machine_write(pl_json_out *o, const pl_machine *m) {
    pl_json_out_object(o);
    pl_put_str(o, "cpu", m->cpu);
    pl_put_str(o, "os", m->os);
    pl_put_int(o, "cores", m->cores);
    pl_put_int(o, "threads", m->threads);
    if (m->parts > 1) pl_put_int(o, "tensor_parallel", m->parts);
    pl_put_str(o, "isa", m->isa);
    pl_put_str(o, "backend", m->backend);
    pl_put_str(o, "arithmetic", m->arithmetic);
    pl_put_num(o, "memory_bytes", m->memory);
    if (m->bandwidth > 0) {
        pl_put_num(o, "bandwidth_footprint_bytes", m->bandwidth_bytes);
        pl_put_num(o, "bandwidth_bytes_per_second", m->bandwidth);
    }
    if (m->peak_flops > 0) pl_put_num(o, "peak_flops", m->peak_flops);
    if (m->peak_bf16_flops > 0) pl_put_num(o, "peak_bf16_flops", m->peak_bf16_flops);
    pl_json_out_close(o, '}');
}
