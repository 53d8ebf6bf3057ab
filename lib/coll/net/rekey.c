/*
 * An epoch's key, on its way to the transport. It goes through the inbox, so it takes effect after
 * the news that were pushed before it and before those pushed after it (tutti_coll_engine_rekey in
 * coll/engine.h). The copy is wiped. Without memory the old key stays: members of the new epoch do
 * not hear this rank, and its ops end by their deadlines.
 */
#include <stdlib.h>
#include <string.h>

#include "base/os/log.h"
#include "coll/state/engine.h"
#include "coll/state/inbox.h"

typedef struct key_item {
    tutti_coll_item item;
    tutti_transport_key key;
} key_item;

static void
run_key_item(tutti_coll_engine *engine, tutti_coll_item *item)
{
    key_item *news = tutti_container_of(item, key_item, item);

    engine->transport->ops->rekey(engine->transport, &news->key);
    memset(&news->key, 0, sizeof(news->key));
    free(news);
}

void
tutti_coll_engine_rekey(tutti_coll_engine *engine, const tutti_transport_key *key)
{
    key_item *news;

    if (engine->transport->ops->rekey == NULL) {
        return;
    }
    news = malloc(sizeof(*news));
    if (news == NULL) {
        TUTTI_LOG("coll", ERROR, "no memory for the key of an epoch");
        return;
    }
    *news = (key_item){.item.run = run_key_item, .key = *key};
    tutti_coll_engine_push(engine, &news->item);
}
