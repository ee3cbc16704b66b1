// What CUDA C has and C++ has not, as far as TVM writes it, for `runtime.cpp`. Included before each kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

struct PlayedThree {
  unsigned x, y, z;
};
extern "C" {
extern PlayedThree played_thread, played_block, played_block_size, played_grid_size;
void played_sync();
void played_exchange(const void* mine, void* found, size_t size, unsigned lane);
unsigned played_lane();
}

#define threadIdx played_thread
#define blockIdx played_block
#define blockDim played_block_size
#define gridDim played_grid_size
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define alignas(n) __attribute__((aligned(n)))
#define __syncthreads played_sync

#define PLAYED_VECTORS(name, type)                                                                     \
  struct __attribute__((aligned(2 * sizeof(type)))) name##2 {                                          \
    type x, y;                                                                                         \
  };                                                                                                   \
  struct name##3 {                                                                                     \
    type x, y, z;                                                                                      \
  };                                                                                                   \
  struct __attribute__((aligned(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)))) name##4 {             \
    type x, y, z, w;                                                                                   \
  };                                                                                                   \
  static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                              \
  static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                   \
  static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

PLAYED_VECTORS(float, float)
PLAYED_VECTORS(double, double)
PLAYED_VECTORS(int, int)
PLAYED_VECTORS(uint, unsigned)
PLAYED_VECTORS(char, signed char)
PLAYED_VECTORS(uchar, unsigned char)
PLAYED_VECTORS(short, short)
PLAYED_VECTORS(ushort, unsigned short)
PLAYED_VECTORS(longlong, long long)

template <typename A, typename B>
static inline std::common_type_t<A, B> max(A a, B b) {
  return a > b ? a : b;
}
template <typename A, typename B>
static inline std::common_type_t<A, B> min(A a, B b) {
  return a < b ? a : b;
}

template <typename T>
static inline T played_from(T mine, unsigned lane, bool inside) {
  T found;
  played_exchange(&mine, &found, sizeof(T), inside ? lane : played_lane());
  return found;
}
static inline unsigned __activemask() { return 0xffffffffu; }
template <typename T>
static inline T __shfl_sync(unsigned, T mine, int lane, int width = 32) {
  return played_from(mine, played_lane() / width * width + lane % width, true);
}
template <typename T>
static inline T __shfl_down_sync(unsigned, T mine, unsigned by, int width = 32) {
  return played_from(mine, played_lane() + by, played_lane() % width + by < unsigned(width));
}
template <typename T>
static inline T __shfl_up_sync(unsigned, T mine, unsigned by, int width = 32) {
  return played_from(mine, played_lane() - by, played_lane() % width >= by);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned, T mine, unsigned by, int width = 32) {
  return played_from(mine, played_lane() ^ by, true);
}

#define __expf expf
#define __logf logf
#define __powf powf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
