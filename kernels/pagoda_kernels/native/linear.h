// Linear layers with prepacked weights: y = x W^T + b. Sums are float32 whatever the number format.
#pragma once
#include <algorithm>
#include <vector>

#include "vector.h"

namespace pagoda {

constexpr int PANEL = 2 * W;  // output columns that are computed together

// Position of output column c of a panel within one packed row: see load_pair.
inline int packed_column(float, int c) { return c; }
inline int packed_column(BFloat16, int c) { return c < W ? 2 * c : 2 * (c - W) + 1; }

// weight [columns, inner] -> packed [panels, inner, PANEL], the last panel filled up with zeros.
template <typename T>
void pack(const T* weight, T* packed, int64_t columns, int64_t inner, int threads) {
    const int64_t panels = (columns + PANEL - 1) / PANEL;
#pragma omp parallel for num_threads(threads)
    for (int64_t panel = 0; panel < panels; panel++)
        for (int c = 0; c < PANEL; c++) {
            const int64_t column = panel * PANEL + c;
            T* target = packed + panel * inner * PANEL + packed_column(T{}, c);
            for (int64_t k = 0; k < inner; k++)
                target[k * PANEL] = column < columns ? weight[column * inner + k] : T{};
        }
}

// input [rows, inner] (row stride given), bias [columns] or null -> output [rows, columns].
template <typename T>
void linear(const T* input, int64_t input_stride, const T* packed, const T* bias, T* output, int64_t rows,
            int64_t columns, int64_t inner, int threads) {
    const int64_t panels = (columns + PANEL - 1) / PANEL;
    std::vector<float> floats;
    const float* x = reinterpret_cast<const float*>(input);
    int64_t stride = input_stride;
    const bool convert = sizeof(T) != 4;
    if (convert) {
        floats.resize(rows * inner);
        x = floats.data();
        stride = inner;
    }
#pragma omp parallel num_threads(threads)
    {
        if (convert) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t k = 0; k < inner; k += W)
                    store_some(floats.data() + r * inner + k, load_some(input + r * input_stride + k, inner - k),
                               inner - k);
        }
        std::vector<float> sums(rows * PANEL);
#pragma omp for schedule(dynamic, 2)
        for (int64_t panel = 0; panel < panels; panel++) {
            multiply_all<2, false>(rows, x, stride, packed + panel * inner * PANEL, PANEL, inner, sums.data(), PANEL);
            const int64_t first = panel * PANEL, count = std::min<int64_t>(PANEL, columns - first);
            for (int64_t c = 0; c < count; c += W) {
                const Floats shift = bias ? load_some(bias + first + c, count - c) : Floats{};
                for (int64_t r = 0; r < rows; r++)
                    store_some(output + r * columns + first + c, load(sums.data() + r * PANEL + c) + shift, count - c);
            }
        }
    }
}

}  // namespace pagoda
