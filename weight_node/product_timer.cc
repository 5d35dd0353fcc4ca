#include "weight_node/product_timer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/memory.h"
#include "kernels/tune/random_product.h"

namespace larder::weight_node {
namespace {

constexpr size_t kMostRows = kernels::ScheduleTable::Rows(kernels::ScheduleTable::kRowClasses - 1);
// A round is long against a clock reading and short against a time slice. The estimate only has to
// be right within a factor of a few.
constexpr double kRoundSeconds = 60e-6, kOpsPerSecond = 300e9;

size_t ShardBytes(const kernels::ProductSize& size) { return size.n_panels * size.panel.bytes(); }
size_t RowBytes(const kernels::ProductSize& size) {
  return size.n_panels * kernels::kPanelRows * sizeof(float);
}

}  // namespace

ProductTimer::ProductTimer(kernels::Isa isa, const kernels::ProductSize& size, size_t weight_bytes,
                           NumaNodeId node)
    : size_(size),
      gemms_(isa, {.panel = size.panel,
                   .x_stride_bytes = kernels::ActRowBytes(size.panel.blocks),
                   .y_stride_bytes = RowBytes(size)}),
      shards_(std::max<size_t>(1, weight_bytes / ShardBytes(size))),
      arena_(shards_ * ShardBytes(size) +
                 kMostRows * (kernels::ActRowBytes(size.panel.blocks) + RowBytes(size)) +
                 kPageBytes,
             node),
      panels_(reinterpret_cast<uint8_t*>(arena_.Allocate(shards_ * ShardBytes(size)))),
      x_(reinterpret_cast<kernels::ActBlock*>(
          arena_.Allocate(kMostRows * kernels::ActRowBytes(size.panel.blocks)))),
      y_(arena_.AllocateArray<float>(kMostRows * size.n_panels * kernels::kPanelRows).data()) {
  kernels::FillPanels(size_.panel, shards_ * size.n_panels, panels_);
  kernels::FillRows(kMostRows, size.panel.blocks, x_);
}

double ProductTimer::Round(const kernels::Schedule& schedule, size_t rows) {
  const kernels::Gemm& gemm = gemms_.Of(schedule);
  const double ops = 2.0 * static_cast<double>(size_.n_panels * kernels::kPanelRows *
                                               size_.panel.blocks * kernels::kBlock * rows);
  const auto turns =
      static_cast<size_t>(std::clamp(kRoundSeconds * kOpsPerSecond / ops, 1.0, 1000.0));
  const int64_t start = NowNs();
  for (size_t i = 0; i < turns; ++i) {
    const uint8_t* shard = panels_ + next_shard_ * ShardBytes(size_);
    next_shard_ = next_shard_ + 1 < shards_ ? next_shard_ + 1 : 0;
    gemm.Run(shard, x_, y_, size_.n_panels, rows);
  }
  return SecondsSince(start) / static_cast<double>(turns);
}

}  // namespace larder::weight_node
