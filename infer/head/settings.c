#include "infer/head/settings.h"

#include "kernels/base/check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *name_of(const pl_key *row) {
    const char *dot = strrchr(row->path, '.');
    return dot ? dot + 1 : row->path;
}

void pl_head_settings_state(pl_hf_head *spec, const pl_key *keys, const void *own) {
    for (const pl_key *row = keys; row && row->path; row++) {
        const void *at = (const char *)own + row->field.offset;
        if (row->unstored) continue;
        if (row->type == PL_KEY_ENUM)
            pl_hf_head_set_text(spec, name_of(row), pl_key_choice(row, *(const int *)at));
        else if (row->field.form == PL_FIELD_BOOL)
            pl_hf_head_set_flag(spec, name_of(row), *(const bool *)at);
        else if (row->field.form == PL_FIELD_INT)
            pl_hf_head_set(spec, name_of(row), *(const int *)at);
        else
            PL_CHECK(false, "head setting %s: an int, a flag or a name is wanted", row->path);
    }
}

static int choice_of(const pl_key *row, const char *text) {
    for (int i = 0; pl_key_choice(row, i); i++)
        if (strcmp(pl_key_choice(row, i), text) == 0) return i;
    return -1;
}

static pl_status refuse_choice(const pl_hf_head *spec, const pl_key *row, const char *text, pl_err *err) {
    char   known[256] = "";
    size_t used = 0;
    for (int i = 0; pl_key_choice(row, i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", pl_key_choice(row, i));
    return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": %s \"%s\" is not known; known are: %s", spec->kind,
                   name_of(row), text, known);
}

static pl_status read_one(void *to, const pl_key *row, const pl_hf_head *spec, const pl_hf_setting *s, pl_err *err) {
    static const char *const want[] = {
        [PL_HF_INT] = "an integer", [PL_HF_FLAG] = "true or false", [PL_HF_TEXT] = "a name"};
    pl_hf_form form = row->type == PL_KEY_ENUM ? PL_HF_TEXT : row->field.form == PL_FIELD_BOOL ? PL_HF_FLAG : PL_HF_INT;
    if (s->form != form)
        return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": %s: expected %s", spec->kind, s->name, want[form]);
    if (form == PL_HF_TEXT) {
        int i = choice_of(row, s->text);
        if (i < 0) return refuse_choice(spec, row, s->text, err);
        *(int *)to = i;
    } else if (form == PL_HF_FLAG) {
        *(bool *)to = true;
    } else {
        double most = row->min == 0 && row->max == 0 ? INT_MAX : row->max;
        if ((double)s->value < row->min || (double)s->value > most)
            return pl_fail(err, PL_E_INPUT, "head of kind \"%s\": %s %lld must lie in 1..%.0f", spec->kind, s->name,
                           (long long)s->value, most);
        *(int *)to = (int)s->value;
    }
    return PL_OK;
}

pl_status pl_head_settings_read(void *own, const pl_key *keys, const pl_hf_head *spec, pl_err *err) {
    for (const pl_key *row = keys; row && row->path; row++) {
        const pl_hf_setting *s = row->unstored ? NULL : pl_hf_head_find(spec, name_of(row));
        void                *to = (char *)own + row->field.offset;
        if (row->type == PL_KEY_ENUM) *(int *)to = choice_of(row, row->deflt);
        if (s) PL_TRY(read_one(to, row, spec, s, err));
    }
    return PL_OK;
}

bool pl_head_settings_know(const pl_key *keys, const char *name) {
    for (const pl_key *row = keys; row && row->path; row++)
        if (!row->unstored && strcmp(name_of(row), name) == 0) return true;
    return false;
}
