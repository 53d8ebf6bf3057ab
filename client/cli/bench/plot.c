/*
 * The rows as a picture: time and bus bandwidth over the size of the tensor. One SVG file that needs nothing
 * else; its colours follow the reader's light or dark theme, and its forms differ by more than colour. Each
 * point has its figures as a title, which browsers show and screen readers read.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/bench/bench.h"
#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

#define WIDTH 860
#define PANEL_LEFT 90
#define PANEL_WIDTH 740
#define PANEL_HEIGHT 240
#define TIME_TOP 76
#define BANDWIDTH_TOP 386
#define HEIGHT 690
#define TICKS_MAX 7
#define RADIUS 3.5

/* A diagram: values of 10^low to 10^high, or from 0 to `high`. */
typedef struct panel {
    const char *title;
    const char *unit;
    double top;
    bool logarithmic;
    double low;
    double high;
    double (*value)(const bench_figures *figures);
} panel;

typedef struct plotting {
    const bench_run *run;
    FILE *out;
    double low_size; /* log2 of the sizes */
    double high_size;
} plotting;

static double
value_of_time(const bench_figures *figures)
{
    return figures->us;
}

static double
value_of_bandwidth(const bench_figures *figures)
{
    return figures->bus_gbps;
}

void
bench_plot_add(bench_run *run, const bench_figures figures[2])
{
    bench_row *more;

    if (run->plan->plot == NULL) {
        return;
    }
    more = reallocarray(run->rows, run->row_count + 1, sizeof(*more));
    if (more == NULL) {
        abort();
    }
    run->rows = more;
    more[run->row_count++] = (bench_row){.bytes = run->bytes, .figures = {figures[0], figures[1]}};
}

/* ------------------------------------------------------------------ scales */

static double
size_log(uint64_t bytes)
{
    return bytes == 0 ? 0 : log2((double)bytes);
}

static void
find_sizes(plotting *self)
{
    size_t i;

    self->low_size = INFINITY;
    self->high_size = -INFINITY;
    for (i = 0; i < self->run->row_count; i++) {
        const double size = size_log(self->run->rows[i].bytes);

        self->low_size = size < self->low_size ? size : self->low_size;
        self->high_size = size > self->high_size ? size : self->high_size;
    }
    if (self->high_size - self->low_size < 1) { /* a single row stands in the middle */
        self->low_size -= 1;
        self->high_size += 1;
    }
}

/* Values that are there and can be drawn. */
static bool
has_value(const panel *one, const bench_figures *figures)
{
    return figures->known && isfinite(one->value(figures)) &&
           (!one->logarithmic || one->value(figures) > 0);
}

static void
find_values(const plotting *self, panel *one)
{
    double least = INFINITY;
    double most = 0;
    size_t i;

    for (i = 0; i < 2 * self->run->row_count; i++) {
        const bench_figures *figures = &self->run->rows[i / 2].figures[i % 2];

        if (has_value(one, figures)) {
            least = one->value(figures) < least ? one->value(figures) : least;
            most = one->value(figures) > most ? one->value(figures) : most;
        }
    }
    if (one->logarithmic) {
        one->low = least > most ? 0 : floor(log10(least));
        one->high = least > most ? 1 : ceil(log10(most));
        one->high = one->high > one->low ? one->high : one->low + 1;
    } else {
        one->low = 0;
        one->high = most > 0 ? most * 1.05 : 1;
    }
}

static double
place_size(const plotting *self, double size)
{
    return PANEL_LEFT + PANEL_WIDTH * (size - self->low_size) / (self->high_size - self->low_size);
}

static double
place_value(const panel *one, double value)
{
    const double part =
        ((one->logarithmic ? log10(value) : value) - one->low) / (one->high - one->low);

    return one->top + PANEL_HEIGHT * (1 - part);
}

/* ------------------------------------------------------------------ drawing */

static void
put_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            (void)fputs("&lt;", out);
            break;
        case '>':
            (void)fputs("&gt;", out);
            break;
        case '&':
            (void)fputs("&amp;", out);
            break;
        default:
            (void)fputc(*text < ' ' && *text >= 0 ? '?' : *text, out);
        }
    }
}

static void
draw_style(FILE *out)
{
    (void)fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" "
        "role=\"img\" aria-labelledby=\"title\">\n<style>\n"
        "svg { color-scheme: light dark; background: #fff; font: 13px system-ui, sans-serif; }\n"
        "text { fill: #222; } .grid { stroke: #ddd; } .axis { stroke: #888; }\n"
        ".out { stroke: #0b62b8; fill: #0b62b8; } .in { stroke: #b4480a; fill: #b4480a; }\n"
        "path { fill: none !important; stroke-width: 2; } path.in { stroke-dasharray: 6 4; }\n"
        "@media (prefers-color-scheme: dark) {\n"
        "svg { background: #16181c; } text { fill: #e4e4e4; } .grid { stroke: #33363c; }\n"
        ".out { stroke: #6cb6ff; fill: #6cb6ff; } .in { stroke: #f4a261; fill: #f4a261; }\n"
        "}\n</style>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
}

static void
draw_title(const plotting *self)
{
    const bench_plan *plan = self->run->plan;
    FILE *out = self->out;

    (void)fputs("<title id=\"title\">", out);
    (void)fprintf(out, "%s on %" PRIu32 " ranks</title>\n<text x=\"%d\" y=\"28\" font-size=\"18\">",
                  plan->op->word, self->run->world.count, PANEL_LEFT);
    (void)fprintf(out, "%s on %" PRIu32 " ranks of ", plan->op->word, self->run->world.count);
    put_escaped(out, plan->group == NULL ? "world" : plan->group);
    (void)fprintf(out, "</text>\n<text x=\"%d\" y=\"48\">%s%s%s, %s, %" PRId64 " calls%s, tutti %s",
                  PANEL_LEFT, tutti_dtype_name(plan->dtype),
                  plan->reduce == TUTTI_REDUCE_NONE ? "" : " ",
                  plan->reduce == TUTTI_REDUCE_NONE ? "" : tutti_reduce_name(plan->reduce),
                  bench_way_name(plan->way), plan->iterations, plan->async ? " at once" : "",
                  tutti_version());
    if (plan->device != NULL) {
        (void)fputs(", on ", out);
        put_escaped(out, plan->device);
    }
    (void)fputs("</text>\n", out);
}

static void
draw_line(FILE *out, const char *kind, double x1, double y1, double x2, double y2)
{
    (void)fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                  kind, x1, y1, x2, y2);
}

/* Powers of two, as many as have room; a barrier has no sizes. */
static void
draw_size_ticks(const plotting *self, const panel *one)
{
    const double bottom = one->top + PANEL_HEIGHT;
    const double span = self->high_size - self->low_size;
    const double step = ceil(span / TICKS_MAX);
    char size[CLI_WORD_SIZE];
    double at;

    for (at = ceil(self->low_size); at <= self->high_size; at += step) {
        const double x = place_size(self, at);

        if (at < 0 || self->run->rows[0].bytes == 0) {
            continue;
        }
        draw_line(self->out, "grid", x, one->top, x, bottom);
        (void)fprintf(self->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                      x, bottom + 18, cli_format_size((uint64_t)exp2(at), size));
    }
}

static void
draw_value_tick(const plotting *self, const panel *one, double value)
{
    const double y = place_value(one, value);

    draw_line(self->out, "grid", PANEL_LEFT, y, PANEL_LEFT + PANEL_WIDTH, y);
    (void)fprintf(self->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                  PANEL_LEFT - 8, y + 4, value);
}

/* Powers of ten; or 1, 2 or 5 of one. */
static void
draw_value_ticks(const plotting *self, const panel *one)
{
    double step = 1;
    double at;

    if (one->logarithmic) {
        step = ceil((one->high - one->low) / TICKS_MAX);
        for (at = one->low; at <= one->high; at += step) {
            draw_value_tick(self, one, pow(10, at));
        }
        return;
    }
    step = pow(10, floor(log10(one->high)));
    step *= one->high / step < 2 ? 0.2 : one->high / step < 5 ? 0.5 : 1;
    for (at = 0; at <= one->high; at += step) {
        draw_value_tick(self, one, at);
    }
}

/* [in] form  0 = out of place, 1 = in place */
static void
draw_form(const plotting *self, const panel *one, size_t form)
{
    static const char *const names[] = {"out", "in"};
    static const char *const words[] = {"out of place", "in place"};
    const bench_run *run = self->run;
    const char *command = "M";
    char size[CLI_WORD_SIZE];
    size_t i;

    (void)fprintf(self->out, "<path class=\"%s\" d=\"", names[form]);
    for (i = 0; i < run->row_count; i++) {
        const bench_figures *figures = &run->rows[i].figures[form];

        if (has_value(one, figures)) {
            (void)fprintf(self->out, "%s%.1f %.1f", command,
                          place_size(self, size_log(run->rows[i].bytes)),
                          place_value(one, one->value(figures)));
            command = " L";
        }
    }
    (void)fputs("\"/>\n", self->out);
    for (i = 0; i < run->row_count; i++) {
        const bench_figures *figures = &run->rows[i].figures[form];

        if (has_value(one, figures)) {
            (void)fprintf(
                self->out,
                "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%g\"><title>%s %s: %.4g "
                "%s</title></circle>\n",
                names[form], place_size(self, size_log(run->rows[i].bytes)),
                place_value(one, one->value(figures)), RADIUS,
                cli_format_size(run->rows[i].bytes, size), words[form], one->value(figures),
                one->unit);
        }
    }
}

static void
draw_panel(const plotting *self, panel *one)
{
    const double bottom = one->top + PANEL_HEIGHT;

    find_values(self, one);
    (void)fprintf(self->out, "<text x=\"%d\" y=\"%.1f\">%s, %s</text>\n", PANEL_LEFT, one->top - 8,
                  one->title, one->unit);
    draw_size_ticks(self, one);
    draw_value_ticks(self, one);
    draw_line(self->out, "axis", PANEL_LEFT, bottom, PANEL_LEFT + PANEL_WIDTH, bottom);
    draw_line(self->out, "axis", PANEL_LEFT, one->top, PANEL_LEFT, bottom);
    draw_form(self, one, 0);
    draw_form(self, one, 1);
}

static void
draw_legend(const plotting *self)
{
    static const char *const words[] = {"out of place", "in place"};
    static const char *const names[] = {"out", "in"};
    size_t form;

    (void)fprintf(self->out,
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">size of the tensor</text>\n",
                  PANEL_LEFT + PANEL_WIDTH / 2, BANDWIDTH_TOP + PANEL_HEIGHT + 40);
    for (form = 0; form < 2; form++) {
        const int x = WIDTH - 260 + (int)form * 130;

        (void)fprintf(self->out,
                      "<path class=\"%s\" d=\"M%d 44 L%d 44\"/><text x=\"%d\" y=\"48\">%s</text>\n",
                      names[form], x, x + 28, x + 34, words[form]);
    }
}

static void
draw_plot(plotting *self)
{
    panel time = {.title = "time of a call",
                  .unit = "us",
                  .top = TIME_TOP + 20,
                  .logarithmic = true,
                  .value = value_of_time};
    panel bandwidth = {.title = "bus bandwidth",
                       .unit = "GB/s",
                       .top = BANDWIDTH_TOP,
                       .value = value_of_bandwidth};

    find_sizes(self);
    draw_style(self->out);
    draw_title(self);
    draw_panel(self, &time);
    if (self->run->plan->op->gives != BENCH_NOTHING) {
        draw_panel(self, &bandwidth);
    }
    draw_legend(self);
    (void)fputs("</svg>\n", self->out);
}

/* ------------------------------------------------------------------ the file */

/* Before minutes are spent on measuring. */
tutti_code
bench_plot_check(const char *path, tutti_error *err)
{
    npy_output output = {0};
    tutti_code code;

    if (strcmp(path, "-") == 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "--plot -: the rows go to standard output, name a file");
    }
    code = npy_create_file(path, "", 0, 1, &output, err);
    npy_discard(&output);
    return code;
}

tutti_code
bench_plot_write(const bench_run *run, const char *path, tutti_error *err)
{
    plotting self = {.run = run};
    npy_output output = {0};
    char *text = NULL;
    size_t size = 0;
    tutti_code code;

    self.out = open_memstream(&text, &size);
    if (self.out == NULL) {
        abort();
    }
    draw_plot(&self);
    if (fclose(self.out) != 0) {
        abort();
    }
    code = npy_create_file(path, text, size, 0, &output, err);
    free(text);
    return code == TUTTI_OK ? npy_commit(&output, err) : code;
}
