#define _GNU_SOURCE 1 // "re"
#include "kernels/base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
