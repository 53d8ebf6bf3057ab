/*
 * Reading data.mdb before LMDB does. LMDB maps the file and trusts it: a page that is missing or
 * that holds something else ends the process by SIGBUS, SIGSEGV or abort(). So every page that LMDB
 * may ever read is read here first, by pread, and compared with what LMDB writes: the two heads,
 * the tree of rows and the tree of free pages. What rows contain is compared afterwards, with the
 * digest of row.c.
 *
 * LMDB's own rule (mdb.c, MDB_page): each page up to the last one is used by a tree or listed as
 * free. Free pages at the end of the file may never have been written, so the file may be shorter
 * than the last page says, and its size alone does not tell whether it was cut.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"

#if MDB_VERSION_MAJOR != 0 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "what is read here is the file format of LMDB 0.9 on little-endian machines"
#endif

enum {
    PAGE_BRANCH = 0x01,
    PAGE_LEAF = 0x02,
    PAGE_OVERFLOW = 0x04,
    PAGE_META = 0x08,
    NODE_ELSEWHERE = 0x01, /* the value has pages of its own */
    KEYS_ARE_NUMBERS = 0x08,
    DEPTH_MAX = 32, /* of LMDB's cursors */
    PAGE_BYTES_MIN = 512,
    PAGE_BYTES_MAX = 65536,
};

#define MAGIC 0xBEEFC0DEU
#define FORMAT 1
#define NO_PAGE UINT64_MAX
#define FILE_BYTES_MAX ((uint64_t)1 << 43)

typedef struct page_head {
    uint64_t number;
    uint16_t pad;
    uint16_t flags;
    uint16_t lower; /* of overflow pages: lower and upper are their count */
    uint16_t upper;
} page_head;

typedef struct node_head {
    uint16_t low;
    uint16_t high;
    uint16_t flags;
    uint16_t key_size;
} node_head;

typedef struct tree_head {
    uint32_t page_bytes; /* of the free pages' tree */
    uint16_t flags;
    uint16_t depth;
    uint64_t counts[3]; /* of pages; nothing depends on them */
    uint64_t entries;
    uint64_t root;
} tree_head;

typedef struct meta_head {
    uint32_t magic;
    uint32_t format;
    uint64_t address;
    uint64_t map_bytes;
    tree_head trees[2]; /* free pages, rows */
    uint64_t last_page;
    uint64_t txn;
} meta_head;

_Static_assert(sizeof(page_head) == 16 && sizeof(node_head) == 8, "as LMDB lays them out");
_Static_assert(sizeof(tree_head) == 48 && sizeof(meta_head) == 136, "as LMDB lays them out");

typedef struct checker {
    int file;
    const char *path;
    size_t page_bytes;
    uint64_t file_pages; /* whole ones that the file has */
    meta_head meta;      /* the newer one */
    meta_head before;    /* the other one */
    unsigned char *seen; /* [owned] a bit for each page up to the last */
    tutti_error *err;
} checker;

typedef struct walk {
    const tree_head *head;
    bool is_free; /* the tree of free pages */
    uint64_t entries;
} walk;

/* One page in memory, and how deep in its tree it stands. */
typedef struct page {
    unsigned char *data;
    page_head head;
    uint64_t number;
    size_t count; /* of nodes */
    unsigned depth;
} page;

/* Keys of both trees are 8 bytes: from `low`, and below `high` unless it is 0. */
typedef struct range {
    uint64_t low;
    uint64_t high;
} range;

typedef struct node {
    node_head head;
    size_t at; /* in its page */
    uint64_t key;
} node;

static tutti_code refuse_page(checker *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Every refusal names the page, so that somebody with a dump of the file can find the place. */
static tutti_code
refuse_page(checker *self, const char *format, ...)
{
    char what[128];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return store_lmdb_fail_format(self->err, self->path, what);
}

/*
 * The file may be cut while it is read. Then pread gives 0 bytes, and the answer is a refusal and
 * not an endless loop.
 */
static tutti_code
read_at(checker *self, void *to, size_t bytes, uint64_t from, uint64_t number)
{
    size_t have = 0;
    ssize_t got;

    while (have < bytes) {
        got = pread(self->file, (char *)to + have, bytes - have, (off_t)(from + have));
        if (got < 0 && errno != EINTR) {
            return TUTTI_FAIL_ERRNO(self->err, errno, "could not read %s/data.mdb", self->path);
        }
        if (got == 0) {
            return refuse_page(self, "page %llu is beyond the end of the file",
                               (unsigned long long)number);
        }
        have += got > 0 ? (size_t)got : 0;
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ pages and nodes */

/*
 * Records that a page is used. It may be used once only, it must not be one of the two heads, and
 * it must lie in the file unless it is free: LMDB may free a page at the end that it has never
 * written.
 */
static tutti_code
mark_page(checker *self, uint64_t number, bool is_free)
{
    if (number < 2 || number > self->meta.last_page) {
        return refuse_page(self, "it uses page %llu, and has only %llu pages",
                           (unsigned long long)number,
                           (unsigned long long)self->meta.last_page + 1);
    }
    if (number >= self->file_pages && !is_free) {
        return refuse_page(self, "page %llu is beyond the end of the file",
                           (unsigned long long)number);
    }
    if ((self->seen[number / 8] >> number % 8 & 1) != 0) {
        return refuse_page(self, "page %llu is used twice", (unsigned long long)number);
    }
    self->seen[number / 8] |= (unsigned char)(1U << number % 8);
    return TUTTI_OK;
}

/* [in] ret_page  its number and depth are set, its data has room for a page */
static tutti_code
read_page(checker *self, const walk *tree, page *ret_page)
{
    /* All leaves stand equally deep, so the depth decides what kind a page must be. */
    const uint64_t number = ret_page->number;
    const uint16_t kind = ret_page->depth == tree->head->depth ? PAGE_LEAF : PAGE_BRANCH;
    tutti_code code = mark_page(self, number, false);
    page_head *head = &ret_page->head;

    if (code == TUTTI_OK) {
        code = read_at(self, ret_page->data, self->page_bytes, number * self->page_bytes, number);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    memcpy(head, ret_page->data, sizeof(*head));
    ret_page->count = (size_t)(head->lower - sizeof(*head)) / 2;
    if (head->number != number || head->flags != kind || head->lower < sizeof(*head) + 2 ||
        head->lower % 2 != 0 || head->lower > head->upper || head->upper > self->page_bytes) {
        return refuse_page(self, "page %llu has an invalid header", (unsigned long long)number);
    }
    if (kind == PAGE_BRANCH && ret_page->count < 2 && !tree->is_free) {
        return refuse_page(self, "branch page %llu has one branch, need at least two",
                           (unsigned long long)number);
    }
    return TUTTI_OK;
}

/*
 * Row numbers lie there with the highest byte first, so that LMDB sorts them as numbers. The keys
 * of free pages are native numbers.
 */
static uint64_t
read_key(const walk *tree, const unsigned char *from)
{
    uint64_t number;

    memcpy(&number, from, sizeof(number));
    return tree->is_free ? number : __builtin_bswap64(number);
}

/*
 * LMDB stores a size in two halves. In a branch the same four bytes, with the flags above them,
 * are the number of the page below.
 */
static uint32_t
value_size(const node_head *head)
{
    return head->low | (uint32_t)head->high << 16;
}

/* Where the node ends in its page; 0 = nowhere. */
static size_t
end_of_node(const checker *self, const page *from, const node *one)
{
    size_t end = one->at + sizeof(node_head) + one->head.key_size;

    if (from->head.flags == PAGE_LEAF) {
        end += (one->head.flags & NODE_ELSEWHERE) != 0 ? sizeof(uint64_t) : value_size(&one->head);
    }
    return end > self->page_bytes ? 0 : end;
}

/* [in, out] taken  a byte for each of the page's: no two nodes share one */
static tutti_code
read_node(checker *self, const walk *tree, const page *from, size_t index, unsigned char *taken,
          node *ret_node)
{
    const bool first_branch = index == 0 && from->head.flags == PAGE_BRANCH;
    uint16_t at;
    size_t end = 0;

    memcpy(&at, from->data + sizeof(page_head) + 2 * index, sizeof(at));
    ret_node->at = at;
    if (at >= from->head.upper && at % 2 == 0 && at + sizeof(node_head) <= self->page_bytes) {
        memcpy(&ret_node->head, from->data + at, sizeof(node_head));
        end = end_of_node(self, from, ret_node);
    }
    if (end == 0 || memchr(taken + at, 1, end - at) != NULL ||
        (from->head.flags == PAGE_LEAF && (ret_node->head.flags & ~NODE_ELSEWHERE) != 0) ||
        (ret_node->head.key_size != sizeof(uint64_t) && !first_branch)) {
        return refuse_page(self, "page %llu has an invalid node", (unsigned long long)from->number);
    }
    memset(taken + at, 1, end - at);
    /* the first branch has whatever is less than the second's key */
    ret_node->key =
        first_branch ? 0 : read_key(tree, from->data + ret_node->at + sizeof(node_head));
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ values */

/* Pages of a value that has its own. [out] ret_from  where it begins in the file */
static tutti_code
check_overflow(checker *self, const page *from, const node *one, uint64_t *ret_from)
{
    const size_t at = one->at + sizeof(node_head) + one->head.key_size;
    uint64_t needs = (sizeof(page_head) - 1 + value_size(&one->head)) / self->page_bytes + 1;
    uint64_t count = 1;
    uint64_t number;
    uint64_t i;
    page_head head;
    tutti_code code;

    memcpy(&number, from->data + at, sizeof(number));
    code = mark_page(self, number, false);
    if (code == TUTTI_OK) {
        code = read_at(self, &head, sizeof(head), number * self->page_bytes, number);
    }
    if (code == TUTTI_OK) {
        /* Only the first page of such a value has a head, and it says how many pages there are. */
        count = head.lower | (uint64_t)head.upper << 16;
        if (head.number != number || head.flags != PAGE_OVERFLOW || count < needs) {
            return refuse_page(self, "page %llu has an invalid header", (unsigned long long)number);
        }
    }
    for (i = 1; i < count && code == TUTTI_OK; i++) {
        code = mark_page(self, number + i, false);
    }
    *ret_from = number * self->page_bytes + sizeof(head);
    return code;
}

/* A list of free pages: their count, then their numbers from the last to the first. */
static tutti_code
check_free_list(checker *self, const unsigned char *list, size_t bytes, uint64_t number)
{
    uint64_t count = 0;
    uint64_t last = NO_PAGE;
    uint64_t one;
    uint64_t i;
    tutti_code code = TUTTI_OK;

    if (bytes >= sizeof(count)) {
        memcpy(&count, list, sizeof(count));
    }
    if (bytes < sizeof(count) || bytes % sizeof(count) != 0 || count > bytes / sizeof(count) - 1) {
        return refuse_page(self, "page %llu has an invalid list of free pages",
                           (unsigned long long)number);
    }
    for (i = 1; i <= count && code == TUTTI_OK; i++) {
        memcpy(&one, list + sizeof(one) * i, sizeof(one));
        code = one < last
                   ? mark_page(self, one, true)
                   : refuse_page(self, "page %llu has a list of free pages in the wrong order",
                                 (unsigned long long)number);
        last = one;
    }
    return code;
}

/*
 * A list of free pages that has pages of its own. Other values of that kind need not be read
 * here: their rows are compared with the digest later.
 */
static tutti_code
check_far_list(checker *self, const page *from, const node *one, uint64_t at)
{
    const size_t bytes = value_size(&one->head);
    unsigned char *list = malloc(bytes + 1);
    tutti_code code;

    if (list == NULL) {
        return TUTTI_FAIL_FOR(self->err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory for a list of free pages");
    }
    code = read_at(self, list, bytes, at, from->number);
    if (code == TUTTI_OK) {
        code = check_free_list(self, list, bytes, from->number);
    }
    free(list);
    return code;
}

/*
 * Counts the row. In the tree of free pages it also checks the list that the row holds. The key
 * of such a row is the number of the change that freed the pages, so it cannot be above that of
 * the last change.
 */
static tutti_code
check_value(checker *self, walk *tree, const page *from, const node *one)
{
    const bool elsewhere = (one->head.flags & NODE_ELSEWHERE) != 0;
    uint64_t at = 0;
    tutti_code code = elsewhere ? check_overflow(self, from, one, &at) : TUTTI_OK;

    tree->entries++;
    if (code != TUTTI_OK || !tree->is_free) {
        return code;
    }
    if (one->key > self->meta.txn) {
        return refuse_page(self, "page %llu has free pages of a change later than the last one",
                           (unsigned long long)from->number);
    }
    return elsewhere
               ? check_far_list(self, from, one, at)
               : check_free_list(self, from->data + one->at + sizeof(node_head) + sizeof(one->key),
                                 value_size(&one->head), from->number);
}

/* ------------------------------------------------------------------------------ trees */

static tutti_code walk_page(checker *self, walk *tree, uint64_t number, unsigned depth, range keys);

/*
 * Keys must grow, and must lie in the range that the branches above promise. LMDB searches by
 * that order: a row in another place would be there and never be found.
 */
static tutti_code
check_leaf(checker *self, walk *tree, const page *from, unsigned char *taken, range keys)
{
    tutti_code code = TUTTI_OK;
    node one = {0}; /* gcc does not see at -O3 that it is read */
    size_t i;

    for (i = 0; i < from->count && code == TUTTI_OK; i++) {
        code = read_node(self, tree, from, i, taken, &one);
        if (code == TUTTI_OK && (one.key < keys.low || (keys.high != 0 && one.key >= keys.high))) {
            code = refuse_page(self, "page %llu has keys that belong into another page",
                               (unsigned long long)from->number);
        }
        if (code == TUTTI_OK) {
            code = check_value(self, tree, from, &one);
            keys.low = one.key + 1;
        }
    }
    return code;
}

/*
 * Each child is walked when the key of the next one is known, as that is where its range ends. So
 * `number` is one child behind `i`, and the last child is walked after the loop.
 */
static tutti_code
check_branch(checker *self, walk *tree, const page *from, unsigned char *taken, range keys)
{
    range below = {.low = keys.low};
    tutti_code code = TUTTI_OK;
    uint64_t number = 0;
    node one = {0}; /* gcc does not see at -O3 that it is read */
    size_t i;

    for (i = 0; i < from->count && code == TUTTI_OK; i++) {
        code = read_node(self, tree, from, i, taken, &one);
        if (code == TUTTI_OK && i > 0) {
            below.high = one.key;
            code = one.key < keys.low || one.key <= below.low ||
                           (keys.high != 0 && one.key >= keys.high)
                       ? refuse_page(self, "page %llu has keys that belong into another page",
                                     (unsigned long long)from->number)
                       : walk_page(self, tree, number, from->depth + 1, below);
            below.low = one.key;
        }
        number = value_size(&one.head) | (uint64_t)one.head.flags << 32;
    }
    below.high = keys.high;
    return code == TUTTI_OK ? walk_page(self, tree, number, from->depth + 1, below) : code;
}

/*
 * The depth of recursion is limited: check_tree refuses a tree deeper than DEPTH_MAX, and
 * read_page refuses a branch on the level of the leaves. No page is walked twice, since mark_page
 * refuses it.
 */
static tutti_code
walk_page(checker *self, walk *tree, uint64_t number, unsigned depth, range keys)
{
    page one = {.number = number, .depth = depth};
    tutti_code code;
    unsigned char *taken;

    one.data = calloc(2, self->page_bytes);
    if (one.data == NULL) {
        return TUTTI_FAIL_FOR(self->err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory to look at the store's pages");
    }
    taken = one.data + self->page_bytes;
    code = read_page(self, tree, &one);
    if (code == TUTTI_OK) {
        code = one.head.flags == PAGE_LEAF ? check_leaf(self, tree, &one, taken, keys)
                                           : check_branch(self, tree, &one, taken, keys);
    }
    free(one.data);
    return code;
}

/*
 * A tree is empty (no root, depth 0) or has both. The head's count of rows is compared at the
 * end, so a lost leaf is seen even when the pages that are left agree.
 */
static tutti_code
check_tree(checker *self, bool is_free)
{
    walk tree = {.head = &self->meta.trees[is_free ? 0 : 1], .is_free = is_free};
    const uint16_t flags = is_free ? KEYS_ARE_NUMBERS : 0;

    if (tree.head->flags != flags || tree.head->depth > DEPTH_MAX ||
        (tree.head->root == NO_PAGE) != (tree.head->depth == 0)) {
        return refuse_page(self, "its header describes an invalid tree");
    }
    if (tree.head->root != NO_PAGE) {
        TUTTI_TRY(walk_page(self, &tree, tree.head->root, 1, (range){0, 0}));
    }
    if (tree.entries != tree.head->entries) {
        TUTTI_TRY(refuse_page(self, "it has %llu rows, but its header says %llu",
                              (unsigned long long)tree.entries,
                              (unsigned long long)tree.head->entries));
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ heads */

/*
 * LMDB has two such heads and writes them in turn, so that a crash in the middle of one leaves
 * the other.
 */
static tutti_code
read_meta(checker *self, unsigned which, meta_head *ret_meta)
{
    page_head head;
    tutti_code code = read_at(self, &head, sizeof(head), which * self->page_bytes, which);

    if (code == TUTTI_OK) {
        code = read_at(self, ret_meta, sizeof(*ret_meta), which * self->page_bytes + sizeof(head),
                       which);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (head.flags != PAGE_META || ret_meta->magic != MAGIC) {
        return refuse_page(self, "it is not a file of LMDB");
    }
    if (ret_meta->format != FORMAT) {
        return refuse_page(self, "it has LMDB's format %u, need %u", ret_meta->format, FORMAT);
    }
    return TUTTI_OK;
}

/* Changes write the two heads in turn: they are neighbours, unless a machine went down. */
static bool
are_neighbours(const meta_head *metas, bool was_cut)
{
    const uint64_t even = metas[0].txn;
    const uint64_t odd = metas[1].txn;

    if (even == 0 && odd == 0) {
        return true; /* nothing was ever changed */
    }
    return even % 2 == 0 && odd % 2 == 1 && (was_cut || even == odd + 1 || odd == even + 1);
}

/*
 * The page size must be known before the second head can be found, so it is taken from the first
 * and compared afterwards.
 */
static tutti_code
check_metas(checker *self, bool was_cut)
{
    meta_head metas[2];
    uint64_t bytes;

    TUTTI_TRY(read_meta(self, 0, &metas[0]));
    bytes = metas[0].trees[0].page_bytes;
    if (bytes < PAGE_BYTES_MIN || bytes > PAGE_BYTES_MAX || (bytes & (bytes - 1)) != 0) {
        return refuse_page(self, "a page size of %llu bytes is invalid", (unsigned long long)bytes);
    }
    self->page_bytes = (size_t)bytes;
    TUTTI_TRY(read_meta(self, 1, &metas[1]));
    self->meta = metas[metas[1].txn > metas[0].txn ? 1 : 0];
    self->before = metas[metas[1].txn > metas[0].txn ? 0 : 1];
    if (metas[1].trees[0].page_bytes != bytes || !are_neighbours(metas, was_cut) ||
        self->meta.last_page < 1 || self->meta.last_page >= FILE_BYTES_MAX / bytes) {
        return refuse_page(self, "its two headers do not belong together");
    }
    return TUTTI_OK;
}

/* How the file is at this moment, as far as its heads say. */
static tutti_code
read_heads(checker *self, bool was_cut)
{
    struct stat stat;

    if (fstat(self->file, &stat) != 0) {
        return TUTTI_FAIL_ERRNO(self->err, errno, "could not look at %s/data.mdb", self->path);
    }
    TUTTI_TRY(check_metas(self, was_cut));
    self->file_pages = (uint64_t)stat.st_size / self->page_bytes;
    return TUTTI_OK;
}

/* Pages behind the end of the file are free ones, or the file was cut. */
static tutti_code
check_end(checker *self)
{
    uint64_t number;

    for (number = self->file_pages; number <= self->meta.last_page; number++) {
        if (number < 2 || (self->seen[number / 8] >> number % 8 & 1) == 0) {
            return refuse_page(self, "page %llu is beyond the end of the file",
                               (unsigned long long)number);
        }
    }
    return TUTTI_OK;
}

/* Reads the row that comes first in a tree, the store's own. Nothing is marked or refused: what
 * cannot be followed has no such row. [out] ret_row  in `data`, which has room for a page */
static bool
find_own_row(checker *self, const tree_head *head, unsigned char *data, tutti_bytes *ret_row)
{
    const walk tree = {.head = head};
    page one = {.data = data};
    uint64_t number = head->root;
    unsigned depth;
    uint16_t at = 0;
    node_head first = {0};

    for (depth = 1; depth <= head->depth && depth <= DEPTH_MAX && number <= self->meta.last_page;
         depth++) {
        if (pread(self->file, data, self->page_bytes, (off_t)(number * self->page_bytes)) !=
            (ssize_t)self->page_bytes) {
            return false;
        }
        memcpy(&one.head, data, sizeof(one.head));
        memcpy(&at, data + sizeof(page_head), sizeof(at));
        if (at + sizeof(first) > self->page_bytes) {
            return false;
        }
        memcpy(&first, data + at, sizeof(first));
        number = value_size(&first) | (uint64_t)first.flags << 32;
    }
    if (head->depth == 0 || depth <= head->depth || one.head.flags != PAGE_LEAF ||
        first.flags != 0 || first.key_size != sizeof(uint64_t) ||
        at + sizeof(first) + first.key_size + value_size(&first) > self->page_bytes ||
        read_key(&tree, data + at + sizeof(first)) != 0) {
        return false;
    }
    *ret_row = (tutti_bytes){data + at + sizeof(first) + first.key_size, value_size(&first)};
    return true;
}

/* A head whose number has become smaller would have LMDB take the state before the last change. The
 * tree it stands for knows better: it is whole, as LMDB does not touch it before two changes more.
 */
static tutti_code
check_before(checker *self)
{
    unsigned char *data = malloc(self->page_bytes);
    tutti_code code = TUTTI_OK;
    tutti_bytes row;

    if (data == NULL) {
        return TUTTI_FAIL_FOR(self->err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory to look at the store's pages");
    }
    if (find_own_row(self, &self->before.trees[1], data, &row) &&
        store_lmdb_own_txn(row) > self->meta.txn) {
        code = refuse_page(self, "one of its two headers is older than the rows that it describes");
    }
    free(data);
    return code;
}

/* The free pages come first: they mark the pages that may lie behind the end of the file. */
static tutti_code
check_pages(checker *self)
{
    tutti_code code;

    self->seen = calloc(1, (size_t)(self->meta.last_page / 8 + 1));
    if (self->seen == NULL) {
        return TUTTI_FAIL_FOR(self->err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY",
                              "no memory to look at %llu pages of the store",
                              (unsigned long long)self->meta.last_page + 1);
    }
    code = check_tree(self, true);
    if (code == TUTTI_OK) {
        code = check_tree(self, false);
    }
    if (code == TUTTI_OK) {
        code = check_end(self);
    }
    free(self->seen);
    return code == TUTTI_OK ? check_before(self) : code;
}

tutti_code
store_lmdb_check(int file, const char *path, bool was_cut, tutti_error *err)
{
    checker self = {.file = file, .path = path, .page_bytes = PAGE_BYTES_MIN, .err = err};

    TUTTI_TRY(read_heads(&self, was_cut));
    return check_pages(&self);
}

/* ------------------------------------------------------------------------------ going back */

tutti_code
store_lmdb_put_head(int file, const char *path, const lmdb_head *head, tutti_error *err)
{
    if (pwrite(file, head->bytes, sizeof(head->bytes), (off_t)head->at) !=
            (ssize_t)sizeof(head->bytes) ||
        fdatasync(file) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not write to %s/data.mdb", path);
    }
    return TUTTI_OK;
}

/* The trees of the change before, as if they were the last ones. */
static tutti_code
check_pages_before(const checker *self)
{
    checker other = *self;

    other.meta = self->before;
    return check_pages(&other);
}

/*
 * Both heads then say the same, in the order that LMDB expects: the one that is taken away gets the
 * number of the change before the one before. So the next change is written where the lost one was.
 */
tutti_code
store_lmdb_go_back(int file, const char *path, lmdb_head *ret_taken, tutti_error *err)
{
    checker self = {.file = file, .path = path, .page_bytes = PAGE_BYTES_MIN, .err = err};
    lmdb_head head;
    meta_head before;

    _Static_assert(sizeof(head.bytes) == sizeof(meta_head), "one head");
    TUTTI_TRY(read_heads(&self, false));
    if (self.before.txn == 0 || self.meta.txn != self.before.txn + 1) {
        return refuse_page(&self, "there is no change before the last one");
    }
    TUTTI_TRY(check_pages_before(&self));
    head.at = (self.meta.txn % 2) * self.page_bytes + sizeof(page_head);
    memcpy(head.bytes, &self.meta, sizeof(self.meta));
    *ret_taken = head;
    before = self.before;
    before.txn--;
    memcpy(head.bytes, &before, sizeof(before));
    return store_lmdb_put_head(file, path, &head, err);
}
