// SimulatedEngine: what a Scheduler drives in place of an Engine: it keeps the same chunks, checks
// the same rows and takes the time that ServiceTimes says, on a clock of its own, but computes
// nothing. Logits are zeros. Hundreds of thousands of sequences take seconds.
//
// A micro-batch that is submitted passes the chain's Stations; Collect advances the clock to when
// the serving socket is done with the oldest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/pulse.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/simulation/stations.h"
#include "pipeline/simulation/virtual_clock.h"

namespace larder::pipeline::inline simulation {

class SimulatedEngine : public TokenEngine, protected KvChannel {
 public:
  // times and clock outlive it.
  SimulatedEngine(EngineLimits limits, const KvChunksShape& chunks, ServiceTimes& times,
                  VirtualClock& clock);

  const EngineLimits& limits() const override { return limits_; }
  void Submit(std::span<const TokenRow> rows) override;
  void Collect() override;
  void Reconnect() override {}
  std::span<const float> logits(size_t) const override { return logits_; }
  std::span<const float> hidden(size_t) override { return logits_; }
  const std::string& fault(size_t) const override { return fault_; }
  Pulse& pulse() override { return pulse_; }
  KvChunks& kv() override { return kv_; }
  KvChannel& kv_channel() override { return *this; }

  size_t in_flight() const { return in_flight_.size(); }
  size_t most_in_flight() const { return most_in_flight_; }
  const Stations& stations() const { return stations_; }

 protected:
  // The rows of a Submit, for which there is room, before their updates are cleared.
  virtual void Compute(std::span<const TokenRow>) {}
  // Nothing is in flight any more, and every slot is empty.
  void Forget();
  VirtualClock& clock() { return clock_; }

  topology::ScatteredBytes Memory(uint32_t /*chunk*/) override { return {}; }
  KvOrderBook* orders() override { return nullptr; }
  void Poll() override {}
  void Lose(const char* /*why*/) override {}

 private:
  struct MicroBatch {
    size_t rows = 0, wanted = 0;
    std::vector<uint64_t> positions;
    uint64_t held = 0;
    uint64_t back_ns = 0;
    StepLoad load() const { return {rows, wanted, positions, held}; }
  };
  void Reserve(std::span<const TokenRow> rows);
  MicroBatch Take(std::span<const TokenRow> rows);

  const EngineLimits limits_;
  VirtualClock& clock_;
  KvChunks kv_;
  Stations stations_;
  std::deque<MicroBatch> in_flight_;
  size_t most_in_flight_ = 0;
  std::vector<uint64_t> seen_;  // [slot]: the last Submit that had rows of it
  uint64_t submits_ = 0;
  const std::vector<float> logits_;
  const std::string fault_;
  Pulse pulse_;
};

}  // namespace larder::pipeline::simulation
