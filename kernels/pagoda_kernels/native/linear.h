// Linear layers with prepacked weights: y = x W^T + b. Sums are float32 whatever the number format.
#pragma once
#include <algorithm>
#include <vector>

#include "pairs.h"
#include "team.h"
#include "vector.h"

namespace pagoda {

constexpr int PANEL = 2 * W;  // output columns that are computed together

template <typename T>
inline int64_t packed_inner(int64_t inner) {
    return (inner + TOGETHER<T> - 1) / TOGETHER<T> * TOGETHER<T>;
}

// Position of input k of output column c within a panel. Without pairs two vectors of bfloat16 share their words.
template <typename T>
inline int64_t packed_position(int64_t k, int c) {
    if (TOGETHER<T> == 2) return (k / 2 * PANEL + c) * 2 + k % 2;
    return k * PANEL + (sizeof(T) == 4 ? c : c < W ? 2 * c : 2 * (c - W) + 1);
}

// weight [columns, inner] -> packed [panels, packed_inner, PANEL], filled up with zeros.
template <typename T>
void pack(const T* weight, T* packed, int64_t columns, int64_t inner, int threads) {
    const int64_t panels = (columns + PANEL - 1) / PANEL, filled = packed_inner<T>(inner);
#pragma omp parallel for num_threads(threads)
    for (int64_t panel = 0; panel < panels; panel++)
        for (int c = 0; c < PANEL; c++) {
            const int64_t column = panel * PANEL + c;
            T* target = packed + panel * filled * PANEL;
            for (int64_t k = 0; k < filled; k++)
                target[packed_position<T>(k, c)] = column < columns && k < inner ? weight[column * inner + k] : T{};
        }
}

// Inputs [rows, inner] beside a packed weight: any panel's sums for any rows.
template <typename T>
class Product {
  public:
    static constexpr int COLUMNS = PANEL;
#if defined(PAGODA_PAIRS_OF_BFLOAT16)
    static constexpr int TILE = sizeof(T) == 2 ? PAIR_ROWS : MOST_ROWS;
#else
    static constexpr int TILE = MOST_ROWS;
#endif
    using Element = Multiplied<T>;
    using Scratch = std::vector<Element>;

    Product(const T* input, int64_t stride, const T* packed, int64_t rows, int64_t inner, Scratch& scratch)
        : input_(input), stride_(stride), packed_(packed), rows_(rows), inner_(inner) {
        if (copies() && int64_t(scratch.size()) < rows * packed_inner<T>(inner))
            scratch.resize(rows * packed_inner<T>(inner));
        scratch_ = scratch.data();
    }

    // Called by the whole team before anything is multiplied.
    void prepare(const Team& team) const {
        if (!copies()) return;
        const int64_t filled = packed_inner<T>(inner_);
        const Share share = team.share(rows_);
        for (int64_t r = share.begin; r < share.end; r++) {
            const T* source = input_ + r * stride_;
            Element* target = scratch_ + r * filled;
            if constexpr (std::is_same_v<T, Element>) {
                std::copy(source, source + inner_, target);
                std::fill(target + inner_, target + filled, T{});
            } else {
                for (int64_t k = 0; k < inner_; k += W)
                    store_some(target + k, load_some(source + k, inner_ - k), inner_ - k);
            }
        }
        team.wait();
    }

    // Panel's sums of the rows first .. first + count - 1, which are tile number ``tile`` of ``tiles``.
    void multiply(int64_t panel, int64_t first, int64_t count, int64_t tile, int64_t tiles, float* sums) const {
        const int64_t filled = packed_inner<T>(inner_);
        const int64_t stride = copies() ? filled : stride_;
        const T* columns = packed_ + panel * filled * PANEL;
        const Element* x = copies() ? scratch_ : reinterpret_cast<const Element*>(input_);
        x += first * stride;
        if constexpr (TOGETHER<T> == 1)
            multiply_rows<MOST_ROWS, 2, false>(int(count), x, stride, columns, PANEL, inner_, sums, PANEL);
#if defined(PAGODA_PAIRS_OF_BFLOAT16)
        else
            multiply_pair_rows<PAIR_ROWS, 2, false>(int(count), x, stride, columns, 2 * PANEL, filled / 2, sums, PANEL,
                                                    prefetch(columns, filled * PANEL * 2, 128, tile, tiles));
#endif
    }

  private:
    bool copies() const { return sizeof(T) == 2 && (TOGETHER<T> == 1 || inner_ % 2); }

    const T *input_;
    int64_t stride_;
    const T* packed_;
    int64_t rows_, inner_;
    Element* scratch_;
};

// finish(column, first row, count, sums [count, P::COLUMNS]) for every panel and every tile of rows.
template <typename P, typename Finish>
void each_tile(const Team& team, const P& product, int64_t rows, int64_t columns, Finish finish) {
    alignas(64) float sums[P::TILE * P::COLUMNS];
    const Share share = team.share((columns + P::COLUMNS - 1) / P::COLUMNS);
    const int64_t tiles = (rows + P::TILE - 1) / P::TILE;
    for (int64_t panel = share.begin; panel < share.end; panel++)
        for (int64_t tile = 0, row = 0; tile < tiles; tile++) {
            const int64_t end = rows * (tile + 1) / tiles;
            product.multiply(panel, row, end - row, tile, tiles, sums);
            finish(panel * P::COLUMNS, row, end - row, sums);
            row = end;
        }
}

// output [rows, columns] = sums + bias, plus ``residual`` [rows, columns] where there is one.
template <typename P, typename T>
void store_product(const Team& team, const P& product, const T* bias, const T* residual, T* output, int64_t rows,
                   int64_t columns) {
    each_tile(team, product, rows, columns, [&](int64_t column, int64_t first, int64_t count, const float* sums) {
        const int64_t width = std::min<int64_t>(P::COLUMNS, columns - column);
        for (int64_t c = 0; c < width; c += W) {
            const Floats shift = bias ? load_some(bias + column + c, width - c) : Floats{};
            for (int64_t r = 0; r < count; r++) {
                const int64_t at = (first + r) * columns + column + c;
                Floats sum = load(sums + r * P::COLUMNS + c) + shift;
                if (residual) sum = load_some(residual + at, width - c) + rounded<T>(sum);
                store_some(output + at, sum, width - c);
            }
        }
    });
}

// input [rows, inner] (row stride given), bias [columns] or null -> output [rows, columns].
template <typename T>
void linear(const T* input, int64_t input_stride, const T* packed, const T* bias, T* output, int64_t rows,
            int64_t columns, int64_t inner, int threads) {
    static thread_local typename Product<T>::Scratch scratch;
    const Product<T> product(input, input_stride, packed, rows, inner, scratch);
    with_team(threads, [&](const Team& team) {
        product.prepare(team);
        store_product(team, product, bias, static_cast<const T*>(nullptr), output, rows, columns);
    });
}

}  // namespace pagoda
