// The syntax of chat templates: tokens and tree. The language is Jinja's (jinja2 3.1) as configured by transformers:
// trim_blocks, lstrip_blocks, loop controls, {% generation %}.
#ifndef PL_CHAT_SYNTAX_H
#define PL_CHAT_SYNTAX_H

#include "data/chat/value.h"

typedef enum pl_chat_token_kind {
    PL_TOKEN_TEXT,  // outside of tags
    PL_TOKEN_BLOCK, // {%
    PL_TOKEN_BLOCK_END,
    PL_TOKEN_PRINT, // {{
    PL_TOKEN_PRINT_END,
    PL_TOKEN_NAME,
    PL_TOKEN_VALUE, // a string, an integer, a float
    PL_TOKEN_SIGN,  // operators and brackets, in `text`
    PL_TOKEN_END,
} pl_chat_token_kind;

typedef struct pl_chat_token {
    pl_chat_token_kind kind;
    int                line;
    pl_chat_value      value; // text and values; names and signs as strings ending in 0
} pl_chat_token;

typedef struct pl_chat_tokens {
    pl_chat_token *v;
    int64_t        n, cap;
} pl_chat_tokens;

void pl_chat_lex(pl_region *r, const char *text, size_t n, pl_chat_tokens *out);

typedef enum pl_chat_kind {
    // expressions
    PL_CHAT_CONST,      // value
    PL_CHAT_NAME,       // name
    PL_CHAT_TUPLE,      // items
    PL_CHAT_ARRAY,      // items
    PL_CHAT_OBJECT,     // items: key, value, key, value
    PL_CHAT_ATTR,       // a.name
    PL_CHAT_ITEM,       // a[b]
    PL_CHAT_SLICE,      // a[items 0:1:2], each may be NULL
    PL_CHAT_CALLED,     // a(args)
    PL_CHAT_FILTER,     // a | name(args)
    PL_CHAT_TEST,       // a is name(args)
    PL_CHAT_NOT,        // not a
    PL_CHAT_AND,        // a and b
    PL_CHAT_OR,         // a or b
    PL_CHAT_NEGATIVE,   // -a
    PL_CHAT_POSITIVE,   // +a
    PL_CHAT_ARITHMETIC, // a name b
    PL_CHAT_CONCAT,     // items joined by ~
    PL_CHAT_COMPARE,    // a, then items: an operand each, its operator in its keyword
    PL_CHAT_CHOICE,     // a if b else c; c may be NULL
    // statements
    PL_CHAT_TEXT,       // value
    PL_CHAT_OUTPUT,     // a
    PL_CHAT_IF,         // a, body, other
    PL_CHAT_FOR,        // a: targets, b: iterable, c: the condition or NULL, body, other
    PL_CHAT_SET,        // a = b
    PL_CHAT_SET_BLOCK,  // a = body, through the filters of b (whose innermost operand is NULL)
    PL_CHAT_MACRO,      // name, args (targets in keyword, defaults in items), body; value: it reads varargs or kwargs
    PL_CHAT_CALL_BLOCK, // a: the call, b: a nameless macro, which is its caller()
    PL_CHAT_FILTERED,   // body through the filters of b
    PL_CHAT_WITH,       // items: target, value, target, value; body
    PL_CHAT_BREAK,
    PL_CHAT_CONTINUE,
    PL_CHAT_GENERATION, // body: the assistant's text
} pl_chat_kind;

typedef struct pl_chat_node pl_chat_node;

typedef struct pl_chat_nodes {
    pl_chat_node **v;
    const char   **keyword; // of each; NULL: positional; "*" and "**": unpacked
    int64_t        n, cap;
} pl_chat_nodes;

struct pl_chat_node {
    pl_chat_kind  kind;
    int           line;
    const char   *name;
    pl_chat_value value;
    pl_chat_node *a, *b, *c;
    pl_chat_nodes items; // operands, arguments
    pl_chat_nodes body, other;
};

void pl_chat_parse(pl_region *r, const pl_chat_tokens *tokens, pl_chat_nodes *out);

#endif
