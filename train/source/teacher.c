#include "train/source/teacher.h"

#include "checkpoints/fingerprint.h"
#include "kernels/base/arena.h"

#include <string.h>

// Takes one matrix, row-major in dtype: a view of the mapped file if it is stored like that, else a copy.
static pl_status take_matrix(pl_teacher *t, int i, pl_tensor *to, const pl_param *p, pl_dtype dtype, pl_err *err) {
    pl_weight_spec spec = p->spec;
    const void    *mapped;
    pl_dtype       stored;
    for (int k = 0; k < spec.n_parts; k++)
        spec.part[k].name = p->name[k];
    PL_TRY(pl_weight_source_check(t->src, &spec, 1, err));
    if (pl_weight_view(t->src, &spec, &mapped, &stored) && stored == dtype) {
        *to = pl_tensor_2d((void *)(uintptr_t)mapped, dtype, spec.rows, spec.cols);
        return PL_OK;
    }
    size_t n = pl_size_mul((size_t)spec.rows, (size_t)spec.cols, 1);
    t->bytes[i] = pl_size_mul(n, pl_dtype_size(dtype), 1);
    t->block[i] = pl_block_create(t->bytes[i], err);
    if (!t->block[i]) return PL_E_MEMORY;
    *to = pl_tensor_2d(t->block[i], dtype, spec.rows, spec.cols);
    if (dtype == PL_F32) return pl_weight_read_f32(t->src, &spec, t->block[i], err);
    float *rows = pl_malloc(pl_size_mul(PL_PANEL, (size_t)spec.cols, sizeof *rows));
    if (!rows) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", p->name[0]);
    pl_status st = PL_OK;
    for (int64_t r = 0, most; r < spec.rows && st == PL_OK; r += most) {
        most = spec.rows - r < PL_PANEL ? spec.rows - r : PL_PANEL;
        st = pl_weight_read_rows(t->src, &spec, r, most, rows, err);
        if (st == PL_OK)
            pl_from_f32((uint8_t *)t->block[i] + (size_t)(r * spec.cols) * pl_dtype_size(dtype), dtype, rows,
                        (size_t)(most * spec.cols));
    }
    pl_free(rows);
    return st;
}

static size_t bytes_of(const pl_tensor *t) {
    return (size_t)pl_tensor_count(t) * pl_dtype_size(t->dtype);
}

// Copies it to the ops' memory.
static pl_status place_matrix(pl_teacher *t, int i, pl_tensor *of, pl_err *err) {
    const pl_memory *m = t->model.be->memory;
    t->there[i] = pl_memory_create(m, PL_LOCAL, bytes_of(of), err);
    if (!t->there[i]) return PL_E_MEMORY;
    PL_TRY(pl_memory_write(m, t->there[i], of->data, bytes_of(of), err));
    of->data = t->there[i];
    return PL_OK;
}

static pl_status place_both(pl_teacher *t, bool tied, pl_err *err) {
    t->host_embed = t->model.embed;
    t->host_head = t->head;
    if (!t->model.be->memory) return PL_OK;
    if (t->whole.be)
        t->model.embed = t->whole.embed;
    else
        PL_TRY(place_matrix(t, 0, &t->model.embed, err));
    if (!tied) return place_matrix(t, 1, &t->head, err);
    t->head = t->model.embed;
    return PL_OK;
}

pl_status pl_teacher_open(pl_teacher *t, const char *path, pl_dtype dtype, const pl_backend *be, bool whole,
                          pl_comm *tp, pl_err *err) {
    pl_hf_config config;
    char         print[17];
    pl_status    st;
    *t = (pl_teacher){0};
    PL_TRY(pl_llama_source(&t->src, &config, path, err));
    PL_TRY_GOTO(st, fail, pl_fingerprint(print, t->src, &config, false, err));
    PL_TRY_GOTO(st, fail, pl_llama_init(&t->model, &config, be, false, err));
    memcpy(t->model.fingerprint, print, sizeof print);
    PL_TRY_GOTO(st, fail, pl_llama_warn_unclaimed(&t->model, t->src, err));
    if (whole) PL_TRY_GOTO(st, fail, pl_llama_open_over(&t->whole, path, dtype, be, tp, err));
    if (whole) PL_TRY_GOTO(st, fail, pl_hf_warn_generation(path, err));
    bool lent = whole && !be->memory; // the host reads the whole target's embedding in place
    if (lent) t->model.embed = t->whole.embed;
    for (int i = 0; i < t->model.params.n; i++) {
        const pl_param *p = &t->model.params.p[i];
        if (p->tensor == &t->model.embed && !lent)
            PL_TRY_GOTO(st, fail, take_matrix(t, 0, &t->model.embed, p, dtype, err));
        if (p->tensor == &t->model.head) PL_TRY_GOTO(st, fail, take_matrix(t, 1, &t->head, p, dtype, err));
    }
    bool tied = !t->head.data;
    if (tied) t->head = t->model.embed;
    PL_TRY_GOTO(st, fail, place_both(t, tied, err));
    t->model.head = t->head;
    return PL_OK;
fail:
    pl_teacher_close(t);
    return st;
}

void pl_teacher_close(pl_teacher *t) {
    size_t bytes[2] = {bytes_of(&t->host_embed), bytes_of(&t->host_head)};
    for (int i = 0; i < 2; i++)
        if (t->there[i]) pl_memory_destroy(t->model.be->memory, PL_LOCAL, t->there[i], bytes[i]);
    pl_llama_fini(&t->model);
    pl_llama_fini(&t->whole);
    for (int i = 0; i < 2; i++)
        if (t->block[i]) pl_block_destroy(t->block[i], t->bytes[i]);
    if (t->src) pl_weight_source_close(t->src);
    *t = (pl_teacher){0};
}
