// Writes pages by the template page.html from a tree of figures and texts.
//
//   {{key}}         a member of the current object: a text (escaped) or a chart (pl_page_put_svg)
//   {{key 2}}       a number with two decimals; "–" if there is none. 2%: in percent; 2m: times 1000; 1G: in billions;
//                   g: four significant digits; 2~: with its interval, from key_low to key_high
//   {{#key}} {{/}}  the text between, for each element of a list, or for the object, as the current object
//   {{?key}} {{/}}  the text between if the member exists and is not empty, {{^key}}: if not; {{?key=text}}: if it is
//                   this text, true or false
// Keys are "a.b" for a member of a member, "../a" for a member of the enclosing object, "." for the element itself and
// "a.*.b" for the first b of an element of the list a.
//
// Text from files is a string of the tree and is always escaped; only charts of svg.c are markup.
#ifndef PL_PAGE_H
#define PL_PAGE_H

#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

typedef struct pl_page {
    pl_json tree;
    bool    failed; // out of memory; pl_page_write returns it
} pl_page;

pl_status pl_page_begin(pl_page *p, const char *title, pl_err *err);
pl_status pl_page_write(pl_page *p, const char *path, pl_err *err); // writes the file atomically
void      pl_page_end(pl_page *p);
// True if these bytes are the beginning of a page with this title.
bool      pl_page_is(const char *front, size_t n, const char *title);

// Adds an item to an object, or with key NULL to a list, and returns it. NULL: out of memory; a NULL `to` is allowed.
cJSON *pl_page_put(pl_page *p, cJSON *to, const char *key, cJSON *item);
void   pl_page_put_num(pl_page *p, cJSON *to, const char *key, double v); // nothing where v is not finite
void   pl_page_put_str(pl_page *p, cJSON *to, const char *key, const char *s);
void   pl_page_put_svg(pl_page *p, cJSON *to, const char *key, pl_strbuf *b); // empties b; nothing where it is empty
// Adds, without a copy, an object of a file that stays open. put_row adds a new object to a list, with such an object
// as its member m.
void   pl_page_put_seen(pl_page *p, cJSON *to, const char *key, const cJSON *of);
cJSON *pl_page_put_row(pl_page *p, cJSON *list, const cJSON *m);

// Return a member ("a.b") of an object; NaN or "" where it is absent or of another type.
double      pl_page_num(const cJSON *obj, const char *key);
const char *pl_page_str(const cJSON *obj, const char *key);

void pl_page_addf(pl_strbuf *b, const char *fmt, ...) PL_PRINTF(2, 3); // unescaped
void pl_page_text(pl_strbuf *b, const char *s);                        // escaped

#endif
