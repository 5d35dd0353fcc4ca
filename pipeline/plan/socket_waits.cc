#include "pipeline/plan/socket_waits.h"

#include "threadpool/wait_choice.h"

namespace larder::pipeline::inline plan {
namespace {

void AddCpus(const std::vector<PlanThread>& threads, std::vector<CpuId>& cpus) {
  for (const PlanThread& thread : threads) cpus.push_back(thread.cpu);
}

}  // namespace

SocketWaits WaitsOf(const StagePlan& plan, const topology::Topology& machine, AttentionId here) {
  // Socket 0 is the weight socket.
  const auto is_here = [&](size_t socket) {
    if (here.valid()) return socket == here.index() + 1;
    return socket == 0 || !plan.attention[socket - 1].elsewhere;
  };
  auto choose = [&](size_t socket, bool isolated) {
    if (!is_here(socket)) return threadpool::ChooseWaitPolicy(machine, {}, false);
    std::vector<CpuId> own, others;
    if (is_here(0)) AddCpus(plan.threads, socket == 0 ? own : others);
    for (size_t i = 0; i < plan.attention.size(); ++i) {
      if (is_here(i + 1)) AddCpus(plan.attention[i].threads, socket == i + 1 ? own : others);
    }
    return threadpool::ChooseWaitPolicy(machine, own, isolated, others);
  };
  SocketWaits waits{.weight = choose(0, plan.options.isolated), .attention = {}};
  for (size_t i = 0; i < plan.attention.size(); ++i)
    waits.attention.push_back(choose(i + 1, plan.options.attention[i].isolated));
  return waits;
}

}  // namespace larder::pipeline::plan
