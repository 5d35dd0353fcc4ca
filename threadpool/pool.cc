// Set-up of the pool: threads, pinning, timelines. The data path is pool_datapath.cc.
#include "threadpool/pool.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "threadpool/pool_state.h"
#include "topology/affinity.h"

namespace larder::threadpool {

Pool::Pool(PoolOptions options) {
  const size_t threads = options.cpus.size();
  if (threads == 0) throw Error("thread pool: no CPUs given; expected at least 1");
  if (options.group_of_thread.empty()) options.group_of_thread.assign(threads, 0);
  if (options.group_of_thread.size() != threads) {
    throw Error("thread pool: {} CPUs but {} group numbers; expected one for each", threads,
                options.group_of_thread.size());
  }
  for (CpuId cpu : options.cpus) {
    if (cpu.value >= topology::kMaxCpus)
      throw Error("thread pool: CPU {}: expected less than {}", cpu.value, topology::kMaxCpus);
  }

  shared_ = std::make_unique<Shared>(
      sync::BarrierShape::Of(options.group_of_thread, options.package_of_thread), options.wait);
  Shared& shared = *shared_;
  shared.owner = pthread_self();
  std::vector<int> names;
  for (int name : options.group_of_thread) {
    const auto it = std::find(names.begin(), names.end(), name);
    shared.go_of_thread.push_back(static_cast<uint32_t>(it - names.begin()));
    if (it == names.end()) names.push_back(name);
  }
  shared.go_count = static_cast<uint32_t>(names.size());
  shared.go = std::make_unique<sync::EpochFlag[]>(names.size());

  shared.pinned.assign(threads, CpuId());
  auto pin = [&](pthread_t thread, size_t number) {
    const CpuId cpu = options.cpus[number];
    if (!cpu.valid()) return false;
    const int error = topology::SetAffinity(thread, {&cpu, 1});
    if (error == 0) {
      shared.pinned[number] = cpu;
      return true;
    }
    shared.warnings.push_back(
        fmt::format("thread {} is not pinned to CPU {}: {} (is the CPU in this process's cpuset?)",
                    number, cpu.value, std::strerror(error)));
    return false;
  };
  for (size_t t = 1; t < threads; ++t) {
    try {
      shared.threads.emplace_back([&shared, t] { shared.WorkerLoop(static_cast<int>(t)); });
    } catch (const std::system_error& error) {
      Stop();
      throw Error("thread pool: thread {} of {} cannot start: {}; look at `ulimit -u`", t + 1,
                  threads, error.what());
    }
    pthread_setname_np(shared.threads.back().native_handle(), fmt::format("larder-{}", t).c_str());
    pin(shared.threads.back().native_handle(), t);
  }
  std::vector<CpuId> old_affinity = topology::GetAffinity(shared.owner);
  if (pin(shared.owner, 0)) shared.old_affinity = std::move(old_affinity);
}

Pool::~Pool() { Stop(); }

void Pool::Stop() {
  shared_->Publish(Command{});
  for (std::thread& thread : shared_->threads) thread.join();
  if (!shared_->old_affinity.empty()) topology::SetAffinity(shared_->owner, shared_->old_affinity);
}

int Pool::threads() const { return static_cast<int>(shared_->workers.size()); }
int Pool::groups() const { return static_cast<int>(shared_->go_count); }
const sync::TreeBarrier& Pool::barrier() const { return shared_->barrier; }
const std::vector<std::string>& Pool::warnings() const { return shared_->warnings; }
std::vector<std::string> Pool::LostPins() const {
  std::vector<std::string> lost;
  for (size_t t = 0; t < shared_->pinned.size(); ++t) {
    const CpuId cpu = shared_->pinned[t];
    if (!cpu.valid()) continue;
    const auto now = topology::GetAffinity(
        t == 0 ? shared_->owner
               : const_cast<std::thread&>(shared_->threads[t - 1]).native_handle());
    if (now.size() == 1 && now[0] == cpu) continue;
    lost.push_back(fmt::format(
        "thread {} was pinned to CPU {} and may now run on {} CPUs (its cpuset was changed, or the "
        "CPU went off-line)",
        t, cpu.value, now.size()));
  }
  return lost;
}
uint32_t Pool::next_base_epoch() const { return shared_->base_epoch; }
void Pool::SkipEpochs(uint32_t epochs) { shared_->base_epoch += epochs; }

void Pool::ForEach(void (*fn)(void* context, int thread), void* context) {
  struct Guarded {
    void (*fn)(void*, int);
    void* context;
    std::vector<std::exception_ptr> thrown;
  } guarded{fn, context, std::vector<std::exception_ptr>(shared_->workers.size())};
  Call(
      [](void* opaque, int thread) {
        auto& g = *static_cast<Guarded*>(opaque);
        try {
          g.fn(g.context, thread);
        } catch (...) {
          g.thrown[static_cast<size_t>(thread)] = std::current_exception();
        }
      },
      &guarded);
  for (const std::exception_ptr& thrown : guarded.thrown) {
    if (thrown) std::rethrow_exception(thrown);
  }
}

void Pool::EnableTimeline(size_t capacity) {
  for (Worker& worker : shared_->workers) worker.timeline.Reset(capacity);
}

uint64_t Pool::waited_ns() const {
  return static_cast<uint64_t>(static_cast<double>(shared_->workers[0].waited_ticks) * 1e9 /
                               TicksPerSecond());
}

std::span<const StepTime> Pool::Timeline(int thread) const {
  return shared_->workers.at(static_cast<size_t>(thread)).timeline.recorded();
}

double Pool::TicksPerSecond() {
  static const double rate = [] {
    const int64_t start_ns = NowNs();
    const uint64_t start_ticks = ReadTicks();
    while (NowNs() - start_ns < 10'000'000) sync::CpuPause();
    const uint64_t ticks = ReadTicks() - start_ticks;
    return static_cast<double>(ticks) / SecondsSince(start_ns);
  }();
  return rate;
}

}  // namespace larder::threadpool
