// Exchange: the memory through which one weight socket and its attention sockets exchange rows: a
// plain byte layout, which each computes from the Plan, of per-head readiness flags in both
// directions and the rows that they announce. It may be memory of one process or a segment that
// several map; it contains no pointer, shape or type. (The list of a frame's rows goes over a link,
// rdma/shm/shm_link.h.)
//
// A frame may be cut into two halves, so that the weight socket works on one while the attention
// sockets work on the other. Each half has its own flags, and its own rows in the same buffers.
//
// Ordering, per layer l of a half (all flags carry base_epoch + l + 1; Signal is a release, Wait an
// acquire):
//   projected(t, head)    weight thread t has written its part of the head's q, k, v rows;
//                         read by the head's attention threads
//   attended(a, group)    the threads of an L3 group of attention socket a have written their
//                         rows' output; read by all weight threads before O
// The threads of an L3 group tell its first one, and that one signals for all: a weight thread
// reads a line for each group, however many threads, heads or attention sockets' threads there are.
// The qkv rows of layer l + 1 overwrite those of layer l only after every attended flag of layer l,
// because O and the barriers after it come first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/config/config.h"
#include "model/step/kv_update.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/stage/socket_status.h"
#include "sync/epoch_flag.h"
#include "weight_node/activations.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline stage {

inline constexpr size_t kHalves = 2;

// FlagRefresh: when to signal the second half's flags again. An EpochFlag must not fall 2^31 epochs
// behind, but these flags are signalled only in frames that are cut, and days may pass without one.
// When Due() is true, the socket that signals them does so between frames, while no thread waits
// for them, with the next frame's base epoch, which all earlier frames have reached.
class FlagRefresh {
 public:
  bool Due(uint32_t base_epoch) {
    if (base_epoch - last_ < kEvery) return false;
    last_ = base_epoch;
    return true;
  }

 private:
  // About an hour with a small model. Far below 2^31, since the other end may be a frame behind.
  static constexpr uint32_t kEvery = 1u << 28;
  uint32_t last_ = 0;
};

class ExchangeShape {
 public:
  // thread_heads: a weight thread projects rows of at most so many heads, which follow each other.
  // attention_groups: the number of L3 groups of each attention socket's threads.
  ExchangeShape(const model::ModelConfig&, size_t rows, size_t weight_threads, size_t thread_heads,
                const std::vector<size_t>& attention_groups);
  size_t bytes() const { return bytes_; }
  size_t flag_bytes() const { return flags() * sizeof(sync::EpochFlag); }

 private:
  friend class Exchange;
  size_t flags() const { return kHalves * half_flags_; }
  size_t thread_heads_;
  // Where each attention socket's groups begin among the flags of a half, behind those of the
  // weight threads.
  std::vector<size_t> first_attended_;
  size_t half_flags_, qkv_offset_, attn_offset_, qkv_stride_, attn_stride_, bytes_;
};

class Exchange {
 public:
  // `memory`: shape.bytes() zeroed bytes, aligned to kFalseSharingBytes. A zeroed EpochFlag is a
  // new one and needs no construction.
  Exchange(const ExchangeShape& shape, std::byte* memory) : shape_(shape), memory_(memory) {}

  sync::EpochFlag* projected(size_t half, size_t weight_thread, size_t kv_head) const {
    return Flag(half, weight_thread * shape_.thread_heads_ + kv_head % shape_.thread_heads_);
  }
  sync::EpochFlag* attended(size_t half, AttentionId attention, size_t group) const {
    return Flag(half, shape_.first_attended_[attention.index()] + group);
  }
  weight_node::AttentionIoRows rows() const {
    return {.qkv = {reinterpret_cast<float*>(memory_ + shape_.qkv_offset_), shape_.qkv_stride_},
            .attn = {reinterpret_cast<float*>(memory_ + shape_.attn_offset_), shape_.attn_stride_}};
  }

 private:
  sync::EpochFlag* Flag(size_t half, size_t flag) const {
    return reinterpret_cast<sync::EpochFlag*>(memory_) + half * shape_.half_flags_ + flag;
  }

  ExchangeShape shape_;
  std::byte* memory_;
};

// What an attention socket writes for its weight socket, in the segment that both map, and what the
// weight socket measures for it. Zeroed memory is a valid report.
struct AttentionReport {
  SocketStatus status;
  sync::EpochFlag pong;  // the number of the last ping, or of the last message about orders
  // The socket's KvReport after the last frame or message about orders; relaxed, since the weight
  // socket reads it after the pong or the frame's heads.
  std::atomic<uint64_t> kv_done{0}, kv_failed{0}, kv_files{0}, kv_bytes{0};
  // written by the weight socket
  alignas(kFalseSharingBytes) std::atomic<uint64_t> round_trip_ns{0};
};

// The message of one frame, weight socket -> attention socket: its rows' slots (in the attention
// socket's own numbering) and positions, those of the first half first, which of them are kept, and
// its KvUpdates, in the same numbering. Fixed size, for the Plan's max_batch_tokens and context.
struct FrameMessage {
  // kOrders: KvOrders, for chunks in the socket's own numbering. kAbandon: all these orders are
  // void. Both are answered like a ping, when that is done.
  enum class Kind : uint32_t { kRows = 1, kStop = 2, kPing = 3, kOrders = 4, kAbandon = 5 };
  Kind kind;
  // Must equal the receiver's own, since both pools have executed the same frames. kPing, kOrders,
  // kAbandon: the number to answer.
  uint32_t base_epoch;
  uint32_t halves;      // 1: not cut
  uint32_t kv_updates;  // of kRows
  // kept, first_kept: of layers that only rows with logits pass through, the number of these rows,
  // and the first one's place in the exchange.
  struct Half {
    uint32_t rows, first_row, kept, first_kept;
  } half[kHalves];
  uint32_t kv_orders = 0;  // of kOrders; they lie where others have rows
  uint32_t reserved = 0;
  static size_t Bytes(size_t max_batch_tokens, size_t max_kv_updates) {
    return RoundUp(
        sizeof(FrameMessage) + max_batch_tokens * 12 + max_kv_updates * sizeof(model::KvUpdate),
        kCacheLineBytes);
  }
  // Null, or what is wrong with the halves of a message of rows.
  const char* WrongHalves(size_t max_batch_tokens) const;
  KvOrder* kv_order() { return reinterpret_cast<KvOrder*>(this + 1); }
  const KvOrder* kv_order() const { return reinterpret_cast<const KvOrder*>(this + 1); }
  SlotId* slot() { return reinterpret_cast<SlotId*>(this + 1); }
  const SlotId* slot() const { return reinterpret_cast<const SlotId*>(this + 1); }
  uint32_t* position(size_t max_batch_tokens) {
    return reinterpret_cast<uint32_t*>(slot() + max_batch_tokens);
  }
  const uint32_t* position(size_t max_batch_tokens) const {
    return reinterpret_cast<const uint32_t*>(slot() + max_batch_tokens);
  }
  // Which rows are kept, as rows of the exchange, ascending.
  uint32_t* kept_row(size_t max_batch_tokens) {
    return position(max_batch_tokens) + max_batch_tokens;
  }
  const uint32_t* kept_row(size_t max_batch_tokens) const {
    return position(max_batch_tokens) + max_batch_tokens;
  }
  model::KvUpdate* kv_update(size_t max_batch_tokens) {
    return reinterpret_cast<model::KvUpdate*>(kept_row(max_batch_tokens) + max_batch_tokens);
  }
  const model::KvUpdate* kv_update(size_t max_batch_tokens) const {
    return reinterpret_cast<const model::KvUpdate*>(kept_row(max_batch_tokens) + max_batch_tokens);
  }
};
static_assert(kKvOrderPlaces * sizeof(KvOrder) <=
              model::MaxKvUpdates({}, 1) * sizeof(model::KvUpdate));  // so a message has room for
                                                                      // them
static_assert(sizeof(FrameMessage) == 56 && std::is_trivially_copyable_v<FrameMessage>);

}  // namespace larder::pipeline::stage
