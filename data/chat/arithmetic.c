// + - * / // % ** of numbers, strings and lists, as in Python.
#include "data/chat/eval.h"
#include <math.h>

static bool is_integer(pl_chat_value v) {
    return v.type == PL_CHAT_INT || v.type == PL_CHAT_BOOL;
}

static double number(pl_chat_value v) {
    return v.type == PL_CHAT_FLOAT ? v.f : v.type == PL_CHAT_INT ? (double)v.i : (double)v.flag;
}

static pl_chat_value integers(pl_chat_machine *m, char op, int64_t a, int64_t b) {
    int64_t v = 0;
    bool    wraps = false;
    if ((op == '/' || op == '%') && b == 0) pl_chat_raise(m->r, PL_E_INPUT, "division by zero");
    switch (op) {
    case '+': wraps = __builtin_add_overflow(a, b, &v); break;
    case '-': wraps = __builtin_sub_overflow(a, b, &v); break;
    case '*': wraps = __builtin_mul_overflow(a, b, &v); break;
    case '/':
        wraps = b == -1 && a == INT64_MIN;
        if (!wraps) v = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case '%':
        if (b != -1) v = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
        break;
    default:
        for (v = 1; b > 0 && !wraps; b--) {
            pl_chat_step(m->r, 1);
            wraps = __builtin_mul_overflow(v, a, &v);
        }
    }
    if (wraps) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "an integer beyond 64 bits");
    return pl_chat_int(v);
}

// Python's remainder, which has the sign of b; the matching quotient makes 1.0 // 0.1 equal 9, not 10.
static double remainder_of(double a, double b) {
    double r = fmod(a, b);
    return r == 0 ? copysign(0, b) : (r < 0) != (b < 0) ? r + b : r;
}

static double whole_of(double a, double b) {
    double r = fmod(a, b), v = (a - r) / b - (r != 0 && (r < 0) != (b < 0));
    return v == 0 ? copysign(0, a / b) : nearbyint(v);
}

static pl_chat_value floats(pl_chat_machine *m, const char *op, double a, double b) {
    if ((op[0] == '/' || op[0] == '%') && b == 0) pl_chat_raise(m->r, PL_E_INPUT, "division by zero");
    double v = op[0] == '+'            ? a + b
               : op[0] == '-'          ? a - b
               : strcmp(op, "*") == 0  ? a * b
               : strcmp(op, "/") == 0  ? a / b
               : strcmp(op, "//") == 0 ? whole_of(a, b)
               : op[0] == '%'          ? remainder_of(a, b)
                                       : pow(a, b);
    if (!isfinite(v)) pl_chat_raise(m->r, PL_E_UNSUPPORTED, "a float beyond its range");
    return pl_chat_float(v);
}

// Escapes a value for HTML before it is added to text marked safe, as markupsafe does.
static pl_chat_value escaped(pl_chat_machine *m, pl_chat_value v) {
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t                   mark = m->r->text.n;
    pl_chat_read(m->r, v.n);
    for (size_t i = 0; i < v.n; i++) {
        const char *c = v.s[i] ? strchr("&<>'\"", v.s[i]) : NULL;
        if (c)
            pl_chat_print(m->r, pl_chat_str(entity[c - "&<>'\""]));
        else
            pl_chat_add(m->r, &v.s[i], 1);
    }
    return pl_chat_taken(m->r, mark);
}

static pl_chat_value repeated(pl_chat_machine *m, pl_chat_value v, int64_t times) {
    pl_chat_value list = pl_chat_list_new(m->r, v.type == PL_CHAT_LIST && v.flag);
    size_t        mark = m->r->text.n;
    for (int64_t i = 0; i < times; i++) {
        pl_chat_step(m->r, 1);
        if (v.type == PL_CHAT_STR) pl_chat_print(m->r, v);
        for (int64_t k = 0; v.type == PL_CHAT_LIST && k < v.list->n; k++)
            pl_chat_push(m->r, list, v.list->v[k]);
    }
    return v.type == PL_CHAT_STR ? pl_chat_taken(m->r, mark) : list;
}

pl_chat_value pl_chat_arithmetic(pl_chat_machine *m, const char *op, pl_chat_value a, pl_chat_value b) {
    bool numbers = (is_integer(a) || a.type == PL_CHAT_FLOAT) && (is_integer(b) || b.type == PL_CHAT_FLOAT);
    bool whole = is_integer(a) && is_integer(b);
    if (a.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, a);
    if (b.type == PL_CHAT_UNDEFINED) pl_chat_missing(m, b);
    if (whole && strcmp(op, "/") != 0 && !(strcmp(op, "**") == 0 && pl_chat_need_int(m, b, op) < 0))
        return integers(m, strcmp(op, "**") == 0 ? '^' : op[0], pl_chat_need_int(m, a, op), pl_chat_need_int(m, b, op));
    if (numbers) return floats(m, op, number(a), number(b));
    if (op[0] == '+' && a.type == PL_CHAT_STR && b.type == PL_CHAT_STR) {
        bool safe = a.flag || b.flag;
        if (safe && !a.flag) a = escaped(m, a);
        if (safe && !b.flag) b = escaped(m, b);
        char *s = pl_region_alloc(m->r, a.n + b.n + 1);
        memcpy(s, a.s, a.n);
        memcpy(s + a.n, b.s, b.n);
        pl_chat_value both = pl_chat_strn(s, a.n + b.n);
        both.flag = safe;
        return both;
    }
    bool lists = a.type == PL_CHAT_LIST && b.type == PL_CHAT_LIST && a.list->kind + b.list->kind == PL_CHAT_WHOLE;
    if (op[0] == '+' && lists && a.flag == b.flag) {
        pl_chat_value list = pl_chat_list_new(m->r, a.flag);
        for (int64_t i = 0; i < a.list->n + b.list->n; i++)
            pl_chat_push(m->r, list, i < a.list->n ? a.list->v[i] : b.list->v[i - a.list->n]);
        return list;
    }
    if (strcmp(op, "*") == 0 && is_integer(b) && pl_chat_is_sequence(a))
        return repeated(m, a, pl_chat_need_int(m, b, op));
    if (strcmp(op, "*") == 0 && is_integer(a) && pl_chat_is_sequence(b))
        return repeated(m, b, pl_chat_need_int(m, a, op));
    if (op[0] == '%' && a.type == PL_CHAT_STR) {
        bool tuple = b.type == PL_CHAT_LIST && b.flag;
        return pl_chat_printf(m, pl_chat_need_str(m, a, op), tuple ? b.list->v : &b, tuple ? b.list->n : 1);
    }
    pl_chat_raise(m->r, PL_E_INPUT, "unsupported operand types for %s: '%s' and '%s'", op, pl_chat_type_name(a),
                  pl_chat_type_name(b));
}

pl_chat_value pl_chat_signed(pl_chat_machine *m, pl_chat_value v, int sign) {
    if (v.type == PL_CHAT_STR || v.type == PL_CHAT_LIST) // "*" would repeat them
        pl_chat_raise(m->r, PL_E_INPUT, "bad operand type for a sign: '%s'", pl_chat_type_name(v));
    return pl_chat_arithmetic(m, "*", v, pl_chat_int(sign));
}
