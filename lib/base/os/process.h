/* Process: what a server asks of the system at start. One thread, before others exist. */
#ifndef TUTTI_BASE_OS_PROCESS_H
#define TUTTI_BASE_OS_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

/*
 * Raise the limit of open files to the most allowed.
 *
 * TUTTI_RESOURCE_EXHAUSTED  that is below `least`: the text says how to raise it
 */
tutti_code tutti_process_raise_files(uint64_t least, tutti_error *err);

/* malloc settings for big buffers that come and go (docs/decisions says what was measured). */
void tutti_process_tune_malloc(void);

/*
 * From now on no core dump is written of this process, and processes without rights of root, those
 * of its own user too, can neither attach to it nor read its memory, environment or descriptors.
 */
tutti_code tutti_process_hide_memory(tutti_error *err);

/* Memory this process may use, in bytes: the smallest of what the machine has, the cgroup allows and ulimit -v says. */
uint64_t tutti_process_memory(void);

/* What a process, "123" or "self", was started as: "tutti-coordinator"; else "a process". */
void tutti_process_name(const char *pid, char *ret_name, size_t size);

/*
 * Who listens on a TCP port of this machine? Writes "tutti-agent (pid 123)", "a process that this
 * user may not look into" (another user's, or one that holds keys) or "a process that has gone"
 * into the buffer.
 */
void tutti_process_who_listens(uint16_t port, char *ret_text, size_t size);

#endif
