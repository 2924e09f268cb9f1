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
        Floats squares{};
        for (int64_t i = 0; i < size; i += W) {
            const Floats values = load_some(x + i, size - i);
            squares += values * values;
        }
        float total = 0;
        for (int i = 0; i < W; i++) total += squares[i];
        const float factor = 1.0f / std::sqrt(total / float(size) + epsilon);
        for (int64_t i = 0; i < size; i += W)
            store_some(output + r * size + i,
                       load_some(weight + i, size - i) * rounded<T>(load_some(x + i, size - i) * factor), size - i);
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
            const Floats g = load_some(gate + i, size - i);
            const Floats decay = exp(g < 0.0f ? g : -g);  // e^-|g|
            const Floats activated = (g < 0.0f ? g * decay : g) / (decay + 1.0f);
            store_some(output + r * size + i, rounded<T>(activated) * load_some(up + i, size - i), size - i);
        }
    }
}

}  // namespace pagoda
