#include <algorithm>
#include <atomic>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "pipeline/engine/engine.h"

namespace larder::pipeline::inline engine {

void Engine::Submit(std::span<const TokenRow> rows) {
  LARDER_CHECK(in_flight_ < max_in_flight() && !rows.empty() && rows.size() <= max_batch_tokens());
  Check(rows);
  Reserve(rows);
  MicroBatch& batch = batches_[(oldest_ + in_flight_) % batches_.size()];
  Fill(rows, batch);
  ++in_flight_;
  SubmitToChain(batch);
}

void Engine::Collect() {
  LARDER_CHECK(in_flight_ > 0);
  CollectFromChain();
  const MicroBatch& batch = batches_[oldest_];
  oldest_ = (oldest_ + 1) % batches_.size();
  --in_flight_;
  use_kept_ = false;
  faults_.clear();
  if (FindFaults(batch)) DescribeFaults(batch);
}

void Engine::Spread(size_t count, void (*fn)(void* context, size_t i), void* context) {
  struct Work {
    void (*fn)(void*, size_t);
    void* context;
    size_t count;
    std::atomic<size_t> next{0};
  } work{fn, context, count};
  packed().pool().Call(
      [](void* opaque, int) {
        auto& all = *static_cast<Work*>(opaque);
        // relaxed: an item belongs to the thread that counted it; the pool orders what fn reads and
        // writes
        while (true) {
          const size_t i = all.next.fetch_add(1, std::memory_order_relaxed);
          if (i >= all.count) return;
          all.fn(all.context, i);
        }
      },
      &work);
}

// Where the sequence of row i ends before it.
size_t Engine::EndBefore(std::span<const TokenRow> rows, size_t i) const {
  const TokenRow& row = rows[i];
  return i > 0 && rows[i - 1].slot == row.slot ? rows[i - 1].position + 1 : kv_->length(row.slot);
}

void Engine::Check(std::span<const TokenRow> rows) {
  size_t wanted = 0;
  ++checks_;
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenRow& row = rows[i];
    if (row.token < 0 || static_cast<size_t>(row.token) >= plan_.config.vocab ||
        row.slot.index() >= slots() || row.position >= plan_.options.capacity.context) {
      ThrowWrongRow(rows, i);
    }
    const bool continues = i > 0 && rows[i - 1].slot == row.slot;
    const size_t end = EndBefore(rows, i);
    if (continues ? row.position != end
                  : row.position > end || kv_->Usable(row.slot, row.position) < row.position)
      ThrowWrongRow(rows, i);
    uint64_t& seen = seen_[row.slot.index()];
    LARDER_CHECK(continues || seen != checks_, "rows of slot {} are not adjacent", row.slot.value);
    seen = checks_;
    wanted += row.wanted();
  }
  if (wanted > max_logits()) ThrowWrongRow(rows, rows.size());
}

void Engine::Reserve(std::span<const TokenRow> rows) {
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    while (end < rows.size() && rows[end].slot == rows[i].slot) ++end;
    const size_t last = rows[end - 1].position + 1;
    if (kv_->Reserve(rows[i].slot, rows[i].position, last) < last) ThrowNoRoom(rows[i]);
  }
}

// Halves let weight and attention sockets compute at the same time, but each half reads weights of
// its own. That costs little if the rows are bound by arithmetic anyway, and pays if attention
// takes long enough to be worth overlapping. The two bounds are from bench_engine's sockets/* rows
// (docs/engine.md); the results' bits do not depend on them.
bool Engine::PaysInHalves(std::span<const TokenRow> rows) const {
  if (rows.size() < 2) return false;
  if (rows.size() >= bytes_of_halves_.size()) return true;
  uint64_t tokens = 0;
  for (const TokenRow& row : rows) tokens += row.position + 1;
  return 2.0 * static_cast<double>(tokens * kv_token_bytes_) >= bytes_of_halves_[rows.size()];
}

// Sorts order_ by half and attention socket; returns the rows of the first half. Each socket's rows
// are cut in the middle, so that all sockets have work in both halves.
uint32_t Engine::OrderForSockets(std::span<const TokenRow> rows, bool in_halves) {
  const std::span<const SlotId> ends = limits_.attention_slot_ends;
  std::fill(left_.begin(), left_.end(), 0);  // [socket]: rows that still go to the first half
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto end = std::upper_bound(ends.begin(), ends.end(), rows[i].slot);
    socket_of_[i] = static_cast<uint32_t>(end - ends.begin());
    ++left_[socket_of_[i]];
  }
  for (uint32_t& n : left_) n = in_halves ? (n + 1) / 2 : n;
  uint32_t first_half = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool first = left_[socket_of_[i]] > 0;
    left_[socket_of_[i]] -= first;
    first_half += first;
    half_of_[i] = first ? 0 : 1;
  }
  // The index keeps equal rows in their original order; a stable sort would allocate.
  const auto key = [this](uint32_t i) { return std::tuple(half_of_[i], socket_of_[i], i); };
  std::sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(rows.size()),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return first_half < rows.size() ? first_half : 0;
}

void Engine::Fill(std::span<const TokenRow> rows, MicroBatch& batch) {
  std::iota(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(rows.size()), 0u);
  batch.first_half =
      !limits_.attention_slot_ends.empty() ? OrderForSockets(rows, PaysInHalves(rows)) : 0;
  batch.rows = static_cast<uint32_t>(rows.size());
  batch.logit_rows = 0;
  batch.lm_head = false;
  for (uint32_t i = 0; i < batch.rows; ++i) {
    const TokenRow& row = rows[order_[i]];
    batch.token[i] = row.token;
    batch.slot[i] = row.slot;
    batch.position[i] = row.position;
    batch.lm_head = batch.lm_head || row.logits;
    if (!row.wanted()) continue;
    rank_[order_[i]] = batch.logit_rows;
    batch.logit_row[batch.logit_rows++] = i;
  }
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < batch.rows; ++i) {
    if (rows[i].wanted()) batch.logit_at[wanted++] = rank_[i];
    kv_->Extend(rows[i].slot, rows[i].position + 1);
  }
  const std::span<const model::KvUpdate> updates = kv_->updates();
  std::copy(updates.begin(), updates.end(), batch.kv_update.begin());
  batch.kv_updates = static_cast<uint32_t>(updates.size());
  kv_->ClearUpdates();
}

model::BatchRows Engine::MicroBatch::rows_of() const {
  return {.rows = rows,
          .token = token.data(),
          .slot = slot.data(),
          .position = position.data(),
          .logit_rows = logit_rows,
          .logit_row = logit_row.data(),
          .lm_head = lm_head,
          .kv_updates = kv_updates,
          .kv_update = kv_update.data()};
}

// Makes the micro-batch the last collected one. Returns whether one of its outputs is not finite.
bool Engine::FindFaults(const MicroBatch& batch) {
  logits_ = batch.logit_rows;
  std::copy_n(batch.logit_at.begin(), logits_, logit_at_.begin());
  bool any = false;
  for (size_t i = 0; i < logits_; ++i) {
    faulty_[i] = packed().finite(logit_at_[i]) ? 0 : 1;
    any = any || faulty_[i] != 0;
  }
  return any;
}

}  // namespace larder::pipeline::engine
