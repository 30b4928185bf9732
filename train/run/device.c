#include "train/run/device.h"

#include "infer/model/target.h"
#include "kernels/base/files.h"
#include "kernels/comm/comm.h"
#include "kernels/devices.h"
#include "train/run/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int all_ranks(const pl_device_wish *w) {
    return pl_comm_ranks(w->comm) * pl_comm_ranks(w->tp);
}

// Names the GPU of this rank: its index on the host, or 0 if the scheduler shows each process a single GPU.
static void name_gpu(char name[32], const pl_device_wish *w) {
    int         local = pl_comm_local(w->comm) * pl_comm_ranks(w->tp) + pl_comm_local(w->tp);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    bool        one = visible && *visible && !strchr(visible, ',');
    snprintf(name, 32, "cuda:%d", one ? 0 : local);
}

// Returns true if the device can run the target; the command reports errors of its files.
static bool runs_target(const pl_device_wish *w, const pl_backend *be, pl_err *why) {
    pl_dtype t = w->weights;
    if (!w->target || !pl_path_exists(w->target)) return true;
    if (t == PL_I64 && pl_target_stored(&t, w->target, NULL) != PL_OK) return true;
    pl_status st = pl_target_fits(w->target, t, pl_comm_ranks(w->tp), be, pl_device_room(be), why);
    return st != PL_E_UNSUPPORTED && st != PL_E_MEMORY;
}

// Sets *all to true if `can` is true on every rank.
static pl_status agree(bool *all, bool can, const pl_device_wish *w, pl_err *err) {
    double lacks = !can;
    PL_TRY(pl_comm_sum_doubles(w->tp, &lacks, 1, err));
    if (pl_comm_rank(w->tp) == 0) PL_TRY(pl_comm_sum_doubles(w->comm, &lacks, 1, err));
    PL_TRY(pl_comm_broadcast(w->tp, &lacks, sizeof lacks, err));
    *all = lacks == 0;
    return PL_OK;
}

// Replaces began by that of rank 0, where the state is: ranks may have folders of their own.
static pl_status share_began(char began[PL_ARITHMETIC_ROOM], const pl_device_wish *w, pl_err *err) {
    if (pl_comm_rank(w->tp) == 0) PL_TRY(pl_comm_broadcast(w->comm, began, PL_ARITHMETIC_ROOM, err));
    PL_TRY(pl_comm_broadcast(w->tp, began, PL_ARITHMETIC_ROOM, err));
    began[PL_ARITHMETIC_ROOM - 1] = 0;
    return PL_OK;
}

// Opens a GPU if every rank that chooses can use one, else the CPU. Ranks that do not choose meet the others here, so
// that pl_comm_open can name the ranks that differ; *be stays NULL.
static pl_status choose_best(const pl_backend **be, pl_err *why, const pl_device_wish *w, bool chooses, pl_err *err) {
    char   gpu[32];
    pl_err no = {0};
    bool   all, can = true;
    name_gpu(gpu, w);
    if (chooses) can = pl_device_open(be, gpu, &no) == PL_OK && runs_target(w, *be, &no);
    PL_TRY(agree(&all, can, w, err));
    if (all || !chooses) return PL_OK;
    if (can) pl_fail(&no, PL_E_UNSUPPORTED, "another rank has no GPU that it can use");
    const char *line = strncmp(no.msg, "--device ", 9) == 0 ? strstr(no.msg, ": ") + 2 : no.msg;
    pl_fail(why, PL_E_UNSUPPORTED, "%.*s", (int)strcspn(line, ";"), line);
    return pl_device_open(be, "cpu", err);
}

pl_status pl_device_choose(const pl_backend **be, pl_err *why, const pl_device_wish *w, pl_err *err) {
    const char *name = w->name;
    bool        chooses = strcmp(name, "auto") == 0;
    char        gpu[32], began[PL_ARITHMETIC_ROOM];
    *why = (pl_err){0};
    *be = NULL;
    memcpy(began, w->began, sizeof began);
    if (all_ranks(w) > 1 && strncmp(name, "cuda:", 5) == 0)
        return pl_fail(
            err, PL_E_USAGE,
            "--device %s: that is one GPU for %d ranks; use --device cuda, which gives each rank a GPU of its own",
            name, all_ranks(w));
    if (w->needed) PL_TRY(share_began(began, w, err));
    if (w->needed && !*began) PL_TRY(choose_best(be, why, w, chooses, err));
    if (*be) return PL_OK;
    if (chooses) name = w->needed ? pl_device_of(began) : "cpu";
    if (chooses && w->needed) pl_fail(why, PL_E_UNSUPPORTED, "the run in --out began there");
    name_gpu(gpu, w);
    if (strcmp(name, "cuda") == 0 && all_ranks(w) > 1) name = gpu;
    PL_TRY(pl_device_open(be, name, err));
    if ((*be)->memory && !w->needed)
        return pl_fail(err, PL_E_UNSUPPORTED, "--device %s: this command runs on the CPU alone; leave --device out",
                       name);
    return PL_OK;
}

// ---- the arithmetic of a run ----

// Reads a dataset's arithmetic: attributes.generation in manifest.json is a string of JSON.
static void read_dataset(char arithmetic[PL_ARITHMETIC_ROOM], const char *out_dir) {
    char        *path = pl_path_join(out_dir, "dataset/manifest.json");
    pl_json      manifest = {0}, settings = {0};
    const cJSON *attributes;
    const char  *text, *name;
    if (path && pl_path_exists(path) && pl_json_open(&manifest, path, (size_t)1 << 30, 0, NULL) == PL_OK &&
        pl_json_get_object(&manifest, NULL, "attributes", &attributes, NULL) == PL_OK &&
        pl_json_get_str(&manifest, attributes, "generation", &text, NULL) == PL_OK &&
        pl_json_parse(&settings, path, 0, text, strlen(text), 0, NULL) == PL_OK &&
        pl_json_get_str(&settings, NULL, "arithmetic", &name, NULL) == PL_OK)
        snprintf(arithmetic, PL_ARITHMETIC_ROOM, "%s", name);
    pl_json_close(&settings);
    pl_json_close(&manifest);
    pl_free(path);
}

void pl_device_began(char arithmetic[PL_ARITHMETIC_ROOM], const pl_recipe *r, const char *out_dir, bool trains,
                     bool generates) {
    int n = trains ? pl_pipeline_recipe_of(r)->drafters.n : 0;
    *arithmetic = 0;
    if (trains) pl_trainer_arithmetic(arithmetic, out_dir);
    for (int i = 0; i < n && !*arithmetic; i++) {
        char *dir = pl_pipeline_drafter_folder(r, i, out_dir);
        if (dir) pl_trainer_arithmetic(arithmetic, dir);
        pl_free(dir);
    }
    if (generates && !*arithmetic) read_dataset(arithmetic, out_dir);
}
