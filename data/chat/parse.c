// Parses tokens to a tree, by recursive descent, in jinja2's order of precedence: choice, or, and, not, comparisons, +
// -, ~, * / // %, **, signs, then postfixes: members, calls, filters, tests.
#include "data/chat/syntax.h"

typedef struct parser {
    pl_region           *r;
    const pl_chat_token *t; // current token
    int                  loops;
    bool                 surplus; // varargs or kwargs was read since a macro began
} parser;

static pl_chat_node *expression(parser *p);
static pl_chat_node *unary(parser *p, bool with_filters);
static void          statements(parser *p, pl_chat_nodes *to);

// ---- tokens

static void at_line(parser *p) {
    p->r->line = p->t->line;
}

static bool is_sign(const parser *p, const char *s) {
    return p->t->kind == PL_TOKEN_SIGN && strcmp(p->t->value.s, s) == 0;
}

static bool is_word(const parser *p, const char *s) {
    return p->t->kind == PL_TOKEN_NAME && strcmp(p->t->value.s, s) == 0;
}

static bool take_sign(parser *p, const char *s) {
    bool is = is_sign(p, s);
    p->t += is;
    return is;
}

static bool take_word(parser *p, const char *s) {
    bool is = is_word(p, s);
    p->t += is;
    return is;
}

static _Noreturn void unexpected(parser *p, const char *expected) {
    const pl_chat_token *t = p->t;
    at_line(p);
    if (t->value.type == PL_CHAT_STR)
        pl_chat_raise(p->r, PL_E_INPUT, "expected %s, found '%.40s'", expected, t->value.s);
    pl_chat_raise(p->r, PL_E_INPUT, "expected %s, found a number", expected);
}

static void need_sign(parser *p, const char *s) {
    if (!take_sign(p, s)) unexpected(p, s);
}

static void need(parser *p, pl_chat_token_kind kind, const char *what) {
    if (p->t->kind != kind) unexpected(p, what);
    p->t++;
}

static const char *need_name(parser *p) {
    need(p, PL_TOKEN_NAME, "a name");
    return p->t[-1].value.s;
}

// ---- nodes

static pl_chat_node *node(parser *p, pl_chat_kind kind, pl_chat_node *a, pl_chat_node *b) {
    pl_chat_node *n = pl_region_alloc(p->r, sizeof *n);
    at_line(p);
    n->kind = kind;
    n->line = p->t->line;
    n->a = a;
    n->b = b;
    return n;
}

static pl_chat_node *named(parser *p, pl_chat_kind kind, pl_chat_node *a, pl_chat_node *b, const char *name) {
    pl_chat_node *n = node(p, kind, a, b);
    n->name = name;
    return n;
}

static pl_chat_node *constant(parser *p, pl_chat_value v) {
    pl_chat_node *n = node(p, PL_CHAT_CONST, NULL, NULL);
    n->value = v;
    return n;
}

static void append(parser *p, pl_chat_nodes *to, pl_chat_node *n, const char *keyword) {
    int64_t keywords = to->cap; // as many as nodes
    to->keyword = pl_region_room(p->r, to->keyword, to->n, &keywords, sizeof *to->keyword);
    to->v = pl_region_room(p->r, to->v, to->n, &to->cap, sizeof *to->v);
    to->keyword[to->n] = keyword;
    to->v[to->n++] = n;
}

// ---- expressions

static void arguments(parser *p, pl_chat_nodes *to) { // after "("
    bool first = true;
    while (!take_sign(p, ")")) {
        if (!first) {
            need_sign(p, ",");
            if (take_sign(p, ")")) return;
        }
        first = false;
        const char *keyword = NULL;
        if (take_sign(p, "**"))
            keyword = "**";
        else if (take_sign(p, "*"))
            keyword = "*";
        else if (p->t->kind == PL_TOKEN_NAME && p->t[1].kind == PL_TOKEN_SIGN && strcmp(p->t[1].value.s, "=") == 0) {
            keyword = p->t->value.s;
            p->t += 2;
        }
        append(p, to, expression(p), keyword);
    }
}

// a, b, c up to a token that begins no expression; one without a comma is itself. targets: operands of "in" are names
// instead of expressions.
static bool ends_tuple(const parser *p) {
    return p->t->kind == PL_TOKEN_BLOCK_END || p->t->kind == PL_TOKEN_PRINT_END || is_sign(p, ")") || is_sign(p, "]") ||
           is_sign(p, "=") || is_word(p, "in");
}

static pl_chat_node *tuple(parser *p, pl_chat_node *(*operand)(parser *)) {
    pl_chat_node *first = operand(p);
    if (!is_sign(p, ",")) return first;
    pl_chat_node *n = node(p, PL_CHAT_TUPLE, NULL, NULL);
    append(p, &n->items, first, NULL);
    while (take_sign(p, ","))
        if (ends_tuple(p))
            break;
        else
            append(p, &n->items, operand(p), NULL);
    return n;
}

static pl_chat_node *primary(parser *p) {
    static const struct {
        const char   *name;
        pl_chat_value v;
    } words[] = {
        {"true", {.type = PL_CHAT_BOOL, .flag = true}},
        {"True", {.type = PL_CHAT_BOOL, .flag = true}},
        {"false", {.type = PL_CHAT_BOOL}},
        {"False", {.type = PL_CHAT_BOOL}},
        {"none", {.type = PL_CHAT_NONE}},
        {"None", {.type = PL_CHAT_NONE}},
    };
    pl_chat_node *n;
    if (p->t->kind == PL_TOKEN_NAME) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (take_word(p, words[i].name)) return constant(p, words[i].v);
        n = named(p, PL_CHAT_NAME, NULL, NULL, p->t->value.s);
        p->surplus |= strcmp(n->name, "varargs") == 0 || strcmp(n->name, "kwargs") == 0;
        p->t++;
        return n;
    }
    if (p->t->kind == PL_TOKEN_VALUE) {
        pl_chat_value v = p->t++->value;
        while (v.type == PL_CHAT_STR && p->t->kind == PL_TOKEN_VALUE && p->t->value.type == PL_CHAT_STR) {
            char *s = pl_region_alloc(p->r, v.n + p->t->value.n + 1); // adjacent strings are joined
            memcpy(s, v.s, v.n);
            memcpy(s + v.n, p->t->value.s, p->t->value.n);
            v = pl_chat_strn(s, v.n + p->t->value.n);
            p->t++;
        }
        return constant(p, v);
    }
    if (take_sign(p, "(")) {
        if (take_sign(p, ")")) return node(p, PL_CHAT_TUPLE, NULL, NULL);
        n = tuple(p, expression);
        need_sign(p, ")");
        return n;
    }
    if (take_sign(p, "[")) {
        n = node(p, PL_CHAT_ARRAY, NULL, NULL);
        while (!take_sign(p, "]")) {
            if (n->items.n) need_sign(p, ",");
            if (n->items.n && take_sign(p, "]")) break;
            append(p, &n->items, expression(p), NULL);
        }
        return n;
    }
    if (take_sign(p, "{")) {
        n = node(p, PL_CHAT_OBJECT, NULL, NULL);
        while (!take_sign(p, "}")) {
            if (n->items.n) need_sign(p, ",");
            if (n->items.n && take_sign(p, "}")) break;
            append(p, &n->items, expression(p), NULL);
            need_sign(p, ":");
            append(p, &n->items, expression(p), NULL);
        }
        return n;
    }
    unexpected(p, "an expression");
}

static pl_chat_node *subscript(parser *p, pl_chat_node *of) { // after "["
    pl_chat_node *part[3] = {0};
    int           colons = 0;
    while (!is_sign(p, "]")) {
        if (take_sign(p, ":")) {
            if (++colons > 2) unexpected(p, "]");
        } else if (part[colons]) {
            unexpected(p, "]");
        } else {
            part[colons] = expression(p);
        }
    }
    if (colons == 0 && !part[0]) unexpected(p, "a subscript");
    p->t++;
    if (colons == 0) return node(p, PL_CHAT_ITEM, of, part[0]);
    pl_chat_node *n = node(p, PL_CHAT_SLICE, of, NULL);
    for (int i = 0; i < 3; i++)
        append(p, &n->items, part[i], NULL);
    return n;
}

static pl_chat_node *call(parser *p, pl_chat_node *of) { // after "("
    pl_chat_node *n = node(p, PL_CHAT_CALLED, of, NULL);
    arguments(p, &n->items);
    return n;
}

static pl_chat_node *postfix(parser *p, pl_chat_node *n) {
    for (;;) {
        if (take_sign(p, ".")) {
            if (p->t->kind == PL_TOKEN_VALUE && p->t->value.type == PL_CHAT_INT)
                n = node(p, PL_CHAT_ITEM, n, constant(p, p->t++->value));
            else
                n = named(p, PL_CHAT_ATTR, n, NULL, need_name(p));
        } else if (take_sign(p, "[")) {
            n = subscript(p, n);
        } else if (take_sign(p, "(")) {
            n = call(p, n);
        } else {
            return n;
        }
    }
}

static pl_chat_node *filter(parser *p, pl_chat_node *n) { // after "|"
    n = named(p, PL_CHAT_FILTER, n, NULL, need_name(p));
    if (is_sign(p, ".")) pl_chat_raise(p->r, PL_E_UNSUPPORTED, "the filter %s. with a dot is not built", n->name);
    if (take_sign(p, "(")) arguments(p, &n->items);
    return n;
}

static pl_chat_node *test(parser *p, pl_chat_node *n) { // after "is"
    bool negated = take_word(p, "not");
    n = named(p, PL_CHAT_TEST, n, NULL, need_name(p));
    bool operand = p->t->kind == PL_TOKEN_VALUE || is_sign(p, "[") || is_sign(p, "{") ||
                   (p->t->kind == PL_TOKEN_NAME && !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and"));
    if (take_sign(p, "("))
        arguments(p, &n->items);
    else if (operand && is_word(p, "is"))
        unexpected(p, "one test: they do not chain");
    else if (operand && !is_word(p, "if") && !is_word(p, "in") && !is_word(p, "not"))
        append(p, &n->items, postfix(p, primary(p)), NULL);
    return negated ? node(p, PL_CHAT_NOT, n, NULL) : n;
}

static pl_chat_node *filters(parser *p, pl_chat_node *n) {
    for (;;) {
        if (take_sign(p, "|"))
            n = filter(p, n);
        else if (take_word(p, "is"))
            n = test(p, n);
        else if (take_sign(p, "("))
            n = call(p, n);
        else
            return n;
    }
}

static pl_chat_node *unary(parser *p, bool with_filters) {
    pl_chat_node *n;
    pl_chat_enter(p->r);
    if (take_sign(p, "-"))
        n = node(p, PL_CHAT_NEGATIVE, unary(p, false), NULL);
    else if (take_sign(p, "+"))
        n = node(p, PL_CHAT_POSITIVE, unary(p, false), NULL);
    else
        n = primary(p);
    n = postfix(p, n);
    if (with_filters) n = filters(p, n);
    pl_chat_leave(p->r);
    return n;
}

static const char *one_of(parser *p, const char *const *signs) {
    for (; *signs; signs++)
        if (take_sign(p, *signs)) return *signs;
    return NULL;
}

static pl_chat_node *power(parser *p) {
    pl_chat_node *n = unary(p, true);
    while (take_sign(p, "**"))
        n = named(p, PL_CHAT_ARITHMETIC, n, unary(p, true), "**");
    return n;
}

static pl_chat_node *product(parser *p) {
    static const char *const signs[] = {"*", "//", "/", "%", NULL};
    pl_chat_node            *n = power(p);
    for (const char *s; (s = one_of(p, signs));)
        n = named(p, PL_CHAT_ARITHMETIC, n, power(p), s);
    return n;
}

static pl_chat_node *concatenation(parser *p) {
    pl_chat_node *first = product(p);
    if (!is_sign(p, "~")) return first;
    pl_chat_node *n = node(p, PL_CHAT_CONCAT, NULL, NULL);
    append(p, &n->items, first, NULL);
    while (take_sign(p, "~"))
        append(p, &n->items, product(p), NULL);
    return n;
}

static pl_chat_node *sum(parser *p) {
    static const char *const signs[] = {"+", "-", NULL};
    pl_chat_node            *n = concatenation(p);
    for (const char *s; (s = one_of(p, signs));)
        n = named(p, PL_CHAT_ARITHMETIC, n, concatenation(p), s);
    return n;
}

static pl_chat_node *comparison(parser *p) {
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">", NULL};
    pl_chat_node            *first = sum(p), *n = NULL;
    for (;;) {
        const char *s = one_of(p, signs);
        if (!s && take_word(p, "in")) s = "in";
        if (!s && is_word(p, "not") && p->t[1].kind == PL_TOKEN_NAME && strcmp(p->t[1].value.s, "in") == 0) {
            p->t += 2;
            s = "not in";
        }
        if (!s) return n ? n : first;
        if (!n) n = node(p, PL_CHAT_COMPARE, first, NULL);
        append(p, &n->items, sum(p), s);
    }
}

static pl_chat_node *negation(parser *p) {
    pl_chat_enter(p->r);
    pl_chat_node *n = take_word(p, "not") ? node(p, PL_CHAT_NOT, negation(p), NULL) : comparison(p);
    pl_chat_leave(p->r);
    return n;
}

static pl_chat_node *conjunction(parser *p) {
    pl_chat_node *n = negation(p);
    while (take_word(p, "and"))
        n = node(p, PL_CHAT_AND, n, negation(p));
    return n;
}

static pl_chat_node *disjunction(parser *p) {
    pl_chat_node *n = conjunction(p);
    while (take_word(p, "or"))
        n = node(p, PL_CHAT_OR, n, conjunction(p));
    return n;
}

static pl_chat_node *expression(parser *p) {
    pl_chat_enter(p->r);
    pl_chat_node *n = disjunction(p);
    while (take_word(p, "if")) {
        n = node(p, PL_CHAT_CHOICE, n, disjunction(p));
        if (take_word(p, "else")) n->c = expression(p);
    }
    pl_chat_leave(p->r);
    return n;
}

// ---- statements

static pl_chat_node *target(parser *p) { // a name, ns.name or a tuple of names in brackets
    if (take_sign(p, "(")) {
        pl_chat_enter(p->r);
        pl_chat_node *n = tuple(p, target);
        pl_chat_leave(p->r);
        need_sign(p, ")");
        return n;
    }
    pl_chat_node *n = named(p, PL_CHAT_NAME, NULL, NULL, need_name(p));
    return take_sign(p, ".") ? named(p, PL_CHAT_ATTR, n, NULL, need_name(p)) : n;
}

static void end_of_tag(parser *p) {
    need(p, PL_TOKEN_BLOCK_END, "%}");
}

// Returns true if the current block is "{% word", and then takes both tokens.
static bool take_block(parser *p, const char *word) {
    if (p->t->kind != PL_TOKEN_BLOCK || p->t[1].kind != PL_TOKEN_NAME || strcmp(p->t[1].value.s, word) != 0)
        return false;
    p->t += 2;
    return true;
}

// Parses a separate body, which break and continue do not leave.
static void body_until(parser *p, pl_chat_nodes *to, const char *word) {
    int loops = p->loops;
    p->loops = 0;
    statements(p, to);
    p->loops = loops;
    if (!take_block(p, word)) unexpected(p, word);
    end_of_tag(p);
}

static pl_chat_node *parse_if(parser *p) {
    pl_chat_node *first = node(p, PL_CHAT_IF, expression(p), NULL), *n = first;
    end_of_tag(p);
    for (;;) {
        statements(p, &n->body);
        if (take_block(p, "elif")) {
            pl_chat_node *next = node(p, PL_CHAT_IF, expression(p), NULL);
            append(p, &n->other, next, NULL);
            n = next;
            end_of_tag(p);
            continue;
        }
        if (take_block(p, "else")) {
            end_of_tag(p);
            statements(p, &n->other);
        }
        if (!take_block(p, "endif")) unexpected(p, "endif");
        end_of_tag(p);
        return first;
    }
}

static pl_chat_node *parse_for(parser *p) {
    pl_chat_node *n = node(p, PL_CHAT_FOR, tuple(p, target), NULL);
    if (!take_word(p, "in")) unexpected(p, "in");
    n->b = tuple(p, disjunction); // "if" belongs to the loop here
    if (take_word(p, "if")) n->c = expression(p);
    if (is_word(p, "recursive")) pl_chat_raise(p->r, PL_E_UNSUPPORTED, "a recursive for is not built");
    end_of_tag(p);
    p->loops++;
    statements(p, &n->body);
    p->loops--;
    if (take_block(p, "else")) {
        end_of_tag(p);
        statements(p, &n->other);
    }
    if (!take_block(p, "endfor")) unexpected(p, "endfor");
    end_of_tag(p);
    return n;
}

static pl_chat_node *filter_chain(parser *p) { // filters without an operand; NULL: none
    pl_chat_node *n = NULL;
    while (take_sign(p, "|"))
        n = filter(p, n);
    return n;
}

static pl_chat_node *parse_set(parser *p) {
    pl_chat_node *to = tuple(p, target);
    if (take_sign(p, "=")) {
        pl_chat_node *n = node(p, PL_CHAT_SET, to, tuple(p, expression));
        end_of_tag(p);
        return n;
    }
    pl_chat_node *n = node(p, PL_CHAT_SET_BLOCK, to, filter_chain(p));
    end_of_tag(p);
    body_until(p, &n->body, "endset");
    return n;
}

static void parameters(parser *p, pl_chat_nodes *to) { // after "("
    while (!take_sign(p, ")")) {
        if (to->n) need_sign(p, ",");
        if (to->n && take_sign(p, ")")) return;
        const char *name = need_name(p);
        append(p, to, take_sign(p, "=") ? expression(p) : NULL, name);
    }
}

static pl_chat_node *parse_macro(parser *p) {
    pl_chat_node *n = named(p, PL_CHAT_MACRO, NULL, NULL, need_name(p));
    need_sign(p, "(");
    parameters(p, &n->items);
    end_of_tag(p);
    bool around = p->surplus;
    p->surplus = false;
    body_until(p, &n->body, "endmacro");
    n->value = pl_chat_bool(p->surplus); // jinja2's way to determine a macro's arguments
    p->surplus = around;
    return n;
}

static pl_chat_node *parse_call(parser *p) {
    pl_chat_node *n = node(p, PL_CHAT_CALL_BLOCK, NULL, NULL);
    n->b = named(p, PL_CHAT_MACRO, NULL, NULL, "caller");
    if (take_sign(p, "(")) parameters(p, &n->b->items);
    n->a = expression(p);
    if (n->a->kind != PL_CHAT_CALLED) unexpected(p, "a call");
    end_of_tag(p);
    body_until(p, &n->b->body, "endcall");
    return n;
}

static pl_chat_node *parse_with(parser *p) {
    pl_chat_node *n = node(p, PL_CHAT_WITH, NULL, NULL);
    while (p->t->kind != PL_TOKEN_BLOCK_END) {
        if (n->items.n) need_sign(p, ",");
        append(p, &n->items, target(p), NULL);
        need_sign(p, "=");
        append(p, &n->items, expression(p), NULL);
    }
    end_of_tag(p);
    statements(p, &n->body);
    if (!take_block(p, "endwith")) unexpected(p, "endwith");
    end_of_tag(p);
    return n;
}

static pl_chat_node *parse_filtered(parser *p) {
    pl_chat_node *n = node(p, PL_CHAT_FILTERED, NULL, filter(p, NULL));
    while (take_sign(p, "|"))
        n->b = filter(p, n->b);
    end_of_tag(p);
    body_until(p, &n->body, "endfilter");
    return n;
}

static pl_chat_node *parse_generation(parser *p) {
    pl_chat_node *n = node(p, PL_CHAT_GENERATION, NULL, NULL);
    end_of_tag(p);
    body_until(p, &n->body, "endgeneration");
    return n;
}

static pl_chat_node *leave_loop(parser *p, pl_chat_kind kind) {
    pl_chat_node *n = node(p, kind, NULL, NULL);
    if (p->loops == 0) unexpected(p, "a for around break and continue");
    end_of_tag(p);
    return n;
}

static pl_chat_node *parse_break(parser *p) {
    return leave_loop(p, PL_CHAT_BREAK);
}

static pl_chat_node *parse_continue(parser *p) {
    return leave_loop(p, PL_CHAT_CONTINUE);
}

static const struct {
    const char *word;
    pl_chat_node *(*parse)(parser *);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call},
    {"with", parse_with},
    {"filter", parse_filtered},
    {"generation", parse_generation},
    {"continue", parse_continue},
    {"break", parse_break},
};

// Returns true if the current block closes or divides an enclosing one.
static bool ends_body(const parser *p) {
    if (p->t[1].kind != PL_TOKEN_NAME) return false;
    const char *word = p->t[1].value.s;
    return strncmp(word, "end", 3) == 0 || strcmp(word, "elif") == 0 || strcmp(word, "else") == 0;
}

static void statements(parser *p, pl_chat_nodes *to) {
    pl_chat_enter(p->r);
    for (;;) {
        pl_chat_node *n = NULL;
        at_line(p);
        if (p->t->kind == PL_TOKEN_TEXT) {
            n = node(p, PL_CHAT_TEXT, NULL, NULL);
            n->value = p->t++->value;
        } else if (p->t->kind == PL_TOKEN_PRINT) {
            p->t++;
            n = node(p, PL_CHAT_OUTPUT, tuple(p, expression), NULL);
            need(p, PL_TOKEN_PRINT_END, "}}");
        } else if (p->t->kind == PL_TOKEN_BLOCK && !ends_body(p)) {
            p->t++;
            const char *word = need_name(p);
            for (size_t i = 0; i < sizeof tags / sizeof *tags && !n; i++)
                if (strcmp(word, tags[i].word) == 0) n = tags[i].parse(p);
            if (!n) pl_chat_raise(p->r, PL_E_UNSUPPORTED, "the tag {%% %s %%} is not built", word);
        } else {
            break;
        }
        append(p, to, n, NULL);
    }
    pl_chat_leave(p->r);
}

void pl_chat_parse(pl_region *r, const pl_chat_tokens *tokens, pl_chat_nodes *out) {
    parser p = {r, tokens->v, 0, false};
    statements(&p, out);
    if (p.t->kind != PL_TOKEN_END) unexpected(&p, "no end of a block that was not begun");
}
