#include "data/chat/jinja.h"
#include "data/chat/eval.h"
#include "kernels/base/json.h"
#include "kernels/base/utf8.h"
#include <stdio.h>

// Limits of one template. Conversations are a few MB at most; all the steps take some six seconds.
#define MAX_MEMORY ((size_t)256 << 20)
#define MAX_STEPS ((int64_t)200000000)

struct pl_jinja {
    pl_region     r; // owns the tree
    char         *name;
    pl_chat_nodes body;
};

// ---- compiling

// Target of the jump after a failure, in a frame without variables of its own.
static pl_status compile(pl_jinja *t, const char *text, size_t n) {
    if (setjmp(t->r.out)) return t->r.err->status;
    pl_chat_tokens tokens = {0};
    pl_chat_lex(&t->r, text, n, &tokens);
    pl_chat_parse(&t->r, &tokens, &t->body);
    return PL_OK;
}

pl_status pl_jinja_compile(pl_jinja **out, const char *name, const char *text, size_t n, pl_err *err) {
    pl_err    own = {0};
    pl_status st;
    *out = NULL;
    if (pl_utf8_valid(text, n) != n) return pl_fail(err, PL_E_INPUT, "%s: not UTF-8", name);
    pl_jinja *t = pl_calloc(1, sizeof *t);
    if (!t || !(t->name = pl_strdup(name))) {
        pl_free(t);
        return pl_fail(err, PL_E_MEMORY, "%s: out of memory", name);
    }
    t->r = pl_region_new(t->name, MAX_MEMORY, MAX_STEPS, err ? err : &own);
    st = compile(t, text, n);
    t->r.err = NULL; // the caller's, for this call alone
    if (st != PL_OK) {
        pl_jinja_free(t);
        return st;
    }
    *out = t;
    return PL_OK;
}

void pl_jinja_free(pl_jinja *t) {
    if (!t) return;
    pl_region_fini(&t->r);
    pl_free(t->name);
    pl_free(t);
}

// ---- rendering

static pl_status parse_date(const char *date, struct tm *to, pl_err *err) {
    struct tm t = {0};
    char      tail = 0;
    int       n = sscanf(date, "%4d-%2d-%2d %2d:%2d:%2d%c", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min,
                         &t.tm_sec, &tail);
    t.tm_year -= 1900;
    t.tm_mon -= 1;
    struct tm asked = t;
    time_t    at = timegm(&t); // fills in the day of the week and of the year, and normalises days beyond a month's end
    if ((n != 3 && n != 6) || at == (time_t)-1 || t.tm_mday != asked.tm_mday || t.tm_mon != asked.tm_mon ||
        t.tm_hour != asked.tm_hour || t.tm_min != asked.tm_min || t.tm_sec != asked.tm_sec)
        return pl_fail(err, PL_E_INPUT, "date '%s': not YYYY-MM-DD or YYYY-MM-DD HH:MM:SS", date);
    *to = t;
    return PL_OK;
}

static pl_status render(pl_chat_machine *m, const pl_chat_nodes *body, pl_chat_fill *fill, const void *arg) {
    if (setjmp(m->r->out)) return m->r->err->status;
    m->vars = pl_chat_dict_new(m->r);
    fill(m->r, m->vars, arg);
    pl_chat_run(m, body);
    return PL_OK;
}

static pl_status take(pl_chat_machine *m, pl_jinja_out *out, pl_err *err) {
    pl_jinja_out o = {.n = m->r->text.n, .n_spans = m->n_spans, .parts_printed = m->r->listed};
    o.text = pl_strbuf_take(&m->r->text);
    if (m->n_spans) o.spans = pl_calloc((size_t)m->n_spans, sizeof *o.spans);
    if (!o.text || (m->n_spans && !o.spans)) {
        pl_jinja_out_fini(&o);
        return pl_fail(err, PL_E_MEMORY, "chat template: out of memory");
    }
    for (int64_t i = 0; i < m->n_spans; i++)
        o.spans[i] = (pl_jinja_span){m->spans[i].from, m->spans[i].to};
    *out = o;
    return PL_OK;
}

pl_status pl_jinja_render_within(const pl_jinja *t, pl_chat_fill *fill, const void *arg, const char *date,
                                 pl_chat_bounds *bounds, pl_jinja_out *out, pl_err *err) {
    pl_err          own = {0};
    pl_region       r = pl_region_new(t->name, bounds->bytes, bounds->steps, err ? err : &own);
    struct tm       now;
    pl_chat_machine m = {.r = &r, .now = date ? &now : NULL};
    memset(out, 0, sizeof *out);
    if (date) PL_TRY(parse_date(date, &now, err));
    pl_status st = render(&m, &t->body, fill, arg);
    bounds->done = r.steps;
    if (st == PL_OK) st = take(&m, out, err);
    pl_region_fini(&r);
    return st;
}

pl_status pl_jinja_render_filled(const pl_jinja *t, pl_chat_fill *fill, const void *arg, const char *date,
                                 pl_jinja_out *out, pl_err *err) {
    return pl_jinja_render_within(t, fill, arg, date, &(pl_chat_bounds){MAX_MEMORY, MAX_STEPS, 0}, out, err);
}

typedef struct object {
    const char *text;
    size_t      n;
} object;

static void fill_object(pl_region *r, pl_chat_value vars, const void *arg) {
    const object *o = arg;
    pl_chat_merge(r, vars, o->text, o->n);
}

pl_status pl_jinja_render(const pl_jinja *t, const char *vars, size_t n_vars, const char *date, pl_jinja_out *out,
                          pl_err *err) {
    pl_json checked; // reports invalid JSON; the values are then read from the text
    memset(out, 0, sizeof *out);
    PL_TRY(pl_json_parse(&checked, t->name, 0, vars, n_vars, 0, err));
    bool is = cJSON_IsObject(checked.root);
    pl_json_close(&checked);
    if (!is) return pl_fail(err, PL_E_INPUT, "%s: the variables are no JSON object", t->name);
    return pl_jinja_render_filled(t, fill_object, &(object){vars, n_vars}, date, out, err);
}

void pl_jinja_out_fini(pl_jinja_out *out) {
    pl_free(out->text);
    pl_free(out->spans);
    memset(out, 0, sizeof *out);
}
