#include "kernels/devices.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// pl_backend_NAME of every device, as a function of its number.
#define PL_NUMBERED_DEVICE(name)                                                                                       \
    static const pl_backend *open_##name(int n, pl_err *err) {                                                         \
        return pl_backend_##name(n, err);                                                                              \
    }
#define PL_DEVICE(name)                                                                                                \
    const pl_backend        *pl_backend_##name(void);                                                                  \
    static const pl_backend *open_##name(int n, pl_err *err) {                                                         \
        (void)n, (void)err;                                                                                            \
        return pl_backend_##name();                                                                                    \
    }
#include "kernels/devices.def"
#undef PL_NUMBERED_DEVICE
#undef PL_DEVICE

#define PL_NUMBERED_DEVICE(name) {#name, true, open_##name},
#define PL_DEVICE(name) {#name, false, open_##name},
static const struct kind {
    const char *name;
    bool        numbered; // NAME:N is one of several
    const pl_backend *(*open)(int n, pl_err *err);
} kinds[] = {
#include "kernels/devices.def"
};
#undef PL_NUMBERED_DEVICE
#undef PL_DEVICE
enum { KINDS = sizeof kinds / sizeof *kinds };

#define PL_NUMBERED_DEVICE(name) "|" #name "[:N]"
#define PL_DEVICE(name) "|" #name
const char pl_devices_syntax[] = "auto"
#include "kernels/devices.def"
    ;
#undef PL_NUMBERED_DEVICE
#undef PL_DEVICE

static pl_status open_auto(const pl_backend **out, pl_err *err) {
    for (int i = 0; i < KINDS; i++) {
        pl_err why = {0};
        *out = kinds[i].open(0, &why);
        if (*out) return PL_OK;
    }
    return pl_fail(err, PL_E_UNSUPPORTED, "--device auto: nothing to compute on");
}

pl_status pl_device_open(const pl_backend **out, const char *name, pl_err *err) {
    *out = NULL;
    if (strcmp(name, "auto") == 0) return open_auto(out, err);
    for (int i = 0; i < KINDS; i++) {
        size_t      n = strlen(kinds[i].name);
        const char *rest = name + n;
        char       *end;
        long        number = 0;
        if (strncmp(name, kinds[i].name, n) != 0) continue;
        if (*rest) {
            if (!kinds[i].numbered || rest[0] != ':' || rest[1] < '0' || rest[1] > '9') break;
            number = strtol(rest + 1, &end, 10);
            if (*end || number > INT_MAX) break;
        }
        *out = kinds[i].open((int)number, err);
        return *out ? PL_OK : pl_fail_at(err, PL_E_UNSUPPORTED, "--device %s", name);
    }
    return pl_fail(err, PL_E_USAGE, "--device %s: expected %s", name, pl_devices_syntax);
}

double pl_device_room(const pl_backend *be) {
    return pl_backend_on_host(be) ? INFINITY : pl_backend_cuda_room(be);
}

const char *pl_device_of(const char *arithmetic) {
    const char *name = "cpu";
    for (int i = 0; i < KINDS; i++)
        if (strstr(arithmetic, kinds[i].name)) name = kinds[i].name;
    return name;
}
