// StageFrame: the message between two stages of a chain: a header, the rows' slots and positions,
// the list of those that want logits, each socket's report about itself, the rows' residuals in
// float32, so that splitting a model changes no bit, with their layer inputs behind each row unless
// the frame comes from the last stage, and at its end the changes to the tables of KV
// chunks, and orders for files of them. The sizes follow from the chain's shape, which both ends
// know; no pointer, shape or type is sent. A frame comes from another machine, which may still
// write to the received memory. So FrameCopy copies all that is used as an index or a size, checks
// every field of the copy against the shape, and its users read only the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "base/memory.h"
#include "model/step/kv_update.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/stage/rows_copy.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline chain {

inline constexpr uint64_t kStageFrameMagic = 0x31454d415246524cull;  // "LRFRAME1"
inline constexpr uint32_t kStageFrameVersion = 6;

struct StageFrameHeader {
  // kOrders: a frame without rows, for orders and reports only.
  enum class Kind : uint32_t { kRows = 1, kStop = 2, kOrders = 3 };
  uint64_t magic = kStageFrameMagic;
  uint32_t version = kStageFrameVersion;
  Kind kind = Kind::kRows;
  uint64_t plan_hash = 0;
  uint64_t step = 0;         // micro-batches that entered the chain before this one
  uint32_t micro_batch = 0;  // step % max_in_flight: its place among those in flight
  uint32_t rows = 0;
  uint32_t first_half = 0;     // rows of the first half; 0: not cut
  uint32_t logit_rows = 0;     // rows that want logits
  uint32_t residual_rows = 0;  // equals rows; from the last stage, logit_rows
  uint32_t kv_updates = 0;     // 0 from the last stage
  uint32_t kv_orders = 0;      // 0 from the last stage
  uint32_t reserved = 0;
};
static_assert(sizeof(StageFrameHeader) == 64 && std::is_trivially_copyable_v<StageFrameHeader>);

// What each socket of the chain adds to a frame. Counters, and bits of orders that have ended; none
// is used as an index or a size.
struct SocketReport {
  SocketCounters counters;
  uint64_t here_ns = 0;  // this frame's time in the stage; the rest of its round trip is the links'
                         // time
  KvReport kv;
  uint64_t reserved[2] = {};
};
static_assert(sizeof(SocketReport) == 128 && std::is_trivially_copyable_v<SocketReport>);

// Some of a stage's counters of experts (weight_node/routing/expert_counters.h): each frame brings
// the next ones, so that the serving socket has all of them every few hundred frames. `first` is an
// index, and checked.
struct ExpertReport {
  uint32_t first = 0;
  uint32_t reserved = 0;
  uint64_t numbers[15] = {};
};
static_assert(sizeof(ExpertReport) == 128 && std::is_trivially_copyable_v<ExpertReport>);

// What all ends of a chain agree on.
struct StageFrameShape {
  uint64_t plan_hash = 0;
  RowsShape rows;  // their KV chunks are those of all attention sockets of a stage
  size_t max_logit_rows = 0, dim = 0;
  size_t inputs = 0;  // ModelConfig::all_inputs()
  size_t stages = 0;
  std::vector<size_t> expert_numbers;  // [stage]: its counters of experts; empty: there are none

  size_t max_rows() const { return rows.capacity.max_batch_tokens; }
  size_t bytes() const { return bytes(max_rows(), rows.max_kv_updates(), kKvOrderPlaces); }
  size_t bytes(size_t residual_rows, size_t kv_updates, size_t kv_orders) const {
    return kv_order_offset(residual_rows, kv_updates) + kv_orders * sizeof(KvOrder);
  }
  // Of a frame from the last stage.
  size_t bytes_from_last(size_t logit_rows) const {
    return residual_offset() + logit_rows * dim * sizeof(float);
  }
  // Behind the residuals, so that a frame ends where its contents end.
  size_t kv_update_offset(size_t residual_rows) const {
    return residual_offset() + residual_rows * (dim + inputs) * sizeof(float);
  }
  size_t kv_order_offset(size_t residual_rows, size_t kv_updates) const {
    return RoundUp(kv_update_offset(residual_rows) + kv_updates * sizeof(model::KvUpdate),
                   alignof(KvOrder));
  }
  size_t slot_offset() const { return sizeof(StageFrameHeader); }
  size_t position_offset() const { return slot_offset() + max_rows() * sizeof(SlotId); }
  size_t logit_row_offset() const { return position_offset() + max_rows() * sizeof(uint32_t); }
  size_t report_offset() const {
    return RoundUp(logit_row_offset() + max_rows() * sizeof(uint32_t), kCacheLineBytes);
  }
  // Per stage: its own report, then those of its attention sockets.
  size_t reports_per_stage() const { return 1 + rows.slot_ends.size(); }
  size_t reports() const { return stages * reports_per_stage(); }
  size_t expert_report_offset() const { return report_offset() + reports() * sizeof(SocketReport); }
  size_t expert_reports() const { return expert_numbers.size(); }
  size_t residual_offset() const {
    return RoundUp(expert_report_offset() + expert_reports() * sizeof(ExpertReport),
                   kCacheLineBytes);
  }
};

// A frame in a slot of a link.
template <typename Byte>
class StageFrameView {
  template <typename T>
  using As = std::conditional_t<std::is_const_v<Byte>, const T, T>;

 public:
  StageFrameView(Byte* bytes, const StageFrameShape& shape) : bytes_(bytes), shape_(shape) {}
  As<StageFrameHeader>& header() const { return *reinterpret_cast<As<StageFrameHeader>*>(bytes_); }
  As<SlotId>* slot() const { return reinterpret_cast<As<SlotId>*>(bytes_ + shape_.slot_offset()); }
  As<uint32_t>* position() const {
    return reinterpret_cast<As<uint32_t>*>(bytes_ + shape_.position_offset());
  }
  As<uint32_t>* logit_row() const {
    return reinterpret_cast<As<uint32_t>*>(bytes_ + shape_.logit_row_offset());
  }
  As<SocketReport>* report() const {
    return reinterpret_cast<As<SocketReport>*>(bytes_ + shape_.report_offset());
  }
  As<ExpertReport>* expert_report() const {
    return reinterpret_cast<As<ExpertReport>*>(bytes_ + shape_.expert_report_offset());
  }
  As<model::KvUpdate>* kv_update(size_t residual_rows) const {
    return reinterpret_cast<As<model::KvUpdate>*>(bytes_ + shape_.kv_update_offset(residual_rows));
  }
  As<KvOrder>* kv_order(size_t residual_rows, size_t kv_updates) const {
    return reinterpret_cast<As<KvOrder>*>(bytes_ +
                                          shape_.kv_order_offset(residual_rows, kv_updates));
  }
  As<float>* residual() const {
    return reinterpret_cast<As<float>*>(bytes_ + shape_.residual_offset());
  }

 private:
  Byte* bytes_;
  const StageFrameShape& shape_;
};

// A received frame as it is used: header, rows and reports in private memory, allocated at set-up,
// which no other process can write. The residuals stay in the link's memory: they are floats that
// index nothing, so any bits are safe.
class FrameCopy {
 public:
  explicit FrameCopy(const StageFrameShape& shape);  // `shape` must outlive it

  // Copies a frame, then checks the copy. Returns null, or why the frame must not be used. frame:
  // the received bytes. step: the step of the expected frame. from_last: the frame comes from the
  // last stage, with the residuals of logit rows only. For a stop message only the header is
  // copied.
  const char* Take(std::span<const std::byte> frame, uint64_t step, bool from_last);

  // The parts of the last frame that Take() accepted.
  const StageFrameHeader& header() const { return view().header(); }
  const SlotId* slot() const { return rows_.slot(); }
  const uint32_t* position() const { return rows_.position(); }
  const uint32_t* logit_row() const { return view().logit_row(); }
  const SocketReport* report() const { return view().report(); }
  const ExpertReport* expert_report() const { return view().expert_report(); }
  const model::KvUpdate* kv_update() const { return rows_.kv_update(); }
  std::span<const KvOrder> kv_orders() const { return rows_.kv_orders(); }
  const float* residual() const { return residual_; }  // in the link's slot, until EndReceive()

 private:
  StageFrameView<const std::byte> view() const { return {bytes_.data(), shape_}; }
  void CopyField(std::span<const std::byte> frame, size_t offset, size_t bytes);

  const StageFrameShape& shape_;
  std::vector<std::byte> bytes_;  // header, rows with logits and reports, at their places
  RowsCopy rows_;
  const float* residual_ = nullptr;
};

}  // namespace larder::pipeline::chain
