#include "infer/grammar/numbers.h"

#include <stdio.h>
#include <string.h>

enum { DIGITS = 16 };

static int32_t any_digits(pl_nodes *g, int32_t min, int32_t max) {
    return pl_node_repeat(g, pl_node_byte(g, '0', '9'), min, max);
}

static int32_t pair(pl_nodes *g, int32_t a, int32_t b) {
    return pl_node_pair(g, PL_NODE_SEQ, a, b);
}

static int32_t point(pl_nodes *g, int32_t digits) {
    return pair(g, pl_node_byte(g, '.', '.'), digits);
}

int32_t pl_json_number(pl_nodes *g) {
    int32_t seq = pl_node_list(g, PL_NODE_SEQ), exponent = pl_node_list(g, PL_NODE_SEQ);
    int32_t whole = pl_node_pair(g, PL_NODE_ALT, pl_node_byte(g, '0', '0'),
                                 pair(g, pl_node_byte(g, '1', '9'), any_digits(g, 0, DIGITS - 1)));
    int32_t sign = pl_node_pair(g, PL_NODE_ALT, pl_node_byte(g, '+', '+'), pl_node_byte(g, '-', '-'));
    pl_node_add(g, exponent, pl_node_pair(g, PL_NODE_ALT, pl_node_byte(g, 'e', 'e'), pl_node_byte(g, 'E', 'E')));
    pl_node_add(g, exponent, pl_node_repeat(g, sign, 0, 1));
    pl_node_add(g, exponent, any_digits(g, 1, 2));
    pl_node_add(g, seq, pl_node_repeat(g, pl_node_byte(g, '-', '-'), 0, 1));
    pl_node_add(g, seq, whole);
    pl_node_add(g, seq, pl_node_repeat(g, point(g, any_digits(g, 1, DIGITS)), 0, 1));
    pl_node_add(g, seq, pl_node_repeat(g, exponent, 0, 1));
    return seq;
}

// Digits that are at least a (NULL: any) and at most b, of their length.
static int32_t digits_between(pl_nodes *g, const char *a, const char *b, int n) {
    if (n == 0) return pl_node_empty(g);
    char lo = a ? *a : '0', hi = b ? *b : '9';
    if (!a && !b) return any_digits(g, n, n);
    const char *a1 = a ? a + 1 : NULL, *b1 = b ? b + 1 : NULL;
    if (lo == hi) return pair(g, pl_node_byte(g, (uint8_t)lo, (uint8_t)lo), digits_between(g, a1, b1, n - 1));
    int32_t alt = pl_node_list(g, PL_NODE_ALT);
    if (a) pl_node_add(g, alt, pair(g, pl_node_byte(g, (uint8_t)lo, (uint8_t)lo), digits_between(g, a1, NULL, n - 1)));
    if (b) pl_node_add(g, alt, pair(g, pl_node_byte(g, (uint8_t)hi, (uint8_t)hi), digits_between(g, NULL, b1, n - 1)));
    uint8_t from = (uint8_t)(lo + (a != NULL)), to = (uint8_t)(hi - (b != NULL));
    if (from <= to) pl_node_add(g, alt, pair(g, pl_node_byte(g, from, to), any_digits(g, n - 1, n - 1)));
    return alt;
}

// lo..hi, both at least 0, by the number of digits.
static int32_t natural(pl_nodes *g, int64_t lo, int64_t hi) {
    char    a[24], b[24], low[24], high[24];
    int32_t alt = pl_node_list(g, PL_NODE_ALT);
    int     na = snprintf(a, sizeof a, "%lld", (long long)lo), nb = snprintf(b, sizeof b, "%lld", (long long)hi);
    for (int n = na; n <= nb && lo <= hi; n++) {
        memset(low, '0', sizeof low);
        memset(high, '9', sizeof high);
        if (n > 1) low[0] = '1';
        pl_node_add(g, alt, digits_between(g, n == na ? a : low, n == nb ? b : high, n));
    }
    return alt;
}

static int32_t negative(pl_nodes *g, int32_t magnitude) {
    return pair(g, pl_node_byte(g, '-', '-'), magnitude);
}

int32_t pl_json_integer(pl_nodes *g, int64_t lo, int64_t hi) {
    int32_t alt = pl_node_list(g, PL_NODE_ALT);
    if (hi >= 0) pl_node_add(g, alt, natural(g, lo > 0 ? lo : 0, hi));
    if (lo < 0) pl_node_add(g, alt, negative(g, natural(g, hi < 0 ? -hi : 1, -lo)));
    return alt;
}

// lo..hi, both at least 0, with or without a point. above, below: without the bound.
static int32_t magnitude(pl_nodes *g, int64_t lo, int64_t hi, bool above, bool below) {
    int32_t alt = pl_node_list(g, PL_NODE_ALT), zeros = pl_node_repeat(g, pl_node_byte(g, '0', '0'), 0, DIGITS - 1);
    int32_t some = pl_node_list(g, PL_NODE_SEQ); // digits that are not all 0
    pl_node_add(g, some, zeros);
    pl_node_add(g, some, pl_node_byte(g, '1', '9'));
    pl_node_add(g, some, any_digits(g, 0, DIGITS));
    pl_node_add(g, alt, natural(g, lo + above, hi - below));
    pl_node_add(g, alt, pair(g, natural(g, lo + above, hi - 1), point(g, any_digits(g, 1, DIGITS))));
    if (above && lo < hi) pl_node_add(g, alt, pair(g, natural(g, lo, lo), point(g, some)));
    if (!below) pl_node_add(g, alt, pair(g, natural(g, hi, hi), point(g, pair(g, pl_node_byte(g, '0', '0'), zeros))));
    return alt;
}

int32_t pl_json_decimal(pl_nodes *g, int64_t lo, int64_t hi, bool above, bool below) {
    int32_t alt = pl_node_list(g, PL_NODE_ALT);
    // Zero's two sides meet: it is left out of one that ends there exclusively.
    if (hi > 0 || (hi == 0 && !below)) pl_node_add(g, alt, magnitude(g, lo > 0 ? lo : 0, hi, lo >= 0 && above, below));
    if (lo < 0) pl_node_add(g, alt, negative(g, magnitude(g, hi < 0 ? -hi : 0, -lo, hi <= 0 && below, above)));
    return alt;
}
