#include "symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

/* Where the parts of the table are; NULL = the library has none. */
typedef struct table {
    const ElfW(Sym) * symbols;
    const char *names;
    const uint32_t *hash;     /* DT_HASH: bucket count, symbol count ... */
    const uint32_t *gnu_hash; /* DT_GNU_HASH: bucket count, first symbol, bloom words, shift ... */
} table;

/* glibc has made addresses of most, but not on all processors. */
static const void *
address_of(const struct link_map *map, const ElfW(Dyn) * entry)
{
    const uintptr_t address = entry->d_un.d_ptr;

    return (const void *)(address < map->l_addr ? address + map->l_addr : address);
}

static table
find_table(const struct link_map *map)
{
    const ElfW(Dyn) * entry;
    table found = {0};

    for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            found.symbols = address_of(map, entry);
            break;
        case DT_STRTAB:
            found.names = address_of(map, entry);
            break;
        case DT_HASH:
            found.hash = address_of(map, entry);
            break;
        case DT_GNU_HASH:
            found.gnu_hash = address_of(map, entry);
            break;
        default:
            break;
        }
    }
    return found;
}

/* The table has no length; the chains of the hash end at the last symbol that can be found. */
static size_t
count_gnu(const uint32_t *hash)
{
    const uint32_t bucket_count = hash[0];
    const uint32_t first = hash[1];
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chains = buckets + bucket_count;
    uint32_t last = 0;
    uint32_t i;

    for (i = 0; i < bucket_count; i++) {
        last = buckets[i] > last ? buckets[i] : last;
    }
    if (last < first) {
        return 0;
    }
    while ((chains[last - first] & 1U) == 0) {
        last++;
    }
    return (size_t)last + 1;
}

static size_t
count_symbols(const table *self)
{
    if (self->symbols == NULL || self->names == NULL) {
        return 0;
    }
    if (self->gnu_hash != NULL) {
        return count_gnu(self->gnu_hash);
    }
    return self->hash == NULL ? 0 : self->hash[1];
}

int
tvm_symbols_list(void *library, tvm_symbol_fn each, void *context)
{
    struct link_map *map = NULL;
    size_t count, i;
    table self;
    int status = 0;

    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        return 0;
    }
    self = find_table(map);
    count = count_symbols(&self);
    for (i = 0; i < count && status == 0; i++) {
        if (self.symbols[i].st_shndx != SHN_UNDEF) {
            status = each(context, self.names + self.symbols[i].st_name);
        }
    }
    return status;
}
