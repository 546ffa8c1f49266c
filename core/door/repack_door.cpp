// The C interface over layouts that are learned, for tests: the rest of the core uses them directly.
#include "repack/interleave.h"
#include "slotpool.h"

using namespace slotpool;

size_t slotpool_interleave(slotpool_repack_fn engine, size_t block_bytes, const uint8_t *rows, size_t n_rows, size_t n_blocks, uint8_t *to) {
    const auto learned = Interleave::learn(block_bytes, engine);
    if (!learned || n_rows % learned->n_rows() != 0) return 0;
    learned->apply(rows, n_rows, n_blocks, to);
    return learned->n_rows();
}
