/*
 * The formulas of docs/algorithms.md, in the alpha-beta-gamma model (Hockney 1994; Thakur,
 * Rabenseifner, Gropp 2005). They are for `tutti explain` and for docs; nothing chooses by them.
 * Pure, any thread.
 */
#include "coll/select/select.h"

void
tutti_selection_model_init(tutti_selection_model *ret_model)
{
    *ret_model = (tutti_selection_model){.alpha_ns = 30000,
                                         .more_ns = 4000,
                                         .beta_ns = 0.4,
                                         .gamma_ns = 0.15,
                                         .intra_node_alpha_ns = 4000,
                                         .intra_node_beta_ns = 0.15};
}

/* What a group is to the formulas; names as there. */
typedef struct terms {
    double n;
    double lg;
    double lg_floor;
    double bytes;
    double part; /* (n - 1) / n of the bytes */
    double rest; /* n - 2, or 0 */
    double h;
    double m;
    bool power;
} terms;

static terms
terms_of(const tutti_selection_query *query)
{
    terms self = {.n = query->ranks,
                  .bytes = (double)query->bytes,
                  .rest = query->ranks > 2 ? query->ranks - 2.0 : 0,
                  .h = query->hosts,
                  .m = ((double)query->ranks + query->hosts - 1) / query->hosts};
    uint32_t power = 1;

    self.m = query->hosts > 0 ? (double)((query->ranks + query->hosts - 1) / query->hosts) : 1;
    while (power <= query->ranks / 2) {
        power *= 2;
        self.lg_floor++;
    }
    self.power = power == query->ranks;
    self.lg = self.lg_floor + (self.power ? 0 : 1);
    self.part = self.bytes * (self.n - 1) / self.n;
    return self;
}

/*
 * Chunks in a pipe of `stages`, each of which takes `per_byte` of a chunk: the first chunk goes
 * through all stages, and one chunk more comes out in each step behind it. Chunks are cut as
 * lib/coll/host/run.c does.
 */
static double
pipe_ns(const tutti_selection_model *model, double bytes, double stages, double per_byte)
{
    double chunk = bytes / 8;

    chunk = chunk < 65536 ? 65536 : chunk > 1048576 ? 1048576 : chunk;
    chunk = chunk > bytes ? bytes : chunk;
    return (stages - 1 + (chunk > 0 ? bytes / chunk : 1)) * (model->alpha_ns + chunk * per_byte);
}

static double
tree_ns(const tutti_selection_model *model, double hops, double bytes)
{
    return hops * (model->alpha_ns + bytes * model->beta_ns);
}

static double
all_reduce_ns(tutti_algorithm algorithm, const terms *t, const tutti_selection_model *model)
{
    const double a = model->alpha_ns;
    const double b = model->beta_ns;
    const double g = model->gamma_ns;
    const double folding = t->power ? 0 : 2 * (a + t->bytes * b);

    switch (algorithm) {
    case TUTTI_ALGORITHM_SHARED:
        return 2 * model->intra_node_alpha_ns + t->bytes * (model->intra_node_beta_ns + g);
    case TUTTI_ALGORITHM_FLAT:
        return a + t->rest * model->more_ns + (t->n - 1) * t->bytes * (b + g);
    case TUTTI_ALGORITHM_BRUCK:
        return t->lg * a + (t->n - 1) * t->bytes * (b + g);
    case TUTTI_ALGORITHM_CHAIN:
        return pipe_ns(model, t->bytes, 2 * (t->n - 1), 2 * b + g);
    case TUTTI_ALGORITHM_RECURSIVE_DOUBLING:
        return t->lg_floor * (a + t->bytes * (b + g)) + folding;
    case TUTTI_ALGORITHM_RABENSEIFNER:
        return 2 * t->lg_floor * a + t->part * (2 * b + g) + folding;
    case TUTTI_ALGORITHM_RING:
        return 2 * (t->n - 1) * a + t->part * (2 * b + g);
    case TUTTI_ALGORITHM_HIERARCHICAL:
        return 2 * (t->m - 1) * model->intra_node_alpha_ns +
               2 * (t->m - 1) / t->m * t->bytes * model->intra_node_beta_ns + 2 * (t->h - 1) * a +
               2 * (t->h - 1) / t->h * t->bytes * b + t->bytes * g;
    default:
        return 2 * a + 2 * t->rest * model->more_ns + t->part * (2 * b + g);
    }
}

static double
broadcast_ns(tutti_algorithm algorithm, const terms *t, const tutti_selection_model *model)
{
    switch (algorithm) {
    case TUTTI_ALGORITHM_SHARED:
        return 2 * model->intra_node_alpha_ns + t->bytes * model->intra_node_beta_ns;
    case TUTTI_ALGORITHM_CHAIN:
        return pipe_ns(model, t->bytes, t->n - 1, model->beta_ns);
    case TUTTI_ALGORITHM_HIERARCHICAL: {
        terms hosts = *t;

        hosts.n = t->h;
        hosts.lg = 0;
        while ((double)(UINT64_C(1) << (int)hosts.lg) < t->h) {
            hosts.lg++;
        }
        return tree_ns(model, hosts.lg, t->bytes) +
               (t->lg - hosts.lg) *
                   (model->intra_node_alpha_ns + t->bytes * model->intra_node_beta_ns);
    }
    default:
        return tree_ns(model, t->lg, t->bytes);
    }
}

/* Of blocks: `round` is what a rank takes in and gives out in all. */
static double
blocks_ns(tutti_algorithm algorithm, const terms *t, double round,
          const tutti_selection_model *model)
{
    switch (algorithm) {
    case TUTTI_ALGORITHM_SHARED:
        return 2 * model->intra_node_alpha_ns + round * model->intra_node_beta_ns;
    case TUTTI_ALGORITHM_RING:
    case TUTTI_ALGORITHM_PAIRWISE:
        return (t->n - 1) * model->alpha_ns + round * model->beta_ns;
    case TUTTI_ALGORITHM_RECURSIVE_DOUBLING:
    case TUTTI_ALGORITHM_RECURSIVE_HALVING:
    case TUTTI_ALGORITHM_BINOMIAL:
        return t->lg * model->alpha_ns + round * model->beta_ns;
    case TUTTI_ALGORITHM_BRUCK:
        return t->lg * model->alpha_ns + round * (model->beta_ns + model->intra_node_beta_ns);
    case TUTTI_ALGORITHM_HIERARCHICAL:
        return (t->h - 1) * model->alpha_ns + 2 * t->m * model->intra_node_alpha_ns +
               round * (model->beta_ns + 2 * model->intra_node_beta_ns);
    default:
        return model->alpha_ns + t->rest * model->more_ns + round * model->beta_ns;
    }
}

static double
reduce_ns(tutti_algorithm algorithm, const terms *t, const tutti_selection_model *model)
{
    const double each = model->beta_ns + model->gamma_ns;

    switch (algorithm) {
    case TUTTI_ALGORITHM_SHARED:
        return 2 * model->intra_node_alpha_ns +
               t->bytes * (model->intra_node_beta_ns + model->gamma_ns);
    case TUTTI_ALGORITHM_CHAIN:
        return pipe_ns(model, t->bytes, t->n, each);
    case TUTTI_ALGORITHM_BINOMIAL:
        return t->lg * (model->alpha_ns + t->bytes * each);
    default:
        return model->alpha_ns + t->rest * model->more_ns + (t->n - 1) * t->bytes * each;
    }
}

uint64_t
tutti_selection_cost_ns(tutti_algorithm algorithm, const tutti_selection_query *query,
                        const tutti_selection_model *model)
{
    const terms t = terms_of(query);
    const double agreement =
        t.lg * (query->same_host ? model->intra_node_alpha_ns : model->alpha_ns);
    double cost = 0;

    switch (query->kind) {
    case TUTTI_COLL_ALL_REDUCE:
        cost = all_reduce_ns(algorithm, &t, model);
        break;
    case TUTTI_COLL_BROADCAST:
        cost = broadcast_ns(algorithm, &t, model);
        break;
    case TUTTI_COLL_REDUCE:
        cost = reduce_ns(algorithm, &t, model);
        break;
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_GATHER:
        cost = blocks_ns(algorithm, &t, (t.n - 1) * t.bytes, model);
        break;
    case TUTTI_COLL_REDUCE_SCATTER:
        cost = blocks_ns(algorithm, &t, t.part, model) + t.part * model->gamma_ns;
        break;
    case TUTTI_COLL_BARRIER:
        break;
    default:
        cost = algorithm == TUTTI_ALGORITHM_BRUCK
                   ? t.lg * (model->alpha_ns +
                             t.bytes * (model->beta_ns / 2 + 2 * model->intra_node_beta_ns))
                   : blocks_ns(algorithm, &t, t.part, model);
        break;
    }
    return query->ranks < 2 ? 0 : (uint64_t)(agreement + cost);
}
