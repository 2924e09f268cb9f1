// Linear layers with weights of 4 or 8 bits: y = x W^T + b. Along the input, 32 weights of a column are a group with a
// scale and a minimum: weight = scale * q + minimum, q unsigned. Inputs are rounded to 8 bits in the same groups, each
// by its greatest magnitude, so that products are sums of integers.
//
// Packed: [panels of W columns][groups][bytes of a group]; a group has the q of its W columns, then W scales and W
// minimums in float16. Inputs 4 i .. 4 i + 3 of a group are "quad" i: a vector of 4 bytes for each column. With 8 bits
// the quads follow one another; with 4 bits vector i holds quad i in its low halves and quad i + 4 in its high ones.
#pragma once
#include <algorithm>
#include <vector>

#include "integers.h"
#include "linear.h"

namespace pagoda {

constexpr int GROUP = 32;
constexpr int QUADS = GROUP / 4;
constexpr int ROWS_TOGETHER = DOTS ? 8 : 2;  // rows whose sums fit the registers
constexpr int TILE_ROWS = DOTS ? ROWS_TOGETHER : 32;  // rows that share the unpacking of a group

template <int BITS>
constexpr int64_t group_bytes() {
    return W * (GROUP * BITS / 8 + 4);
}

inline int64_t groups_of(int64_t inner) { return (inner + GROUP - 1) / GROUP; }

// Inputs in 8 bits: [groups][rows], with the factor of each group of each row and the sum of its integers.
struct Rounded {
    std::vector<int8_t> values;  // [groups][rows][GROUP]
    std::vector<float> factors, sums;  // [groups][rows]

    void resize(int64_t rows, int64_t groups) {
        if (int64_t(factors.size()) >= rows * groups) return;
        values.resize(rows * groups * GROUP);
        factors.resize(rows * groups);
        sums.resize(rows * groups);
    }
};

template <typename T>
void round_group(const T* input, int64_t count, int8_t* values, float& factor, float& sum) {
    Floats parts[GROUP / W], most{};
    for (int i = 0; i < GROUP / W; i++) {
        parts[i] = count >= GROUP ? load(input + i * W) : load_some(input + i * W, std::max<int64_t>(0, count - i * W));
        const Floats magnitude = parts[i] < 0.0f ? -parts[i] : parts[i];
        most = magnitude > most || magnitude != magnitude ? magnitude : most;
    }
    float greatest = most[0];
    for (int i = 1; i < W; i++) greatest = most[i] > greatest || most[i] != most[i] ? most[i] : greatest;
    factor = greatest / 127.0f;  // not a number where an input is none, infinite where one is: so is the result
    const float inverse = greatest > 0 && greatest <= std::numeric_limits<float>::max() ? 127.0f / greatest : 0.0f;
    Ints counted{};
    for (int i = 0; i < GROUP / W; i++) {
        Floats scaled = parts[i] * inverse;
        scaled = scaled >= -127.0f ? scaled : splat(-127.0f);  // NaN (0 * infinity) too, and what overflowed
        scaled = scaled <= 127.0f ? scaled : splat(127.0f);
        const Floats shifted = scaled + 12582912.0f;  // to nearest, ties to even: the integer is in the mantissa
        Ints whole;
        std::memcpy(&whole, &shifted, sizeof whole);
        whole -= 0x4b400000;
        counted += whole;
        typedef int8_t Narrow __attribute__((vector_size(W)));
        const Narrow narrow = __builtin_convertvector(whole, Narrow);
        std::memcpy(values + i * W, &narrow, sizeof narrow);
    }
    int32_t total = 0;
    for (int i = 0; i < W; i++) total += counted[i];
    sum = float(total);
}

// The quads of a group as vectors; with 8 bits and no DOTS its low halves, then its high ones.
template <int BITS>
inline void unpack(const uint8_t* packed, Bytes* quads) {
    if constexpr (BITS == 4) {
        for (int i = 0; i < QUADS / 2; i++) {
            const Bytes both = load_bytes(packed + i * W * 4);
            quads[i] = both & 15;
            quads[i + QUADS / 2] = (Bytes)(((Words)both >> 4) & 0x0f0f0f0fu);
        }
    } else {
        for (int i = 0; i < QUADS; i++) {
            const Bytes whole = load_bytes(packed + i * W * 4);
            quads[i] = DOTS ? whole : whole & 15;
            if constexpr (!DOTS) quads[i + QUADS] = (Bytes)(((Words)whole >> 4) & 0x0f0f0f0fu);
        }
    }
}

// sums[r] += the group's part of R rows.
template <int R, int BITS>
inline void add_group(const Bytes* quads, Floats scale, Floats minimum, const int8_t* values, const float* factors,
                      const float* counts, Floats* sums) {
    constexpr bool HALVES = BITS == 8 && !DOTS;
    Register low[R], high[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) low[r] = high[r] = Register{};
#pragma GCC unroll 8
    for (int i = 0; i < QUADS; i++)
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            int32_t x;
            std::memcpy(&x, values + r * GROUP + i * 4, 4);
            low[r] = accumulate(low[r], quads[i], x);
            if constexpr (HALVES) high[r] = accumulate(high[r], quads[i + QUADS], x);
        }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        Ints dot = total(low[r]);
        if constexpr (HALVES) dot += total(high[r]) << 4;
        const Floats part = __builtin_convertvector(dot, Floats) * scale + minimum * counts[r];
        sums[r] += part * factors[r];
    }
}

// A group's factors as they lie behind its integers.
template <int BITS>
inline void load_factors(const uint8_t* packed, Floats& scale, Floats& minimum) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(packed + W * GROUP * BITS / 8);
    scale = load_halves(halves);
    minimum = load_halves(halves + W);
}

// sums [rows][W]: a panel's of at most R rows, which stay in registers through all groups.
template <int R, int BITS>
void add_few_rows(int count, const uint8_t* packed, const Rounded& x, int64_t rows, int64_t first, int64_t groups,
                  Prefetch prefetch, float* sums) {
    if constexpr (R > 1) {
        if (count < R) return add_few_rows<R - 1, BITS>(count, packed, x, rows, first, groups, prefetch, sums);
    }
    Floats kept[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) kept[r] = Floats{};
    for (int64_t group = 0; group < groups; group++, packed += group_bytes<BITS>(), prefetch.first += prefetch.step) {
        Bytes quads[BITS == 8 && !DOTS ? 2 * QUADS : QUADS];
        if (R == 1 || prefetch.step == group_bytes<BITS>()) {
            for (int64_t i = 0; i < group_bytes<BITS>(); i += 64) __builtin_prefetch(prefetch.first + i);
        } else if (prefetch.step) {
            for (int64_t i = 0; i < (group_bytes<BITS>() + 1) / 2; i += 64) __builtin_prefetch(prefetch.first + i);
        }
        unpack<BITS>(packed, quads);
        Floats scale, minimum;
        load_factors<BITS>(packed, scale, minimum);
        const int64_t at = group * rows + first;
        add_group<R, BITS>(quads, scale, minimum, x.values.data() + at * GROUP, x.factors.data() + at,
                           x.sums.data() + at, kept);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) store(sums + r * W, kept[r]);
}

template <int R, int BITS>
inline void add_rows(const Bytes* quads, Floats scale, Floats minimum, const Rounded& x, int64_t at, float* sums) {
    Floats kept[R];
    for (int r = 0; r < R; r++) kept[r] = load(sums + r * W);
    add_group<R, BITS>(quads, scale, minimum, x.values.data() + at * GROUP, x.factors.data() + at, x.sums.data() + at,
                       kept);
    for (int r = 0; r < R; r++) store(sums + r * W, kept[r]);
}

// sums [count][W]: a panel's of any number of rows, each group unpacked once for all.
template <int BITS>
void add_panel(const uint8_t* packed, const Rounded& x, int64_t rows, int64_t first, int64_t count, int64_t groups,
               Prefetch prefetch, float* sums) {
    constexpr int R = ROWS_TOGETHER;
    if (count <= R) return add_few_rows<R, BITS>(int(count), packed, x, rows, first, groups, prefetch, sums);
    std::fill(sums, sums + count * W, 0.0f);
    for (int64_t group = 0; group < groups; group++, packed += group_bytes<BITS>()) {
        Bytes quads[BITS == 8 && !DOTS ? 2 * QUADS : QUADS];
        for (int64_t i = 0; i < group_bytes<BITS>(); i += 64) __builtin_prefetch(packed + AHEAD + i);
        unpack<BITS>(packed, quads);
        Floats scale, minimum;
        load_factors<BITS>(packed, scale, minimum);
        const int64_t at = group * rows + first;
        int64_t r = 0;
        for (; r + R <= count; r += R) add_rows<R, BITS>(quads, scale, minimum, x, at + r, sums + r * W);
        for (; r < count; r++) add_rows<1, BITS>(quads, scale, minimum, x, at + r, sums + r * W);
    }
}

// As Product, with integers: inputs are rounded on the way in.
template <int BITS, typename T>
class QuantizedProduct {
  public:
    static constexpr int COLUMNS = W;
    static constexpr int TILE = TILE_ROWS;
    using Scratch = Rounded;

    QuantizedProduct(const T* input, int64_t stride, const uint8_t* packed, int64_t rows, int64_t inner,
                     Scratch& scratch)
        : input_(input), stride_(stride), packed_(packed), rows_(rows), inner_(inner), groups_(groups_of(inner)),
          x_(scratch) {
        x_.resize(rows, groups_);
    }

    void prepare(const Team& team) const {
        const Share share = team.share(rows_ * groups_);
        for (int64_t i = share.begin; i < share.end; i++) {
            const int64_t r = i / groups_, g = i % groups_, at = g * rows_ + r;
            round_group(input_ + r * stride_ + g * GROUP, inner_ - g * GROUP, x_.values.data() + at * GROUP,
                        x_.factors[at], x_.sums[at]);
        }
        team.wait();
    }

    void multiply(int64_t panel, int64_t first, int64_t count, int64_t tile, int64_t tiles, float* sums) const {
        const int64_t size = groups_ * group_bytes<BITS>();
        const uint8_t* columns = packed_ + panel * size;
        add_panel<BITS>(columns, x_, rows_, first, count, groups_,
                        prefetch(columns, size, group_bytes<BITS>(), tile, tiles), sums);
    }

  private:
    const T* input_;
    int64_t stride_;
    const uint8_t* packed_;
    int64_t rows_, inner_, groups_;
    Rounded& x_;
};

// input [rows, inner] (row stride given), bias [columns] or null -> output [rows, columns].
template <int BITS, typename T>
void quantized_linear(const T* input, int64_t input_stride, const uint8_t* packed, const T* bias, T* output,
                      int64_t rows, int64_t columns, int64_t inner, int threads) {
    static thread_local Rounded scratch;
    const QuantizedProduct<BITS, T> product(input, input_stride, packed, rows, inner, scratch);
    with_team(threads, [&](const Team& team) {
        product.prepare(team);
        store_product(team, product, bias, static_cast<const T*>(nullptr), output, rows, columns);
    });
}

}  // namespace pagoda
