#include "pipeline/chain/stage_threads.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace larder::pipeline::inline chain {

StageThreads::StageThreads(ChainPlan chain, std::vector<StagePlan> plans,
                           const model::GgufFile& file, const ChainOptions& options)
    : chain_(std::move(chain)) {
  static std::atomic<int> count{0};  // relaxed would be enough: only distinct values matter
  const std::string run = fmt::format("larder/{}/{}", getpid(), count++);
  auto endpoint = [&](const std::string& socket) {
    return rdma::LinkEndpoint{.transport = rdma::Transport::kSharedMemory,
                              .name = run + "/" + socket};
  };
  for (ChainStage& stage : chain_.stages) stage.endpoint = endpoint(stage.socket);
  chain_.serving = endpoint("serving");
  chain_.first = chain_.stages.front().endpoint;
  for (size_t i = 0; i < chain_.stages.size(); ++i)
    chain_.stages[i].next =
        i + 1 == chain_.stages.size() ? chain_.serving : chain_.stages[i + 1].endpoint;

  // Stages load one after the other, since each packs with all of its cores and stages may share
  // cores.
  for (size_t i = 0; i < chain_.stages.size(); ++i) {
    auto& stage = *stages_.emplace_back(std::make_unique<OneStage>());
    stage.plan = std::move(plans.at(i));
    std::promise<void> promise;
    std::future<void> built = promise.get_future();
    ChainOptions named = options;
    named.socket = chain_.stages[i].socket;
    auto serve = [this, &stage, i, &file, options = std::move(named),
                  built = std::move(promise)]() mutable {
      std::unique_ptr<StageSocket> socket;
      try {
        socket = std::make_unique<StageSocket>(chain_, i, stage.plan, file, options, stage.status);
      } catch (...) {
        built.set_exception(std::current_exception());
        return;
      }
      const auto show = [&](StageSocket* shown) {
        const std::lock_guard lock(stage.mutex);
        stage.socket = shown;
      };
      show(socket.get());
      built.set_value();
      try {
        socket->Serve([](const std::string&) {});
      } catch (const std::exception&) {
        // An Error, or a link's helper thread could not start. The neighbours notice it, and the
        // serving socket reports what was lost.
      }
      show(nullptr);
    };
    try {
      stage.thread = std::thread(std::move(serve));
      built.get();
    } catch (const std::system_error& error) {
      Join();
      throw Error("stage {}: cannot start a thread: {}; check `ulimit -u`", chain_.stages[i].socket,
                  error.what());
    } catch (...) {
      Join();
      throw;
    }
  }
}

StageThreads::~StageThreads() { Join(); }

void StageThreads::Join() {
  for (size_t i = 0; i < stages_.size(); ++i) {
    {
      // If the chain was never connected, the stage may still be listening.
      const std::lock_guard lock(stages_[i]->mutex);
      if (stages_[i]->socket != nullptr) stages_[i]->socket->StopListening();
    }
    if (stages_[i]->thread.joinable()) stages_[i]->thread.join();
  }
}

}  // namespace larder::pipeline::chain
