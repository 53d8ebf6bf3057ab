/* What was measured, for people and for programs. */
#include <grpc/grpc.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench_rpc.h"
#include "tutti/version.h"

#ifdef __OPTIMIZE__
#define BUILD "optimised"
#else
#define BUILD "NOT optimised: take another build"
#endif

static void
read_cpu(char *ret_model, size_t size)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "re");
    const char *value = NULL;

    (void)snprintf(ret_model, size, "unknown");
    while (file != NULL && value == NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "model name", 10) == 0 && (value = strchr(line, ':')) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(ret_model, size, "%s", value + 2);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

static double
read_load(void)
{
    double load = 0;

    return getloadavg(&load, 1) == 1 ? load : -1;
}

static void
print_about(const bench_report *report, FILE *file)
{
    struct utsname system;
    char model[128];

    read_cpu(model, sizeof(model));
    (void)uname(&system);
    (void)fprintf(file, "machine   %s, %ld cores, %s %s, load %.2f at the end\n", model,
                  sysconf(_SC_NPROCESSORS_ONLN), system.sysname, system.release, read_load());
    (void)fprintf(file, "versions  tutti %s, gRPC core %s, protobuf-c %s, compiler %s (%s)\n",
                  TUTTI_VERSION, grpc_version_string(), bench_protobuf_version(), __VERSION__,
                  BUILD);
    (void)fprintf(file, "command   %s\n", report->command);
    (void)fprintf(file, "took      %.0f s\n\n", report->seconds);
}

static void
print_value(const bench_row *row, double value, FILE *file)
{
    (void)fprintf(file, " %*.*f", 11,
                  row->unit == BENCH_GBS  ? 2
                  : row->unit == BENCH_US ? 1
                                          : 0,
                  value);
}

void
bench_report_print(const bench_report *report, FILE *file)
{
    size_t r;
    size_t p;

    print_about(report, file);
    (void)fprintf(file, "%-34s", "");
    for (p = 0; p < report->peer_count; p++) {
        (void)fprintf(file, " %11s", report->peers[p]);
    }
    for (p = 1; p < report->peer_count; p++) {
        (void)fprintf(file, "  : %9s", report->peers[p]);
    }
    (void)fprintf(file, "\n");
    for (r = 0; r < report->row_count; r++) {
        const bench_row *row = &report->rows[r];

        (void)fprintf(file, "%-34s", row->name);
        for (p = 0; p < report->peer_count; p++) {
            print_value(row, row->values[p], file);
        }
        for (p = 1; p < report->peer_count; p++) {
            (void)fprintf(file, " %11.2fx", row->values[0] / row->values[p]);
        }
        (void)fprintf(file, "\n");
    }
    (void)fprintf(file,
                  "\nThe last columns are %s divided by that peer: of us less is better, of "
                  "calls/s and GB/s more.\nAll peers took turns in one run; rates are medians of "
                  "the turns, latencies of all calls.\nClient and servers run on one CPU each, "
                  "unless it says that all were on one.\n",
                  report->peers[0]);
}

static json_t *
make_row(const bench_report *report, const bench_row *row)
{
    static const char *const units[] = {"us", "calls/s", "GB/s"};
    json_t *values = json_object();
    size_t p;

    for (p = 0; p < report->peer_count; p++) {
        (void)json_object_set_new(values, report->peers[p], json_real(row->values[p]));
    }
    return json_pack("{s:s, s:s, s:o}", "name", row->name, "unit", units[row->unit], "values",
                     values);
}

void
bench_report_write_json(const bench_report *report, const char *path)
{
    struct utsname system;
    char model[128];
    json_t *rows = json_array();
    json_t *all;
    size_t r;

    read_cpu(model, sizeof(model));
    (void)uname(&system);
    for (r = 0; r < report->row_count; r++) {
        (void)json_array_append_new(rows, make_row(report, &report->rows[r]));
    }
    all = json_pack("{s:s, s:{s:s, s:I, s:s, s:f}, s:{s:s, s:s, s:s, s:s}, s:s, s:f, s:o}", "bench",
                    "rpc", "machine", "cpu", model, "cores",
                    (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "kernel", system.release, "load",
                    read_load(), "versions", "tutti", TUTTI_VERSION, "grpc", grpc_version_string(),
                    "protobuf-c", bench_protobuf_version(), "compiler", __VERSION__, "command",
                    report->command, "seconds", report->seconds, "rows", rows);
    if (all == NULL || json_dump_file(all, path, JSON_INDENT(2)) != 0) {
        bench_die(path, "could not be written");
    }
    json_decref(all);
}
