// Pages in the form of page.html: a tree of figures and texts, and the template that shows them.
//
//   {{key}}         a member of the object at hand: a text (escaped), a number, or a chart (pl_page_put_svg)
//   {{key 2}}       a number with two digits; "–" where there is none. 2% and 2m: times 100 and 1000; 1G: billions;
//                   g: four significant digits; 2~: with its interval, from key_low to key_high
//   {{#key}} {{/}}  each element of a list in turn, or the object; the texts between see its members
//   {{?key}} {{/}}  if there is such a member, {{^key}}: if there is none; {{?key=text}}: if it is this text
// Keys are "a.b" for a member of a member, "../a" for one of the object outside, "." for the element itself and "a.*.b"
// for the first b that an element of the list a has.
//
// Text that came from a file is a string of the tree and is always escaped; markup is what svg.c wrote.
#ifndef PL_PAGE_H
#define PL_PAGE_H

#include "kernels/base/json.h"
#include "kernels/base/strbuf.h"

typedef struct pl_page {
    pl_json tree;
    bool    failed; // out of memory; pl_page_write returns it
} pl_page;

pl_status pl_page_begin(pl_page *p, const char *title, pl_err *err);
pl_status pl_page_write(pl_page *p, const char *path, pl_err *err); // atomically
void      pl_page_end(pl_page *p);
// True for the beginning of a page with this title.
bool      pl_page_is(const char *front, size_t n, const char *title);

// Adds an item to an object, or with key NULL to a list, and returns it; NULL when memory ran out, which may be passed
// on as the next one's `to`.
cJSON *pl_page_put(pl_page *p, cJSON *to, const char *key, cJSON *item);
void   pl_page_put_num(pl_page *p, cJSON *to, const char *key, double v); // nothing where v is not finite
void   pl_page_put_str(pl_page *p, cJSON *to, const char *key, const char *s);
void   pl_page_put_svg(pl_page *p, cJSON *to, const char *key, pl_strbuf *b); // empties b; nothing where it is empty
// An object of a file that stays open, without a copy; a new object of a list, with such a one as its member m.
void   pl_page_put_seen(pl_page *p, cJSON *to, const char *key, const cJSON *of);
cJSON *pl_page_put_row(pl_page *p, cJSON *list, const cJSON *m);

// A member ("a.b") of an object: NaN, "" where it is absent or something else.
double      pl_page_num(const cJSON *obj, const char *key);
const char *pl_page_str(const cJSON *obj, const char *key);

void pl_page_addf(pl_strbuf *b, const char *fmt, ...) PL_PRINTF(2, 3); // as it is
void pl_page_text(pl_strbuf *b, const char *s);                        // escaped

#endif
