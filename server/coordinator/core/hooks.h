/*
 * What happens in a room of the coordinator and is acted upon in rooms above it: a group that is
 * made is recorded, one that is deleted fails its exchanges. The functions here call those of a
 * table that coordinator.c fills, so no room calls one above itself. The coordinator's thread.
 */
#ifndef TUTTI_SERVER_COORDINATOR_CORE_HOOKS_H
#define TUTTI_SERVER_COORDINATOR_CORE_HOOKS_H

#include <stdint.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/types.h"

struct coord_hooks {
    void (*finish_gc)(tutti_coordinator *self, const coord_full_key *full); /* of an ended job */
    void (*key_changed)(tutti_coordinator *self, const coord_news *news);
    void (*wake_sessions)(coord_job *job);
    void (*wake_member_watches)(coord_job *job);
    tutti_code (*open_world)(coord_job *job, tutti_error *err);
    void (*refresh_world)(coord_job *job);
    void (*drop_deleted)(coord_event *event); /* of a group */
    void (*close_groups)(coord_job *job);
    void (*close_meshes)(coord_job *job);
    void (*group_deleted)(coord_group *group);
    void (*rank_lost)(const coord_agent *agent);
    void (*agent_freed)(coord_agent *agent);
    void (*record_agent)(coord_agent *agent);
    void (*record_formed)(coord_job *job);
    void (*record_group)(coord_group *group);
    void (*record_mesh)(coord_mesh *mesh);
    void (*record_registry)(coord_group_registry *registry, uint32_t position);
    void (*unrecord_job)(coord_job *job);
    void (*unrecord_group)(const coord_group *group);
    void (*unrecord_mesh)(const coord_mesh *mesh);
    void (*unrecord_registry)(const coord_group_registry *registry);
};

#endif
