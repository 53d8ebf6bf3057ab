// New tensors of the CPU in memory of the agent's, while a thread asks for it.
#pragma once

#include <cstddef>

namespace tutti_torch {

// From now on the calling thread makes tensors of the CPU of `at_least` bytes and more in memory that the agent lends; 0: no
// longer. Tensors that are there stay where they are. Memory is ordinary where the agent lends none or has no more. Returns
// what was asked for before.
size_t lend_from(size_t at_least);

}  // namespace tutti_torch
