// The control group of this process: where limits of cores and memory are written.
#ifndef PL_CGROUP_H
#define PL_CGROUP_H

#include <stddef.h>

// The group's path below its hierarchy's root, "" for the root and where there is none. controller NULL: of cgroup v2;
// else a version 1 controller's ("memory"). Every ancestor may hold a limit of its own: cut at the last '/' to reach
// it.
void pl_cgroup(char *group, size_t room, const char *controller);

#endif
