// Attention's parts, apart: what a position costs one KV head and its query heads in scores,
// softmax, value scales and weighted values, against the instructions that each needs on the two
// vector ports. The ports' rate is the peak of integer multiply-adds in the same alternating
// rounds; the best round counts.
//   bench_attention [--isa NAME] [--head N] [--group N] [--rows N] [--mb N] [--rounds N] [--cpu N]
// --head: elements; --group: query heads per KV head; --rows: tokens that attend together (a
// prompt's tile);
// --mb: size of the KV cache that is walked (below L2, or in L3).
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "attention_node/attention_kernels.h"
#include "base/clock.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "kernels/formats/kv_page.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"
#include "kernels/tune/vnni_peak.h"
#include "topology/arena.h"
#include "topology/host.h"

namespace larder::bench {
namespace {

using kernels::ChunkWeights;
using kernels::Isa;
using kernels::kBlock;
using kernels::kChunkPositions;
using kernels::kChunkStride;
using kernels::kPagePositions;
using kernels::kValuePagePositions;

struct Options {
  Isa isa = kernels::BestIsa();
  size_t head = 64, group = 4, rows = 1, mb = 8;
  size_t rounds = 40;
};

struct Part {
  std::string name;
  double vector_ops;  // 512-bit instructions on the vector ports per position
  std::function<void(size_t chunk)> run;
  double best_ns = std::numeric_limits<double>::infinity();  // per position
};

class Attention {
 public:
  explicit Attention(const Options& options)
      : options_(options),
        blocks_(CeilDiv(options.head, kBlock)),
        queries_(options.group * options.rows),
        key_page_(kernels::kKeyPanel.bytes(blocks_)),
        value_page_(kernels::ValuePage{blocks_}.bytes()),
        key_chunk_(key_page_ * kPages),
        value_chunk_(value_page_ * ChunkWeights::kPages),
        chunks_(std::max<size_t>(2, (options.mb << 20) / (key_chunk_ + value_chunk_))),
        elementwise_(kernels::GetElementwise(options.isa)),
        tuning_(kernels::DefaultTuning(options.isa).attention),
        scores_gemm_(kernels::Gemm::Make(options.isa, attention_node::ScoresShape(blocks_),
                                         {.products = tuning_.scores})),
        arena_(chunks_ * (key_chunk_ + value_chunk_) + queries_ * 64 * 1024 + (size_t{1} << 20),
               Machine().core(Machine().PickCores(1)[0]).numa_node) {
    most_ = std::min(tuning_.value_queries, queries_);
    attention_node::AddValueKernels(options.isa, blocks_, most_, tuning_, values_);
    Fill();
  }

  size_t chunks() const { return chunks_; }
  size_t chunk_bytes() const { return key_chunk_ + value_chunk_; }

  std::vector<Part> Parts() {
    const auto q = static_cast<double>(queries_), blocks = static_cast<double>(blocks_);
    const double exp_ops = 16;  // instructions of Exp on 16 lanes, with the maximum, the
                                // subtraction and the sum
    std::vector<Part> parts;
    // 32 inputs of 16 positions: 8 products and 2 fused multiply-adds.
    parts.push_back({"scores", q * blocks * 10 / 16, [this](size_t c) { Scores(c); }});
    parts.push_back({"softmax", q * exp_ops / 16, [this](size_t c) { Softmax(c); }});
    // For 32 positions: 6 to turn 32 numbers into bytes and back, 8 for the maximum, 4 for the
    // scale.
    parts.push_back({"weights", q * (2 * 6 + 8 + 4 + 3) / 32, [this](size_t c) { Weights(c); }});
    // 32 positions of 16 elements: 8 products, a conversion and a fused multiply-add.
    parts.push_back({"values", q * blocks * 2 * 10 / 32, [this](size_t c) { Values(c); }});
    parts.push_back({"merge", 0, [this](size_t c) { Merge(c); }});
    return parts;
  }
  // All parts of a chunk, one after the other, as a step does it.
  void All(size_t c) {
    Scores(c);
    Softmax(c);
    Weights(c);
    Values(c);
    Merge(c);
  }

 private:
  static constexpr size_t kPages = kChunkPositions / kPagePositions;

  const uint8_t* keys(size_t c) const { return keys_ + c * key_chunk_; }
  const uint8_t* values(size_t c) const { return value_pages_ + c * value_chunk_; }

  void Fill() {
    keys_ = reinterpret_cast<uint8_t*>(arena_.Allocate(chunks_ * key_chunk_, kCacheLineBytes));
    value_pages_ =
        reinterpret_cast<uint8_t*>(arena_.Allocate(chunks_ * value_chunk_, kCacheLineBytes));
    x_ = reinterpret_cast<uint8_t*>(
        arena_.Allocate(queries_ * kernels::ActRowBytes(blocks_), kCacheLineBytes));
    p_ = arena_.AllocateArray<float>(queries_ * kChunkStride).data();
    w_ = arena_.AllocateArray<ChunkWeights>(queries_).data();
    chunk_ = arena_.AllocateArray<float>(queries_ * blocks_ * kBlock).data();
    running_ = arena_.AllocateArray<float>(queries_ * blocks_ * kBlock).data();
    max_ = arena_.AllocateArray<float>(4 * queries_).data();
    std::mt19937 random(1);
    std::vector<model::Q8Block> row(blocks_);
    std::vector<int8_t> value(blocks_ * kBlock);
    for (size_t c = 0; c < chunks_; ++c) {
      if (c > 0) {  // the kernels' time does not depend on the numbers
        std::copy_n(keys(0), key_chunk_, keys_ + c * key_chunk_);
        std::copy_n(values(0), value_chunk_, value_pages_ + c * value_chunk_);
        continue;
      }
      for (size_t t = 0; t < kChunkPositions; ++t) {
        for (model::Q8Block& block : row) {
          block.d = model::F32ToF16(0.01f);
          for (int8_t& v : block.q) v = static_cast<int8_t>(random() % 255) - 127;
        }
        for (int8_t& v : value) v = static_cast<int8_t>(random() % 255) - 127;
        kernels::PackKey(row.data(), blocks_, t % kPagePositions,
                         keys_ + t / kPagePositions * key_page_);
        kernels::PackValue({blocks_}, value.data(), row[0].d, t % kValuePagePositions,
                           value_pages_ + t / kValuePagePositions * value_page_);
      }
    }
    std::normal_distribution<float> normal;
    std::vector<float> query(blocks_ * kBlock);
    for (size_t q = 0; q < queries_; ++q) {
      for (float& v : query) v = 0.1f * normal(random);
      kernels::GetElementwise(Isa::kScalar)
          .quantize(query.data(),
                    reinterpret_cast<kernels::ActBlock*>(x_ + q * kernels::ActRowBytes(blocks_)),
                    query.size());
    }
  }

  void Scores(size_t c) {
    scores_gemm_.Run(keys(c), reinterpret_cast<const kernels::ActBlock*>(x_), p_, kPages, queries_);
  }
  void Softmax(size_t) {
    for (size_t q = 0; q < queries_; q += options_.group)
      elementwise_.softmax_chunk(p_ + q * kChunkStride, kChunkStride, options_.group, 0,
                                 kChunkPositions, kChunkPositions, &max_[q], &max_[queries_ + q]);
  }
  void Weights(size_t c) {
    elementwise_.quantize_weights(p_, kChunkStride, values(c), value_page_, w_,
                                  ChunkWeights::kPages, queries_);
  }
  void Values(size_t c) {
    const size_t next = c + 1 < chunks_ ? c + 1 : c;
    for (size_t q = 0; q < queries_; q += most_)
      values_[std::min(most_, queries_ - q)](values(c), w_ + q, chunk_ + q * blocks_ * kBlock,
                                             ChunkWeights::kPages, keys(next), values(next));
  }
  void Merge(size_t) {
    for (size_t q = 0; q < queries_; ++q)
      elementwise_.merge(running_ + q * blocks_ * kBlock, &max_[2 * queries_ + q],
                         &max_[3 * queries_ + q], chunk_ + q * blocks_ * kBlock, max_[q],
                         max_[queries_ + q], options_.head);
  }

  const Options options_;
  size_t blocks_, queries_, key_page_, value_page_, key_chunk_, value_chunk_, chunks_;
  const kernels::Elementwise& elementwise_;
  const kernels::AttentionTuning tuning_;
  kernels::Gemm scores_gemm_;
  topology::Arena arena_;
  std::vector<kernels::ValuesFn> values_;
  size_t most_ = 0;
  uint8_t *keys_ = nullptr, *value_pages_ = nullptr, *x_ = nullptr;
  ChunkWeights* w_ = nullptr;
  float *p_ = nullptr, *chunk_ = nullptr, *running_ = nullptr, *max_ = nullptr;
};

void Measure(const Options& options) {
  Attention attention(options);
  std::vector<Part> parts = attention.Parts();
  parts.push_back({"all, in turn", 0, [&](size_t c) { attention.All(c); }});
  double peak = 0;
  for (size_t round = 0; round < options.rounds; ++round) {
    peak = std::max(peak, kernels::PeakGops(options.isa, 0));
    for (Part& part : parts) {
      const int64_t start = NowNs();
      for (size_t c = 0; c < attention.chunks(); ++c) part.run(c);
      part.best_ns =
          std::min(part.best_ns, SecondsSince(start) * 1e9 /
                                     static_cast<double>(attention.chunks() * kChunkPositions));
    }
  }
  const double lanes = options.isa == Isa::kAvx512Vnni ? 64 : 32;
  const double ops_per_ns = peak / (2 * lanes);
  double bound = 0, sum = 0;
  fmt::print(
      "{}, {}: {:.2f} vector instructions per ns; head {}, {} query heads x {} rows, {:.1f} MB of "
      "KV\n",
      topology::CpuName(), kernels::IsaName(options.isa), ops_per_ns, options.head, options.group,
      options.rows, static_cast<double>(attention.chunks() * attention.chunk_bytes()) / (1 << 20));
  fmt::print("| part | ns per position | by count | ratio |\n|---|--:|--:|--:|\n");
  for (Part& part : parts) {
    const bool all = &part == &parts.back();
    double least = part.vector_ops / ops_per_ns * (options.isa == Isa::kAvx512Vnni ? 1 : 2);
    if (all) least = bound;
    bound += least;
    if (!all) sum += part.best_ns;
    fmt::print("| {} | {:.2f} | {:.2f} | {} |\n", part.name, part.best_ns, least,
               least > 0 ? fmt::format("{:.2f}", part.best_ns / least) : "-");
  }
  fmt::print("The sum of the parts: {:.2f} ns.\n", sum);
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  larder::bench::Options o;
  return larder::bench::RunTable(argc, argv,
                                 {{"--head", &o.head, 1, 256},
                                  {"--group", &o.group, 1, 64},
                                  {"--rows", &o.rows, 1, 64},
                                  {"--mb", &o.mb, 0, 4096},
                                  {"--rounds", &o.rounds, 1, 1'000'000}},
                                 [&](larder::kernels::Isa isa) {
                                   o.isa = isa;
                                   larder::bench::Measure(o);
                                 });
}
