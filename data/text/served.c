// Records of conversations that were served.
#include "data/text/prompts.h"
#include "kernels/base/arena.h"
#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

#include <stdio.h>
#include <string.h>

static pl_status count_ids(const pl_json *j, const char *key, const cJSON **list, int64_t *n, pl_err *err) {
    PL_TRY(pl_json_get_array(j, NULL, key, list, err));
    *n = cJSON_GetArraySize(*list);
    return *n > 0 ? PL_OK : pl_json_fail(j, *list, err, "\"%s\" is empty", key);
}

static pl_status read_ids(const pl_json *j, const cJSON *list, int32_t *ids, pl_err *err) {
    const cJSON *e;
    int64_t      id, n = 0;
    cJSON_ArrayForEach(e, list) {
        PL_TRY(pl_json_int_of(j, e, 0, INT32_MAX, &id, err));
        ids[n++] = (int32_t)id;
    }
    return PL_OK;
}

// Spells the prompt's ids: prompts are told apart, and split, by their text.
static char *spell(const int32_t *ids, int64_t n) {
    pl_strbuf b = {0};
    for (int64_t i = 0; i < n; i++) {
        char one[16];
        int  len = snprintf(one, sizeof one, i ? " %d" : "%d", ids[i]);
        pl_strbuf_add(&b, one, (size_t)len);
    }
    return pl_strbuf_take(&b);
}

static pl_status fill(pl_prompt *p, const pl_json *j, pl_err *err) {
    const cJSON *prompt, *answer;
    const char  *target, *finish;
    int64_t      n;
    PL_TRY(count_ids(j, "prompt_ids", &prompt, &p->n_prompt, err));
    PL_TRY(count_ids(j, "answer_ids", &answer, &n, err));
    PL_TRY(pl_json_get_str(j, NULL, "target", &target, err));
    PL_TRY(pl_json_get_str(j, NULL, "finish", &finish, err));
    if (strlen(target) >= sizeof p->target)
        return pl_json_fail(j, pl_json_find(j, NULL, "target"), err, "expected a fingerprint of 16 hex digits");
    snprintf(p->target, sizeof p->target, "%s", target);
    p->stopped = strcmp(finish, "stop") == 0;
    p->n_ids = p->n_prompt + n;
    p->ids = pl_malloc(pl_size_mul((size_t)p->n_ids, sizeof *p->ids, 1));
    if (!p->ids) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", j->where);
    PL_TRY(read_ids(j, prompt, p->ids, err));
    PL_TRY(read_ids(j, answer, p->ids + p->n_prompt, err));
    p->text = spell(p->ids, p->n_prompt);
    return PL_OK;
}

bool pl_prompts_is_served(const pl_json *j) {
    return pl_json_find(j, NULL, "answer_ids") != NULL;
}

pl_status pl_prompts_add_served(pl_prompts *to, const pl_json *j, int64_t line, pl_err *err) {
    pl_prompt p = {.rendered = true};
    pl_status st = fill(&p, j, err);
    if (st == PL_OK) return pl_prompts_add(to, j, line, p, err);
    pl_prompt_fini(&p);
    return st;
}
