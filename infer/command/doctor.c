// `paceline doctor`: what this build and this machine offer.
#include "infer/cli/cli.h"
#include "kernels/devices.h"

#include "infer/cli/machine.h"
#include "infer/cli/show.h"
#include "infer/serve/http.h"
#include "kernels/base/json.h"
#include "kernels/base/room.h"
#include "paceline.h"

#include <cjson/cJSON.h>
#include <hdf5.h>
#include <link.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>
#include <xxhash.h>
#include <yaml.h>

typedef struct library {
    const char *part; // of the library's file name
    char        file[256];
} library;

static int find_library(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    library    *l = arg;
    const char *name = info->dlpi_name;
    if (!name || !strstr(name, l->part)) return 0;
    char *real = realpath(name, NULL); // the target of the link libx.so.0 has the version in its name
    snprintf(l->file, sizeof l->file, "%s", real ? real : name);
    free(real);
    return 1;
}

static void put_library(pl_json_out *o, const char *name, const char *version, const char *part) {
    library l = {.part = part};
    dl_iterate_phdr(find_library, &l);
    pl_json_out_object(o);
    pl_put_str(o, "name", name);
    pl_put_str(o, "version", version);
    pl_put_str(o, "file", *l.file ? l.file : NULL);
    pl_json_out_close(o, '}');
}

static void put_libraries(pl_json_out *o) {
    unsigned major = 0, minor = 0, release = 0;
    char     hdf5[48] = "", xx[48], pcre[64] = "";
    if (H5get_libversion(&major, &minor, &release) >= 0) snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    unsigned x = XXH_versionNumber();
    snprintf(xx, sizeof xx, "%u.%u.%u", x / 10000, x / 100 % 100, x % 100);
    // for example "10.42 2022-12-11"; the size includes the NUL
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre) pcre2_config(PCRE2_CONFIG_VERSION, pcre);
    pl_put_array(o, "libraries");
    put_library(o, "HDF5", hdf5, "libhdf5");
    put_library(o, "sentencepiece", NULL, "libsentencepiece");
    put_library(o, "cJSON", cJSON_Version(), "libcjson");
    put_library(o, "libyaml", yaml_get_version_string(), "libyaml");
    put_library(o, "xxHash", xx, "libxxhash");
    put_library(o, "PCRE2", pcre, "libpcre2-8");
    put_library(o, "utf8proc", utf8proc_version(), "libutf8proc");
    put_library(o, "libsodium", sodium_version_string(), "libsodium");
    pl_json_out_close(o, ']');
}

// Writes the word in brackets of "always [madvise] never".
static void huge_pages(char *out, size_t room) {
    char  line[128] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    char *open = strchr(line, '['), *end = open ? strchr(open, ']') : NULL;
    snprintf(out, room, "%.*s", end ? (int)(end - open - 1) : 7, end ? open + 1 : "unknown");
}

static pl_status run(const pl_env *env, const pl_cli_args *a, pl_err *err) {
    (void)a;
    pl_machine        m;
    char              huge[32], cuda[512], nccl[256], mpi[64], server[96];
    const pl_backend *automatic;
    double            usable;
    PL_TRY(pl_memory_available(&usable, err));
    pl_json_out local, *o = pl_show_begin(env, &local);
    pl_machine_describe(&m, env);
    m.peak_flops = pl_backend_peak(pl_backend_cpu(), PL_F32, env->pool);
    m.peak_bf16_flops = pl_backend_peak(pl_backend_cpu(), PL_BF16, env->pool);
    huge_pages(huge, sizeof huge);
    pl_put_str(o, "version", pl_version());
    pl_put_str(o, "commit", pl_commit());
    pl_put_str(o, "compiler", "C " __VERSION__);
    pl_put_str(o, "cpu", m.cpu);
    pl_put_str(o, "os", m.os);
    pl_put_str(o, "instruction_sets", m.isa);
    pl_put_str(o, "backend", m.backend);
    pl_put_int(o, "cores", m.cores);
    pl_put_int(o, "threads", m.threads);
    pl_put_num(o, "memory_bytes", m.memory);
    pl_put_num(o, "free_memory_bytes", (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    pl_put_num(o, "usable_memory_bytes", usable); // without other processes' memory, within limits
    if (m.peak_flops > 0) pl_put_num(o, "peak_flops", m.peak_flops);
    if (m.peak_bf16_flops > 0) pl_put_num(o, "peak_bf16_flops", m.peak_bf16_flops);
    pl_put_str(o, "huge_pages", huge);
    pl_backend_cuda_describe(cuda, sizeof cuda);
    pl_put_str(o, "cuda", cuda);
    pl_backend_cuda_libraries(cuda, sizeof cuda);
    pl_put_str(o, "cuda_training_products", cuda);
    pl_backend_cuda_attention(cuda, sizeof cuda);
    pl_put_str(o, "cuda_training_attention", cuda);
    if (pl_device_open(&automatic, "auto", err) == PL_OK) pl_put_str(o, "device_auto", automatic->name);
    pl_comm_describe_nccl(nccl, sizeof nccl);
    pl_put_str(o, "nccl", nccl);
    pl_comm_describe_mpi(mpi, sizeof mpi);
    pl_put_str(o, "mpi", mpi);
    pl_http_describe(server, sizeof server);
    pl_put_str(o, "server", server);
    put_libraries(o);
    if (m.threads > m.cores && !env->json)
        fprintf(env->text, "note: %d threads on %d cores wait for each other; use --threads %d\n", m.threads, m.cores,
                m.cores);
    return pl_show_end(env, &local, err);
}

const pl_command pl_command_doctor = {
    .name = "doctor",
    .summary = "lists what this build and this machine offer",
    .example = "paceline doctor --json",
    .devices = true,
    .run = run,
};
