// The readers of grammars, each a file: text to nodes, with the root set.
#ifndef PL_GRAMMAR_READERS_H
#define PL_GRAMMAR_READERS_H

#include "infer/grammar/nodes.h"
#include "kernels/base/json.h"

#define PL_GRAMMAR_DEPTH 64   // of groups within groups
#define PL_GRAMMAR_RULES 4096 // rules, referenced schemas and properties of a schema at most: they are searched in turn

pl_status pl_gbnf_read(pl_nodes *g, const char *text, size_t n, pl_err *err);
// The regular expression as a node. in_json: of the characters of a JSON string as they are written there, escapes
// included, for a pattern that is searched for (without anchors it may stand anywhere).
pl_status pl_regex_node(int32_t *node, pl_nodes *g, const char *text, size_t n, bool in_json, pl_err *err);
pl_status pl_schema_read(pl_nodes *g, const char *text, size_t n, pl_err *err);
// A schema that is a part of `json`, for messages, and the root of its own references, as a node. NULL: any object.
pl_status pl_schema_node(int32_t *node, pl_nodes *g, const pl_json *json, const cJSON *schema, pl_err *err);
// A text of pl_calls_write. spelt: pl_nodes_check's.
pl_status pl_calls_read(pl_nodes *g, const char *text, size_t n, const bool spelt[256], pl_err *err);
// Characters of a JSON string, as they are written there: those of the ranges.
int32_t   pl_json_chars(pl_nodes *g, const pl_char_range *range, int n);
int32_t   pl_json_any_char(pl_nodes *g); // any of them, also by an escape that it does not need

// Parts of both notations, read from text[*at] on. They return NULL, or what is wrong.
//   hex    so many digits of a character's number
//   times  one of * + ? {m} {m,} {m,n}, which begins at *at
const char *pl_scan_hex(const char *text, size_t *at, size_t end, int digits, uint32_t *out);
const char *pl_scan_times(const char *text, size_t *at, size_t end, int32_t *min, int32_t *max);

#endif
