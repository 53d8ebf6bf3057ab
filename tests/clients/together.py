"""A rank in Python beside one in C: test_together.py. Prints the objects that it gets."""

import tutti


def show(what, blob):
    print("%s: %s: %s" % (what, blob.content_type, blob.data.decode()))


with tutti.connect() as agent:
    show("broadcast", agent.broadcast_object("a text"))
    for one in agent.all_gather_object({"rank": 0}):
        show("all_gather", one)
