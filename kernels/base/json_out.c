#include "kernels/base/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/json.h"
#include "kernels/base/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(pl_json_out *o, const char *s, size_t n) {
    if (o->failed) return;
    if (o->cap - o->len <= n) {
        size_t cap = o->cap ? o->cap : 256;
        while (cap - o->len <= n)
            cap *= 2;
        char *bigger = pl_realloc(o->text, cap);
        if (!bigger) {
            o->failed = true;
            return;
        }
        o->text = bigger;
        o->cap = cap;
    }
    memcpy(o->text + o->len, s, n);
    o->len += n;
    o->text[o->len] = 0;
}

static void new_line(pl_json_out *o) {
    if (o->indent == 0) return;
    put(o, "\n", 1);
    for (int i = 0; i < o->indent * o->depth; i++)
        put(o, " ", 1);
}

// What stands between the previous item and the next one.
static void lead(pl_json_out *o) {
    if (o->after_key) {
        o->after_key = false;
        return;
    }
    if (!o->first) put(o, ",", 1);
    if (o->depth > 0) new_line(o);
    o->first = false;
}

void pl_json_out_begin(pl_json_out *o, int indent) {
    *o = (pl_json_out){.indent = indent, .first = true};
}

static void enter(pl_json_out *o, const char *bracket) {
    lead(o);
    put(o, bracket, 1);
    o->depth++;
    o->first = true;
}

void pl_json_out_object(pl_json_out *o) {
    enter(o, "{");
}

void pl_json_out_array(pl_json_out *o) {
    enter(o, "[");
}

void pl_json_out_close(pl_json_out *o, char bracket) {
    PL_CHECK(o->depth > 0 && !o->after_key, "depth %d", o->depth);
    o->depth--;
    if (!o->first) new_line(o);
    put(o, &bracket, 1);
    o->first = false;
}

static void put_quoted(pl_json_out *o, const char *s, size_t n) {
    const uint8_t *p = (const uint8_t *)s, *end = p + n, *plain = p;
    put(o, "\"", 1);
    while (p < end) {
        int len = pl_utf8_next((const char *)p, (size_t)(end - p), NULL);
        if (len > 0 && *p >= 0x20 && *p != '"' && *p != '\\') {
            p += len;
            continue;
        }
        put(o, (const char *)plain, (size_t)(p - plain));
        char escape[8];
        if (len <= 0)
            snprintf(escape, sizeof escape, PL_UTF8_REPLACEMENT);
        else if (*p == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (*p == '\t')
            snprintf(escape, sizeof escape, "\\t");
        else if (*p < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*p);
        else
            snprintf(escape, sizeof escape, "\\%c", *p);
        put(o, escape, strlen(escape));
        plain = ++p;
    }
    put(o, (const char *)plain, (size_t)(p - plain));
    put(o, "\"", 1);
}

void pl_json_out_key(pl_json_out *o, const char *key) {
    PL_CHECK(!o->after_key, "two keys: %s", key);
    lead(o);
    put_quoted(o, key, strlen(key));
    put(o, o->indent ? ": " : ":", o->indent ? 2 : 1);
    o->after_key = true;
}

void pl_json_out_strn(pl_json_out *o, const char *s, size_t n) {
    lead(o);
    put_quoted(o, s, n);
}

void pl_json_out_str(pl_json_out *o, const char *s) {
    if (s)
        pl_json_out_strn(o, s, strlen(s));
    else
        pl_json_out_null(o);
}

static void put_word(pl_json_out *o, const char *word) {
    lead(o);
    put(o, word, strlen(word));
}

void pl_json_out_int(pl_json_out *o, int64_t v) {
    char buf[32];
    snprintf(buf, sizeof buf, "%" PRId64, v);
    put_word(o, buf);
}

void pl_json_out_num(pl_json_out *o, double v) {
    char buf[40] = "null";
    if (isfinite(v)) {
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(buf, sizeof buf, "%.*g", digits, v);
            if (strtod(buf, NULL) == v) break;
        }
        // Readers that care about types must see a float.
        if (!strpbrk(buf, ".e")) strcat(buf, ".0");
    }
    put_word(o, buf);
}

void pl_json_out_bool(pl_json_out *o, bool v) {
    put_word(o, v ? "true" : "false");
}

void pl_json_out_null(pl_json_out *o) {
    put_word(o, "null");
}

void pl_json_out_raw(pl_json_out *o, const char *json) {
    put_word(o, json);
}

// cJSON's own printer rounds numbers to 15 digits.
void pl_json_out_node(pl_json_out *o, const cJSON *x) {
    const cJSON *e;
    if (cJSON_IsObject(x) || cJSON_IsArray(x)) {
        bool object = cJSON_IsObject(x);
        (object ? pl_json_out_object : pl_json_out_array)(o);
        cJSON_ArrayForEach(e, x) {
            if (object) pl_json_out_key(o, e->string);
            pl_json_out_node(o, e);
        }
        pl_json_out_close(o, object ? '}' : ']');
    } else if (cJSON_IsNumber(x) && x->valuedouble == floor(x->valuedouble) &&
               fabs(x->valuedouble) <= (double)PL_JSON_INT_MAX) {
        pl_json_out_int(o, (int64_t)x->valuedouble);
    } else if (cJSON_IsNumber(x)) {
        pl_json_out_num(o, x->valuedouble);
    } else if (cJSON_IsString(x)) {
        pl_json_out_str(o, x->valuestring);
    } else {
        pl_json_out_raw(o, cJSON_IsNull(x) ? "null" : cJSON_IsTrue(x) ? "true" : "false");
    }
}

pl_status pl_json_out_end(pl_json_out *o, pl_err *err) {
    PL_CHECK(o->depth == 0 && !o->after_key, "depth %d", o->depth);
    if (o->indent) put(o, "\n", 1);
    if (!o->failed) return PL_OK;
    pl_free(o->text);
    *o = (pl_json_out){0};
    return pl_fail(err, PL_E_MEMORY, "JSON text: out of memory");
}
