#include "infer/report/svg.h"

#include <math.h>
#include <stdio.h>

#define COLOURS 8
#define DASHES 4   // dash patterns of one colour
#define TICKS 20   // most ticks of an axis
#define POINTS 500 // most points of a drawn line; longer curves are drawn as the means of this many sections
#define CIRCLES 24 // most points of a line that get a circle

enum { X, Y };
static const double first[] = {64, 270}, last[] = {748, 10}; // pixels of the axes' ends

typedef struct frame {
    double min[2], max[2];
} frame;

static double place_value(const frame *f, int axis, double v) {
    return first[axis] + (v - f->min[axis]) / (f->max[axis] - f->min[axis]) * (last[axis] - first[axis]);
}

// True if both are small enough for sums of many and differences of two to stay finite.
static bool is_drawable(double x, double y) {
    return fabs(x) <= 1e300 && fabs(y) <= 1e300;
}

static void include_value(frame *f, int axis, double v) {
    f->min[axis] = fmin(f->min[axis], v);
    f->max[axis] = fmax(f->max[axis], v);
}

// Formats a number in its shortest form.
static void format_number(char out[32], double v) {
    double a = fabs(v);
    if (a >= 1e6 || (a > 0 && a < 1e-3))
        snprintf(out, 32, "%.2g", v);
    else
        snprintf(out, 32, "%.*f", a >= 100 || v == floor(v) ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3, v);
}

// Draws an axis in steps of 1, 2 or 5 times a power of ten, about n of them. Each tick is computed from its index: a
// sum of steps would not grow where the numbers are large.
static void draw_ticks(pl_strbuf *b, frame *f, int axis, int n) {
    char   number[32];
    double least = 1e-9 * fmax(fabs(f->min[axis]), fabs(f->max[axis])), v;
    // Widens an empty range, or one so narrow for its numbers that steps within it would be lost to rounding.
    if (f->max[axis] - f->min[axis] <= least) f->max[axis] = f->min[axis] + fmax(1, least);
    double raw = (f->max[axis] - f->min[axis]) / n, power = pow(10, floor(log10(raw))), x = raw / power;
    double step = power * (x <= 1 ? 1 : x <= 2 ? 2 : x <= 5 ? 5 : 10), tick = ceil(f->min[axis] / step - 1e-9);
    for (int i = 0; i < TICKS && (v = (tick + i) * step) <= f->max[axis] + step * 1e-6; i++) {
        double at = place_value(f, axis, v);
        format_number(number, v);
        if (axis == Y) pl_page_addf(b, "<path d=\"M%.0f %.1fH%.0f\" class=\"grid\"/>", first[X], at, last[X]);
        pl_page_addf(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", axis == X ? at : first[X] - 6,
                     axis == X ? first[Y] + 18 : at + 4, axis == X ? "middle" : "end", number);
    }
}

static void draw_line(pl_strbuf *b, const frame *f, const pl_line *line) {
    int stretch = (line->n + POINTS - 1) / POINTS, drawn = 0;
    pl_page_addf(b, "<path class=\"s%d d%d\" d=\"", line->colour % COLOURS, line->colour / COLOURS % DASHES);
    for (int k = 0; k < line->n; k += stretch) {
        double x = 0, y = 0;
        int    count = 0;
        for (int j = k; j < k + stretch && j < line->n; j++) {
            if (!is_drawable(line->x[j], line->y[j])) continue;
            x += line->x[j];
            y += line->y[j];
            count++;
        }
        if (count)
            pl_page_addf(b, "%c%.1f %.1f", drawn++ ? 'L' : 'M', place_value(f, X, x / count),
                         place_value(f, Y, y / count));
    }
    pl_page_addf(b, "\"/>\n");
    for (int k = 0; line->n <= CIRCLES && k < line->n; k++)
        if (is_drawable(line->x[k], line->y[k]))
            pl_page_addf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" class=\"c%d\"/>\n", place_value(f, X, line->x[k]),
                         place_value(f, Y, line->y[k]), line->n == 1 ? 5 : 3, line->colour % COLOURS);
}

void pl_svg_lines(pl_strbuf *b, const pl_line *line, int n, bool from_zero) {
    frame f = {.min = {HUGE_VAL, from_zero ? 0 : HUGE_VAL}, .max = {-HUGE_VAL, -HUGE_VAL}};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < line[i].n; k++) {
            if (!is_drawable(line[i].x[k], line[i].y[k])) continue;
            include_value(&f, X, line[i].x[k]);
            include_value(&f, Y, line[i].y[k]);
        }
    if (f.max[X] < f.min[X]) return;
    pl_page_addf(b, "<svg viewBox=\"0 0 760 296\" role=\"img\">\n");
    draw_ticks(b, &f, X, 8);
    draw_ticks(b, &f, Y, 5);
    for (int i = 0; i < n; i++)
        draw_line(b, &f, &line[i]);
    pl_page_addf(b, "</svg>\n<ul>");
    for (int i = 0; i < n; i++) {
        pl_page_addf(b, "<li><svg viewBox=\"0 0 24 10\"><path class=\"s%d d%d\" d=\"M0 5h24\"/></svg> ",
                     line[i].colour % COLOURS, line[i].colour / COLOURS % DASHES);
        pl_page_text(b, line[i].label);
        pl_page_addf(b, "</li>\n");
    }
    pl_page_addf(b, "</ul>\n");
}
