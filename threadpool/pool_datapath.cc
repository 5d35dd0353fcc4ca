// The data path of the pool: publishing a frame and walking the programs.
#include "base/check.h"
#include "threadpool/pool_state.h"

namespace larder::threadpool {

template <bool kTimeline>
void Pool::Shared::Walk(const Command& now, int thread) {
  const Program& program = now.programs[static_cast<size_t>(thread)];
  Worker& worker = workers[static_cast<size_t>(thread)];
  if constexpr (kTimeline) current_timeline = &worker.timeline;
  for (const Step *step = program.steps, *end = step + program.count; step != end; ++step) {
    const uint32_t target = now.base_epoch + step->epoch_offset;
    void* const frame = now.frames[step->part];
    if (step->needed == nullptr || step->needed(step->operand, frame)) {
      for (uint32_t w = 0; w < step->wait_count; ++w) {
        if (step->waits[w]->Reached(target)) continue;
        const uint64_t begin = ReadTicks();  // only where there is time
        step->waits[w]->Wait(target, wait);
        worker.waited_ticks += ReadTicks() - begin;
      }
      if constexpr (kTimeline) worker.timeline.Begin(step->layer);
      if (step->kernel != nullptr) step->kernel(step->operand, frame);
      if constexpr (kTimeline) worker.timeline.End(step->kind);
    }
    if (step->signal != nullptr) step->signal->Signal(target, step->waiters);
    if (step->barrier) barrier.Wait(thread);
  }
  if constexpr (kTimeline) {
    worker.timeline.EndFrame();
    current_timeline = nullptr;
  }
}

void Pool::Shared::Run(const Command& now, int thread) {
  if (now.kind == Command::Kind::kExecute) {
    // the timeline is chosen once per frame, so that a step pays nothing for it
    if (!workers[static_cast<size_t>(thread)].timeline.on()) [[likely]] {
      Walk<false>(now, thread);
    } else {
      Walk<true>(now, thread);
    }
  } else {
    now.call(now.context, thread);
  }
  barrier.Wait(thread);  // the join: thread 0 is the barrier's root and leaves first
}

void Pool::Shared::Publish(const Command& next) {
  command = next;
  ++command_epoch;
  for (uint32_t g = 0; g < go_count; ++g) go[g].Signal(command_epoch, wait.mode);
}

void Pool::Shared::WorkerLoop(int thread) {
  sync::EpochFlag& my_go = go[go_of_thread[static_cast<size_t>(thread)]];
  for (uint32_t epoch = 1;; ++epoch) {
    my_go.Wait(epoch, wait);
    // A copy: thread 0 may leave the join and write the next command while this thread is still
    // inside it.
    const Command now = command;
    if (now.kind == Command::Kind::kStop) return;
    Run(now, thread);
  }
}

void Pool::Execute(std::span<const Program> per_thread, std::span<void* const> frames,
                   uint32_t epochs) {
  Shared& shared = *shared_;
  LARDER_CHECK(per_thread.size() == shared.workers.size(), "{} programs, {} threads",
               per_thread.size(), shared.workers.size());
  LARDER_CHECK(pthread_equal(shared.owner, pthread_self()),
               "only the thread that made the pool executes");
  const Command command{
      Command::Kind::kExecute, shared.base_epoch, per_thread, frames, nullptr, nullptr};
  shared.Publish(command);
  shared.Run(command, 0);
  shared.base_epoch += epochs;
}

void Pool::Call(void (*fn)(void* context, int thread), void* context) {
  LARDER_CHECK(pthread_equal(shared_->owner, pthread_self()),
               "only the thread that made the pool commands it");
  Command command;
  command.kind = Command::Kind::kCall;
  command.call = fn;
  command.context = context;
  shared_->Publish(command);
  shared_->Run(command, 0);
}

}  // namespace larder::threadpool
