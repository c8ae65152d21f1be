#pragma once
// Which instruction sets Highway compiles the kernels for. Include before any header of Highway.
//
// A chain of fused multiply-adds needs a vector unit that fuses: AVX2 (with FMA) and AVX-512. Any
// older x86 runs plain loops (Highway's scalar target), which call std::fma.
#include <hwy/detect_compiler_arch.h>
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/detect_targets.h>
