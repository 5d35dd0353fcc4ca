// RowsCopy: the rows of a micro-batch, with the changes to the tables of KV chunks and the orders
// for their files, as they come in memory that another process can write at any time: in a frame of
// a chain (pipeline/chain/stage_frame.h) or in a message to an attention socket (exchange.h). Here
// they are copied once, the copies are checked, and only the copies are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/memory.h"
#include "kernels/formats/kv_page.h"
#include "model/step/batch_rows.h"
#include "model/step/capacity.h"
#include "model/step/kv_update.h"
#include "pipeline/kv/kv_order.h"

namespace larder::pipeline::inline stage {

// What rows may name.
struct RowsShape {
  model::Capacity capacity;
  // Where the slots and, class by class, the chunks of each attention socket end; rows of a half
  // are in this order, and a slot has chunks of its own socket. No slot_ends: one socket, rows in
  // any order.
  std::vector<SlotId> slot_ends;
  std::vector<size_t> chunk_ends;

  // KV chunks of a slot.
  size_t slot_chunks() const { return CeilDiv(capacity.context, kernels::kChunkPositions); }
  size_t max_kv_updates() const { return model::MaxKvUpdates(capacity, kernels::kChunkPositions); }
};

// Null, or what is wrong with the rows of a part whose logits are wanted.
const char* CheckKept(const model::BatchRows& part);

class RowsCopy {
 public:
  // Rows as they were sent; the numbers are the receiver's own copies.
  struct Sent {
    uint32_t rows = 0;
    uint32_t first_half = 0;  // rows of the first half, at most `rows`; 0: not cut
    uint32_t kept = 0, kv_updates = 0, kv_orders = 0;
    const SlotId* slot = nullptr;                // [rows]
    const uint32_t* position = nullptr;          // [rows]
    const uint32_t* kept_row = nullptr;          // [kept]
    const model::KvUpdate* kv_update = nullptr;  // [kv_updates]
    const KvOrder* kv_order = nullptr;           // [kv_orders]
  };

  explicit RowsCopy(const RowsShape& shape);

  // Copies, then checks the copies. Returns null, or why they must not be used. Data path.
  const char* Take(const Sent& sent);

  // Of what Take has copied last.
  const SlotId* slot() const { return slot_.data(); }
  const uint32_t* position() const { return position_.data(); }
  // Not checked: whoever knows the parts of the micro-batch calls CheckKept for each.
  const uint32_t* kept_row() const { return kept_row_.data(); }
  const model::KvUpdate* kv_update() const { return kv_update_.data(); }
  std::span<const KvOrder> kv_orders() const { return {kv_order_.data(), kv_orders_}; }

 private:
  const char* CheckRows(size_t begin, size_t end) const;
  const char* CheckKvUpdates(size_t count) const;
  const char* CheckKvOrders() const;

  const RowsShape shape_;
  std::vector<SlotId> slot_;
  std::vector<uint32_t> position_, kept_row_;
  std::vector<model::KvUpdate> kv_update_;
  std::vector<KvOrder> kv_order_;
  size_t kv_orders_ = 0;
};

}  // namespace larder::pipeline::stage
