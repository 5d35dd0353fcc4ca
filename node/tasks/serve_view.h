// What a server shows of its machine, or of all machines of its cluster: the Plan and the sockets' counters
// as serving/metrics/status.h has them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "node/options/load.h"
#include "pipeline/engine/engine.h"
#include "pipeline/engine/scheduler.h"
#include "serving/metrics/status.h"

namespace larder::node {

class ServeView {
 public:
  // The Plan's sockets, on whichever server. The engine and the scheduler outlive it.
  ServeView(const PlannedModel&, const pipeline::Engine&, const pipeline::Scheduler&,
            const std::string& chat_format);

  const serving::PlanView& plan() const { return plan_; }
  // Names of its sockets, the label of their metrics; unique.
  std::vector<std::string> SocketNames() const;
  // Slots and sockets as they are now. Any thread.
  void FillStatus(serving::StatusView&) const;
  void FillMetrics(serving::ServingMetrics&) const;

 private:
  using Reader = std::function<serving::SocketView()>;
  void AddSocket(serving::SocketPlace place, Reader now);
  void AddStage(const pipeline::PlacedStage&, const topology::Topology&, serving::SocketPlace first,
                Reader now, const std::function<Reader(size_t)>& attention_now);
  void AddChain(const PlannedModel&);

  const pipeline::Engine& engine_;
  const pipeline::Scheduler& scheduler_;
  serving::PlanView plan_;
  std::vector<Reader> now_;  // of each of its sockets
};

}  // namespace larder::node
