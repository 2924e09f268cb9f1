// A whole layer of the llama kind in one call and one team of threads: norm, query, key and value, rotation, attention
// to the pool, projection, norm, gated MLP, each sum with the residual. The parts' own functions, hence their bits.
#pragma once
#include <vector>

#include "attention.h"
#include "elementwise.h"
#include "linear.h"
#include "quantized.h"

namespace pagoda {

struct LinearArguments {
    const void *packed, *bias;  // bias: [columns] or null
    int64_t columns, inner, bits;  // bits: 0 for weights in the layer's own number format
};

struct LayerArguments {
    LinearArguments qkv, output, gate_up, down;
    const void *input_norm, *post_norm;  // [hidden]
    float input_epsilon, post_epsilon;
    AttentionArguments attention;  // all but query and output, which lie in here
    void *key_pool, *value_pool;
    const int64_t* slots;
    const void *input, *cosine, *sine;  // [rows, hidden], [rows, rotary_size]
    void* result;  // [rows, hidden]
    int64_t rows, rotary_size;
};

// use(product) of inputs [rows, arg.inner], prepared, with weights of any kind. Called by the whole team, which shares
// the scratch.
template <typename T>
struct ProductScratch {
    typename Product<T>::Scratch plain;
    Rounded rounded;

    void resize(const LinearArguments& arg, int64_t rows) {
        if (arg.bits)
            rounded.resize(rows, groups_of(arg.inner));
        else
            Product<T>(nullptr, 0, nullptr, rows, arg.inner, plain);
    }

    template <typename Use>
    void with_product(const Team& team, const LinearArguments& arg, const T* input, int64_t rows, Use use) {
        const uint8_t* bytes = static_cast<const uint8_t*>(arg.packed);
        auto prepared = [&](const auto& product) {
            product.prepare(team);
            use(product);
        };
        if (arg.bits == 4)
            prepared(QuantizedProduct<4, T>(input, arg.inner, bytes, rows, arg.inner, rounded));
        else if (arg.bits == 8)
            prepared(QuantizedProduct<8, T>(input, arg.inner, bytes, rows, arg.inner, rounded));
        else
            prepared(Product<T>(input, arg.inner, static_cast<const T*>(arg.packed), rows, arg.inner, plain));
    }
};

// gate_up [rows, 2 * size] as a product -> output [rows, size] = silu(gate) * up. True where the panels allow it: one
// of each is multiplied at a time, and neither is stored.
template <typename P, typename T>
bool store_gated(const Team& team, const P& product, const T* bias, T* output, int64_t rows, int64_t size) {
    if (size % P::COLUMNS) return false;
    alignas(64) float gates[P::TILE * P::COLUMNS], ups[P::TILE * P::COLUMNS];
    const int64_t panels = size / P::COLUMNS, tiles = (rows + P::TILE - 1) / P::TILE;
    const Share share = team.share(panels);
    for (int64_t panel = share.begin; panel < share.end; panel++)
        for (int64_t tile = 0, row = 0; tile < tiles; tile++) {
            const int64_t end = rows * (tile + 1) / tiles;
            product.multiply(panel, row, end - row, tile, tiles, gates);
            product.multiply(panel + panels, row, end - row, tile, tiles, ups);
            for (int64_t c = 0; c < P::COLUMNS; c += W) {
                const int64_t column = panel * P::COLUMNS + c;
                const Floats gate_shift = bias ? load(bias + column) : Floats{};
                const Floats up_shift = bias ? load(bias + size + column) : Floats{};
                for (int64_t r = 0; r < end - row; r++)
                    store_some(output + (row + r) * size + column,
                               gated<T>(rounded<T>(load(gates + r * P::COLUMNS + c) + gate_shift),
                                        rounded<T>(load(ups + r * P::COLUMNS + c) + up_shift)),
                               W);
            }
            row = end;
        }
    return true;
}

template <typename T>
struct LayerScratch {
    std::vector<T> values;
    ProductScratch<T> products;
};

// Of each token and each group of heads that share a key: rotation, and key and value to the pool.
template <typename T>
void rotate_and_write(const Team& team, const LayerArguments& arg, T* qkv) {
    const AttentionArguments& attention = arg.attention;
    const int64_t kv_heads = attention.kv_heads, group = attention.query_heads / kv_heads, head = attention.head_size;
    const int64_t width = (attention.query_heads + 2 * kv_heads) * head;
    const T *cosine = static_cast<const T*>(arg.cosine), *sine = static_cast<const T*>(arg.sine);
    T* key_pool = static_cast<T*>(arg.key_pool);
    T* value_pool = static_cast<T*>(arg.value_pool);
    const Share share = team.share(arg.rows * kv_heads);
    for (int64_t i = share.begin; i < share.end; i++) {
        const int64_t r = i / kv_heads, h = i % kv_heads;
        T* query = qkv + r * width + h * group * head;
        T* key = qkv + r * width + (attention.query_heads + h) * head;
        const T *c = cosine + r * arg.rotary_size, *s = sine + r * arg.rotary_size;
        rotate(query, c, s, 1, group, arg.rotary_size, 0, head);
        rotate(key, c, s, 1, 1, arg.rotary_size, 0, head);
        write_head(key, key + kv_heads * head, key_pool, value_pool, arg.slots[r], h, kv_heads, head, head,
                   attention.block_size);
    }
}

template <typename T>
void decoder_layer(const LayerArguments& arg) {
    AttentionArguments attention = arg.attention;
    const int64_t rows = arg.rows, hidden = arg.qkv.inner, head = attention.head_size;
    const int64_t heads = attention.query_heads + 2 * attention.kv_heads, width = attention.query_heads * head;
    static thread_local LayerScratch<T> kept;
    LayerScratch<T>& scratch = kept;  // the caller's, in every thread
    const int64_t needed = rows * (2 * hidden + arg.qkv.columns + width + arg.gate_up.columns + arg.down.inner);
    if (int64_t(scratch.values.size()) < needed) scratch.values.resize(needed);
    for (const LinearArguments* linear : {&arg.qkv, &arg.output, &arg.gate_up, &arg.down})
        scratch.products.resize(*linear, rows);
    T* normed = scratch.values.data();
    T* middle = normed + rows * hidden;
    T* qkv = middle + rows * hidden;
    T* attended = qkv + rows * arg.qkv.columns;
    T* gate_up = attended + rows * width;
    T* activated = gate_up + rows * arg.gate_up.columns;
    const T* input = static_cast<const T*>(arg.input);
    T* result = static_cast<T*>(arg.result);
    attention.query = qkv;
    attention.query_token_stride = heads * head;
    attention.query_head_stride = head;
    attention.keys = arg.key_pool;
    attention.values = arg.value_pool;
    attention.output = attended;
    const std::vector<AttentionTask> tasks = attention_tasks(attention);
    std::atomic<size_t> next{0};

    with_team(attention.threads, [&](const Team& team) {
        const Share own = team.share(rows);
        auto norm = [&](const T* from, const void* weight, float epsilon) {
            for (int64_t r = own.begin; r < own.end; r++)
                norm_row(from + r * hidden, static_cast<const T*>(weight), normed + r * hidden, hidden, epsilon);
            team.wait();
        };
        auto multiply = [&](const LinearArguments& linear, const T* from, const T* residual, T* to) {
            scratch.products.with_product(team, linear, from, rows, [&](const auto& product) {
                store_product(team, product, static_cast<const T*>(linear.bias), residual, to, rows, linear.columns);
            });
            team.wait();
        };
        norm(input, arg.input_norm, arg.input_epsilon);
        multiply(arg.qkv, normed, nullptr, qkv);
        rotate_and_write(team, arg, qkv);
        team.wait();
        attend<T>(attention, tasks, next);
        team.wait();
        multiply(arg.output, attended, input, middle);
        norm(middle, arg.post_norm, arg.post_epsilon);
        scratch.products.with_product(team, arg.gate_up, normed, rows, [&](const auto& product) {
            const T* bias = static_cast<const T*>(arg.gate_up.bias);
            if (store_gated(team, product, bias, activated, rows, arg.down.inner)) return;
            store_product(team, product, bias, static_cast<const T*>(nullptr), gate_up, rows, arg.gate_up.columns);
            team.wait();
            for (int64_t r = own.begin; r < own.end; r++)
                silu_multiply_row(gate_up + r * arg.gate_up.columns, activated + r * arg.down.inner, arg.down.inner);
        });
        team.wait();
        multiply(arg.down, activated, middle, result);
    });
}

}  // namespace pagoda
