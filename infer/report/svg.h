// Charts as inline SVG, written by hand. Colours are classes c0..c7 that the page defines for light and dark.
#ifndef PL_SVG_H
#define PL_SVG_H

#include "kernels/base/status.h"
#include "kernels/base/strbuf.h"

#include <stdbool.h>

#define PL_SVG_COLOURS 8

void pl_html_addf(pl_strbuf *b, const char *fmt, ...) PL_PRINTF(2, 3); // as it is
void pl_html_text(pl_strbuf *b, const char *s);                        // escaped

// A self-contained page around what is added in between.
void pl_html_page_begin(pl_strbuf *b, const char *title);
void pl_html_page_end(pl_strbuf *b);
// True for the beginning of a page of this title.
bool pl_html_is_page(const char *front, size_t n, const char *title);

typedef struct pl_bar {
    const char *label;
    double      value, low, high; // low..high: an interval drawn over the bar's end; NaN: none
    double      mark;             // a limit drawn as a line; NaN: none
} pl_bar;
// Horizontal bars from 0, lower ones where there are many. A mark far beyond the bars is told in numbers and drawn at
// the edge.
void pl_svg_bars(pl_strbuf *b, const char *title, const char *unit, const pl_bar *bar, int n);

typedef struct pl_line {
    const char   *label;
    const double *x, *y; // [n]; y that is not finite leaves a gap
    int           n;
    int           colour; // any number from 0; those that share a colour differ in their dashes
} pl_line;
void pl_svg_lines(pl_strbuf *b, const char *title, const char *x_name, const pl_line *line, int n, bool from_zero);

// Horizontal stacked bars: value[i * parts + k] is part k of bar i (not finite or negative: nothing); the legend names
// the parts, whose colours are colour, colour + 1, ... Bars end in their sum, told with `unit`.
void pl_svg_stacks(pl_strbuf *b, const char *title, const char *unit, const char *const *part, int parts, int colour,
                   const char *const *label, const double *value, int n);

typedef struct pl_point {
    const char *label;
    double      x, y;
    int         colour;
} pl_point;
// Numbered points, named in the legend, over lines (labelled at their right end, dashed where the colour is negative).
// The range is that of the points, widened; lines are cut where they leave it. Numbers keep clear of points and of each
// other where there is room around their point.
void pl_svg_points(pl_strbuf *b, const char *title, const char *x_name, const char *y_name, const pl_point *point,
                   int n, const pl_line *line, int n_lines);

#endif
