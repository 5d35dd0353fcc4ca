#include "pipeline/plan/socket_waits.h"

#include "threadpool/wait_choice.h"

namespace larder::pipeline::inline plan {
namespace {

void AddCpus(const std::vector<PlanThread>& threads, std::vector<CpuId>& cpus) {
  for (const PlanThread& thread : threads) cpus.push_back(thread.cpu);
}

}  // namespace

SocketWaits WaitsOf(const StagePlan& plan, const topology::Topology& machine) {
  // Socket 0 is the weight socket.
  auto choose = [&](size_t socket, bool isolated) {
    std::vector<CpuId> own, others;
    AddCpus(plan.threads, socket == 0 ? own : others);
    for (size_t i = 0; i < plan.attention.size(); ++i)
      AddCpus(plan.attention[i].threads, socket == i + 1 ? own : others);
    return threadpool::ChooseWaitPolicy(machine, own, isolated, others);
  };
  SocketWaits waits{.weight = choose(0, plan.options.isolated), .attention = {}};
  for (size_t i = 0; i < plan.attention.size(); ++i)
    waits.attention.push_back(choose(i + 1, plan.options.attention[i].isolated));
  return waits;
}

}  // namespace larder::pipeline::plan
