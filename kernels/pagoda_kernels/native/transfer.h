// Whole blocks between the pools of all layers and contiguous payloads: one payload holds a block's bytes of every pool,
// in the order of the pools.
#pragma once
#include <cstdint>
#include <cstring>

namespace pagoda {

struct TransferArguments {
    char* const* pools;         // [pool_count]
    const int64_t* pool_bytes;  // [pool_count], bytes of one block in each pool
    int64_t pool_count;
    const int64_t* blocks;   // [block_count]
    char* const* payloads;  // [block_count], each as long as the sum of pool_bytes
    int64_t block_count;
};

inline void gather_blocks(const TransferArguments& a) {
    for (int64_t i = 0; i < a.block_count; i++) {
        char* payload = a.payloads[i];
        for (int64_t p = 0; p < a.pool_count; p++) {
            std::memcpy(payload, a.pools[p] + a.blocks[i] * a.pool_bytes[p], size_t(a.pool_bytes[p]));
            payload += a.pool_bytes[p];
        }
    }
}

inline void scatter_blocks(const TransferArguments& a) {
    for (int64_t i = 0; i < a.block_count; i++) {
        const char* payload = a.payloads[i];
        for (int64_t p = 0; p < a.pool_count; p++) {
            std::memcpy(a.pools[p] + a.blocks[i] * a.pool_bytes[p], payload, size_t(a.pool_bytes[p]));
            payload += a.pool_bytes[p];
        }
    }
}

}  // namespace pagoda
