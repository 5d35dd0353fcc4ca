// StageThreads: the stages of a chain as threads of this process, as `--manifest` without `--join`
// runs them. Sockets and links are the same as between processes, over shared memory.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pipeline/chain/stage_socket.h"

namespace larder::pipeline::inline chain {

class StageThreads {
 public:
  // One Plan per stage. Returns when all stages are loaded; rethrows what one of them throws.
  StageThreads(ChainPlan chain, std::vector<StagePlan> plans, const model::GgufFile& file,
               const ChainOptions& options);
  ~StageThreads();  // call it after the ChainClient has stopped the chain

  // The chain with endpoints of this process.
  const ChainPlan& chain() const { return chain_; }
  const SocketStatus& status(size_t stage) const { return stages_[stage]->status; }

 private:
  struct OneStage {
    StagePlan plan;
    SocketStatus status;
    std::thread thread;
    std::mutex mutex;               // guards `socket`
    StageSocket* socket = nullptr;  // null while the thread has no StageSocket
  };
  void Join();

  ChainPlan chain_;
  std::vector<std::unique_ptr<OneStage>> stages_;
};

}  // namespace larder::pipeline::chain
