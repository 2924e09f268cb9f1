// PagedAttention (arXiv 2309.06180, section 4.1) for CPUs: query tokens of one sequence and one KV head, block by block,
// with a running softmax. Decodes and prefill chunks take the same path and give the same bits.
#pragma once
#include <algorithm>
#include <vector>

#include "vector.h"

namespace pagoda {

constexpr int MOST_TILE_ROWS = 48;  // query rows (tokens x heads of a group) that share the loading of a block

struct AttentionArguments {
    const void *query, *keys, *values;
    void* output;
    const float* sinks;  // [query_heads] or null
    const int32_t *query_starts, *context_lengths, *block_tables;
    int64_t query_token_stride, query_head_stride, table_stride;
    int64_t sequences, query_heads, kv_heads, head_size, value_size, block_size;
    int64_t window;  // 0: none
    float scaling, softcap;  // softcap 0: none
    int threads;
};

struct AttentionTask {
    int32_t sequence, kv_head, first, tokens;  // query tokens first .. first + tokens - 1 of the sequence's chunk
};

inline int64_t padded(int64_t n) { return (n + W - 1) / W * W; }

// A block's matrix [rows][columns] as floats with a row stride of whole vectors: in place where it is that already.
inline const float* as_floats(const float* p, int64_t rows, int64_t columns, float* scratch) {
    if (columns % W == 0) return p;
    for (int64_t r = 0; r < rows; r++) std::memcpy(scratch + r * padded(columns), p + r * columns, columns * 4);
    return scratch;
}
inline const float* as_floats(const BFloat16* p, int64_t rows, int64_t columns, float* scratch) {
    const int64_t stride = padded(columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += W)
            store(scratch + r * stride + c, load_some(p + r * columns + c, columns - c));
    return scratch;
}

template <bool ADD>
inline void product(int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t columns, int64_t inner,
                    float* c) {  // columns: whole vectors, the stride of b and c too
    int64_t column = 0;
    for (; column + 2 * W <= columns; column += 2 * W)
        multiply_all<2, ADD>(rows, a, a_stride, b + column, columns, inner, c + column, columns);
    if (column < columns) multiply_all<1, ADD>(rows, a, a_stride, b + column, columns, inner, c + column, columns);
}

inline float sum(const float* p, int64_t n) {  // n: whole vectors
    Floats total = load(p);
    for (int64_t i = W; i < n; i += W) total += load(p + i);
    float result = 0;
    for (int i = 0; i < W; i++) result += total[i];
    return result;
}

inline void scale(float* p, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i += W) store(p + i, load(p + i) * factor);
}

template <typename T>
void attend(const AttentionArguments& arg, const AttentionTask& task, std::vector<float>& scratch) {
    constexpr float MASKED = -std::numeric_limits<float>::infinity();
    const int64_t group = arg.query_heads / arg.kv_heads, rows = task.tokens * group;
    const int64_t block_size = arg.block_size, slots = padded(block_size), width = padded(arg.value_size);
    const int64_t start = arg.query_starts[task.sequence];
    const int64_t length = arg.query_starts[task.sequence + 1] - start;
    const int64_t position = arg.context_lengths[task.sequence] - length + task.first;  // of the first query token
    const int64_t end = position + task.tokens;
    const int64_t begin = arg.window ? std::max<int64_t>(0, position - arg.window + 1) : 0;
    Ints lanes{};
    for (int i = 0; i < W; i++) lanes[i] = i;
    const int32_t* table = arg.block_tables + task.sequence * arg.table_stride;

    scratch.resize(rows * (arg.head_size + slots + width + 2) + arg.head_size * slots + block_size * width);
    float* query = scratch.data();
    float* scores = query + rows * arg.head_size;
    float* sums = scores + rows * slots;
    float* greatest = sums + rows * width;
    float* total = greatest + rows;
    float* key_scratch = total + rows;
    float* value_scratch = key_scratch + arg.head_size * slots;
    std::fill(key_scratch, value_scratch + block_size * width, 0.0f);
    std::fill(sums, greatest, 0.0f);
    std::fill(greatest, total, MASKED);
    std::fill(total, key_scratch, 0.0f);

    for (int64_t r = 0; r < rows; r++) {
        const T* source = static_cast<const T*>(arg.query) + (start + task.first + r / group) * arg.query_token_stride +
                          (task.kv_head * group + r % group) * arg.query_head_stride;
        for (int64_t d = 0; d < arg.head_size; d++) query[r * arg.head_size + d] = to_float(source[d]);
    }
    for (int64_t block = begin / block_size; block * block_size < end; block++) {
        const int64_t first = block * block_size, valid = std::min(block_size, end - first);
        const int64_t index = int64_t(table[block]) * arg.kv_heads + task.kv_head;
        const float* keys = as_floats(static_cast<const T*>(arg.keys) + index * arg.head_size * block_size,
                                      arg.head_size, block_size, key_scratch);
        const float* values = as_floats(static_cast<const T*>(arg.values) + index * block_size * arg.value_size,
                                        valid, arg.value_size, value_scratch);
        product<false>(rows, query, arg.head_size, keys, slots, arg.head_size, scores);
        for (int64_t r = 0; r < rows; r++) {
            float* row = scores + r * slots;
            const int64_t own = position + r / group;
            const int64_t from = arg.window ? std::max<int64_t>(0, own - arg.window + 1 - first) : 0;
            const int64_t to = std::min(valid, own + 1 - first);
            Floats most_of = splat(greatest[r]);
            for (int64_t j = 0; j < slots; j += W) {
                Floats score = load(row + j) * arg.scaling;
                if (arg.softcap != 0)
                    for (int i = 0; i < W; i++) score[i] = arg.softcap * std::tanh(score[i] / arg.softcap);
                const Ints slot = lanes + int32_t(j);
                score = (slot >= int32_t(from)) & (slot < int32_t(to)) ? score : splat(MASKED);
                most_of = score > most_of ? score : most_of;  // NaN is passed over here and shows in the sum
                store(row + j, score);
            }
            float most = most_of[0];
            for (int i = 1; i < W; i++) most = std::max(most, most_of[i]);
            if (most == MASKED) {  // nothing visible yet
                std::fill(row, row + slots, 0.0f);
                continue;
            }
            for (int64_t j = 0; j < slots; j += W) store(row + j, exp(load(row + j) - most));
            if (most != greatest[r]) {
                const float factor = exp(splat(greatest[r] - most))[0];
                total[r] *= factor;
                scale(sums + r * width, width, factor);
                greatest[r] = most;
            }
            total[r] += sum(row, slots);
        }
        product<true>(rows, scores, slots, values, width, valid, sums);
    }
    for (int64_t r = 0; r < rows; r++) {
        const int64_t head = task.kv_head * group + r % group;
        float factor = 1.0f;
        if (arg.sinks) {
            const float most = std::max(greatest[r], arg.sinks[head]);
            factor = exp(splat(greatest[r] - most))[0];
            total[r] = total[r] * factor + exp(splat(arg.sinks[head] - most))[0];
        }
        factor /= total[r];
        T* target = static_cast<T*>(arg.output) +
                    ((start + task.first + r / group) * arg.query_heads + head) * arg.value_size;
        for (int64_t d = 0; d < arg.value_size; d++) store(target + d, sums[r * width + d] * factor);
    }
}

template <typename T>
void paged_attention(const AttentionArguments& arg) {
    const int32_t group = int32_t(arg.query_heads / arg.kv_heads);
    const int32_t tile = std::max(1, MOST_TILE_ROWS / group);
    std::vector<AttentionTask> tasks;
    for (int32_t s = 0; s < arg.sequences; s++) {
        const int32_t length = arg.query_starts[s + 1] - arg.query_starts[s];
        for (int32_t first = 0; first < length; first += tile)
            for (int32_t head = 0; head < arg.kv_heads; head++)
                tasks.push_back({s, head, first, std::min(tile, length - first)});
    }
#pragma omp parallel num_threads(arg.threads)
    {
        std::vector<float> scratch;
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < tasks.size(); i++) attend<T>(arg, tasks[i], scratch);
    }
}

template <typename T>
void write_kv(const T* keys, const T* values, T* key_pool, T* value_pool, const int64_t* slots, int64_t tokens,
              int64_t kv_heads, int64_t head_size, int64_t value_size, int64_t block_size, int64_t key_token_stride,
              int64_t key_head_stride, int64_t value_token_stride, int64_t value_head_stride) {
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
        for (int64_t h = 0; h < kv_heads; h++) {
            const int64_t index = block * kv_heads + h;
            const T* key = keys + t * key_token_stride + h * key_head_stride;
            T* column = key_pool + index * head_size * block_size + offset;
            for (int64_t d = 0; d < head_size; d++) column[d * block_size] = key[d];
            std::memcpy(value_pool + (index * block_size + offset) * value_size,
                        values + t * value_token_stride + h * value_head_stride, value_size * sizeof(T));
        }
    }
}

}  // namespace pagoda
