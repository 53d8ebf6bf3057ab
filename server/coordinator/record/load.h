/* Records becoming groups and meshes again. Private to this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_RECORD_LOAD_H
#define TUTTI_SERVER_COORDINATOR_RECORD_LOAD_H

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/record_codec.h"
#include "server/coordinator/core/types.h"

/* TUTTI_DATA_LOSS STORE_FORMAT. [in] what  "a seat" */
tutti_code coord_fail_record(const coord_job *job, const char *what, tutti_error *err);

/*
 * One record each; `key` stands behind the job's name. Codes: coord_fail_record, and no memory. In
 * this order: group registries, turns, groups; meshes, rows.
 */
tutti_code coord_load_registry(tutti_coordinator *self, coord_job *job, coord_reading *key,
                               coord_reading *value, tutti_error *err);
tutti_code coord_load_turns(tutti_coordinator *self, coord_job *job, coord_reading *key,
                            coord_reading *value, tutti_error *err);
tutti_code coord_load_group(tutti_coordinator *self, coord_job *job, coord_reading *key,
                            coord_reading *value, tutti_error *err);
tutti_code coord_load_mesh(tutti_coordinator *self, coord_job *job, coord_reading *key,
                           coord_reading *value, tutti_error *err);
tutti_code coord_load_row(tutti_coordinator *self, coord_job *job, coord_reading *key,
                          coord_reading *value, tutti_error *err);

#endif
