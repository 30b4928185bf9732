#include "train/task/continuation.h"

#include "kernels/base/check.h"

#include <string.h>

static pl_status start(pl_engine *e, const pl_continuation *c, pl_session_options o, pl_err *err) {
    pl_session *s;
    o.key = c->key;
    o.max_new = c->max_new;
    return pl_engine_start(e, c->ids, c->prompt, &o, &s, err);
}

static void take(pl_continuation *text, int n, const pl_session *s) {
    int i = 0;
    while (i < n && text[i].key != pl_session_key(s))
        i++;
    PL_CHECK(i < n, "a session of none of %d texts", n);
    text[i].n = pl_session_length(s);
    memcpy(text[i].ids, pl_session_tokens(s), (size_t)text[i].n * sizeof *text[i].ids);
}

pl_status pl_continue(pl_engine *e, pl_continuation *text, int n, const pl_session_options *o, pl_err *err) {
    int slots = pl_engine_free_slots(e);
    for (int begun = 0, done = 0; done < n;) {
        for (; begun < n && pl_engine_free_slots(e) > 0; begun++)
            PL_TRY(start(e, &text[begun], *o, err));
        PL_TRY(pl_engine_step(e, err));
        for (int i = 0; i < slots; i++) {
            pl_session *s = pl_engine_session(e, i);
            if (!s || pl_session_finish(s) == PL_RUNNING) continue;
            take(text, n, s);
            pl_engine_end(e, s);
            done++;
        }
    }
    return PL_OK;
}
