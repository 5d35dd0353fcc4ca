#include "pipeline/chain/local_chain.h"

#include <utility>
#include <vector>

namespace larder::pipeline::inline chain {

LocalChain::LocalChain(const StagePlan& plan, const model::GgufFile& file,
                       const ChainOptions& options, SocketStatus& status)
    : status_(status), stage_(plan, file, options) {
  if (plan.attention.empty() || !stage_.KvMemory(0).empty()) return;
  std::vector<size_t> chunk_ends;
  for (const PlanAttentionSocket& socket : plan.attention)
    chunk_ends.push_back(socket.first_chunk + socket.kv_chunks);
  orders_.emplace(std::move(chunk_ends));
}

}  // namespace larder::pipeline::chain
