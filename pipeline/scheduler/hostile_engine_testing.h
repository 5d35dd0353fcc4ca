// Test support: a SimulatedEngine whose logits are a function of a sequence's tokens, as a model's
// are. It checks that each row finds the keys of its own sequence, and it can be lost. Its KV may
// be in files of sockets elsewhere, which do what they are ordered as late as they may. Included by
// tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "pipeline/chain/chain.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv/kv_memory_testing.h"
#include "pipeline/simulation/simulated_engine.h"
#include "pipeline/simulation/virtual_clock.h"

namespace larder::pipeline::inline scheduler {

// One stage, whose time depends on rows and logits alone.
struct FlatTimes : ServiceTimes {
  size_t stages() const override { return 1; }
  uint64_t StageNs(size_t, const StepLoad& load) override {
    const uint64_t ns = 50'000 + 2'000 * load.rows + logit_row_ns * load.wanted;
    most_rows = std::max(most_rows, load.rows);
    longest_step_ns = std::max(longest_step_ns, ns);
    return ns;
  }
  Link LinkOf(size_t) override { return {}; }
  uint64_t ServingNs(const StepLoad&) override { return 0; }

  uint64_t logit_row_ns = 0;  // the time for the logits of a row
  size_t most_rows = 0;
  uint64_t longest_step_ns = 0;
};

class HostileEngine final : public FlatTimes, public SimulatedEngine {
 public:
  // loss: the probability that a Submit or Collect finds the chain lost. kv_chunks: of
  // kChunkPositions, for each attention socket; 0: a full context for each slot. elsewhere: the
  // probability that a store or a load of the sockets' files fails; nullopt: there are none.
  // window: of a second class of memory, or of the only one; 0: there is none. states: whether
  // there are those of recurrent layers.
  HostileEngine(const EngineLimits& limits, VirtualClock& clock, double loss, uint32_t seed,
                size_t kv_chunks = 0, std::optional<double> elsewhere = std::nullopt,
                size_t window = 0, bool all_windows = false, bool states = false)
      : SimulatedEngine(limits, ChunksOf(limits, kv_chunks, window, all_windows, states),
                        static_cast<FlatTimes&>(*this), clock),
        loss_(loss),
        random_(seed),
        keys_(kv().shape()),
        failure_(elsewhere.value_or(0)) {
    if (elsewhere) orders_.emplace(kv().shape().chunk_ends);
  }

  static constexpr size_t kChunkPositions = 16;

  // The state after one more token; the first of a sequence follows 0.
  static uint64_t After(uint64_t state, int32_t token) {
    state = (state ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    return state ^ (state >> 29);
  }
  static void LogitsOf(uint64_t state, std::span<float> logits) {
    for (float& logit : logits) {
      state = After(state, 1);
      logit = static_cast<float>(state >> 40);
    }
  }

  void Submit(std::span<const TokenRow> rows) override {
    MaybeLose();
    SimulatedEngine::Submit(rows);
  }
  void Collect() override {
    MaybeLose();
    SimulatedEngine::Collect();
    logits_.resize(batches_.front().size() * limits().vocab);
    for (size_t i = 0; i < batches_.front().size(); ++i)
      LogitsOf(batches_.front()[i], std::span(logits_).subspan(i * limits().vocab, limits().vocab));
    batches_.pop_front();
    Report();
  }
  void Reconnect() override {
    if (away_ > 0 && --away_ > 0) throw ChainLostError("still away");
  }
  std::span<const float> logits(size_t i) const override {
    return std::span(logits_).subspan(i * limits().vocab, limits().vocab);
  }
  // Four numbers, the first of its logits.
  std::span<const float> hidden(size_t i) override { return logits(i).first(4); }

  size_t failed_stores = 0, failed_loads = 0;  // of the sockets' files

 private:
  void Compute(std::span<const TokenRow> rows) override {
    std::vector<uint64_t>& wanted = batches_.emplace_back();
    SendOrders();
    const KvChunksShape& shape = kv().shape();
    keys_.Apply(kv().updates());
    for (const TokenRow& row : rows) {
      LARDER_CHECK(row.token >= 0 && static_cast<size_t>(row.token) < limits().vocab);
      const uint64_t before = row.position == 0 ? 0 : keys_.at(row.slot, row.position - 1);
      keys_.at(row.slot, row.position) = After(before, row.token);
      for (size_t c = 0; c < shape.classes.size(); ++c) {
        if (shape.classes[c].states) {
          uint64_t &state = keys_.at(row.slot, 0, c), &tokens = keys_.at(row.slot, 1, c);
          if (row.position == 0) state = tokens = 0;
          LARDER_CHECK(tokens++ == row.position, "a state of {} tokens", tokens - 1);
          state = After(state, row.token);
          LARDER_CHECK(state == keys_.at(row.slot, row.position), "position {}", row.position);
          continue;
        }
        keys_.at(row.slot, row.position, c) = keys_.at(row.slot, row.position);
        for (size_t p =
                 row.position + 1 - std::min<size_t>(shape.classes[c].window, row.position + 1);
             p < row.position; ++p)
          LARDER_CHECK(keys_.at(row.slot, p, c) == keys_.at(row.slot, p), "position {}", p);
      }
      if (row.wanted()) wanted.push_back(keys_.at(row.slot, row.position));
    }
  }
  topology::ScatteredBytes Memory(uint32_t chunk) override {
    return orders_ ? topology::ScatteredBytes() : topology::ScatteredBytes(keys_.memory(chunk));
  }
  KvOrderBook* orders() override { return orders_ ? &*orders_ : nullptr; }
  void Poll() override {
    LARDER_CHECK(batches_.empty());
    MaybeLose();
    SendOrders();
    Report();
    clock().Advance(50'000);
  }
  static KvChunksShape ChunksOf(const EngineLimits& limits, size_t kv_chunks, size_t window,
                                bool all_windows, bool states) {
    KvChunksShape shape{.capacity = limits.capacity,
                        .chunk_positions = kChunkPositions,
                        .slot_ends = limits.attention_slot_ends,
                        .chunk_ends = {},
                        .max_updates = model::MaxKvUpdates(limits.capacity, kChunkPositions),
                        .kept = 5};
    for (size_t i = 0; i < std::max<size_t>(shape.slot_ends.size(), 1); ++i) {
      const size_t slots = shape.slot_ends.empty() ? shape.capacity.slots
                           : i == 0                ? shape.slot_ends[0].index()
                                    : shape.slot_ends[i].index() - shape.slot_ends[i - 1].index();
      const size_t chunks = kv_chunks != 0 ? kv_chunks : slots * shape.slot_chunks();
      const auto add = [&](size_t more) {
        shape.chunk_ends.push_back((shape.chunk_ends.empty() ? 0 : shape.chunk_ends.back()) + more);
      };
      if (!all_windows) add(chunks);
      const size_t seen = CeilDiv(window + limits.capacity.max_batch_tokens, kChunkPositions) + 1;
      if (window > 0) add(std::min(chunks, slots * seen));
      if (states) add(slots + 2);
      if (i > 0) continue;
      if (window > 0) shape.classes.push_back({window, seen});
      if (states) shape.classes.push_back({.chunks = 1, .states = true});
      if (all_windows) shape.classes.erase(shape.classes.begin());
    }
    for (const model::KvClass& of : shape.classes)
      shape.class_bytes.push_back(of.states ? 700 : of.window > 0 ? 300 : 100);
    return shape;
  }
  void MaybeLose() {
    Reconnect();
    if (std::uniform_real_distribution<>(0, 1)(random_) >= loss_) return;
    away_ = 1 + static_cast<int>(random_() % 3);
    batches_.clear();
    Forget();
    if (orders_) orders_->Clear();
    ordered_.clear();
    done_ = ~uint64_t{0};
    failed_ = 0;
    collected_ = submitted_;
    keys_ = KvMemory(kv().shape());
    throw ChainLostError("lost on purpose");
  }

  void SendOrders() {
    const uint64_t step = submitted_++;
    if (!orders_ || !orders_->waits()) return;
    KvOrder sent[kKvOrderPlaces];
    const size_t count = orders_->Send(step, sent);
    for (size_t i = 0; i < count; ++i)
      ordered_.push_back({sent[i], step, static_cast<int>(random_() % 4)});
  }
  // What the sockets say in the frame that comes back: of its own orders and of those before it.
  void Report() {
    const uint64_t step = collected_++;
    if (!orders_) return;
    std::erase_if(ordered_, [&](Ordered& one) {
      const uint64_t bit = uint64_t{1} << one.order.place;
      if (one.step > step) return false;
      if (one.step == step) {
        done_ &= ~bit;
        failed_ &= ~bit;
      }
      if (one.frames_left-- > 0) return false;
      done_ |= bit;
      if (!Move(one.order)) failed_ |= bit;
      return true;
    });
    const KvReport report{.done = done_, .failed = failed_, .files = files_.size()};
    for (size_t i = 0; i < kv().shape().chunk_ends.size(); ++i)
      orders_->See(step, AttentionId(static_cast<int32_t>(i)), {&report, 1});
  }
  bool Move(const KvOrder& order) {
    if (order.kind == KvOrder::Kind::kTouch) return files_.contains(order.ticket);
    const std::span<uint8_t> memory = keys_.memory(order.chunk);
    const bool fails = std::uniform_real_distribution<>(0, 1)(random_) < failure_;
    if (order.kind == KvOrder::Kind::kStore) {
      EXPECT_FALSE(files_.contains(order.ticket)) << "a ticket was used twice";
      if (!fails) files_[order.ticket].assign(memory.begin(), memory.end());
      failed_stores += fails;
      return !fails;
    }
    const auto file = files_.find(order.ticket);
    failed_loads += fails || file == files_.end();
    if (file == files_.end()) return false;
    std::ranges::copy(file->second, memory.begin());  // also if it is found damaged at its end
    if (fails) files_.erase(file);
    return !fails;
  }

  const double loss_;
  std::mt19937 random_;
  KvMemory keys_;                              // [slot][position]: the state after it
  std::deque<std::vector<uint64_t>> batches_;  // the states of rows that want logits
  std::vector<float> logits_;
  int away_ = 0;  // attempts to connect until it is back
  struct Ordered {
    KvOrder order;
    uint64_t step;
    int frames_left;
  };
  const double failure_;
  std::optional<KvOrderBook> orders_;
  std::vector<Ordered> ordered_;  // ordered and not done
  uint64_t done_ = ~uint64_t{0}, failed_ = 0;
  uint64_t submitted_ = 0, collected_ = 0;
  std::map<KvTicket, std::vector<uint8_t>> files_;
};

}  // namespace larder::pipeline::scheduler
