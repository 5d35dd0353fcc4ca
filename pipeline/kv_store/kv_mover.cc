#include "pipeline/kv_store/kv_mover.h"

#include <sys/resource.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "topology/affinity.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr int kNice = 10;  // a tenth of a compute thread's weight

}  // namespace

KvMover::KvMover(KvFiles& files, Options options) : files_(files), options_(std::move(options)) {
  thread_ = std::thread([this] {
    // The priority of this thread, on Linux; a failure does no harm.
    ::setpriority(PRIO_PROCESS, 0, kNice);
    if (!options_.cpus.empty()) topology::SetAffinity(pthread_self(), options_.cpus);
    Run();
  });
}

KvMover::~KvMover() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void KvMover::Start(KvJob job) {
  LARDER_CHECK(!job.pieces.empty() &&
               (job.pieces.back().index + 1) * chunk_positions() == job.tokens.size());
  Started(job);
  {
    const std::lock_guard lock(mutex_);
    const bool later = job.kind == KvJob::Kind::kStore || job.kind == KvJob::Kind::kTouch;
    (later ? stores_ : loads_).push_back(std::move(job));
  }
  work_.notify_one();
}

std::optional<KvJob> KvMover::Take() {
  if (!any_done_.load(std::memory_order_acquire)) return std::nullopt;
  std::optional<KvJob> job;
  const std::lock_guard lock(mutex_);
  if (!done_.empty()) {
    job = std::move(done_.front());
    done_.pop_front();
    GivenBack(*job);
  }
  any_done_.store(!done_.empty(), std::memory_order_relaxed);
  return job;
}

std::optional<KvJob> KvMover::Drop() {
  const std::lock_guard lock(mutex_);
  if (stores_.empty()) return std::nullopt;
  std::optional<KvJob> job = std::move(stores_.front());
  stores_.pop_front();
  GivenBack(*job);
  return job;
}

bool KvMover::AbandonWithin(int ms) {
  std::unique_lock lock(mutex_);
  loads_.clear();
  stores_.clear();
  hurry_ = true;
  const auto rests = [this] { return !moving_; };
  if (ms < 0) {
    finished_.wait(lock, rests);
  } else if (!finished_.wait_for(lock, std::chrono::milliseconds(ms), rests)) {
    return false;
  }
  hurry_ = false;
  done_.clear();
  any_done_.store(false, std::memory_order_relaxed);
  Forgotten();
  return true;
}

void KvMover::Wait(int ms) {
  if (jobs() == 0) return;
  std::unique_lock lock(mutex_);
  const auto done = [this] { return !done_.empty(); };
  if (ms < 0) {
    finished_.wait(lock, done);
  } else {
    finished_.wait_for(lock, std::chrono::milliseconds(ms), done);
  }
}

void KvMover::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stop_ || !loads_.empty() || !stores_.empty(); });
    if (stop_) return;
    std::deque<KvJob>& queue = loads_.empty() ? stores_ : loads_;
    KvJob job = std::move(queue.front());
    queue.pop_front();
    moving_ = true;
    lock.unlock();
    Move(job);
    lock.lock();
    moving_ = false;
    done_.push_back(std::move(job));
    any_done_.store(true, std::memory_order_release);
    finished_.notify_all();
  }
}

void KvMover::Move(KvJob& job) {
  const auto tokens_of = [&](const KvPiece& piece) {
    return std::span<const int32_t>(job.tokens).first((piece.index + 1) * chunk_positions());
  };
  if (job.kind == KvJob::Kind::kTouch) {
    job.done = job.pieces.size();
    return files_.Touch(job);
  }
  if (job.kind == KvJob::Kind::kForget) {
    for (; job.done < job.pieces.size(); ++job.done) {
      const KvPiece& piece = job.pieces[job.done];
      files_.Forget(tokens_of(piece), job.tenant, piece.of_class);
    }
    return;
  }
  const uint64_t rate = job.kind == KvJob::Kind::kStore ? options_.write_bytes_per_s
                        : job.alone                     ? 0
                                                        : options_.read_bytes_per_s;
  const auto begin = std::chrono::steady_clock::now();
  double moved = 0;
  const auto pace = [&](size_t bytes) {
    moved += static_cast<double>(bytes);
    if (rate == 0 || stop_ || hurry_) return;
    const std::chrono::duration<double> due(moved / static_cast<double>(rate));
    std::this_thread::sleep_until(
        begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(due));
  };
  try {
    for (; job.done < job.pieces.size() && !hurry_; ++job.done) {
      const KvPiece& piece = job.pieces[job.done];
      if (!piece.moves) continue;
      const std::span<const int32_t> tokens = tokens_of(piece);
      if (job.kind == KvJob::Kind::kStore) {
        files_.Write(tokens, job.tenant, piece.of_class, piece.memory, pace);
        failing_ = false;
      } else if (!files_.Read(tokens, job.tenant, piece.of_class, piece.memory, pace)) {
        break;
      }
    }
  } catch (const Error& error) {
    // A full disk stays full for a while: said once.
    if (job.kind == KvJob::Kind::kLoad || !failing_) options_.on_problem(error.what());
    failing_ = failing_ || job.kind == KvJob::Kind::kStore;
  }
  files_.Touch(job);
}

}  // namespace larder::pipeline::kv_store
