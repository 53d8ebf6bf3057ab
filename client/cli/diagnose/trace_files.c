/*
 * Flight records that agents have left as files: --flight-dir of tutti-agent. They have the form
 * of PyTorch's flight recorder. The files may be old or damaged, so nothing in them is trusted:
 * what is missing or of another type is 0 or "".
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/trace.h"
#include "client/cli/util/output.h"

#define FILE_MAX (64 << 20) /* bytes; 4096 ops take some 2 MiB */
#define PATH_SIZE 4096

/* ------------------------------------------------------------------------------ one entry */

static uint64_t
number_of(const json_t *entry, const char *key)
{
    const json_int_t number = json_integer_value(json_object_get(entry, key)); /* 0 for null */

    return number < 0 ? 0 : (uint64_t)number;
}

/* "" when it is no text. */
static void
read_text(const json_t *value, char *ret, size_t size)
{
    const char *text = json_string_value(value);

    (void)snprintf(ret, size, "%s", text == NULL ? "" : text);
}

/* Only the first tensor of an op is kept, as the timeline shows no more. */
static uint32_t
read_spec(const json_t *entry, const char *sizes, const char *dtypes, tutti_spec *ret)
{
    const json_t *dims = json_array_get(json_object_get(entry, sizes), 0);
    const char *dtype = json_string_value(json_array_get(json_object_get(entry, dtypes), 0));
    uint32_t i;

    *ret = (tutti_spec){.dtype = TUTTI_DTYPE_NONE};
    if (dims == NULL || dtype == NULL) {
        return 0;
    }
    ret->dtype = tutti_dtype_parse(dtype);
    for (i = 0; i < json_array_size(dims) && i < TUTTI_DIMS_MAX; i++) {
        ret->dims[i] = json_integer_value(json_array_get(dims, i));
    }
    ret->dim_count = i;
    return 1;
}

/*
 * The name in the file is "nccl:all_reduce" or the like, as other readers want it; what is shown
 * is the part behind the colon.
 */
static void
read_trace_entry(const json_t *entry, tutti_flight_entry *ret)
{
    const json_t *error = json_object_get(entry, "error");
    const char *name = json_string_value(json_object_get(entry, "profiling_name"));
    const char *colon = name == NULL ? NULL : strchr(name, ':');

    *ret = (tutti_flight_entry){
        .record_id = number_of(entry, "record_id"),
        .group_id = number_of(entry, "pg_id"),
        .epoch = number_of(entry, "epoch"),
        .sequence = number_of(entry, "collective_seq_id"),
        .p2p_count = number_of(entry, "p2p_seq_id"),
        .created_ns = number_of(entry, "time_created_ns"),
        .started_ns = number_of(entry, "time_discovered_started_ns"),
        .completed_ns = number_of(entry, "time_discovered_completed_ns"),
        .timeout_ms = number_of(entry, "timeout_ms"),
    };
    ret->input_count = read_spec(entry, "input_sizes", "input_dtypes", &ret->input);
    ret->output_count = read_spec(entry, "output_sizes", "output_dtypes", &ret->output);
    (void)snprintf(ret->name, sizeof(ret->name), "%s",
                   colon != NULL  ? colon + 1
                   : name != NULL ? name
                                  : "?");
    read_text(json_array_get(json_object_get(entry, "process_group"), 0), ret->group,
              sizeof(ret->group));
    read_text(json_object_get(entry, "state"), ret->state, sizeof(ret->state));
    read_text(json_object_get(error, "reason"), ret->error_reason, sizeof(ret->error_reason));
    read_text(json_object_get(error, "text"), ret->error_text, sizeof(ret->error_text));
    if (ret->completed_ns != 0 && ret->completed_ns < ret->created_ns) {
        ret->completed_ns = ret->created_ns;
    }
}

/* ------------------------------------------------------------------------------ one file */

/* The job of the first file is that of all: two jobs in one timeline would mix their ranks. */
static tutti_code
take_record(const char *path, const json_t *document, trace *self, cli_fan_out *fan_out,
            tutti_error *err)
{
    const json_t *entries = json_object_get(document, "entries");
    const json_t *rank_value = json_object_get(document, "rank");
    const json_int_t rank = json_is_integer(rank_value) ? json_integer_value(rank_value) : -1;
    char job[TUTTI_NAME_MAX + 1];
    trace_flown *flown;
    size_t i;

    if (!json_is_array(entries) || rank < 0 || rank >= CLI_FAN_OUT_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s is no flight record of a rank below %d",
                        path, CLI_FAN_OUT_MAX);
    }
    read_text(json_object_get(document, "job"), job, sizeof(job));
    if (fan_out->job.alive_count > 0 && strcmp(fan_out->job.name, job) != 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%s is of job %s, another file of job %s: say which with --job", path, job,
                        fan_out->job.name);
    }
    flown = &self->flown[rank];
    if (flown->answered) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s is a second file of rank %d", path,
                        (int)rank);
    }
    flown->entries = calloc(json_array_size(entries) + 1, sizeof(*flown->entries));
    if (flown->entries == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %s", path);
    }
    for (i = 0; i < json_array_size(entries); i++) {
        read_trace_entry(json_array_get(entries, i), &flown->entries[flown->count++]);
    }
    flown->answered = true;
    (void)snprintf(fan_out->job.name, sizeof(fan_out->job.name), "%s", job);
    fan_out->job.alive_count++;
    fan_out->infos[rank].state = TUTTI_RANK_ALIVE;
    read_text(json_object_get(document, "host"), fan_out->infos[rank].host,
              sizeof(fan_out->infos[rank].host));
    fan_out->count = fan_out->count > (uint32_t)rank ? fan_out->count : (uint32_t)rank + 1;
    return TUTTI_OK;
}

/* Files of other jobs are passed over when a job was named. */
static tutti_code
take_file(const char *path, const char *job, trace *self, cli_fan_out *fan_out, tutti_error *err)
{
    struct stat info;
    json_error_t why;
    json_t *document;
    char of[TUTTI_NAME_MAX + 1];
    tutti_code code = TUTTI_OK;

    if (stat(path, &info) != 0) {
        return cli_fail_errno(err, errno, "could not read %s", path);
    }
    if (!S_ISREG(info.st_mode) || info.st_size > FILE_MAX) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s is no file of at most %d MiB", path,
                        FILE_MAX >> 20);
    }
    document = json_load_file(path, 0, &why);
    if (document == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s is no JSON: line %d: %s", path, why.line,
                        why.text);
    }
    read_text(json_object_get(document, "job"), of, sizeof(of));
    if (job == NULL || strcmp(job, of) == 0) {
        code = take_record(path, document, self, fan_out, err);
    }
    json_decref(document);
    return code;
}

/* ------------------------------------------------------------------------------ all of them */

static bool
is_record(const char *name)
{
    const size_t size = strlen(name);

    return strncmp(name, "flight-", 7) == 0 && size > 12 && strcmp(name + size - 5, ".json") == 0;
}

/*
 * There is no coordinator to ask, so the world is as large as the highest rank that left a file.
 */
tutti_code
trace_read_folder(const char *folder, const char *job, trace *self, cli_fan_out *fan_out,
                  tutti_error *err)
{
    DIR *files = opendir(folder);
    const struct dirent *entry;
    char path[PATH_SIZE];
    tutti_code code = TUTTI_OK;

    if (files == NULL) {
        return cli_fail_errno(err, errno, "could not read %s", folder);
    }
    fan_out->infos = calloc(CLI_FAN_OUT_MAX, sizeof(*fan_out->infos));
    if (fan_out->infos == NULL) {
        abort();
    }
    while (code == TUTTI_OK && (entry = readdir(files)) != NULL) {
        if (is_record(entry->d_name) &&
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < (int)sizeof(path)) {
            code = take_file(path, job, self, fan_out, err);
        }
    }
    (void)closedir(files);
    if (code == TUTTI_OK && fan_out->count == 0) {
        code = cli_fail(err, TUTTI_NOT_FOUND,
                        "%s holds no flight-JOB-RANK.json: tutti-agent --flight-dir writes them "
                        "when an op fails",
                        folder);
    }
    fan_out->job.world_size = fan_out->count;
    return code;
}
