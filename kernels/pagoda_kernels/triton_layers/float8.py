"""float32 to the bits of float8_e4m3fn: in integers, since GPUs before sm_89 have no instruction for it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def encode_float8(numbers):
    """The bits (uint8) of the nearest float8_e4m3fn of float32 ``numbers``, ties to even.

    What is beyond +-448 becomes +-448; what is not a number stays none.
    """
    bits = numbers.to(tl.int32, bitcast=True)
    magnitude = tl.minimum(bits & 0x7FFFFFFF, 0x43E00000)  # 448.0; integers order as the numbers do
    # Normal: three bits of mantissa stay, and the exponent's bias of 127 becomes 7.
    rounded = magnitude + 0x7FFFF + ((magnitude >> 20) & 1)
    normal = (rounded >> 20) - (120 << 3)
    # Below 2**-6, multiples of 2**-9: that is what is left of a number when 2**14 is added to it, and it is rounded.
    small = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(magnitude < 0x3C800000, small, normal)
    code = tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
