#include "pipeline/stage/exchange.h"

namespace larder::pipeline::inline stage {

ExchangeShape::ExchangeShape(const model::ModelConfig& config, size_t rows, size_t weight_threads,
                             const std::vector<size_t>& attention_threads)
    : kv_heads_(config.Most([](const model::LayerSpec& layer) { return layer.groups(); })) {
  size_t threads = weight_threads;
  for (const size_t n : attention_threads) {
    first_attended_.push_back(threads);
    threads += n;
  }
  threads_ = threads;
  qkv_stride_ = weight_node::QkvStride(config);
  attn_stride_ = weight_node::AttnStride(config);
  qkv_offset_ = RoundUp(kHalves * threads_ * kv_heads_ * sizeof(sync::EpochFlag), kPageBytes);
  attn_offset_ = qkv_offset_ + RoundUp(rows * qkv_stride_ * sizeof(float), kPageBytes);
  bytes_ = attn_offset_ + RoundUp(rows * attn_stride_ * sizeof(float), kPageBytes);
}

}  // namespace larder::pipeline::stage
