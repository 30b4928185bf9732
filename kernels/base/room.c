#define _GNU_SOURCE 1 // "re"
#include "kernels/base/room.h"

#include "kernels/base/arena.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARE 0.9 // of the kernel's figure: others take memory too

// Lines are "ID:CONTROLLER,...:PATH"; version 2 has ID 0 and no controllers.
void pl_cgroup(char *group, size_t room, const char *controller) {
    char  line[4096 + 64];
    FILE *f = fopen("/proc/self/cgroup", "re");
    *group = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        bool found = !controller && strncmp(line, "0:", 2) == 0 && !names[1];
        for (char *name = controller ? strtok(names + 1, ",") : NULL; name && !found; name = strtok(NULL, ","))
            found = strcmp(name, controller) == 0;
        if (found && strcmp(path, "/") != 0) snprintf(group, room, "%s", path);
    }
    if (f) fclose(f);
}

// The number behind `key` at a line's beginning, or the file's first word where key is ""; -1: there is none.
static double number_in(const char *path, const char *key) {
    char   line[256];
    double found = -1;
    FILE  *f = fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) == 0 && sscanf(line + n, " %lf", &found) != 1) found = -1;
        if (!*key) break;
    }
    if (f) fclose(f);
    return found;
}

static double in_group(const char *base, const char *group, const char *file, const char *key) {
    char path[4400];
    int  n = snprintf(path, sizeof path, "%s%s/%s", base, group, file);
    return n < 0 || (size_t)n >= sizeof path ? -1 : number_in(path, key);
}

typedef struct hierarchy {
    const char *controller, *base, *limit, *used, *cache;
} hierarchy;

// What is left of every limit from the process's group to the root. Pages of files that nobody uses are given back.
static double left_of_groups(const hierarchy *h, double least) {
    char group[4200];
    pl_cgroup(group, sizeof group, h->controller);
    for (;;) {
        double limit = in_group(h->base, group, h->limit, ""), used = in_group(h->base, group, h->used, "");
        double cache = in_group(h->base, group, "memory.stat", h->cache);
        if (limit >= 0 && used >= 0) least = fmin(least, fmax(0, limit - used + fmax(0, cache)));
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

static pl_status own_limit(double *bytes, pl_err *err) {
    const char *set = getenv("PACELINE_MEMORY");
    *bytes = INFINITY;
    if (!set || !*set) return PL_OK;
    static const char unit[] = "KMGT";
    char             *end;
    double            n = strtod(set, &end);
    const char       *u = *end ? strchr(unit, toupper((unsigned char)*end)) : NULL;
    if (u) n *= pow(1024, (double)(u - unit + 1)), end++;
    if (!isdigit((unsigned char)*set) || !(n >= 1) || !isfinite(n) || *end)
        return pl_fail(err, PL_E_USAGE, "PACELINE_MEMORY=%s: expected bytes, or a size like 500M or 20G", set);
    *bytes = n;
    return PL_OK;
}

static double own_status(const char *name) {
    double kib = number_in("/proc/self/status", name);
    return kib < 0 ? 0 : kib * 1024;
}

// Of the processes that one has forked: what each may touch, all in all. The first one, which does much alone and may
// hold more than its part, asks for what is left.
static double portion = INFINITY;
static pid_t  divider;

void pl_memory_divide(int processes, double shared) {
    double have;
    if (processes < 2 || pl_memory_available(&have, NULL) != PL_OK) return;
    portion = fmax(0, have - shared) / processes + own_status("RssAnon:");
    divider = getpid();
}

pl_status pl_memory_available(double *bytes, pl_err *err) {
    static const hierarchy all[] = {
        {NULL, "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
        {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};
    double limit, kib = number_in("/proc/meminfo", "MemAvailable:"), own = number_in("/proc/self/status", "RssAnon:");
    PL_TRY(own_limit(&limit, err));
    double held = (double)pl_blocks_held(), touched = own < 0 ? held : own * 1024;
    double least = kib < 0 ? INFINITY : SHARE * kib * 1024;
    if (getpid() != divider) limit = fmin(limit, portion);
    for (int i = 0; i < 2; i++)
        least = left_of_groups(&all[i], least);
    *bytes = fmax(0, fmin(least, limit - touched) - fmax(0, held - touched));
    return PL_OK;
}

pl_status pl_memory_lacks(double bytes, bool *lacks, double *have, pl_err *err) {
    *lacks = false;
    PL_TRY(pl_memory_available(have, err));
    *lacks = bytes > *have;
    return PL_OK;
}

double pl_memory_resident(void) {
    return own_status("VmRSS:");
}

double pl_memory_peak(void) {
    return own_status("VmHWM:");
}

void pl_memory_words(double bytes, char text[32]) {
    const char *unit = bytes < 1 << 20 ? "KiB" : bytes < 1 << 30 ? "MiB" : "GiB";
    double      size = bytes < 1 << 20 ? 1 << 10 : bytes < 1 << 30 ? 1 << 20 : 1 << 30;
    snprintf(text, 32, "%.1f %s", bytes / size, unit);
}

pl_status pl_memory_room(double bytes, const char *what, const char *mend, pl_err *err) {
    bool   lacks;
    double have;
    char   need[32], there[32];
    PL_TRY(pl_memory_lacks(bytes, &lacks, &have, err));
    if (!lacks) return PL_OK;
    pl_memory_words(bytes, need);
    pl_memory_words(have, there);
    return pl_fail(err, PL_E_MEMORY, "%s: %s of memory are needed, %s can be had; %s", what, need, there, mend);
}
