#include "infer/report/svg.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 760
#define LINE_HEIGHT 320
#define POINT_HEIGHT 480
#define DASHES 4   // ways to draw lines of one colour
#define TICKS 20   // of one axis at most
#define POINTS 500 // of one drawn line; longer curves are drawn by the means of that many stretches

void pl_html_addf(pl_strbuf *b, const char *fmt, ...) {
    char    text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0) pl_strbuf_add(b, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

void pl_html_text(pl_strbuf *b, const char *s) {
    for (; *s; s++) {
        const char *entity = *s == '&'   ? "&amp;"
                             : *s == '<' ? "&lt;"
                             : *s == '>' ? "&gt;"
                             : *s == '"' ? "&quot;"
                                         : NULL;
        if (entity)
            pl_strbuf_add(b, entity, strlen(entity));
        else
            pl_strbuf_add(b, s, 1);
    }
}

// A number as short as it may be.
static void put_number(char out[32], double v) {
    double a = fabs(v);
    if (a >= 1e6 || (a > 0 && a < 1e-3))
        snprintf(out, 32, "%.2g", v);
    else
        snprintf(out, 32, "%.*f", a >= 100 || v == floor(v) ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3, v);
}

// 1, 2 or 5 times a power of ten, so that about n of them span the range.
static double tick_step(double range, int n) {
    if (!(range > 0)) return 1;
    double raw = range / n, power = pow(10, floor(log10(raw))), x = raw / power;
    return power * (x <= 1 ? 1 : x <= 2 ? 2 : x <= 5 ? 5 : 10);
}

static void open_svg(pl_strbuf *b, const char *title, int height) {
    pl_html_addf(b, "<figure><figcaption>");
    pl_html_text(b, title);
    pl_html_addf(b, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, height);
    pl_html_text(b, title);
    pl_html_addf(b, "\">\n");
}

// ---- legends ----

// Columns that `n` labels take, and so rows.
static int legend_columns(const char *const *label, int n) {
    size_t longest = 1;
    for (int i = 0; i < n; i++)
        longest = strlen(label[i]) > longest ? strlen(label[i]) : longest;
    int fit = (int)((WIDTH - 64) / (7.5 * (double)longest + 48));
    return fit < 1 ? 1 : fit > 4 ? 4 : fit;
}

static int legend_height(const char *const *label, int n) {
    int columns = legend_columns(label, n);
    return 22 * ((n + columns - 1) / columns);
}

// Where entry i stands; its label is written 30 to the right.
static void legend_place(const char *const *label, int n, int i, double y0, double *x, double *y) {
    int columns = legend_columns(label, n), rows = (n + columns - 1) / columns, column = i / rows;
    *x = 64 + (WIDTH - 64.0) / columns * column;
    *y = y0 + 22.0 * (i % rows);
}

static void legend_label(pl_strbuf *b, double x, double y, const char *label) {
    pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"label\">", x + 30, y + 10);
    pl_html_text(b, label);
    pl_html_addf(b, "</text>\n");
}

// ---- bars ----

// Pixels from row to row, and of a bar.
static double row_height(int n) {
    return n > 12 ? 22 : 34;
}
static double bar_height(int n) {
    return n > 12 ? 14 : 20;
}

static void draw_bar(pl_strbuf *b, const pl_bar *bar, int i, int n, double x0, double scale, double edge) {
    double h = bar_height(n), y = 12 + row_height(n) * i, end = x0 + bar->value * scale;
    double mark = isfinite(bar->mark) ? x0 + bar->mark * scale : NAN;
    char   number[32], limit[32];
    put_number(number, bar->value);
    pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"label\" text-anchor=\"end\">", x0 - 8, y + h / 2 + 5);
    pl_html_text(b, bar->label);
    pl_html_addf(b, "</text><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" class=\"c%d\"/>", x0, y,
                 end - x0, h, i % PL_SVG_COLOURS);
    if (bar->high > bar->low) {
        double low = x0 + bar->low * scale, high = x0 + bar->high * scale;
        pl_html_addf(b, "<path d=\"M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8\" class=\"interval\"/>", low, y + h / 2,
                     high, low, y + h / 2 - 4, high, y + h / 2 - 4);
        end = fmax(end, high);
    }
    if (isfinite(mark)) {
        pl_html_addf(b, "<path d=\"M%.1f %.1fv%.0f\" class=\"mark\"/>", fmin(mark, edge), y - 2, h + 4);
        if (mark < edge) end = fmax(end, mark);
    }
    pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"value\">%s", end + 8, y + h / 2 + 5, number);
    if (isfinite(mark)) {
        put_number(limit, bar->mark);
        pl_html_addf(b, " of %s", limit);
    }
    pl_html_addf(b, "</text>\n");
}

void pl_svg_bars(pl_strbuf *b, const char *title, const char *unit, const pl_bar *bar, int n) {
    double most = 0, x0 = 200, edge = WIDTH - 4;
    for (int i = 0; i < n; i++) {
        most = fmax(most, bar[i].value);
        if (bar[i].high > most) most = bar[i].high;
    }
    // A limit within a few times the longest bar sets the scale; a farther one stands at the edge.
    double with_marks = most;
    for (int i = 0; i < n; i++)
        if (isfinite(bar[i].mark) && bar[i].mark < 4 * most) with_marks = fmax(with_marks, bar[i].mark);
    double scale = with_marks > 0 ? (edge - 130 - x0) / with_marks : 0;
    double bottom = row_height(n) * n;
    open_svg(b, title, (int)bottom + 34);
    for (int i = 0; i < n; i++)
        draw_bar(b, &bar[i], i, n, x0, isfinite(bar[i].value) ? scale : 0, edge);
    pl_html_addf(b, "<text x=\"%.1f\" y=\"%.0f\" class=\"tick\">", x0, bottom + 26);
    pl_html_text(b, unit);
    pl_html_addf(b, "</text></svg></figure>\n");
}

// ---- stacked bars ----

static bool counts(double v) {
    return isfinite(v) && v > 0 && v < 1e300;
}

void pl_svg_stacks(pl_strbuf *b, const char *title, const char *unit, const char *const *part, int parts, int colour,
                   const char *const *label, const double *value, int n) {
    double most = 0, x0 = 200, edge = WIDTH - 130;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < parts; k++)
            if (counts(value[i * parts + k])) sum += value[i * parts + k];
        most = fmax(most, sum);
    }
    if (!counts(most)) return;
    double bottom = row_height(n) * n + 16, h = bar_height(n);
    open_svg(b, title, (int)bottom + legend_height(part, parts));
    for (int i = 0; i < n; i++) {
        double y = 12 + row_height(n) * i, x = x0, sum = 0;
        char   number[32];
        pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"label\" text-anchor=\"end\">", x0 - 8, y + h / 2 + 5);
        pl_html_text(b, label[i]);
        pl_html_addf(b, "</text>");
        for (int k = 0; k < parts; k++) {
            double v = value[i * parts + k], w = counts(v) ? v / most * (edge - x0) : 0;
            if (w <= 0) continue;
            put_number(number, v);
            pl_html_addf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" class=\"c%d\"><title>", x, y, w,
                         h, (colour + k) % PL_SVG_COLOURS);
            pl_html_text(b, part[k]);
            pl_html_addf(b, ": %s</title></rect>", number);
            x += w;
            sum += v;
        }
        put_number(number, sum);
        pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"value\">%s ", x + 8, y + h / 2 + 5, number);
        pl_html_text(b, unit);
        pl_html_addf(b, "</text>\n");
    }
    for (int k = 0; k < parts; k++) {
        double x, y;
        legend_place(part, parts, k, bottom, &x, &y);
        pl_html_addf(b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"24\" height=\"10\" class=\"c%d\"/>", x, y,
                     (colour + k) % PL_SVG_COLOURS);
        legend_label(b, x, y, part[k]);
    }
    pl_html_addf(b, "</svg></figure>\n");
}

// ---- lines ----

typedef struct frame {
    double x0, y0, x1, y1;             // pixels
    double min_x, max_x, min_y, max_y; // values
} frame;

static double at_x(const frame *f, double x) {
    return f->x0 + (x - f->min_x) / (f->max_x - f->min_x) * (f->x1 - f->x0);
}
static double at_y(const frame *f, double y) {
    return f->y1 - (y - f->min_y) / (f->max_y - f->min_y) * (f->y1 - f->y0);
}

// What metrics really are; sums of many and differences of two stay finite.
static bool drawable(double x, double y) {
    return isfinite(x) && isfinite(y) && fabs(x) <= 1e300 && fabs(y) <= 1e300;
}

// Widens a range that is empty, or so narrow beside its numbers that steps within it would be lost to rounding.
static void widen(double min, double *max) {
    double least = 1e-9 * fmax(fabs(min), fabs(*max));
    if (*max - min <= least) *max = min + fmax(1, least);
}

static bool find_range(frame *f, const pl_line *line, int n, bool from_zero) {
    bool any = false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < line[i].n; k++) {
            double x = line[i].x[k], y = line[i].y[k];
            if (!drawable(x, y)) continue;
            if (!any || x < f->min_x) f->min_x = x;
            if (!any || x > f->max_x) f->max_x = x;
            if (!any || y < f->min_y) f->min_y = y;
            if (!any || y > f->max_y) f->max_y = y;
            any = true;
        }
    if (!any) return false;
    if (from_zero && f->min_y > 0) f->min_y = 0;
    widen(f->min_x, &f->max_x);
    widen(f->min_y, &f->max_y);
    return true;
}

// Ticks are counted, not added up: a sum of steps stands still where the numbers are large.
static void draw_axes(pl_strbuf *b, const frame *f, const char *x_name) {
    char   number[32];
    double s = tick_step(f->max_y - f->min_y, 5), first = ceil(f->min_y / s - 1e-9), y, x;
    for (int i = 0; i < TICKS && (y = (first + i) * s) <= f->max_y + s * 1e-6; i++) {
        put_number(number, y);
        pl_html_addf(b,
                     "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/><text x=\"%.1f\" y=\"%.1f\" class=\"tick\" "
                     "text-anchor=\"end\">%s</text>\n",
                     f->x0, at_y(f, y), f->x1, f->x0 - 6, at_y(f, y) + 4, number);
    }
    s = tick_step(f->max_x - f->min_x, 8);
    first = ceil(f->min_x / s - 1e-9);
    for (int i = 0; i < TICKS && (x = (first + i) * s) <= f->max_x + s * 1e-6; i++) {
        put_number(number, x);
        pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\" text-anchor=\"middle\">%s</text>\n", at_x(f, x),
                     f->y1 + 18, number);
    }
    pl_html_addf(b,
                 "<path d=\"M%.1f %.1fV%.1fH%.1f\" class=\"axis\"/><text x=\"%.1f\" y=\"%.1f\" class=\"tick\" "
                 "text-anchor=\"end\">",
                 f->x0, f->y0, f->y1, f->x1, f->x1, f->y1 + 34);
    pl_html_text(b, x_name);
    pl_html_addf(b, "</text>\n");
}

// "line s3 d1": colour 3, the second way to draw its lines.
static void stroke(pl_strbuf *b, int colour) {
    pl_html_addf(b, "<path class=\"line s%d d%d\" d=\"", colour % PL_SVG_COLOURS, colour / PL_SVG_COLOURS % DASHES);
}

static void draw_line(pl_strbuf *b, const frame *f, const pl_line *line) {
    int stretch = (line->n + POINTS - 1) / POINTS, drawn = 0;
    stroke(b, line->colour);
    for (int k = 0; k < line->n; k += stretch) {
        double x = 0, y = 0;
        int    count = 0;
        for (int j = k; j < k + stretch && j < line->n; j++) {
            if (!drawable(line->x[j], line->y[j])) continue;
            x += line->x[j];
            y += line->y[j];
            count++;
        }
        if (count) pl_html_addf(b, "%c%.1f %.1f", drawn++ ? 'L' : 'M', at_x(f, x / count), at_y(f, y / count));
    }
    pl_html_addf(b, "\"/>\n");
    for (int k = 0; line->n <= 24 && k < line->n; k++)
        if (drawable(line->x[k], line->y[k]))
            pl_html_addf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"c%d\"/>\n", at_x(f, line->x[k]),
                         at_y(f, line->y[k]), line->colour % PL_SVG_COLOURS);
}

void pl_svg_lines(pl_strbuf *b, const char *title, const char *x_name, const pl_line *line, int n, bool from_zero) {
    frame f = {.x0 = 64, .y0 = 10, .x1 = WIDTH - 12, .y1 = LINE_HEIGHT - 44};
    if (!find_range(&f, line, n, from_zero)) return;
    const char **label = pl_calloc((size_t)n, sizeof *label);
    if (!label) {
        b->failed = true;
        return;
    }
    for (int i = 0; i < n; i++)
        label[i] = line[i].label;
    open_svg(b, title, LINE_HEIGHT + legend_height(label, n));
    draw_axes(b, &f, x_name);
    for (int i = 0; i < n; i++) {
        double x, y;
        draw_line(b, &f, &line[i]);
        legend_place(label, n, i, LINE_HEIGHT, &x, &y);
        stroke(b, line[i].colour);
        pl_html_addf(b, "M%.1f %.1fh24\"/>", x, y + 5);
        legend_label(b, x, y, label[i]);
    }
    pl_html_addf(b, "</svg></figure>\n");
    pl_free(label);
}

// ---- points over lines ----

// The part of a line of two points that lies within the frame's range; false: none.
static bool clip(const frame *f, const pl_line *l, double x[2], double y[2]) {
    double from = 0, to = 1, dx = l->x[1] - l->x[0], dy = l->y[1] - l->y[0];
    double start[] = {l->x[0] - f->min_x, f->max_x - l->x[0], l->y[0] - f->min_y, f->max_y - l->y[0]};
    double step[] = {dx, -dx, dy, -dy};
    for (int i = 0; i < 4; i++) {
        if (step[i] == 0 && start[i] < 0) return false;
        if (step[i] > 0) from = fmax(from, -start[i] / step[i]);
        if (step[i] < 0) to = fmin(to, -start[i] / step[i]);
    }
    for (int i = 0; i < 2; i++) {
        x[i] = l->x[0] + (i ? to : from) * dx;
        y[i] = l->y[0] + (i ? to : from) * dy;
    }
    return from < to;
}

static void draw_curve(pl_strbuf *b, const frame *f, const pl_line *l) {
    double x[2], y[2];
    bool   dashed = l->colour < 0;
    if (l->n != 2 || !drawable(l->x[0], l->y[0]) || !drawable(l->x[1], l->y[1]) || !clip(f, l, x, y)) return;
    pl_html_addf(b, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>", dashed ? "grid dashed" : "axis", at_x(f, x[0]),
                 at_y(f, y[0]), at_x(f, x[1]), at_y(f, y[1]));
    if (!dashed) {
        pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\">", at_x(f, x[1]) + 4, at_y(f, y[1]) + 4);
        pl_html_text(b, l->label);
        pl_html_addf(b, "</text>");
    }
    pl_html_addf(b, "\n");
}

typedef struct box {
    double x, y, w, h;
} box;

// How much of their areas two boxes share.
static double overlap(const box *a, const box *b) {
    double w = fmin(a->x + a->w, b->x + b->w) - fmax(a->x, b->x), h = fmin(a->y + a->h, b->y + b->h) - fmax(a->y, b->y);
    return w > 0 && h > 0 ? w * h : 0;
}

// Puts number i beside its point: of the places around it, nearer ones first, the one that covers the least of the
// points and of the numbers that stand already. taken[0..n): points, [n..n+i): numbers.
static void place_number(const frame *f, box *taken, int n, int i) {
    const box *at = &taken[i];
    box        best = {0};
    double     least = HUGE_VAL, w = i + 1 >= 10 ? 15 : 8, h = 11, cx = at->x + at->w / 2, cy = at->y + at->h / 2;
    for (int ring = 0; ring < 3 && least > 0; ring++)
        for (int k = 0; k < 8 && least > 0; k++) {
            static const int dx[] = {1, -1, 0, 0, 1, -1, 1, -1}, dy[] = {0, 0, -1, 1, -1, -1, 1, 1};
            double           off = 5 + 9.0 * ring;
            box              try = {cx + dx[k] * (off + w / 2) - w / 2, cy + dy[k] * (off + h / 2) - h / 2, w, h};
            double           cost = 0;
            for (int o = 0; o < n + i; o++)
                if (o != i) cost += overlap(&try, &taken[o]);
            if (try.x < f->x0 || try.x + w > f->x1 || try.y < f->y0 || try.y + h > f->y1) cost += w * h;
            if (cost < least) {
                least = cost;
                best = try;
            }
        }
    taken[n + i] = best;
}

// taken: [2 n], zeros.
static void draw_points(pl_strbuf *b, const frame *f, const pl_point *point, const char *const *label, int n,
                        box *taken) {
    for (int i = 0; i < n; i++)
        if (drawable(point[i].x, point[i].y))
            taken[i] = (box){at_x(f, point[i].x) - 5, at_y(f, point[i].y) - 5, 10, 10};
    for (int i = 0; i < n; i++) {
        int    colour = point[i].colour % PL_SVG_COLOURS;
        double x, y;
        legend_place(label, n, i, POINT_HEIGHT, &x, &y);
        if (drawable(point[i].x, point[i].y)) {
            place_number(f, taken, n, i);
            const box *t = &taken[n + i];
            pl_html_addf(b,
                         "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"c%d\"/><text x=\"%.1f\" y=\"%.1f\" "
                         "class=\"number\" text-anchor=\"middle\">%d</text>\n",
                         taken[i].x + 5, taken[i].y + 5, colour, t->x + t->w / 2, t->y + t->h - 1, i + 1);
        }
        pl_html_addf(
            b,
            "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" class=\"c%d\"/><text x=\"%.1f\" y=\"%.1f\" class=\"number\" "
            "text-anchor=\"end\">%d</text>",
            x, y + 5, colour, x + 25, y + 9, i + 1);
        legend_label(b, x, y, label[i]);
    }
}

void pl_svg_points(pl_strbuf *b, const char *title, const char *x_name, const char *y_name, const pl_point *point,
                   int n, const pl_line *line, int n_lines) {
    frame f = {.x0 = 64, .y0 = 36, .x1 = WIDTH - 70, .y1 = POINT_HEIGHT - 44};
    bool  any = false;
    for (int i = 0; i < n; i++) {
        if (!drawable(point[i].x, point[i].y)) continue;
        f.min_x = any ? fmin(f.min_x, point[i].x) : point[i].x;
        f.max_x = any ? fmax(f.max_x, point[i].x) : point[i].x;
        f.min_y = any ? fmin(f.min_y, point[i].y) : point[i].y;
        f.max_y = any ? fmax(f.max_y, point[i].y) : point[i].y;
        any = true;
    }
    if (!any) return;
    double wide = fmax(f.max_x - f.min_x, 0.2), high = fmax(f.max_y - f.min_y, 0.1);
    f.min_x = fmax(0, f.min_x - 0.1 * wide);
    f.max_x += 0.15 * wide;
    f.min_y -= 0.2 * high;
    f.max_y += 0.2 * high;
    const char **label = pl_calloc((size_t)n, sizeof *label);
    box         *taken = pl_calloc((size_t)n * 2, sizeof *taken);
    if (!label || !taken) {
        b->failed = true;
        goto done;
    }
    for (int i = 0; i < n; i++)
        label[i] = point[i].label;
    open_svg(b, title, POINT_HEIGHT + legend_height(label, n));
    draw_axes(b, &f, x_name);
    pl_html_addf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\">", f.x0 - 50, f.y0 - 24);
    pl_html_text(b, y_name);
    pl_html_addf(b, "</text>\n");
    for (int i = 0; i < n_lines; i++)
        draw_curve(b, &f, &line[i]);
    draw_points(b, &f, point, label, n, taken);
    pl_html_addf(b, "</svg></figure>\n");
done:
    pl_free(label);
    pl_free(taken);
}

// Colours and shapes of every page; light and dark.
static const char page_head[] = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
static const char page_style[] =
    "</title>\n<style>\n"
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#656d76;--line:#d8dee4;--no:#b3261e;--yes:#1a7f37;"
    "--c0:#8c959f;--c1:#0969da;--c2:#bf5000;--c3:#1a7f37;--c4:#8250df;--c5:#cf222e;--c6:#9a6700;--c7:#087990}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#8d96a0;--line:#30363d;--no:#ff7b72;"
    "--yes:#3fb950;--c0:#768390;--c1:#58a6ff;--c2:#f0883e;--c3:#3fb950;--c4:#bc8cff;--c5:#ff7b72;--c6:#d29922;"
    "--c7:#39c5cf}}\n"
    "body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;"
    "padding:0 1rem}\nh1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem;overflow-wrap:anywhere}\n"
    "p{color:var(--soft)}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:14px}\n"
    "th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}\n"
    "th{white-space:normal;vertical-align:bottom}.name{white-space:normal;overflow-wrap:anywhere}\n"
    ".headline{color:var(--fg);font-size:1.1rem}.headline b{font-size:2rem}small{color:var(--soft)}\n"
    ".facts th{text-align:left;font-weight:400;color:var(--soft);white-space:nowrap;vertical-align:top}\n"
    "@media print{body{max-width:none;margin:0;font-size:11px}table{font-size:10px}.wide{overflow:visible}\n"
    "figure,tr{break-inside:avoid}h2,h3{break-after:avoid}}\n"
    ".n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".no{color:var(--no);font-weight:600}.yes{color:var(--yes)}\n"
    "figure{margin:1.5rem "
    "0}figcaption{font-weight:600;margin-bottom:.3rem}svg{width:100%;max-width:760px;height:auto}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--fg)}svg .tick{fill:var(--soft);font-size:12px}\n"
    ".grid{stroke:var(--line)}.axis{stroke:var(--soft);fill:none}.line{fill:none;stroke-width:2;stroke-linejoin:round}"
    "\n"
    ".interval{stroke:var(--fg);stroke-width:1.5;fill:none}.mark{stroke:var(--fg);stroke-width:2}.dashed{stroke:var(--"
    "soft);stroke-dasharray:4 4;fill:none}\n"
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}"
    "svg .number{font-size:11px;font-variant-numeric:tabular-nums}\n";

void pl_html_page_begin(pl_strbuf *b, const char *title) {
    pl_strbuf_add(b, page_head, sizeof page_head - 1);
    pl_html_text(b, title);
    pl_strbuf_add(b, page_style, sizeof page_style - 1);
    for (int i = 0; i < PL_SVG_COLOURS; i++)
        pl_html_addf(b, ".c%d{fill:var(--c%d)}.s%d{stroke:var(--c%d)}", i, i, i, i);
    pl_html_addf(b, "\n</style></head><body>\n<h1>");
    pl_html_text(b, title);
    pl_html_addf(b, "</h1>\n");
}

bool pl_html_is_page(const char *front, size_t n, const char *title) {
    size_t head = sizeof page_head - 1, t = strlen(title);
    return n > head + t && memcmp(front, page_head, head) == 0 && memcmp(front + head, title, t) == 0 &&
           front[head + t] == '<';
}

void pl_html_page_end(pl_strbuf *b) {
    pl_html_addf(b, "</body></html>\n");
}
