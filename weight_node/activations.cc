#include "weight_node/activations.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"
#include "kernels/rows/elementwise.h"

namespace larder::weight_node {
namespace {

// The value of the layer that has the most.
size_t MostOf(const model::ModelConfig& config, size_t LayerShape::*size) {
  return config.Most([&](const model::LayerSpec& layer) { return LayerShape(layer).*size; });
}
size_t MostQRows(const model::ModelConfig& config) {
  return config.Most([](const model::LayerSpec& layer) { return layer.output_size(); });
}
size_t MostAttended(const model::ModelConfig& config) {
  return config.Most([](const model::LayerSpec& layer) { return layer.attended_size(); });
}
// What key up and value up give, of a head.
size_t MostOfHead(const model::ModelConfig& config) {
  return config.Most([](const model::LayerSpec& layer) {
    return RoundUp(std::max(layer.latent.rank, layer.latent.value_size), kernels::kPanelRows);
  });
}
size_t MostQkv(const model::ModelConfig& config) {
  return config.Most([](const model::LayerSpec& layer) {
    if (layer.latent.any()) return (layer.sizes.heads + 1) * layer.sizes.head_size;
    return LayerShape(layer).qkv_panels * kernels::kPanelRows;
  });
}

size_t OddLines(size_t bytes) { return (CeilDiv(bytes, kCacheLineBytes) | 1) * kCacheLineBytes; }

}  // namespace

size_t OddStride(size_t floats) { return OddLines(floats * sizeof(float)) / sizeof(float); }

size_t QkvStride(const model::ModelConfig& config) { return OddStride(MostQkv(config)); }
size_t AttnStride(const model::ModelConfig& config) { return OddStride(MostAttended(config)); }

size_t OwnNormRows(const model::ModelConfig& config, size_t n_threads) {
  constexpr size_t kMost = 32;
  // Nanoseconds. Norm and quantisation of an input: 0.25 (Zen 5) to 0.77 (Cascade Lake). A barrier
  // takes 120 to 300 ns by itself; in a step it also costs what one thread is later than the
  // others: 8 rows of dim 384 on two threads lost 2 to 5 us for each one more. A level more of the
  // tree of cores is another hand-over.
  constexpr double kInputNs = 0.5, kBarrierNs = 2000, kHandOverNs = 150;
  // Per layer, two norms and the attention output; the latter is quantised only.
  const double row_ns = kInputNs * (2.0 * static_cast<double>(config.dim) +
                                    0.5 * static_cast<double>(MostQRows(config)));
  const double barriers_ns =
      3 * (kBarrierNs + kHandOverNs * std::log2(static_cast<double>(n_threads)));
  for (size_t rows = 2; rows <= kMost; ++rows) {
    const double own = row_ns * static_cast<double>(rows);
    if (own > row_ns * static_cast<double>(CeilDiv(rows, n_threads)) + barriers_ns) return rows - 1;
  }
  return kMost;
}

Activations::Activations(const model::ModelConfig& config,
                         std::span<const NumaNodeId> node_of_thread, size_t few, size_t most,
                         size_t logit, const AttentionIoRows* shared)
    : few_rows(few), max_batch_tokens(most), logit_rows(logit) {
  const size_t dim_blocks = CeilDiv(config.dim, kernels::kBlock),
               q_blocks = MostOf(config, &LayerShape::q_blocks);
  const bool has_post_norms = config.Most([](const model::LayerSpec& layer) {
    return std::ranges::any_of(layer.ops,
                               [](const model::LayerOp& op) { return op.post_norm.has_value(); });
  });
  const bool is_projected_apart = config.Most([](const model::LayerSpec& layer) {
    return layer.qk_norm == model::QkNorm::kRow || layer.latent.any();
  });
  const bool is_latent =
      config.Most([](const model::LayerSpec& layer) { return layer.latent.any(); });
  const size_t query_blocks = MostOf(config, &LayerShape::query_blocks);
  const bool has_experts_beside =
      config.Most([](const model::LayerSpec& layer) { return layer.experts.beside_ffn; });
  const size_t scratch_floats =
      std::max({kernels::kNormRows * std::max(dim_blocks, query_blocks) * kernels::kBlock,
                config.ends ? RoundUp(config.all_inputs(), kernels::kBlock) : 0,
                config.Most([](const model::LayerSpec& layer) {
                  if (layer.Has(model::TensorRole::kGroupNorm))
                    return kernels::kNormRows * layer.state_sizes().q_rows();
                  return layer.qk_norm == model::QkNorm::kRow ? layer.sizes.q_rows() : 0;
                })});
  threads.resize(node_of_thread.size());
  arenas_ = topology::NodeArenas([&](auto&& take_on) {
    NumaNodeId node = node_of_thread[0];
    const auto take = [&](size_t bytes) { return take_on(node, bytes); };
    auto floats = [&](FloatRows& rows, size_t n, size_t count) {
      rows.stride = OddStride(n);
      rows.data = reinterpret_cast<float*>(take(count * rows.stride_bytes()));
    };
    auto acts = [&](ActRows& rows, size_t blocks, size_t count) {
      rows.stride_bytes = kernels::ActRowBytes(blocks);
      rows.data = reinterpret_cast<uint8_t*>(take(count * rows.stride_bytes));
    };
    floats(x, RoundUp(config.dim, kernels::kPanelRows), most);
    if (has_post_norms) {
      floats(attention_branch, RoundUp(config.dim, kernels::kPanelRows), most);
      floats(ffn_branch, RoundUp(config.dim, kernels::kPanelRows), most);
      floats(between[0], RoundUp(config.dim, kernels::kPanelRows), few);
    }
    if (has_experts_beside) {
      floats(expert_branch, RoundUp(config.dim, kernels::kPanelRows), most);
      acts(shared_expert_dim, dim_blocks, most);
    }
    if (config.input_size != 0) {
      floats(between[1], RoundUp(config.dim, kernels::kPanelRows), few);
      floats(inputs, RoundUp(config.all_inputs(), kernels::kPanelRows), most);
    }
    if (is_projected_apart)
      floats(projected, MostOf(config, &LayerShape::qkv_panels) * kernels::kPanelRows, most);
    if (query_blocks != 0)
      floats(queries, MostOf(config, &LayerShape::query_panels) * kernels::kPanelRows, most);
    if (is_latent) floats(valued, MostQRows(config), most);
    if (shared) {
      qkv = shared->qkv;
      attn = shared->attn;
    } else {
      floats(qkv, MostQkv(config), most);
      floats(attn, MostAttended(config), most);
    }
    acts(ffn, config.Most([](const model::LayerSpec& layer) {
      const LayerShape shape(layer);
      return std::max(layer.experts.count != 0 ? 0 : shape.ffn_blocks, shape.input_blocks);
    }),
         most);
    floats(logits, RoundUp(config.vocab, kernels::kPanelRows), logit);
    acts(shared_dim, dim_blocks, most);
    acts(shared_q, q_blocks, most);
    if (query_blocks != 0) acts(shared_latent, query_blocks, most);
    for (size_t t = 0; t < threads.size(); ++t) {
      ThreadActivations& thread = threads[t];
      node = node_of_thread[t];
      acts(thread.dim, dim_blocks, few);
      if (has_experts_beside) acts(thread.expert_dim, dim_blocks, few);
      acts(thread.q, q_blocks, few);
      if (query_blocks != 0) acts(thread.latent, query_blocks, few);
      if (is_latent) {
        acts(thread.of_head,
             std::max(MostOf(config, &LayerShape::key_blocks),
                      MostOf(config, &LayerShape::value_blocks)),
             kHeadRows);
        floats(thread.head_tile, MostOfHead(config), kHeadRows);
      }
      floats(thread.ffn_tile, 4 * kernels::kPanelRows, most);
      thread.scratch = reinterpret_cast<float*>(take(scratch_floats * sizeof(float)));
    }
    node = node_of_thread[0];
    if (!config.ends) return;
    floats(largest, CeilDiv(config.vocab, kernels::kPanelRows), logit);
    for (ActRows& plane : shared_head.plane) acts(plane, dim_blocks, logit);
    for (size_t t = 0; t < threads.size(); ++t) {
      node = node_of_thread[t];
      for (ActRows& plane : threads[t].head.plane) acts(plane, dim_blocks, std::min(few, logit));
    }
  });
}

ExpertBuffers::ExpertBuffers(const model::ModelConfig& config,
                             std::span<const NumaNodeId> node_of_thread, size_t few, size_t most,
                             size_t most_columns) {
  threads.resize(node_of_thread.size());
  const size_t experts =
      config.Most([](const model::LayerSpec& layer) { return layer.experts.count; });
  if (experts == 0) return;
  const size_t used = config.Most([](const model::LayerSpec& layer) { return layer.experts.used; });
  const size_t ffn_blocks = config.Most([](const model::LayerSpec& layer) {
    return layer.experts.count == 0 ? 0 : LayerShape(layer).ffn_blocks;
  });
  const size_t shared_blocks =
      config.Most([](const model::LayerSpec& layer) { return LayerShape(layer).shared_blocks; });
  arenas_ = topology::NodeArenas([&](auto&& take_on) {
    NumaNodeId node = node_of_thread[0];
    const auto take = [&](size_t bytes) { return take_on(node, bytes); };
    const auto array = [&](auto*& data, size_t n) {
      using Element = std::remove_reference_t<decltype(*data)>;
      data = reinterpret_cast<Element*>(take(n * sizeof(Element)));
    };
    const auto floats = [&](FloatRows& rows, size_t n, size_t count) {
      rows.stride = OddStride(n);
      array(rows.data, count * rows.stride);
    };
    const auto acts = [&](ActRows& rows, size_t blocks, size_t count) {
      rows.stride_bytes = kernels::ActRowBytes(blocks);
      array(rows.data, count * rows.stride_bytes);
    };
    const auto chosen_rows = [&](ChosenRows& rows, size_t count) {
      array(rows.experts, count * used);
      array(rows.weights, count * used);
      array(rows.shared, count);
    };
    floats(logits, RouterFloats(experts), few);
    chosen_rows(chosen, most);
    acts(z, ffn_blocks, most * used);
    if (shared_blocks != 0) acts(shared_z, shared_blocks, most);
    for (size_t t = 0; t < threads.size(); ++t) {
      OfThread& thread = threads[t];
      node = node_of_thread[t];
      chosen_rows(thread.chosen, few);
      array(thread.scratch, RouterFloats(experts));
      array(thread.by, RouterFloats(experts));
      array(thread.table.first, experts + 1);
      array(thread.table.row, most * used);
      array(thread.table.weight, most * used);
      floats(thread.y, most_columns, most);
      floats(thread.sums, most_columns, most);
    }
  });
}

}  // namespace larder::weight_node
