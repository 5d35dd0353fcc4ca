// Attention against its definition in double precision, over the same quantised queries, keys and
// values; and the same bits however rows are split into micro-batches, for all thread counts and
// instruction sets.
#include "attention_node/attention_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_node/attention_kernels.h"
#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "model/step/batch_rows.h"
#include "model/synth/synth.h"

namespace larder::attention_node {
namespace {

constexpr size_t kSlots = 2, kContext = 5 * kernels::kChunkPositions;

class AttentionNodeTest : public testing::Test {
 protected:
  void SetUp() override {
    model::SynthOptions options;
    options.shape.layers = 1;
    options.shape.heads = 6;
    options.shape.kv_heads = 2;
    options.shape.head_size = 40;  // one whole block and a partial one
    model::WriteSynth(options, folder_ / "model.gguf");
    file_ = model::GgufFile::Open(folder_ / "model.gguf");
    config_ = model::ReadModelConfig(*file_);
    rope_ = model::RopeTable(config_.kinds[0].rotary, kContext);
    group_columns_ = (config_.kinds[0].sizes.group() + 2) * config_.kinds[0].sizes.head_size;
    columns_ = config_.kinds[0].sizes.kv_heads * group_columns_;
    // Large queries make few positions matter, so that a wrong position shows.
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (std::vector<float>& slot : qkv_) {
      slot.resize(kContext * columns_);
      for (size_t i = 0; i < slot.size(); ++i) {
        const bool query =
            i % group_columns_ < config_.kinds[0].sizes.group() * config_.kinds[0].sizes.head_size;
        slot[i] = normal(random) * (query ? 3.0f : 1.0f);
      }
    }
  }

  struct Row {
    SlotId slot;
    uint32_t position;
    auto operator<=>(const Row&) const = default;
  };

  // The attention outputs of rows that come in these micro-batches, in the rows' order; of the
  // first `appended_` micro-batches only keys and values are kept.
  std::vector<std::vector<float>> Run(const std::vector<std::vector<Row>>& batches, size_t threads,
                                      kernels::Isa isa) {
    return Run(batches, threads, isa, kernels::DefaultTuning(isa));
  }
  std::vector<std::vector<float>> Run(const std::vector<std::vector<Row>>& batches, size_t threads,
                                      kernels::Isa isa, const kernels::KernelTuning& tuning,
                                      std::span<const std::vector<model::KvUpdate>> updates = {},
                                      size_t context = kContext) {
    size_t most = 0;
    for (const auto& batch : batches) most = std::max(most, batch.size());
    std::vector<float> qkv(most * columns_), out(most * config_.kinds[0].sizes.q_rows());
    AttentionNode node(config_, *file_,
                       {.isa = isa,
                        .tuning = tuning,
                        .threads = threads,
                        .slots = kSlots,
                        .context = context,
                        .node_of_thread = {}},
                       {.qkv = qkv.data(),
                        .qkv_stride = columns_,
                        .group_stride = {group_columns_},
                        .out = out.data(),
                        .out_stride = config_.kinds[0].sizes.q_rows()});
    // The steps of all threads, all appends first, then all attention, then all merges of split
    // rows: an order that flags allow between running threads, except that merges then follow their
    // thread's attention.
    std::vector<threadpool::ProgramBuilder> steps(threads);
    for (size_t t = 0; t < threads; ++t) {
      node.AddLayer(t, 0, 0, steps[t], [](size_t) { return std::span<sync::EpochFlag* const>(); });
    }
    std::vector<std::vector<float>> outputs;
    for (const auto& batch : batches) {
      std::vector<SlotId> slots;
      std::vector<uint32_t> positions;
      for (size_t m = 0; m < batch.size(); ++m) {
        slots.push_back(batch[m].slot);
        positions.push_back(batch[m].position);
        std::copy_n(&qkv_[batch[m].slot.index()][batch[m].position * columns_], columns_,
                    &qkv[m * columns_]);
      }
      model::BatchRows rows;
      rows.rows = static_cast<uint32_t>(batch.size());
      rows.slot = slots.data();
      rows.position = positions.data();
      const auto of_batch = static_cast<size_t>(&batch - batches.data());
      if (of_batch < updates.size()) {
        rows.kv_updates = static_cast<uint32_t>(updates[of_batch].size());
        rows.kv_update = updates[of_batch].data();
      }
      node.Map(rows);
      const bool attends = of_batch >= static_cast<size_t>(appended_);
      for (const threadpool::Kernel kernel : {AppendStep, AttentionStep, MergeStep}) {
        for (const threadpool::ProgramBuilder& of_thread : steps) {
          for (const threadpool::Step& step : of_thread.steps()) {
            if (step.kernel != kernel || (kernel != AppendStep && !attends)) continue;
            if (step.needed != nullptr && !step.needed(step.operand, &rows)) continue;
            step.kernel(step.operand, &rows);
            if (kernel == MergeStep) ++merges_;
          }
        }
      }
      if (!attends) continue;
      for (size_t m = 0; m < batch.size(); ++m) {
        outputs.emplace_back(
            &out[m * config_.kinds[0].sizes.q_rows()],
            &out[m * config_.kinds[0].sizes.q_rows()] + config_.kinds[0].sizes.q_rows());
      }
    }
    if (after_) after_(node);
    return outputs;
  }

  // Each block's Walsh-Hadamard transform by its definition, of length 1: it keeps dot products.
  static std::vector<float> Transformed(const std::vector<float>& x) {
    std::vector<float> out(RoundUp(x.size(), kernels::kBlock));
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t begin = i / kernels::kBlock * kernels::kBlock;
      double sum = 0;
      for (size_t j = begin; j < std::min(x.size(), begin + kernels::kBlock); ++j)
        sum += std::popcount((i - begin) & (j - begin)) % 2 == 0 ? x[j] : -x[j];
      out[i] = static_cast<float>(sum / std::sqrt(static_cast<double>(kernels::kBlock)));
    }
    return out;
  }

  // A head as the cache or a query stores it: INT8 with a scale per 32 elements; what rotates also
  // transformed.
  std::vector<double> Quantised(const float* head, bool rotates, double scale, uint32_t position,
                                bool half_scale) const {
    const size_t n = config_.kinds[0].sizes.head_size, half = config_.kinds[0].rotary.dim / 2;
    std::vector<float> x(head, head + n);
    if (rotates) {
      for (size_t i = 0; i < half; ++i) {
        const float cos = rope_[position * config_.kinds[0].rotary.dim + 2 * i];
        const float sin = rope_[position * config_.kinds[0].rotary.dim + 2 * i + 1];
        x[i] = head[i] * cos - head[i + half] * sin;
        x[i + half] = head[i] * sin + head[i + half] * cos;
      }
    }
    for (float& value : x) value *= static_cast<float>(scale);
    if (rotates) x = Transformed(x);
    std::vector<double> out(x.size());
    for (size_t begin = 0; begin < x.size(); begin += kernels::kBlock) {
      const size_t end = std::min(x.size(), begin + kernels::kBlock);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
      const float d = largest / 127;
      const double kept = half_scale ? model::F16ToF32(model::F32ToF16(d)) : d;
      for (size_t i = begin; i < end; ++i) out[i] = std::nearbyint(x[i] / d) * kept;
    }
    return out;
  }

  std::vector<double> Definition(const Row& row, size_t query_head) const {
    const size_t n = config_.kinds[0].sizes.head_size,
                 group = query_head / config_.kinds[0].sizes.group();
    const std::vector<float>& slot = qkv_[row.slot.index()];
    const auto head_of = [&](uint32_t position, size_t head) {
      return &slot[position * columns_ + group * group_columns_ + head * n];
    };
    const std::vector<double> q =
        Quantised(head_of(row.position, query_head % config_.kinds[0].sizes.group()), true,
                  1 / std::sqrt(static_cast<double>(n)), row.position, false);
    std::vector<double> out(n, 0.0);
    std::vector<double> scores;
    const size_t window = config_.kinds[0].window;
    const uint32_t first =
        window == 0 ? 0 : row.position - std::min(row.position, static_cast<uint32_t>(window - 1));
    for (uint32_t p = first; p <= row.position; ++p) {
      const std::vector<double> k =
          Quantised(head_of(p, config_.kinds[0].sizes.group()), true, 1, p, true);
      double score = 0;
      for (size_t i = 0; i < q.size(); ++i) score += q[i] * k[i];
      scores.push_back(score);
    }
    double most = *std::max_element(scores.begin(), scores.end()), sum = 0;
    if (!sinks_.empty()) {
      most = std::max<double>(most, sinks_[query_head]);
      sum = std::exp(sinks_[query_head] - most);
    }
    for (double& score : scores) sum += score = std::exp(score - most);
    for (uint32_t p = first; p <= row.position; ++p) {
      const std::vector<double> v =
          Quantised(head_of(p, config_.kinds[0].sizes.group() + 1), false, 1, p, true);
      for (size_t i = 0; i < n; ++i) out[i] += scores[p - first] / sum * v[i];
    }
    return out;
  }

  // The outputs of a row by the scalar kernels, with every position of the region from 0 on: those
  // outside the window with weights of +0.
  std::vector<float> NothingSkipped(const KvRegion& kv, const Row& row) const {
    const kernels::Elementwise& set = kernels::GetElementwise(kernels::Isa::kScalar);
    const model::LayerSpec& layer = config_.kinds[0];
    const size_t n = layer.sizes.head_size, half = layer.rotary.dim / 2;
    const size_t blocks = CeilDiv(n, kernels::kBlock);
    const kernels::Gemm products = kernels::Gemm::Make(
        kernels::Isa::kScalar, ScoresShape(blocks), kernels::DefaultTuning(kernels::Isa::kScalar));
    std::vector<float> cos_sin(2 * half), out(layer.sizes.q_rows());
    for (size_t i = 0; i < half; ++i) {
      cos_sin[i] = rope_[row.position * layer.rotary.dim + 2 * i];
      cos_sin[half + i] = rope_[row.position * layer.rotary.dim + 2 * i + 1];
    }
    for (size_t h = 0; h < layer.sizes.heads; ++h) {
      const size_t kv_head = h / layer.sizes.group();
      const float* const in =
          &qkv_[row.slot.index()]
               [row.position * columns_ + kv_head * group_columns_ + h % layer.sizes.group() * n];
      std::vector<float> query(in, in + n);
      set.rope(query.data(), cos_sin.data(), half);
      std::vector<uint8_t> act(kernels::ActRowBytes(blocks));
      auto* const quantised = reinterpret_cast<kernels::ActBlock*>(act.data());
      set.quantize_hadamard(query.data(), nullptr, quantised, n,
                            static_cast<float>(1.0 / layer.attention_divisor) / kernels::kBlock);
      std::vector<float> o(blocks * kernels::kBlock, 0.0f), weighted(o.size());
      float m = std::numeric_limits<float>::lowest(), l = 0;
      for (size_t c = 0; c * kernels::kChunkPositions <= row.position; ++c) {
        const size_t begin = c * kernels::kChunkPositions;
        const size_t end = std::min(begin + kernels::kChunkPositions, row.position + size_t{1});
        const size_t first =
            std::max(begin, row.position + 1 - std::min<size_t>(layer.window, row.position + 1));
        const KvChunk chunk = kv.chunk(row.slot, c, 0, kv_head);
        std::vector<float> p(kernels::kChunkStride);
        products.Run(chunk.keys, quantised, p.data(),
                     kernels::kChunkPositions / kernels::kPagePositions, 1);
        float chunk_max = std::numeric_limits<float>::lowest(), chunk_sum = 0;
        if (first < end) {
          set.softmax_chunk(p.data(), p.size(), 1, first - begin, end - begin,
                            kernels::kChunkPositions, &chunk_max, &chunk_sum);
        } else {
          std::ranges::fill(p, 0.0f);
        }
        kernels::ChunkWeights weights;
        set.quantize_weights(p.data(), p.size(), chunk.values,
                             kv.shape().layers[0].value_page_bytes, &weights,
                             kernels::ChunkWeights::kPages, 1);
        kernels::ValuesReference({.blocks = blocks, .queries = 1, .o_stride = o.size()},
                                 chunk.values, &weights, weighted.data(),
                                 kernels::ChunkWeights::kPages);
        set.merge(o.data(), &m, &l, weighted.data(), chunk_max, chunk_sum, n);
      }
      set.finish(o.data(), l, &out[h * n], n);
    }
    return out;
  }

  static Row At(int slot, uint32_t position) { return {SlotId(slot), position}; }
  static std::vector<Row> Positions(int slot, uint32_t begin, uint32_t end) {
    std::vector<Row> rows;
    for (uint32_t p = begin; p < end; ++p) rows.push_back(At(slot, p));
    return rows;
  }
  static std::vector<Row> Both(std::vector<Row> a, const std::vector<Row>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  TemporaryFolder folder_;
  std::shared_ptr<const model::GgufFile> file_;
  model::ModelConfig config_;
  size_t group_columns_ = 0, columns_ = 0;
  std::vector<float> rope_;
  std::vector<float> qkv_[kSlots];
  std::vector<float> sinks_;  // [heads], or empty
  ptrdiff_t appended_ = 0;
  int merges_ = 0;  // rows that were split
  std::function<void(const AttentionNode&)> after_;
};

TEST_F(AttentionNodeTest, IsItsDefinition) {
  // Slot 1 as rows of two prompts and a decoded one beyond a chunk's border, with slot 0 beside it.
  const std::vector<std::vector<Row>> batches = {Positions(1, 0, 90),
                                                 Both(Positions(0, 0, 7), Positions(1, 90, 258)),
                                                 Both(Positions(0, 7, 8), Positions(1, 258, 259))};
  const auto outputs = Run(batches, 1, kernels::Isa::kScalar);
  std::vector<Row> rows;
  for (const auto& batch : batches) rows.insert(rows.end(), batch.begin(), batch.end());
  ASSERT_EQ(outputs.size(), rows.size());
  for (const Row& row : {At(1, 0), At(1, 15), At(1, 16), At(1, 89), At(0, 6), At(1, 255),
                         At(1, 256), At(0, 7), At(1, 258)}) {
    const auto at = static_cast<size_t>(std::find(rows.begin(), rows.end(), row) - rows.begin());
    for (size_t head = 0; head < config_.kinds[0].sizes.heads; ++head) {
      const std::vector<double> expected = Definition(row, head);
      for (size_t i = 0; i < config_.kinds[0].sizes.head_size; ++i) {
        // The remaining differences: float32 sums, and a query or key whose rounding goes the other
        // way (1/127 of its largest element, about 0.03 here, times the softmax's slope).
        EXPECT_NEAR(outputs[at][head * config_.kinds[0].sizes.head_size + i], expected[i], 0.03)
            << "slot " << row.slot.value << " position " << row.position << " head " << head
            << " element " << i;
      }
    }
  }
}

// A sink takes part in each softmax of its head, whichever thread has its last chunk.
TEST_F(AttentionNodeTest, SinksTakePartInSums) {
  model::LayerSpec& layer = config_.kinds[0];
  const size_t heads = layer.sizes.heads, size = layer.sizes.head_size;
  // The file has none: six of its numbers, which are around 1.
  layer.tensors.push_back({.role = model::TensorRole::kSinks,
                           .kind = model::TensorKind::kTable,
                           .suffix = "attn_norm.weight",
                           .rows = 1,
                           .cols = heads,
                           .meaning = {},
                           .first = 3});
  sinks_ = model::ReadVector(*file_, config_, 0, model::TensorRole::kSinks);
  ASSERT_EQ(sinks_.size(), heads);
  const std::vector<Row> all = Positions(1, 0, 700);
  const auto outputs = Run({all}, 1, kernels::Isa::kScalar);
  for (const uint32_t position : {0u, 1u, 15u, 255u, 256u, 699u}) {
    for (size_t head = 0; head < heads; ++head) {
      const std::vector<double> expected = Definition(At(1, position), head);
      for (size_t i = 0; i < size; ++i)
        EXPECT_NEAR(outputs[position][head * size + i], expected[i], 0.03) << position;
    }
  }
  for (const size_t threads : {2, 3, 5}) {
    merges_ = 0;
    std::vector<std::vector<Row>> batches = {Positions(1, 0, 690)};
    for (uint32_t p = 690; p < 700; ++p) batches.push_back({At(1, p)});
    EXPECT_TRUE(Run(batches, threads, kernels::BestIsa()) == outputs) << threads;
    EXPECT_EQ(merges_ > 0, threads != 2);  // which have a KV head each
  }
}

TEST_F(AttentionNodeTest, SameBitsHoweverRowsThreadsAndInstructionSetsAreCut) {
  const std::vector<Row> all = Both(Positions(0, 0, 60), Positions(1, 0, 300));
  const auto expected = Run({all}, 1, kernels::Isa::kScalar);
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::BestIsa()}) {
    for (const size_t threads : {1, 2, 3, 5}) {
      EXPECT_TRUE(Run({all}, threads, isa) == expected)
          << threads << " threads, " << kernels::IsaName(isa);
      std::vector<std::vector<Row>> pieces;
      for (size_t begin = 0, size = 1; begin < all.size();
           begin += pieces.back().size(), size = size * 5 % 67) {
        pieces.emplace_back(
            all.begin() + static_cast<ptrdiff_t>(begin),
            all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), begin + size)));
      }
      EXPECT_TRUE(Run(pieces, threads, isa) == expected)
          << pieces.size() << " micro-batches, " << threads << " threads, "
          << kernels::IsaName(isa);
    }
  }
}

TEST_F(AttentionNodeTest, SameBitsWhateverTheTiles) {
  const std::vector<Row> all = Both(Positions(0, 0, 60), Positions(1, 0, 300));
  const auto expected = Run({all}, 1, kernels::Isa::kScalar);
  const kernels::Isa isa = kernels::BestIsa();
  const auto with = [&](const kernels::AttentionTuning& attention) {
    kernels::KernelTuning tuning = kernels::DefaultTuning(isa);
    tuning.attention = attention;
    return tuning;
  };
  const kernels::AttentionTuning usual = kernels::DefaultTuning(isa).attention;
  kernels::ScheduleTable small;  // one query, one page at a time
  small.Fill({{}, {.panels = 1, .rows = 1}});
  // Tile of 1: it holds the queries of one row, 3. 31 and 32 sums do not fit any set's registers.
  for (const kernels::AttentionTuning& attention :
       std::initializer_list<kernels::AttentionTuning>{{usual.scores, 2, 2, 1},
                                                       {small, 5, 3, 10},
                                                       {usual.scores, 31, 4, 200},
                                                       {small, 32, 32, 256},
                                                       {usual.scores, 1, 1, 256}}) {
    EXPECT_TRUE(Run({all}, 2, isa, with(attention)) == expected)
        << attention.value_sums << " sums, tiles of " << attention.tile_queries;
  }
  // What is tuned for other heads, or other groups of them, is not used; for these it is.
  kernels::AttentionTuning bad = usual;
  bad.tile_queries = kMaxTileQueries + 1;
  kernels::KernelTuning tuned = kernels::DefaultTuning(isa);
  tuned.tuned_attention = {{3, 3, bad}, {2, 4, bad}, {2, 3, {small, 4, 2, 12}}};
  EXPECT_TRUE(Run({all}, 1, isa, tuned) == expected);
  tuned.tuned_attention.back().attention = bad;
  EXPECT_THROW(Run({all}, 1, isa, tuned), Error);
  kernels::AttentionTuning narrow = usual, none = usual, wide = usual;
  narrow.value_queries = narrow.value_sums + 1;
  none.value_queries = 0;
  wide.scores.of[3].tile.panels = kernels::TileSpec::kMaxPanels + 1;
  for (const kernels::AttentionTuning& attention : {bad, narrow, none, wide})
    EXPECT_THROW(Run({all}, 1, isa, with(attention)), Error);
}

// A context is split over threads at chunks; with two heads and up to nine threads a row has up to
// six parts.
TEST_F(AttentionNodeTest, SameBitsHoweverContextsAreSplit) {
  const std::vector<std::vector<Row>> batches = {
      Both(Positions(0, 0, 600), Positions(1, 0, 1276)),
      {At(0, 600)},
      {At(1, 1276)},
      {At(0, 601), At(1, 1277)},
      Both(Positions(0, 602, 606), {At(1, 1278), At(1, 1279)})};
  appended_ = 1;
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::BestIsa()}) {
    const auto expected = Run(batches, 1, isa);
    ASSERT_EQ(expected.size(), 10u);
    for (const size_t threads : {2, 3, 4, 5, 7, 9})
      EXPECT_TRUE(Run(batches, threads, isa) == expected)
          << threads << ", " << kernels::IsaName(isa);
  }
  EXPECT_GT(merges_, 50);
}

// Only the table says where slots and chunks lie: any permutation of it gives the same bits.
TEST_F(AttentionNodeTest, SameBitsWhereverChunksLie) {
  const std::vector<Row> all = Both(Positions(0, 0, 258), Positions(1, 0, 275));
  const kernels::Isa isa = kernels::BestIsa();
  const auto expected = Run({all}, 2, isa);
  constexpr size_t kChunks = 2, kContextOfTable = kChunks * kernels::kChunkPositions;
  std::vector<uint32_t> chunks(kSlots * kChunks);
  std::iota(chunks.begin(), chunks.end(), 0u);
  do {
    std::vector<std::vector<model::KvUpdate>> updates(1);
    for (uint32_t i = 0; i < chunks.size(); ++i)
      updates[0].push_back(
          {SlotId(static_cast<int32_t>(i / kChunks)), i % uint32_t{kChunks}, chunks[i]});
    ASSERT_TRUE(Run({all}, 2, isa, kernels::DefaultTuning(isa), updates, kContextOfTable) ==
                expected);
  } while (std::next_permutation(chunks.begin(), chunks.end()));
}

// A sequence that begins with another one's chunks, the last of them copied, attends as if it had
// computed them itself, and does not disturb the other one.
TEST_F(AttentionNodeTest, SharedAndCopiedChunksAreTheSequencesOwn) {
  constexpr uint32_t kShared = 256 + 77;  // the second chunk is copied: its last page is half full
  qkv_[1] = qkv_[0];
  const std::vector<Row> first = Positions(0, 0, kShared + 5),
                         second = Positions(1, kShared, kShared + 40),
                         on = Positions(0, kShared + 5, kShared + 12);
  // Other keys from the seam on: what the first sequence has there must not be seen by the second.
  for (size_t i = kShared * columns_; i < qkv_[1].size(); ++i) qkv_[1][i] = -qkv_[1][i];
  for (const kernels::Isa isa : {kernels::Isa::kScalar, kernels::BestIsa()}) {
    for (const size_t threads : {size_t{1}, size_t{3}}) {
      const auto alone = Run({Positions(1, 0, kShared), second}, threads, isa);
      const auto other = Run({first, on}, threads, isa);
      const std::vector<std::vector<model::KvUpdate>> updates = {
          {}, {{SlotId(1), 0, 0, 0, 0}, {SlotId(1), 1, 7, 1, 77}}};
      const auto shared =
          Run({first, Both(second, on)}, threads, isa, kernels::DefaultTuning(isa), updates);
      ASSERT_EQ(shared.size(), first.size() + second.size() + on.size());
      for (size_t i = 0; i < second.size(); ++i)
        ASSERT_TRUE(shared[first.size() + i] == alone[kShared + i]) << i;
      for (size_t i = 0; i < on.size(); ++i)
        ASSERT_TRUE(shared[first.size() + second.size() + i] == other[first.size() + i]) << i;
    }
  }
}

constexpr size_t kWindows[] = {1, 15, 16, 17, 255, 256, 257, 300};

TEST_F(AttentionNodeTest, AWindowIsItsDefinition) {
  for (const size_t window : kWindows) {
    config_.kinds[0].window = window;
    const std::vector<std::vector<Row>> batches = {
        Positions(1, 0, 255), Positions(1, 255, 520), {At(1, 520)}, Positions(1, 521, 700)};
    const auto outputs = Run(batches, 1, kernels::Isa::kScalar);
    for (const uint32_t position :
         {0u, 14u, 15u, 16u, 254u, 255u, 256u, 257u, 300u, 511u, 512u, 520u, 699u}) {
      for (const size_t head : {size_t{0}, config_.kinds[0].sizes.heads - 1}) {
        const std::vector<double> expected = Definition(At(1, position), head);
        for (size_t i = 0; i < config_.kinds[0].sizes.head_size; ++i) {
          EXPECT_NEAR(outputs[position][head * config_.kinds[0].sizes.head_size + i], expected[i],
                      0.03)
              << "window " << window << " position " << position << " element " << i;
        }
      }
    }
  }
}

TEST_F(AttentionNodeTest, AWindowHasTheSameBitsHoweverRowsThreadsAndInstructionSetsAreCut) {
  const std::vector<Row> all = Both(Positions(0, 0, 60), Positions(1, 0, 600));
  for (const size_t window : kWindows) {
    config_.kinds[0].window = window;
    const auto expected = Run({all}, 1, kernels::Isa::kScalar);
    for (const size_t size : {1, 7, 256}) {
      std::vector<std::vector<Row>> pieces;
      for (size_t begin = 0; begin < all.size(); begin += size) {
        pieces.emplace_back(
            all.begin() + static_cast<ptrdiff_t>(begin),
            all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), begin + size)));
      }
      for (const size_t threads : {1, 2, 3, 4, 5})
        EXPECT_TRUE(Run(pieces, threads, kernels::BestIsa()) == expected)
            << "window " << window << ", rows " << size << ", threads " << threads;
    }
  }
}

// Rows of a long window are split over threads at chunks of what they see.
TEST_F(AttentionNodeTest, AWindowHasTheSameBitsHoweverItIsSplit) {
  const std::vector<std::vector<Row>> batches = {
      Both(Positions(0, 0, 600), Positions(1, 0, 1276)),
      {At(0, 600)},
      {At(1, 1276)},
      {At(0, 601), At(1, 1277)},
      Both(Positions(0, 602, 606), {At(1, 1278), At(1, 1279)})};
  appended_ = 1;
  for (const size_t window : {300, 700}) {
    config_.kinds[0].window = window;
    const auto expected = Run(batches, 1, kernels::Isa::kScalar);
    for (const size_t threads : {2, 3, 4, 5, 7, 9})
      EXPECT_TRUE(Run(batches, threads, kernels::BestIsa()) == expected) << threads;
  }
  EXPECT_GT(merges_, 50);
}

// Chunks and pages that no row of a tile sees are skipped. Had their weights, which are +0, been
// added, no bit would be another one: here they are, from position 0 on.
TEST_F(AttentionNodeTest, WhatIsSkippedWouldChangeNoBit) {
  constexpr uint32_t kPositions = 700;
  for (const size_t window : kWindows) {
    config_.kinds[0].window = window;
    std::vector<std::vector<float>> all(kPositions);
    after_ = [&](const AttentionNode& node) {
      for (uint32_t p = 0; p < kPositions; ++p) all[p] = NothingSkipped(node.kv(), At(1, p));
    };
    const auto outputs = Run({Positions(1, 0, kPositions)}, 1, kernels::BestIsa());
    for (uint32_t p = 0; p < kPositions; ++p)
      ASSERT_TRUE(outputs[p] == all[p]) << "window " << window << ", position " << p;
  }
}

NumaNodeId Anywhere(const KvShape::Part&) { return {}; }

TEST(KvRegion, ChunksFillTheRegionAndDoNotOverlap) {
  model::ModelShape model_shape;
  model_shape.layers = 3;
  model_shape.kv_heads = 2;
  model_shape.head_size = 40;
  const model::ModelConfig config = model::ConfigOfShape(model_shape, "test");
  for (const size_t context : {size_t{300}, size_t{100}}) {  // 100: chunks of four value pages
    const KvShape shape(config, 2, context);
    const size_t pages = context == 300 ? 8 : 4;
    ASSERT_EQ(shape.value_pages, pages);
    ASSERT_EQ(shape.chunks, context == 300 ? 2u : 1u);
    ASSERT_EQ(shape.pool, 2 * shape.chunks);
    const KvRegion region(shape, Anywhere);
    std::vector<bool> taken(shape.bytes(), false);
    const uint8_t* const base = region.memory(0).pieces()[0].data();
    const auto take = [&](const uint8_t* begin, size_t bytes) {
      const auto first = static_cast<size_t>(begin - base);
      for (size_t i = first; i < first + bytes; ++i) {
        ASSERT_FALSE(taken.at(i));
        taken[i] = true;
      }
    };
    for (SlotId slot(0); slot.index() < shape.slots; ++slot) {
      for (size_t chunk = 0; chunk < shape.chunks; ++chunk) {
        for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
          for (size_t head = 0; head < shape.layers[layer].kv_heads; ++head) {
            const KvChunk at = region.chunk(slot, chunk, layer, head);
            take(at.keys, 2 * pages * shape.layers[layer].key_page_bytes);
            take(at.values, pages * shape.layers[layer].value_page_bytes);
          }
        }
      }
    }
    EXPECT_TRUE(std::all_of(taken.begin(), taken.end(), [](bool is_taken) { return is_taken; }));
  }
}

// Wherever the parts of chunks lie, files of chunks are the same.
TEST(KvRegion, PartsLieOnTheirNodes) {
  const auto node_of = [](const KvShape::Part& part) {
    return NumaNodeId(static_cast<int32_t>((part.layer + part.head) % 3));
  };
  for (const char* family : {"gemma3", "qwen35"}) {
    model::ModelShape model_shape;
    model_shape.architecture = family;
    model_shape.layers = 8;
    model_shape.kv_heads = 2;
    if (std::string_view(family) == "gemma3") model_shape.window = 100;
    const model::ModelConfig config = model::ConfigOfShape(model_shape, "test");
    const model::Capacity capacity{.slots = 2, .context = 600, .max_batch_tokens = 64};
    const auto classes = KvShape::ClassesOf(config, capacity);
    ASSERT_EQ(classes.size(), 2u);
    const KvShape shape(config, 2, 600, KvShape::Pools(classes, 2, capacity), classes);
    const KvRegion together(shape, Anywhere), apart(shape, node_of);
    EXPECT_EQ(apart.arenas().nodes(),
              (std::vector<NumaNodeId>{NumaNodeId(0), NumaNodeId(1), NumaNodeId(2)}));
    const auto mark = [&](const KvRegion& region, SlotId slot, const KvShape::Part& part,
                          size_t chunk, size_t number) {
      uint8_t* const at = part.state ? region.state(slot, part.layer, part.head)
                                     : region.chunk(slot, chunk, part.layer, part.head).keys;
      const std::vector<uint8_t> bytes(part.bytes, static_cast<uint8_t>(number));
      std::ranges::copy(bytes, at);
      EXPECT_EQ(region.arenas().NodeOf(at + part.bytes - 1),
                &region == &apart ? node_of(part) : NumaNodeId());
    };
    for (const KvRegion* region : {&together, &apart}) {
      size_t number = 0;
      for (SlotId slot(0); slot.index() < 2; ++slot) {
        for (size_t chunk = 0; chunk < shape.chunks; ++chunk) {
          for (const KvShape::Part& part : shape.parts)
            mark(*region, slot, part, chunk, number++ % 251);
        }
      }
    }
    for (uint32_t chunk = 0; chunk < shape.pool; ++chunk) {
      EXPECT_EQ(together.memory(chunk).pieces().size(), 1u);
      EXPECT_GE(apart.memory(chunk).pieces().size(), 2u);
      ASSERT_TRUE(together.memory(chunk).Read() == apart.memory(chunk).Read()) << chunk;
    }
  }
}

TEST(KvRegion, UpdatesOutsideAreRefused) {
  const model::ModelConfig config = model::ConfigOfShape(model::ModelShape{}, "test");
  const KvRegion region(KvShape(config, 2, 600, std::array{size_t{4}}), Anywhere);
  EXPECT_EQ(region.Check({SlotId(1), 2, 3, 0, 0}), nullptr);
  EXPECT_STREQ(region.Check({SlotId(2), 0, 0, 0, 0}), "KV for a slot that does not exist");
  EXPECT_STREQ(region.Check({SlotId(-1), 0, 0, 0, 0}), "KV for a slot that does not exist");
  EXPECT_STREQ(region.Check({SlotId(0), 3, 0, 0, 0}), "KV beyond the context");
  EXPECT_STREQ(region.Check({SlotId(0), 0, 4, 0, 0}), "a KV chunk that does not exist");
  EXPECT_STREQ(region.Check({SlotId(0), 0, 0, 4, 1}), "a KV chunk that does not exist");
}

// Two classes on each of two sockets: no chunk overlaps another one, each has the layers of its
// class, and an update enters the table of its class.
TEST(KvRegion, ClassesHaveTheirOwnChunks) {
  model::ModelShape model_shape;
  model_shape.architecture = "exaone4";
  model_shape.layers = 4;
  model_shape.kv_heads = 2;
  model_shape.window = 100;
  const model::ModelConfig config = model::ConfigOfShape(model_shape, "test");
  const model::Capacity capacity{.slots = 3, .context = 2000, .max_batch_tokens = 64};
  const auto classes = KvShape::ClassesOf(config, capacity);
  ASSERT_EQ(classes, (std::vector<model::KvClass>{{0, 0}, {100, 2}}));
  EXPECT_EQ(KvShape::Pools(classes, 2, capacity), (std::vector<size_t>{16, 4}));
  const std::vector<size_t> pools = {16, 4, 8, 2};
  const KvShape shape(config, 3, 2000, pools, classes);
  EXPECT_EQ(shape.pool, 30u);
  EXPECT_EQ(shape.class_bytes[1], 3 * shape.class_bytes[0]);
  EXPECT_EQ(shape.bytes(), 24 * shape.class_bytes[0] + 6 * shape.class_bytes[1]);
  EXPECT_EQ(shape.slot_bytes(), 8 * shape.class_bytes[0] + 2 * shape.class_bytes[1]);
  KvRegion region(shape, Anywhere);
  EXPECT_GE(region.arenas().bytes(), shape.bytes());
  std::map<const uint8_t*, size_t> all;  // bytes
  for (uint32_t chunk = 0; chunk < shape.pool; ++chunk) {
    const topology::ScatteredBytes memory = region.memory(chunk);
    EXPECT_EQ(memory.size(), shape.class_bytes[(chunk >= 16 && chunk < 20) || chunk >= 28]);
    ASSERT_EQ(memory.pieces().size(), 1u);
    EXPECT_TRUE(all.emplace(memory.pieces()[0].data(), memory.size()).second);
  }
  for (auto at = all.begin(); std::next(at) != all.end(); ++at)
    EXPECT_LE(at->first + at->second, std::next(at)->first);
  EXPECT_EQ(region.Check({SlotId(2), 7, 29, 28, 5}), nullptr);
  EXPECT_STREQ(region.Check({SlotId(2), 7, 27, 28, 5}), "a KV chunk that does not exist");
  EXPECT_STREQ(region.Check({SlotId(2), 7, 17, 28, 5}), "a KV chunk that does not exist");
  EXPECT_STREQ(region.Check({SlotId(2), 7, 30, 0, 0}), "a KV chunk that does not exist");
  region.Map({SlotId(2), 7, 29, 0, 0});
  region.Map({SlotId(2), 7, 5, 0, 0});
  EXPECT_EQ(region.chunk(SlotId(2), 7, 0, 0).keys, region.memory(29).pieces()[0].data());
  EXPECT_EQ(region.chunk(SlotId(2), 7, 3, 0).keys, region.memory(5).pieces()[0].data());
  // What a copy of one class says is not done for layers of the other one.
  const std::vector<uint8_t> ones(shape.class_bytes[1], 1), zeros(shape.class_bytes[1], 0);
  region.memory(28).Write(ones);
  region.memory(29).Write(zeros);
  region.memory(5).Write(std::span(zeros).first(shape.class_bytes[0]));
  for (size_t layer = 0; layer < 4; ++layer) {
    for (size_t head = 0; head < 2; ++head) region.Copy({SlotId(2), 7, 29, 28, 256}, layer, head);
  }
  EXPECT_EQ(region.memory(29).Read(), ones);
  EXPECT_EQ(std::ranges::count(region.memory(5).Read(), 1), 0);
}

// Layers that attend to another layer's keys and values have its place, and no bytes.
TEST(KvShape, SharedKeysAndValuesAreThereOnce) {
  model::ModelShape shape{.architecture = "gemma4",
                          .layers = 12,
                          .dim = 64,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_size = 16,
                          .window = 32};
  const model::Capacity capacity{.context = 512};
  const KvShape own = KvShape::OfSequence(model::ConfigOfShape(shape, "own"), capacity);
  shape.shared_kv = 4;
  const KvShape shared = KvShape::OfSequence(model::ConfigOfShape(shape, "shared"), capacity);
  ASSERT_EQ(shared.class_bytes.size(), 2u);
  EXPECT_EQ(shared.class_bytes[0], own.class_bytes[0] / 2) << "layer 5's, not layer 11's";
  EXPECT_EQ(shared.class_bytes[1], own.class_bytes[1] / 10 * 7);
  for (size_t layer = 8; layer < 12; ++layer) {
    const KvShape::Layer &is = shared.layers[layer], &of = shared.layers[layer == 11 ? 5 : 7];
    EXPECT_EQ(is.of_class, of.of_class);
    EXPECT_EQ(is.first_part, of.first_part);
  }
}

TEST(KvShape, PoolsAreSharesOfTheTokens) {
  EXPECT_EQ(KvShape::PoolChunks(8, {.slots = 8, .context = 1000, .kv_tokens = 0}), 32u);
  EXPECT_EQ(KvShape::PoolChunks(8, {.slots = 8, .context = 1000, .kv_tokens = 1}), 4u)
      << "one full context at least";
  EXPECT_EQ(KvShape::PoolChunks(8, {.slots = 8, .context = 1000, .kv_tokens = 2600}), 11u);
  EXPECT_EQ(KvShape::PoolChunks(2, {.slots = 8, .context = 1000, .kv_tokens = 5200}), 6u);
  EXPECT_EQ(
      KvShape::PoolChunks(4, {.slots = 8, .context = 1000, .kv_tokens = 0, .cached_tokens = 5000}),
      16u + 10);
  EXPECT_EQ(KvShape::PoolChunks(4, {.slots = 8, .context = 1000, .kv_tokens = 1 << 20}), 2048u)
      << "more than slots can fill: for those that ended";
}

TEST(WorkBegin, PartsCoverAllWorkInOrderAndAreEqual) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t n) {
    return std::uniform_int_distribution<uint32_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    const size_t heads = 1 + below(9), threads = 1 + below(24);
    std::vector<uint32_t> positions(1 + below(i % 2 == 0 ? 4 : 40));
    for (uint32_t& position : positions) position = below(i % 3 == 0 ? 300 : 9000);
    const size_t window = i % 5 == 0 ? 1 + below(2000) : 0;
    model::BatchRows rows;
    rows.rows = static_cast<uint32_t>(positions.size());
    rows.position = positions.data();
    uint32_t in_head = 0, longest = 0;
    for (uint32_t m = 0; m < rows.rows; ++m) {
      in_head += ContextChunks(rows, m, window);
      longest = std::max(longest, ContextChunks(rows, m, window));
    }
    const auto chunks_before = [&](const WorkPoint& at) {
      uint64_t chunks = uint64_t{at.head} * in_head + at.chunk;
      for (uint32_t m = 0; m < at.row; ++m) chunks += ContextChunks(rows, m, window);
      return static_cast<double>(chunks);
    };
    EXPECT_EQ(WorkBegin(rows, heads, window, 0, threads), WorkPoint{});
    EXPECT_EQ(WorkBegin(rows, heads, window, threads, threads),
              (WorkPoint{static_cast<uint32_t>(heads), 0, 0}));
    const double equal = static_cast<double>(heads * in_head) / static_cast<double>(threads);
    const bool splits = equal < 8.0 * longest;
    for (size_t t = 0; t < threads; ++t) {
      const WorkPoint begin = WorkBegin(rows, heads, window, t, threads),
                      end = WorkBegin(rows, heads, window, t + 1, threads);
      ASSERT_LE(begin, end);
      if (begin.head < heads) {
        ASSERT_LT(begin.row, rows.rows);
        ASSERT_LT(begin.chunk, ContextChunks(rows, begin.row, window));
      }
      ASSERT_TRUE(splits || begin.chunk == 0);
      // An end lies at most one chunk, or half a row, from where it would be with parts of any
      // size.
      EXPECT_NEAR(chunks_before(begin), equal * static_cast<double>(t),
                  splits ? 1 : 0.5 * longest + 1);
      for (uint32_t head = 0; head < heads; ++head) {
        const bool works =
            begin < WorkPoint{head + 1, 0, 0} && WorkPoint{head, 0, 0} < end && begin < end;
        ASSERT_TRUE(!works || OwnersOf(head, heads, threads).contains(t));
      }
    }
  }
}

TEST(Owners, EveryHeadHasSomeAndEveryThreadWork) {
  for (size_t heads = 1; heads < 12; ++heads) {
    for (size_t threads = 1; threads < 12; ++threads) {
      std::vector<bool> works(threads, false);
      size_t end = 0;
      for (size_t head = 0; head < heads; ++head) {
        const Range<size_t> owners = OwnersOf(head, heads, threads);
        ASSERT_LT(owners.begin, owners.end);
        ASSERT_LE(owners.end, threads);
        EXPECT_LE(owners.begin, head == 0 ? 0 : end);
        end = owners.end;
        for (size_t t = owners.begin; t < owners.end; ++t) works[t] = true;
      }
      EXPECT_TRUE(std::all_of(works.begin(), works.end(), [](bool w) { return w; }));
    }
  }
}

}  // namespace
}  // namespace larder::attention_node
