// What a server shows of its machine, or of all machines of its cluster: the Plan and the sockets'
// counters, in the form of serving/metrics/status.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "node/loading/load.h"
#include "node/tasks/residency_warning.h"
#include "pipeline/engine/engine.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/metrics/status.h"

namespace larder::node::inline tasks {

class ServeView {
 public:
  // Views the Plan's sockets on all servers. The engine and the scheduler outlive it.
  ServeView(const PlannedModel&, const pipeline::Engine&, const pipeline::Scheduler&,
            const std::string& chat_format);
  ServeView(const ServeView&) = delete;  // its readers hold pointers to it
  ServeView& operator=(const ServeView&) = delete;

  const serving::PlanView& plan() const { return plan_; }
  // Unique names of its sockets, used as the label of their metrics.
  std::vector<std::string> SocketNames() const;
  // The current state of slots and sockets. Any thread.
  void FillStatus(serving::StatusView&) const;
  void FillMetrics(serving::ServingMetrics&) const;
  // Logs a line for each socket whose weights have left L3 (ResidencyWarning). One thread, once a
  // second.
  void WarnOfResidency(int64_t now_ns);
  // Of the layers with experts.
  std::vector<ExpertCounts> Experts() const { return engine_.expert_counts(); }

 private:
  using Reader = std::function<serving::SocketView()>;
  void AddSocket(serving::SocketPlace place, Reader now);
  void AddStage(const pipeline::PlacedStage&, const topology::Topology&, serving::SocketPlace first,
                Reader now, const std::function<Reader(AttentionId)>& attention_now);
  void AddChain(const PlannedModel&);

  const pipeline::Engine& engine_;
  const pipeline::Scheduler& scheduler_;
  serving::PlanView plan_;
  std::vector<Reader> now_;                 // one per socket
  std::vector<ResidencyWarning> warnings_;  // likewise
};

}  // namespace larder::node::tasks
