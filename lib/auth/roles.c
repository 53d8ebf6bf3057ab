/*
 * Who may call which method. Rows are sorted by method, as strcmp orders them, since they are
 * found by bisection; a test compares the table with the protos. A method without a row can be
 * called by nobody who shows a token.
 */
#include "auth/roles.h"

#include <stdlib.h>
#include <string.h>

#include "auth/grant.h"

#define CLIENT TUTTI_AUTH_CLIENT
#define AGENT TUTTI_AUTH_AGENT
#define ADMIN TUTTI_AUTH_ADMIN
#define BOTH (TUTTI_AUTH_CLIENT | TUTTI_AUTH_AGENT)
#define NONE TUTTI_AUTH_SCOPE_NONE
#define REQUEST TUTTI_AUTH_SCOPE_REQUEST
#define SEAT TUTTI_AUTH_SCOPE_SEAT
#define SERVER TUTTI_AUTH_SCOPE_SERVER
#define EARLY TUTTI_AUTH_SCOPE_EARLY
#define ALL TUTTI_AUTH_SCOPE_ALL

/* clang-format off */
static const tutti_auth_row rows[] = {
    {"/grpc.health.v1.Health/Check", BOTH, NONE, true},
    {"/grpc.health.v1.Health/Watch", BOTH, NONE, true},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", BOTH, NONE, false},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", BOTH, NONE, false},
    {"/tutti.v1.CollectivesService/AllGather", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/AllReduce", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/AllToAll", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Barrier", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Broadcast", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Cancel", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Gather", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Infer", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Permute", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Recv", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Reduce", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/ReduceScatter", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Scatter", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Send", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Sync", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Test", CLIENT, SERVER, false},
    {"/tutti.v1.CollectivesService/Wait", CLIENT, SERVER, false},
    {"/tutti.v1.CommandsService/OpenLane", CLIENT, SERVER, false},
    {"/tutti.v1.CommandsService/Run", CLIENT, SERVER, false},
    {"/tutti.v1.CoordinatorService/AbortGroup", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/Backup", ADMIN, ALL, false},
    {"/tutti.v1.CoordinatorService/CreateGroup", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/CreateSubgroups", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/DeleteGroup", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/DescribeStall", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/GetGroup", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/GetJob", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/Join", AGENT, SEAT, false},
    {"/tutti.v1.CoordinatorService/Leave", AGENT, REQUEST, false},
    {"/tutti.v1.CoordinatorService/ListGroups", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/ListJobs", BOTH, ALL, false},
    {"/tutti.v1.CoordinatorService/LookupRanks", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/Session", AGENT, REQUEST, false},
    {"/tutti.v1.CoordinatorService/ShrinkGroup", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/TranslateRanks", BOTH, REQUEST, false},
    {"/tutti.v1.CoordinatorService/WatchMembers", BOTH, REQUEST, false},
    {"/tutti.v1.DiagnosticsService/DescribeAgent", BOTH, EARLY, false},
    {"/tutti.v1.DiagnosticsService/Examine", BOTH, SERVER, false},
    {"/tutti.v1.DiagnosticsService/Explain", BOTH, SERVER, false},
    {"/tutti.v1.DiagnosticsService/GetCapabilities", BOTH, SERVER, false},
    {"/tutti.v1.DiagnosticsService/GetFlightRecord", BOTH, SERVER, false},
    {"/tutti.v1.DiagnosticsService/GetStats", BOTH, SERVER, false},
    {"/tutti.v1.DiagnosticsService/SetAlgorithms", ADMIN, SERVER, false},
    {"/tutti.v1.FunctionsService/Call", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/GetFunction", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/GetValue", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/ImportModule", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/ListFunctions", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/LoadModule", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/Serve", CLIENT, SERVER, false},
    {"/tutti.v1.FunctionsService/SetValue", CLIENT, SERVER, false},
    {"/tutti.v1.MeshService/CreateMesh", BOTH, REQUEST, false},
    {"/tutti.v1.MeshService/DeleteMesh", BOTH, REQUEST, false},
    {"/tutti.v1.MeshService/GetMesh", BOTH, REQUEST, false},
    {"/tutti.v1.MeshService/ListMeshGroups", BOTH, REQUEST, false},
    {"/tutti.v1.MeshService/ListMeshes", BOTH, REQUEST, false},
    {"/tutti.v1.MeshService/SliceMesh", BOTH, REQUEST, false},
    {"/tutti.v1.MetadataService/AllGather", BOTH, REQUEST, false},
    {"/tutti.v1.MetadataService/Broadcast", BOTH, REQUEST, false},
    {"/tutti.v1.RendezvousService/Meet", BOTH, SEAT, false},
    {"/tutti.v1.SessionService/Drive", CLIENT, SERVER, false},
    {"/tutti.v1.StoreService/Add", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Append", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Check", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/CompareAndSet", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Count", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Delete", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Get", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Grant", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/KeepAlive", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Leases", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/List", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/MultiGet", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/MultiSet", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/OpenLane", BOTH, NONE, false},
    {"/tutti.v1.StoreService/QueueLen", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/QueuePop", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/QueuePush", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Revoke", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Run", BOTH, NONE, false},
    {"/tutti.v1.StoreService/Set", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Take", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Wait", BOTH, REQUEST, false},
    {"/tutti.v1.StoreService/Watch", BOTH, REQUEST, false},
    {"/tutti.v1.TensorsService/CloseLease", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Copy", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Create", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Delete", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Download", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Get", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Lease", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/List", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Put", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Share", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/ShareEvents", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/ShareGpu", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Stat", CLIENT, SERVER, false},
    {"/tutti.v1.TensorsService/Upload", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/Attach", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/Backward", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/ClearTracer", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/CreateTracer", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/DeleteTracer", CLIENT, SERVER, false},
    {"/tutti.v1.TracersService/ListTracers", CLIENT, SERVER, false},
};
/* clang-format on */

static int
compare_roles(const void *method, const void *row)
{
    return strcmp(method, ((const tutti_auth_row *)row)->method);
}

const tutti_auth_row *
tutti_auth_row_find(const char *method)
{
    return bsearch(method, rows, sizeof(rows) / sizeof(rows[0]), sizeof(rows[0]), compare_roles);
}
