#include "train/start/host.h"

const pl_backend *pl_start_backend(const pl_env *env) {
    return env->backend->memory ? pl_backend_cpu() : env->backend;
}
