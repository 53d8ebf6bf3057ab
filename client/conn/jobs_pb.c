/* CoordinatorService: all jobs of a coordinator. */
#include "client/conn/coordinator.h"
#include "client/conn/pager.h"
#include "client/conn/types_pb.h"
#include "tutti/v1/coordinator_service.pb-c.h"

static const tutti_rpc_stub stub_list_jobs = {&tutti__v1__coordinator_service__descriptor,
                                              "ListJobs"};

void
client_read_job(const void *item, tutti_job_info *ret)
{
    const Tutti__V1__Job *job = item;

    *ret = (tutti_job_info){.id = job->id,
                            .world_size = job->world_size,
                            .epoch = job->epoch,
                            .alive_count = job->alive_count,
                            .lost_count = job->lost_count,
                            .group_count = job->group_count,
                            .since_ms = job->since_ms};
    client_read_text(job->name, ret->name, sizeof(ret->name));
}

static tutti_code
ask_jobs(tutti_client *client, const char *token, tutti_rpc_message **ret_response,
         client_page *ret_page, tutti_error *err)
{
    Tutti__V1__ListJobsRequest request = TUTTI__V1__LIST_JOBS_REQUEST__INIT;
    const client_call call = client_ask_coordinator(client, &stub_list_jobs);
    const Tutti__V1__ListJobsResponse *response;
    tutti_code code;

    request.page_size = CLIENT_PAGE_SIZE;
    request.page_token = client_write_text(token);
    code = client_invoke(client, &call, &request.base, ret_response, err);
    if (code == TUTTI_OK) {
        response = tutti_rpc_message_get(*ret_response);
        *ret_page = (client_page){.items = (void *const *)response->jobs,
                                  .count = response->n_jobs,
                                  .next_token = response->next_page_token};
    }
    return code;
}

static tutti_code
read_job_item(const void *item, void *ret_item, tutti_error *err)
{
    (void)err;
    client_read_job(item, ret_item);
    return TUTTI_OK;
}

tutti_code
tutti_jobs_list(tutti_client *client, tutti_job_info **ret_infos, size_t *ret_count,
                tutti_error *err)
{
    static const client_pager pager = {.what = "jobs",
                                       .item_size = sizeof(tutti_job_info),
                                       .ask = ask_jobs,
                                       .read = read_job_item};
    void *items = NULL;
    const tutti_code code = client_list_pages(client, &pager, &items, ret_count, err);

    if (code == TUTTI_OK) {
        *ret_infos = items;
    }
    return code;
}
