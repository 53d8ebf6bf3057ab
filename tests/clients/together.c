/* A rank in C beside one in Python: test_together.py. Prints the objects that it gets. */
#include <stdio.h>
#include <string.h>

#include <tutti/object.h>

static void
show(const char *what, const tutti_object *object)
{
    printf("%s: %s: %.*s\n", what, object->content_type, (int)object->size,
           (const char *)object->data);
}

int
main(void)
{
    char text[] = "{\"rank\": 1}";
    tutti_object mine = {"application/json", text, sizeof(text) - 1};
    tutti_client *client = NULL;
    tutti_object *all = NULL;
    tutti_object one;
    size_t count = 0;
    size_t i;
    tutti_error err;

    if (tutti_connect(NULL, &client, &err) != TUTTI_OK ||
        tutti_object_broadcast(client, NULL, NULL, &one, &err) != TUTTI_OK ||
        tutti_object_all_gather(client, NULL, &mine, &all, &count, &err) != TUTTI_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    show("broadcast", &one);
    for (i = 0; i < count; i++) {
        show("all_gather", &all[i]);
    }
    tutti_object_clear(&one);
    tutti_objects_free(all, count);
    tutti_close(client);
    return 0;
}
