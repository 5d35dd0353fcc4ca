#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "model/families/family.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {
namespace {

ModelShape Shape(const Family& family, size_t layers, size_t dim, size_t ffn, size_t heads,
                 size_t kv_heads, size_t head_size, size_t vocab, size_t context, bool tied,
                 double rope_base, double llama3_rope_factor = 0.0) {
  ModelShape shape;
  shape.architecture = family.name;
  shape.layers = layers;
  shape.dim = dim;
  shape.ffn = ffn;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_size = head_size;
  shape.vocab = vocab;
  shape.context = context;
  shape.tied = tied;
  shape.qkv_bias = family.qkv_bias == Family::QkvBias::kAlways;
  shape.rope_base = rope_base;
  shape.llama3_rope_factor = llama3_rope_factor;
  shape.norm_epsilon = &family == &kLlama ? 1e-5 : 1e-6;
  shape.window = &family == &kGptOss ? 128 : 0;  // of those below
  return shape;
}

ModelShape WithWindow(ModelShape shape, size_t window) {
  shape.window = window;
  return shape;
}

// Of gemma4: heads of the layers with windows, and KV heads of those without.
ModelShape WithSizesOfWindows(ModelShape shape, size_t head_size, size_t full_kv_heads) {
  shape.window_head_size = head_size;
  shape.full_kv_heads = full_kv_heads;
  return shape;
}

// Of a family with the gated delta rule, whose heads have keys and values of 128.
ModelShape WithDelta(ModelShape shape, size_t key_heads, size_t value_heads) {
  shape.key_heads = key_heads;
  shape.value_heads = value_heads;
  shape.key_size = shape.value_size = 128;
  return shape;
}

// Of a family with experts, of which a token uses some; `shared`: the length of a shared one.
ModelShape WithExperts(ModelShape shape, size_t experts, size_t used, size_t length,
                       size_t shared = 0) {
  shape.experts = experts;
  shape.experts_used = used;
  shape.expert_ffn = length;
  shape.shared_ffn = shared;
  return shape;
}

// Of a family with latent attention, whose heads have 64 elements that rotate.
ModelShape WithLatent(ModelShape shape, size_t query_rank, size_t key_size, size_t value_size) {
  shape.rotated = 64;
  shape.query_rank = query_rank;
  shape.key_size = key_size;
  shape.value_size = value_size;
  return shape;
}

ModelShape DeepseekV3() {
  ModelShape shape = Shape(kDeepseek2, 61, 7168, 18432, 128, 1, 576, 129280, 163840, false, 1e4);
  shape = WithLatent(WithExperts(shape, 256, 8, 2048, 2048), 1536, 128, 128);
  shape.dense_layers = 3;
  return shape;
}

// E2B and E4B of Gemma 4, whose last layers share keys and values.
ModelShape Gemma4E(size_t layers, size_t dim, size_t ffn, size_t kv_heads, size_t full_every,
                   size_t shared_kv, size_t shared_kv_ffn) {
  ModelShape shape = WithSizesOfWindows(
      WithWindow(Shape(kGemma4, layers, dim, ffn, 8, kv_heads, 512, 262144, 131072, true, 1e6),
                 512),
      256, kv_heads);
  shape.full_every = full_every;
  shape.input_size = 256;
  shape.shared_kv = shared_kv;
  shape.shared_kv_ffn = shared_kv_ffn;
  shape.own_values = true;
  return shape;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

const std::vector<NamedShape>& NamedShapes() {
  static const std::vector<NamedShape> shapes = {
      // name, layers, dim, ffn, heads, kv heads, head size, vocab, context, tied, rope base, llama3
      // factor
      {"bench-24m", Shape(kLlama, 2, 1024, 2816, 16, 4, 64, 512, 4096, false, 1e4)},
      {"bench-1b", Shape(kLlama, 16, 2048, 8192, 32, 8, 64, 32000, 4096, false, 1e4)},
      {"bench-delta-1b",
       WithDelta(Shape(kQwen35, 16, 2048, 6144, 8, 2, 256, 32000, 32768, false, 1e7), 16, 16)},
      {"bench-moe-20m",
       WithExperts(Shape(kQwen3Moe, 3, 512, 1024, 8, 2, 64, 512, 4096, false, 1e6), 16, 4, 256)},
      {"bench-moe-440m",
       WithExperts(Shape(kQwen3Moe, 8, 1024, 512, 16, 4, 64, 512, 4096, false, 1e6), 64, 2, 256)},
      {"bench-gpt-oss-28m",
       WithExperts(Shape(kGptOss, 4, 512, 256, 8, 2, 64, 512, 4096, false, 1.5e5), 16, 4, 256)},
      {"bench-latent-440m",
       WithLatent(WithExperts(Shape(kDeepseek2, 8, 1024, 512, 8, 1, 576, 512, 8192, false, 1e4), 64,
                              2, 256, 256),
                  256, 128, 128)},
      {"tinyllama-1.1b", Shape(kLlama, 22, 2048, 5632, 32, 4, 64, 32000, 2048, false, 1e4)},
      {"llama-2-7b", Shape(kLlama, 32, 4096, 11008, 32, 32, 128, 32000, 4096, false, 1e4)},
      {"llama-2-13b", Shape(kLlama, 40, 5120, 13824, 40, 40, 128, 32000, 4096, false, 1e4)},
      {"llama-2-70b", Shape(kLlama, 80, 8192, 28672, 64, 8, 128, 32000, 4096, false, 1e4)},
      {"llama-3.2-1b", Shape(kLlama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, true, 5e5, 32)},
      {"llama-3.2-3b", Shape(kLlama, 28, 3072, 8192, 24, 8, 128, 128256, 131072, true, 5e5, 32)},
      {"llama-3.1-8b", Shape(kLlama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, false, 5e5, 8)},
      {"llama-3.1-70b", Shape(kLlama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, false, 5e5, 8)},
      {"mistral-7b", Shape(kLlama, 32, 4096, 14336, 32, 8, 128, 32768, 32768, false, 1e6)},
      {"qwen2.5-0.5b", Shape(kQwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, true, 1e6)},
      {"qwen2.5-1.5b", Shape(kQwen2, 28, 1536, 8960, 12, 2, 128, 151936, 32768, true, 1e6)},
      {"qwen2.5-3b", Shape(kQwen2, 36, 2048, 11008, 16, 2, 128, 151936, 32768, true, 1e6)},
      {"qwen2.5-7b", Shape(kQwen2, 28, 3584, 18944, 28, 4, 128, 152064, 32768, false, 1e6)},
      {"qwen3-0.6b", Shape(kQwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, true, 1e6)},
      {"qwen3-1.7b", Shape(kQwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, true, 1e6)},
      {"qwen3-4b", Shape(kQwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, true, 1e6)},
      {"qwen3.5-4b",
       WithDelta(Shape(kQwen35, 32, 2560, 9216, 16, 4, 256, 248320, 262144, true, 1e7), 16, 32)},
      {"qwen3.5-9b",
       WithDelta(Shape(kQwen35, 32, 4096, 12288, 16, 4, 256, 248320, 262144, false, 1e7), 16, 32)},
      {"qwen3-30b-a3b",
       WithExperts(Shape(kQwen3Moe, 48, 2048, 6144, 32, 4, 128, 151936, 40960, false, 1e6), 128, 8,
                   768)},
      {"qwen3-next-80b-a3b", WithExperts(WithDelta(Shape(kQwen3Next, 48, 2048, 5120, 16, 2, 256,
                                                         151936, 262144, false, 1e7),
                                                   16, 32),
                                         512, 10, 512, 512)},
      {"deepseek-v2-lite", WithLatent(WithExperts(Shape(kDeepseek2, 27, 2048, 10944, 16, 1, 576,
                                                        102400, 163840, false, 1e4),
                                                  64, 6, 1408, 2816),
                                      0, 128, 128)},
      {"deepseek-v3", DeepseekV3()},
      {"mixtral-8x7b",
       WithExperts(Shape(kLlama, 32, 4096, 14336, 32, 8, 128, 32000, 32768, false, 1e6), 8, 2,
                   14336)},
      {"gpt-oss-20b",
       WithExperts(Shape(kGptOss, 24, 2880, 2880, 64, 8, 64, 201088, 131072, false, 1.5e5), 32, 4,
                   2880)},
      {"gpt-oss-120b",
       WithExperts(Shape(kGptOss, 36, 2880, 2880, 64, 8, 64, 201088, 131072, false, 1.5e5), 128, 4,
                   2880)},
      {"qwen3-8b", Shape(kQwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, false, 1e6)},
      {"qwen3-14b", Shape(kQwen3, 40, 5120, 17408, 40, 8, 128, 151936, 40960, false, 1e6)},
      {"qwen3-32b", Shape(kQwen3, 64, 5120, 25600, 64, 8, 128, 151936, 40960, false, 1e6)},
      {"gemma-2-2b", Shape(kGemma2, 26, 2304, 9216, 8, 4, 256, 256000, 8192, true, 1e4)},
      {"gemma-2-9b", Shape(kGemma2, 42, 3584, 14336, 16, 8, 256, 256000, 8192, true, 1e4)},
      {"gemma-2-27b", Shape(kGemma2, 46, 4608, 36864, 32, 16, 128, 256000, 8192, true, 1e4)},
      {"gemma-3-270m",
       WithWindow(Shape(kGemma3, 18, 640, 2048, 4, 1, 256, 262144, 32768, true, 1e6), 512)},
      {"gemma-3-1b",
       WithWindow(Shape(kGemma3, 26, 1152, 6912, 4, 1, 256, 262144, 32768, true, 1e6), 512)},
      {"gemma-3-4b",
       WithWindow(Shape(kGemma3, 34, 2560, 10240, 8, 4, 256, 262208, 131072, true, 1e6), 1024)},
      {"gemma-4-12b",
       WithSizesOfWindows(
           WithWindow(Shape(kGemma4, 48, 3840, 15360, 16, 8, 512, 262144, 262144, true, 1e6), 1024),
           256, 1)},
      {"gemma-4-e2b", Gemma4E(35, 1536, 6144, 1, 5, 20, 12288)},
      {"gemma-4-e4b", Gemma4E(42, 2560, 10240, 2, 6, 18, 10240)},
      {"gemma-4-26b-a4b",
       WithExperts(WithSizesOfWindows(WithWindow(Shape(kGemma4, 30, 2816, 2112, 16, 8, 512, 262144,
                                                       262144, true, 1e6),
                                                 1024),
                                      256, 2),
                   128, 8, 704)},
  };
  return shapes;
}

ModelShape ShapeByName(std::string_view name) {
  std::string names;
  for (const NamedShape& named : NamedShapes()) {
    if (std::ranges::equal(named.name, name, {}, {}, Lower)) return named.shape;
    names += names.empty() ? "" : ", ";
    names += named.name;
  }
  throw Error("no shape named '{}', expected one of: {}", name, names);
}

std::vector<float> Llama3FreqFactors(size_t rotary_dim, double rope_base, double factor,
                                     double low_freq_factor, double high_freq_factor,
                                     double original_context) {
  std::vector<float> factors(rotary_dim / 2);
  for (size_t i = 0; i < factors.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    const double wavelength = 2.0 * std::numbers::pi * std::pow(rope_base, exponent);
    const double turns = original_context / wavelength;  // over the context of the first training
    double divisor = 1.0;
    if (turns < low_freq_factor) {
      divisor = factor;
    } else if (turns < high_freq_factor) {
      const double smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
      divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    factors[i] = static_cast<float>(divisor);
  }
  return factors;
}

}  // namespace larder::model::synth
