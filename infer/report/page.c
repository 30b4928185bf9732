#include "infer/report/page.h"

#include "kernels/base/files.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const unsigned char pl_page_html[]; // page.html with a terminating 0, made by CMakeLists.txt

// ---- the tree ----

pl_status pl_page_begin(pl_page *p, const char *title, pl_err *err) {
    *p = (pl_page){0};
    PL_TRY(pl_json_parse(&p->tree, title, 0, "{}", 2, 0, err));
    pl_page_put_str(p, p->tree.root, "title", title);
    return PL_OK;
}

void pl_page_end(pl_page *p) {
    pl_json_close(&p->tree);
}

cJSON *pl_page_put(pl_page *p, cJSON *to, const char *key, cJSON *item) {
    bool put = to && item && (key ? cJSON_AddItemToObject(to, key, item) : cJSON_AddItemToArray(to, item));
    if (!put) cJSON_Delete(item);
    p->failed |= !put;
    return put ? item : NULL;
}

void pl_page_put_num(pl_page *p, cJSON *to, const char *key, double v) {
    if (isfinite(v)) pl_page_put(p, to, key, cJSON_CreateNumber(v));
}

void pl_page_put_str(pl_page *p, cJSON *to, const char *key, const char *s) {
    pl_page_put(p, to, key, cJSON_CreateString(s));
}

void pl_page_put_svg(pl_page *p, cJSON *to, const char *key, pl_strbuf *b) {
    if (b->n == 0 && !b->failed) return;
    char *svg = pl_strbuf_take(b);
    pl_page_put(p, to, key, svg ? cJSON_CreateRaw(svg) : NULL);
    pl_free(svg);
}

void pl_page_put_seen(pl_page *p, cJSON *to, const char *key, const cJSON *of) {
    pl_page_put(p, to, key, cJSON_CreateObjectReference(of->child));
}

cJSON *pl_page_put_row(pl_page *p, cJSON *list, const cJSON *m) {
    cJSON *row = pl_page_put(p, list, NULL, cJSON_CreateObject());
    pl_page_put_seen(p, row, "m", m);
    return row;
}

double pl_page_num(const cJSON *obj, const char *key) {
    const cJSON *node = obj ? pl_json_find(NULL, obj, key) : NULL;
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

const char *pl_page_str(const cJSON *obj, const char *key) {
    const cJSON *node = obj ? pl_json_find(NULL, obj, key) : NULL;
    return cJSON_IsString(node) ? node->valuestring : "";
}

// ---- text ----

void pl_page_addf(pl_strbuf *b, const char *fmt, ...) {
    char    text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0) pl_strbuf_add(b, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void pl_page_text(pl_strbuf *b, const char *s) {
    for (; *s; s++) {
        const char *entity = *s == '&'   ? "&amp;"
                             : *s == '<' ? "&lt;"
                             : *s == '>' ? "&gt;"
                             : *s == '"' ? "&quot;"
                                         : NULL;
        pl_strbuf_add(b, entity ? entity : s, entity ? strlen(entity) : 1);
    }
}

// ---- the template ----

// The current object or list element, and the scope around it.
typedef struct scope {
    const cJSON        *at;
    const struct scope *up;
} scope;

static bool is_there(const cJSON *node) {
    if (cJSON_IsString(node)) return node->valuestring[0] != 0;
    bool list = cJSON_IsArray(node) || cJSON_IsObject(node);
    return node && !cJSON_IsNull(node) && (!list || node->child);
}

static const cJSON *find_value(const scope *s, const char *key) {
    for (; strncmp(key, "../", 3) == 0; key += 3)
        s = s->up;
    const char *each = strstr(key, ".*.");
    if (!each) return strcmp(key, ".") == 0 ? s->at : pl_json_find(NULL, s->at, key);
    char         list[64];
    const cJSON *item, *value;
    snprintf(list, sizeof list, "%.*s", (int)(each - key), key);
    cJSON_ArrayForEach(item, pl_json_find(NULL, s->at, list)) {
        if (is_there(value = pl_json_find(NULL, item, each + 3))) return value;
    }
    return NULL;
}

static void put_digits(pl_strbuf *b, double v, const char *form) {
    int    digits = atoi(form);
    char   unit = form[strlen(form) - 1];
    double scaled = v * (unit == '%' ? 100 : unit == 'm' ? 1e3 : unit == 'G' ? 1e-9 : 1);
    if (!isfinite(scaled))
        pl_page_addf(b, "–");
    else if (unit == 'g')
        pl_page_addf(b, "%.4g", scaled);
    else
        pl_page_addf(b, unit == '%' ? "%.*f %%" : "%.*f", digits, scaled);
}

static double find_number(const scope *s, const char *key, const char *end) {
    char name[80];
    snprintf(name, sizeof name, "%s%s", key, end);
    const cJSON *node = find_value(s, name);
    return cJSON_IsNumber(node) ? node->valuedouble : NAN;
}

static void put_value(pl_strbuf *b, const scope *s, char *tag) {
    char *form = strchr(tag, ' ');
    if (form) *form++ = 0;
    const cJSON *node = find_value(s, tag);
    if (cJSON_IsRaw(node)) {
        pl_strbuf_add(b, node->valuestring, strlen(node->valuestring));
    } else if (!form) {
        if (cJSON_IsString(node)) pl_page_text(b, node->valuestring);
    } else {
        double low = find_number(s, tag, "_low"), high = find_number(s, tag, "_high");
        put_digits(b, find_number(s, tag, ""), form);
        if (strchr(form, '~') && high > low) pl_page_addf(b, " <small>%.2f–%.2f</small>", low, high);
    }
}

static const char *put_section(pl_strbuf *b, const char *text, const scope *s, char *tag, bool on);

// Writes the text up to the end of the section, with `on` false nothing, and returns the text after it.
static const char *put_text(pl_strbuf *b, const char *text, const scope *s, bool on) {
    for (;;) {
        const char *open = strstr(text, "{{"), *close = open ? strstr(open, "}}") : NULL;
        char        tag[64];
        if (on) pl_strbuf_add(b, text, open ? (size_t)(open - text) : strlen(text));
        if (!close) return "";
        snprintf(tag, sizeof tag, "%.*s", (int)(close - open - 2), open + 2);
        text = close + 2;
        if (tag[0] == '/') return text;
        if (strchr("#?^", tag[0]))
            text = put_section(b, text, s, tag, on);
        else if (on)
            put_value(b, s, tag);
    }
}

static const char *put_section(pl_strbuf *b, const char *text, const scope *s, char *tag, bool on) {
    char *value = strchr(tag, '=');
    if (value) *value++ = 0;
    const cJSON *node = on ? find_value(s, tag + 1) : NULL, *item;
    bool         there = is_there(node);
    if (value && there)
        there = strcmp(value, cJSON_IsString(node) ? node->valuestring : cJSON_IsTrue(node) ? "true" : "false") == 0;
    if (tag[0] != '#') return put_text(b, text, s, on && there == (tag[0] == '?'));
    const char *end = NULL;
    if (there && cJSON_IsArray(node))
        cJSON_ArrayForEach(item, node) end = put_text(b, text, &(scope){item, s}, true);
    else if (there)
        end = put_text(b, text, &(scope){node, s}, true);
    return end ? end : put_text(b, text, s, false);
}

pl_status pl_page_write(pl_page *p, const char *path, pl_err *err) {
    pl_strbuf b = {.failed = p->failed};
    put_text(&b, (const char *)pl_page_html, &(scope){.at = p->tree.root}, true);
    size_t n = b.n;
    char  *text = pl_strbuf_take(&b);
    if (!text) return pl_fail(err, PL_E_MEMORY, "%s: out of memory", path);
    pl_status st = pl_file_write_atomic(path, text, n, err);
    pl_free(text);
    return st;
}

bool pl_page_is(const char *front, size_t n, const char *title) {
    const char *html = (const char *)pl_page_html;
    size_t      head = (size_t)(strstr(html, "{{") - html), t = strlen(title);
    return n > head + t && memcmp(front, html, head) == 0 && memcmp(front + head, title, t) == 0 &&
           front[head + t] == '<';
}
