// What lies between the matrix products of a llama-like layer: normalisation, rotation, gating. Rows of tokens.
#pragma once
#include "vector.h"

namespace pagoda {

// output = weight * (x / sqrt(mean(x^2) + epsilon)), rounded before the multiplication as transformers does.
template <typename T>
void norm_row(const T* x, const T* weight, T* output, int64_t size, float epsilon) {
    Floats squares[2] = {};
    for (int64_t i = 0; i < size; i += W) {
        const Floats values = load_some(x + i, size - i);
        squares[i / W % 2] += values * values;
    }
    const float factor = 1.0f / std::sqrt(sum_of(squares[0] + squares[1]) / float(size) + epsilon);
    for (int64_t i = 0; i < size; i += W)
        store_some(output + i, load_some(weight + i, size - i) * rounded<T>(load_some(x + i, size - i) * factor),
                   size - i);
}

template <typename T>
void rms_norm(const T* input, const T* weight, T* output, int64_t rows, int64_t size, float epsilon, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > 65536)
    for (int64_t r = 0; r < rows; r++) norm_row(input + r * size, weight, output + r * size, size, epsilon);
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
            for (int64_t i = 0; i < half; i += W) {
                const int64_t left = half - i;
                const Floats a = load_some(x + i, left), b = load_some(x + i + half, left);
                const Floats first = a * load_some(c + i, left) - b * load_some(s + i, left);
                const Floats second = b * load_some(c + i + half, left) + a * load_some(s + i + half, left);
                store_some(x + i, first, left);
                store_some(x + i + half, second, left);
            }
        }
    }
}

// silu(gate) * up, with silu(gate) rounded to T.
template <typename T>
inline Floats gated(Floats gate, Floats up) {
    const Floats decay = exp(gate < 0.0f ? gate : -gate);  // e^-|gate|
    return rounded<T>((gate < 0.0f ? gate * decay : gate) / (decay + 1.0f)) * up;
}

// input [2 * size]: gate and up -> output [size].
template <typename T>
void silu_multiply_row(const T* input, T* output, int64_t size) {
    for (int64_t i = 0; i < size; i += W)
        store_some(output + i, gated<T>(load_some(input + i, size - i), load_some(input + size + i, size - i)),
                   size - i);
}

template <typename T>
void silu_multiply(const T* input, T* output, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > 16384)
    for (int64_t r = 0; r < rows; r++) silu_multiply_row(input + r * 2 * size, output + r * size, size);
}

}  // namespace pagoda
