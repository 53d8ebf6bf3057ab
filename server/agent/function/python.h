/*
 * Python: the process of --python, "python3 -m tutti.host --agent ADDRESS MODULE ...", which is
 * started again when it ends. It shows the key that it gets in TUTTI_HOST_KEY, and so its functions
 * may have any name. Its output goes to the log, line by line. A thread of its own starts it, reads
 * what it says and waits for its end.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_PYTHON_H
#define TUTTI_SERVER_AGENT_FUNCTION_PYTHON_H

#include <stdbool.h>

#include "base/data/bytes.h"
#include "server/agent/agent.h"

#define AGENT_PYTHON_WORDS_MAX 600

/* From --python. TUTTI_INVALID_ARGUMENT BAD_NAME: no module has that name */
tutti_code agent_python_open(tutti_agent *agent, tutti_error *err);
void agent_python_start(tutti_agent *agent); /* the agent serves; nothing without --python */
void agent_python_stop(tutti_agent *agent);  /* tell it to end; it is not started again */
void agent_python_close(tutti_agent *agent); /* it has ended, or is killed */

/* Is it there, now? Any thread. */
bool agent_python_runs(const tutti_agent *agent);

/* What it said last. Any thread. */
void agent_python_words(const tutti_agent *agent, char ret_words[AGENT_PYTHON_WORDS_MAX]);

/* Is this the key that it got? */
bool agent_python_has_key(const tutti_agent *agent, tutti_bytes key);

#endif
