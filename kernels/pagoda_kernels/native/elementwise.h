// What lies between the matrix products of a llama-like layer: normalisation, rotation, gating. Rows of tokens.
#pragma once
#include "vector.h"

namespace pagoda {

// output = weight * (x / sqrt(mean(x^2) + epsilon)), rounded before the multiplication as transformers does.
template <typename T>
void rms_norm(const T* input, const T* weight, T* output, int64_t rows, int64_t size, float epsilon, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > 65536)
    for (int64_t r = 0; r < rows; r++) {
        const T* x = input + r * size;
        float squares[W] = {};
        for (int64_t i = 0; i < size; i++) {
            const float value = to_float(x[i]);
            squares[i % W] += value * value;
        }
        float total = 0;
        for (float square : squares) total += square;
        const float factor = 1.0f / std::sqrt(total / float(size) + epsilon);
        for (int64_t i = 0; i < size; i++)
            store(output + r * size + i, to_float(weight[i]) * rounded<T>(to_float(x[i]) * factor));
    }
}

// Rotary embedding (halves) in place: heads [rows, heads, size] with strides; cosine and sine [rows, size].
template <typename T>
void rotate(T* heads, const T* cosine, const T* sine, int64_t rows, int64_t count, int64_t size, int64_t row_stride,
            int64_t head_stride) {
    const int64_t half = size / 2;
    for (int64_t r = 0; r < rows; r++) {
        const T *c = cosine + r * size, *s = sine + r * size;
        for (int64_t h = 0; h < count; h++) {
            T* x = heads + r * row_stride + h * head_stride;
            for (int64_t i = 0; i < half; i++) {
                const float a = to_float(x[i]), b = to_float(x[i + half]);
                store(x + i, a * to_float(c[i]) - b * to_float(s[i]));
                store(x + i + half, b * to_float(c[i + half]) + a * to_float(s[i + half]));
            }
        }
    }
}

// input [rows, 2 * size]: gate and up -> output [rows, size] = silu(gate) * up.
template <typename T>
void silu_multiply(const T* input, T* output, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > 16384)
    for (int64_t r = 0; r < rows; r++) {
        const T *gate = input + r * 2 * size, *up = gate + size;
        for (int64_t i = 0; i < size; i += W) {
            const int64_t count = size - i < W ? size - i : W;
            Floats g{};
            for (int64_t j = 0; j < count; j++) g[j] = to_float(gate[i + j]);
            const Floats decay = exp(g < 0.0f ? g : -g);  // e^-|g|
            const Floats activated = (g < 0.0f ? g * decay : g) / (decay + 1.0f);
            for (int64_t j = 0; j < count; j++)
                store(output + r * size + i + j, rounded<T>(activated[j]) * to_float(up[i + j]));
        }
    }
}

}  // namespace pagoda
