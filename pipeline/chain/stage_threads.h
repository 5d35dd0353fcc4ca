// StageThreads: the stages of a chain as threads of this process: what `--manifest` without `--join` runs.
// The same sockets and links as between processes, over shared memory.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pipeline/chain/stage_socket.h"

namespace larder::pipeline {

class StageThreads {
 public:
  // One Plan a stage. Returns when all stages are loaded; throws what one of them throws.
  StageThreads(ChainPlan chain, std::vector<StagePlan> plans, const model::GgufFile& file,
               const StageOptions& options);
  ~StageThreads();  // after the ChainClient has stopped the chain

  // With endpoints of this process.
  const ChainPlan& chain() const { return chain_; }
  const SocketStatus& status(size_t stage) const { return stages_[stage]->status; }

 private:
  struct OneStage {
    StagePlan plan;
    SocketStatus status;
    std::thread thread;
    std::mutex mutex;               // of `socket`
    StageSocket* socket = nullptr;  // while its thread has it
  };
  void Join();

  ChainPlan chain_;
  std::vector<std::unique_ptr<OneStage>> stages_;
};

}  // namespace larder::pipeline
