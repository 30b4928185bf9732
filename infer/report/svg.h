// Writes charts with legends as inline SVG. Colours are classes of page.html, light and dark.
#ifndef PL_SVG_H
#define PL_SVG_H

#include "infer/report/page.h"

typedef struct pl_line {
    const char   *label;
    const double *x, *y; // [n]; y that is not finite leaves a gap
    int           n;
    int           colour; // 0 and up; from 8 on the colours repeat with other dashes
} pl_line;
// Writes a chart of n lines; nothing where no point can be drawn.
void pl_svg_lines(pl_strbuf *b, const pl_line *line, int n, bool from_zero);

#endif
