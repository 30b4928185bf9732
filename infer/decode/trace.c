#include "infer/decode/trace.h"

#include "kernels/base/arena.h"
#include "kernels/base/json.h"

#include <string.h>

// The first line is a prompt's (pl_trace_prompt).
bool pl_trace_is(const char *front, size_t n) {
    static const char first[] = "{\"prompt\":", then[] = ",\"category\":";
    size_t            at = sizeof first - 1;
    if (n < at || memcmp(front, first, at) != 0) return false;
    while (at < n && front[at] >= '0' && front[at] <= '9')
        at++;
    return n - at >= sizeof then - 1 && memcmp(front + at, then, sizeof then - 1) == 0;
}

pl_status pl_trace_begin(pl_trace *t, const char *path, pl_err *err) {
    *t = (pl_trace){0};
    return pl_atomic_file_begin(&t->file, path, err);
}

static pl_status put_line(pl_trace *t, pl_json_out *line, pl_err *err) {
    pl_json_out_close(line, '}');
    PL_TRY(pl_json_out_end(line, err));
    line->text[line->len] = '\n'; // in place of the terminating 0
    pl_status st = pl_atomic_file_append(&t->file, line->text, line->len + 1, err);
    pl_free(line->text);
    return st;
}

static void begin_line(pl_json_out *line) {
    pl_json_out_begin(line, 0);
    pl_json_out_object(line);
}

pl_status pl_trace_prompt(pl_trace *t, int64_t i, const char *category, const int32_t *ids, int64_t n, pl_err *err) {
    pl_json_out line;
    begin_line(&line);
    pl_put_int(&line, "prompt", i);
    pl_put_str(&line, "category", category && *category ? category : NULL);
    pl_put_ids(&line, "ids", ids, n);
    return put_line(t, &line, err);
}

void pl_trace_open(pl_trace *t, const pl_trace_answer *a) {
    t->of = *a;
    t->rows = t->nodes = 0;
}

// Makes room for one more row and n more nodes.
static bool make_room(pl_trace *t, int64_t n) {
    if (t->rows == t->row_room) {
        int64_t       room = t->row_room ? 2 * t->row_room : 256;
        pl_trace_row *row = pl_realloc(t->row, (size_t)room * sizeof *row);
        if (!row) return false;
        t->row = row;
        t->row_room = room;
    }
    if (t->nodes + n > t->node_room) {
        int64_t  room = 2 * (t->nodes + n);
        int32_t *node = pl_malloc(2 * (size_t)room * sizeof *node);
        if (!node) return false;
        for (int k = 0; k < 2 && t->nodes > 0; k++)
            memcpy(node + k * room, t->node + k * t->node_room, (size_t)t->nodes * sizeof *node);
        pl_free(t->node);
        t->node = node;
        t->node_room = room;
    }
    return true;
}

void pl_trace_cycle(void *trace, const pl_cycle *cycle) {
    pl_trace *t = trace;
    int32_t   n = cycle->tree->n - 1;
    if (t->failed || !make_room(t, n)) {
        t->failed = true;
        return;
    }
    t->row[t->rows++] = (pl_trace_row){.draft = t->nodes,
                                       .drafts = n,
                                       .at = pl_session_length(cycle->session) - cycle->emitted,
                                       .accepted = cycle->verdict->n,
                                       .emitted = cycle->emitted,
                                       .before = pl_session_statistics(cycle->session)->seconds};
    if (n == 0) return;
    memcpy(t->node + t->nodes, cycle->tree->token + 1, (size_t)n * sizeof *t->node);
    memcpy(t->node + t->node_room + t->nodes, cycle->tree->parent + 1, (size_t)n * sizeof *t->node);
    t->nodes += n;
}

static bool is_chain(const int32_t *parent, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (parent[i] != i) return false;
    return true;
}

// after: seconds of the session at the cycle's end.
static void put_cycle(pl_json_out *o, const pl_trace *t, const pl_trace_row *r, double after) {
    const int32_t *parent = t->node + t->node_room + r->draft;
    pl_json_out_object(o);
    pl_put_int(o, "at", r->at);
    pl_put_ids(o, "draft", t->node + r->draft, r->drafts);
    if (!is_chain(parent, r->drafts)) pl_put_ids(o, "parents", parent, r->drafts);
    pl_put_int(o, "accepted", r->accepted);
    pl_put_int(o, "emitted", r->emitted);
    pl_put_num(o, "seconds", after - r->before);
    pl_json_out_close(o, '}');
}

pl_status pl_trace_close(pl_trace *t, const pl_session *s, pl_err *err) {
    const pl_session_stats *stats = pl_session_statistics(s);
    int32_t                 prompt = pl_session_prompt(s);
    pl_json_out             line;
    if (t->failed) return pl_fail(err, PL_E_MEMORY, "trace: out of memory");
    begin_line(&line);
    pl_put_str(&line, "method", t->of.method);
    pl_put_int(&line, "prompt", t->of.prompt);
    pl_put_int(&line, "seed", t->of.seed);
    pl_put_int(&line, "repeat", t->of.repeat);
    pl_put_num(&line, "temperature", t->of.temperature);
    pl_put_ids(&line, "ids", pl_session_tokens(s) + prompt, pl_session_length(s) - prompt);
    pl_put_str(&line, "finish", pl_finish_name(pl_session_finish(s)));
    pl_put_num(&line, "prefill_seconds", stats->prefill_seconds);
    pl_put_num(&line, "seconds", stats->seconds);
    pl_put_array(&line, "cycles");
    for (int64_t i = 0; i < t->rows; i++)
        put_cycle(&line, t, &t->row[i], i + 1 < t->rows ? t->row[i + 1].before : stats->seconds);
    pl_json_out_close(&line, ']');
    return put_line(t, &line, err);
}

static void drop_rows(pl_trace *t) {
    pl_free(t->row);
    pl_free(t->node);
    t->row = NULL;
    t->node = NULL;
}

pl_status pl_trace_commit(pl_trace *t, pl_err *err) {
    drop_rows(t);
    return pl_atomic_file_commit(&t->file, err);
}

void pl_trace_abort(pl_trace *t) {
    drop_rows(t);
    pl_atomic_file_abort(&t->file);
}
