#include "infer/grammar/readers.h"

#include <string.h>

static int32_t text(pl_nodes *g, const char *s) {
    return pl_node_text(g, s, strlen(s));
}

static int32_t hex_digit(pl_nodes *g) {
    static const pl_char_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
    return pl_node_chars(g, hex, 3);
}

// A character below U+0020 as \n and the like, or as \u00XX.
static void add_control(pl_nodes *g, int32_t alt, uint32_t c) {
    static const char code[] = "\b\t\n\f\r", letter[] = "btnfr", hex[] = "0123456789abcdef";
    const char       *known = c ? strchr(code, (int)c) : NULL;
    char              s[7] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0};
    if (known) {
        s[1] = letter[known - code];
        s[2] = 0;
    }
    pl_node_add(g, alt, text(g, s));
}

int32_t pl_json_chars(pl_nodes *g, const pl_char_range *range, int n) {
    static const pl_char_range plain[] = {{' ', '!'}, {'#', '['}, {']', 0x10FFFF}}; // without " and the backslash
    int32_t                    alt = pl_node_list(g, PL_NODE_ALT);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++) {
            pl_char_range part = {range[i].lo > plain[k].lo ? range[i].lo : plain[k].lo,
                                  range[i].hi < plain[k].hi ? range[i].hi : plain[k].hi};
            if (part.lo <= part.hi) pl_node_add(g, alt, pl_node_chars(g, &part, 1));
        }
        for (uint32_t c = range[i].lo; c < ' ' && c <= range[i].hi; c++)
            add_control(g, alt, c);
        if (range[i].lo <= '"' && '"' <= range[i].hi) pl_node_add(g, alt, text(g, "\\\""));
        if (range[i].lo <= '\\' && '\\' <= range[i].hi) pl_node_add(g, alt, text(g, "\\\\"));
    }
    return alt;
}

// Surrogates have no escape.
int32_t pl_json_any_char(pl_nodes *g) {
    static const pl_char_range any = {0, 0x10FFFF},
                               high[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
    static const pl_char_range d[] = {{'D', 'D'}, {'d', 'd'}};
    int32_t                    alt = pl_node_list(g, PL_NODE_ALT), low = pl_node_list(g, PL_NODE_SEQ);
    int32_t rest = pl_node_list(g, PL_NODE_SEQ), four = pl_node_list(g, PL_NODE_ALT), hex = hex_digit(g);
    pl_node_add(g, low, pl_node_chars(g, d, 2));
    pl_node_add(g, low, pl_node_byte(g, '0', '7'));
    pl_node_add(g, low, pl_node_repeat(g, hex, 2, 2));
    pl_node_add(g, rest, pl_node_chars(g, high, 5));
    pl_node_add(g, rest, pl_node_repeat(g, hex, 3, 3));
    pl_node_add(g, four, low);
    pl_node_add(g, four, rest);
    pl_node_add(g, alt, pl_json_chars(g, &any, 1));
    pl_node_add(g, alt, text(g, "\\/"));
    pl_node_add(g, alt, pl_node_pair(g, PL_NODE_SEQ, text(g, "\\u"), four));
    return alt;
}
