/* The structs of the coordinator's rooms, for those that only point to them. */
#ifndef TUTTI_SERVER_COORDINATOR_CORE_TYPES_H
#define TUTTI_SERVER_COORDINATOR_CORE_TYPES_H

typedef struct coord_agent coord_agent; /* member/job.h */
typedef struct coord_event coord_event;
typedef struct coord_full_key coord_full_key; /* kv/keys_private.h */
typedef struct coord_group coord_group;       /* group/group.h */
typedef struct coord_job coord_job;           /* member/job.h */
typedef struct coord_mesh coord_mesh;         /* group/mesh.h */
typedef struct coord_news coord_news;         /* kv/keys_private.h */
typedef struct coord_group_registry coord_group_registry;

#endif
