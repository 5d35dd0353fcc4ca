#include "pipeline/chain/local_chain.h"

#include <utility>
#include <vector>

namespace larder::pipeline::inline chain {

LocalChain::LocalChain(std::unique_ptr<Stage> stage, SocketStatus& status)
    : status_(status), stage_(std::move(stage)) {
  const StagePlan& plan = stage_->plan();
  if (!plan.separated() || !stage_->KvMemory(0).empty()) return;
  std::vector<size_t> chunk_ends;
  for (const PlanAttentionSocket& socket : plan.attention)
    chunk_ends.push_back(socket.first_chunk + socket.kv_chunks);
  orders_.emplace(std::move(chunk_ends));
}

}  // namespace larder::pipeline::chain
