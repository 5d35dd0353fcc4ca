#include "pipeline/simulation/simulated_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace larder::pipeline::inline simulation {

SimulatedEngine::SimulatedEngine(EngineLimits limits, const KvChunksShape& chunks,
                                 ServiceTimes& times, VirtualClock& clock)
    : limits_(std::move(limits)),
      clock_(clock),
      kv_(chunks),
      stations_(times),
      seen_(limits_.capacity.slots),
      logits_(limits_.vocab) {}

void SimulatedEngine::Submit(std::span<const TokenRow> rows) {
  LARDER_CHECK(in_flight_.size() < limits_.capacity.max_in_flight && !rows.empty() &&
               rows.size() <= limits_.capacity.max_batch_tokens);
  Reserve(rows);
  Compute(rows);
  kv_.ClearUpdates();
  MicroBatch& batch = in_flight_.emplace_back(Take(rows));
  LARDER_CHECK(batch.wanted <= limits_.max_logits);
  batch.back_ns = stations_.Pass(batch.load(), clock_.now_ns());
  most_in_flight_ = std::max(most_in_flight_, in_flight_.size());
}

void SimulatedEngine::Reserve(std::span<const TokenRow> rows) {
  ++submits_;
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    const SlotId slot = rows[i].slot;
    LARDER_CHECK(seen_.at(slot.index()) != submits_, "rows of slot {} are not adjacent",
                 slot.value);
    seen_[slot.index()] = submits_;
    while (end < rows.size() && rows[end].slot == slot) ++end;
    const size_t last = rows[end - 1].position + 1;
    LARDER_CHECK(rows[i].position <= kv_.length(slot) && last <= limits_.capacity.context);
    LARDER_CHECK(kv_.Reserve(slot, rows[i].position, last) == last, "no room for {} of slot {}",
                 last, slot.value);
  }
}

SimulatedEngine::MicroBatch SimulatedEngine::Take(std::span<const TokenRow> rows) {
  MicroBatch batch{.rows = rows.size()};
  batch.positions.resize(std::max<size_t>(limits_.attention_slot_ends.size(), 1));
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenRow& row = rows[i];
    const bool continues = i > 0 && rows[i - 1].slot == row.slot;
    LARDER_CHECK(!continues || row.position == kv_.length(row.slot));
    kv_.Extend(row.slot, row.position + 1);
    batch.wanted += row.wanted();
    batch.positions[kv_.socket_of(row.slot).index()] += row.position + 1;
    const bool last = i + 1 == rows.size() || rows[i + 1].slot != row.slot;
    if (last) batch.held += row.position + 1;
  }
  return batch;
}

void SimulatedEngine::Collect() {
  LARDER_CHECK(!in_flight_.empty());
  const MicroBatch& oldest = in_flight_.front();
  clock_.AdvanceTo(stations_.Serve(oldest.load(), std::max(clock_.now_ns(), oldest.back_ns)));
  in_flight_.pop_front();
}

void SimulatedEngine::Forget() {
  in_flight_.clear();
  kv_.ResetAll();
}

}  // namespace larder::pipeline::simulation
