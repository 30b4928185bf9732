#include "infer/decode/trace.h"

#include "kernels/base/arena.h"
#include "kernels/base/json_put.h"

pl_status pl_trace_begin(pl_trace *t, const char *path, pl_err *err) {
    *t = (pl_trace){0};
    return pl_atomic_file_begin(&t->file, path, err);
}

static pl_status put_line(pl_trace *t, pl_err *err) {
    pl_json_out_close(&t->line, '}');
    pl_status st = pl_json_out_end(&t->line, err);
    if (st == PL_OK) {
        t->line.text[t->line.len] = '\n'; // in the place of its end
        st = pl_atomic_file_append(&t->file, t->line.text, t->line.len + 1, err);
    }
    pl_free(t->line.text);
    t->line = (pl_json_out){0};
    return st;
}

static void begin_line(pl_trace *t) {
    pl_json_out_begin(&t->line, 0);
    pl_json_out_object(&t->line);
}

pl_status pl_trace_prompt(pl_trace *t, int64_t i, const char *category, const int32_t *ids, int64_t n, pl_err *err) {
    begin_line(t);
    pl_put_int(&t->line, "prompt", i);
    pl_put_str(&t->line, "category", category && *category ? category : NULL);
    pl_put_ids(&t->line, "ids", ids, n);
    return put_line(t, err);
}

void pl_trace_open(pl_trace *t, const pl_trace_answer *a) {
    begin_line(t);
    pl_put_str(&t->line, "method", a->method);
    pl_put_int(&t->line, "prompt", a->prompt);
    pl_put_int(&t->line, "seed", a->seed);
    pl_put_int(&t->line, "repeat", a->repeat);
    pl_put_num(&t->line, "temperature", a->temperature);
    pl_put_array(&t->line, "cycles");
    t->open = false;
    t->seconds = 0;
}

// The seconds of a cycle are known when the next one, or the end of the answer, says what the session took so far.
static void end_cycle(pl_trace *t, const pl_session *s) {
    double seconds = pl_session_statistics(s)->seconds;
    if (t->open) {
        pl_put_num(&t->line, "seconds", seconds - t->seconds);
        pl_json_out_close(&t->line, '}');
    }
    t->open = false;
    t->seconds = seconds;
}

static bool is_chain(const pl_tree *t) {
    for (int i = 1; i < t->n; i++)
        if (t->parent[i] != i - 1) return false;
    return true;
}

void pl_trace_cycle(void *trace, const pl_cycle *cycle) {
    pl_trace *t = trace;
    end_cycle(t, cycle->session);
    pl_json_out_object(&t->line);
    pl_put_int(&t->line, "at", pl_session_length(cycle->session) - cycle->emitted);
    pl_put_ids(&t->line, "draft", cycle->tree->token + 1, cycle->tree->n - 1);
    if (!is_chain(cycle->tree)) pl_put_ids(&t->line, "parents", cycle->tree->parent + 1, cycle->tree->n - 1);
    pl_put_int(&t->line, "accepted", cycle->verdict->n);
    pl_put_int(&t->line, "emitted", cycle->emitted);
    t->open = true;
}

pl_status pl_trace_close(pl_trace *t, const pl_session *s, pl_err *err) {
    end_cycle(t, s);
    pl_json_out_close(&t->line, ']');
    int32_t prompt = pl_session_prompt(s);
    pl_put_ids(&t->line, "ids", pl_session_tokens(s) + prompt, pl_session_length(s) - prompt);
    pl_put_str(&t->line, "finish", pl_finish_name(pl_session_finish(s)));
    pl_put_num(&t->line, "prefill_seconds", pl_session_statistics(s)->prefill_seconds);
    pl_put_num(&t->line, "seconds", pl_session_statistics(s)->seconds);
    return put_line(t, err);
}

pl_status pl_trace_commit(pl_trace *t, pl_err *err) {
    return pl_atomic_file_commit(&t->file, err);
}

void pl_trace_abort(pl_trace *t) {
    pl_free(t->line.text);
    t->line = (pl_json_out){0};
    pl_atomic_file_abort(&t->file);
}
