/* Private to coll/ucx: UCX's words go to our log. Any thread; the first call counts. */
#ifndef TUTTI_COLL_UCX_LOG_H
#define TUTTI_COLL_UCX_LOG_H

void tutti_transport_ucx_take_log(void);

#endif
