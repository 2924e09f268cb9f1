// The C interface of the native kernels: number format 0 is float32, 1 is bfloat16. Called through ctypes.
#include <omp.h>

#include "attention.h"
#include "elementwise.h"
#include "layer.h"
#include "linear.h"
#include "quantized.h"
#include "sampling.h"
#include "transfer.h"

using namespace pagoda;

#define BY_FORMAT(format, call)  \
    if (format == 0) {           \
        using T = float;         \
        call;                    \
    } else {                     \
        using T = BFloat16;      \
        call;                    \
    }

extern "C" {

int64_t pagoda_panel() { return PANEL; }

int64_t pagoda_vector() { return W; }

void pagoda_gather_blocks(const TransferArguments* arguments) { gather_blocks(*arguments); }

void pagoda_scatter_blocks(const TransferArguments* arguments) { scatter_blocks(*arguments); }

void pagoda_paged_attention(int format, const AttentionArguments* arguments) {
    BY_FORMAT(format, paged_attention<T>(*arguments));
}

void pagoda_write_kv(int format, const void* keys, const void* values, void* key_pool, void* value_pool,
                     const int64_t* slots, int64_t tokens, int64_t kv_heads, int64_t head_size, int64_t value_size,
                     int64_t block_size, int64_t key_token_stride, int64_t key_head_stride, int64_t value_token_stride,
                     int64_t value_head_stride) {
    BY_FORMAT(format, write_kv((const T*)keys, (const T*)values, (T*)key_pool, (T*)value_pool, slots, tokens, kv_heads,
                               head_size, value_size, block_size, key_token_stride, key_head_stride,
                               value_token_stride, value_head_stride));
}

void pagoda_decoder_layer(int format, const LayerArguments* arguments) {
    BY_FORMAT(format, decoder_layer<T>(*arguments));
}

void pagoda_pack(int format, const void* weight, void* packed, int64_t columns, int64_t inner, int threads) {
    BY_FORMAT(format, pack((const T*)weight, (T*)packed, columns, inner, threads));
}

void pagoda_linear(int format, const void* input, int64_t input_stride, const void* packed, const void* bias,
                   void* output, int64_t rows, int64_t columns, int64_t inner, int threads) {
    BY_FORMAT(format, linear((const T*)input, input_stride, (const T*)packed, (const T*)bias, (T*)output, rows, columns,
                             inner, threads));
}

void pagoda_quantized_linear(int format, int bits, const void* input, int64_t input_stride, const void* packed,
                             const void* bias, void* output, int64_t rows, int64_t columns, int64_t inner,
                             int threads) {
    if (bits == 4) {
        BY_FORMAT(format, quantized_linear<4>((const T*)input, input_stride, (const uint8_t*)packed, (const T*)bias,
                                              (T*)output, rows, columns, inner, threads));
    } else {
        BY_FORMAT(format, quantized_linear<8>((const T*)input, input_stride, (const uint8_t*)packed, (const T*)bias,
                                              (T*)output, rows, columns, inner, threads));
    }
}

void pagoda_rms_norm(int format, const void* input, const void* weight, void* output, int64_t rows, int64_t size,
                     float epsilon, int threads) {
    BY_FORMAT(format, rms_norm((const T*)input, (const T*)weight, (T*)output, rows, size, epsilon, threads));
}

void pagoda_rotate(int format, void* heads, const void* cosine, const void* sine, int64_t rows, int64_t count,
                   int64_t size, int64_t row_stride, int64_t head_stride) {
    BY_FORMAT(format, rotate((T*)heads, (const T*)cosine, (const T*)sine, rows, count, size, row_stride, head_stride));
}

void pagoda_sample(int format, const SamplingArguments* arguments) { BY_FORMAT(format, sample<T>(*arguments)); }

void pagoda_silu_multiply(int format, const void* input, void* output, int64_t rows, int64_t size, int threads) {
    BY_FORMAT(format, silu_multiply((const T*)input, (T*)output, rows, size, threads));
}
}
