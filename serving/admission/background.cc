#include "serving/admission/background.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace larder::serving::inline admission {

// A job that took this much memory, or this many steps: afterwards the memory that it freed is
// returned to the system.
constexpr uint64_t kMuch = uint64_t{4} << 20, kManySteps = 50'000;
constexpr int kNice = 15;  // a thirtieth of the core while another thread wants it

struct Background::Queue {
  struct Job {
    uint64_t id;
    std::function<void()> work;
    std::shared_ptr<std::atomic<bool>> wanted = std::make_shared<std::atomic<bool>>(true);
  };
  struct Peer {
    std::string name;
    std::deque<Job> jobs;  // never empty
  };

  std::list<Peer>::iterator Find(const std::string& name) {
    return std::find_if(peers.begin(), peers.end(),
                        [&](const Peer& one) { return one.name == name; });
  }

  // Takes the first job of the peer whose turn it is; that peer goes to the end of the list.
  Job Next() {
    Peer& peer = peers.front();
    Job job = std::move(peer.jobs.front());
    peer.jobs.pop_front();
    if (peer.jobs.empty()) {
      peers.pop_front();
    } else {
      peers.splice(peers.end(), peers, peers.begin());
    }
    return job;
  }

  void Forget(const std::string& name, uint64_t id) {
    std::function<void()> dropped;  // freed without the lock
    const std::lock_guard lock(mutex);
    if (const auto runs = running.find(id); runs != running.end()) runs->second->store(false);
    const auto peer = Find(name);
    if (peer == peers.end()) return;
    const auto job = std::find_if(peer->jobs.begin(), peer->jobs.end(),
                                  [&](const Job& one) { return one.id == id; });
    if (job == peer->jobs.end()) return;
    dropped = std::move(job->work);
    peer->jobs.erase(job);
    if (peer->jobs.empty()) peers.erase(peer);
  }

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::list<Peer> peers;  // in order of their turns; few, since each has a large request that waits
  std::map<uint64_t, std::shared_ptr<std::atomic<bool>>> running;  // whether they are wanted
  uint64_t next_id = 1;
  bool stop = false;
};

Background::Background(FailureHandler failed, BackgroundOptions options)
    : failed_(std::move(failed)), options_(options), queue_(std::make_shared<Queue>()) {
  for (size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Run(); });
}

Background::~Background() { Close(); }

void Background::Close() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stop = true;
    for (const auto& [id, wanted] : queue_->running) wanted->store(false);
  }
  queue_->wake.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  // tickets may keep the queue
  const std::list<Queue::Peer> dropped = std::exchange(queue_->peers, {});
}

JobTicket Background::Post(const std::string& peer, std::function<void()> job) {
  uint64_t id;
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->Find(peer) == queue_->peers.end()) queue_->peers.push_back({peer, {}});
    id = queue_->next_id++;
    queue_->Find(peer)->jobs.push_back({id, std::move(job)});
  }
  queue_->wake.notify_one();
  return {nullptr, [queue = queue_, peer, id](void*) { queue->Forget(peer, id); }};
}

size_t Background::waiting() const {
  const std::lock_guard lock(queue_->mutex);
  size_t jobs = 0;
  for (const auto& peer : queue_->peers) jobs += peer.jobs.size();
  return jobs;
}

void Background::Run() {
  pthread_setname_np(pthread_self(), options_.name);
  // On Linux it applies to this thread only. If the thread must share a core, the compute thread
  // there goes on.
  setpriority(PRIO_PROCESS, 0, kNice);
  std::unique_lock lock(queue_->mutex);
  for (;;) {
    {
      const Pulse::Rest rest(pulse_);
      queue_->wake.wait(lock, [this] { return queue_->stop || !queue_->peers.empty(); });
    }
    if (queue_->stop) return;
    Queue::Job job = queue_->Next();
    queue_->running.emplace(job.id, job.wanted);
    lock.unlock();
    bool much = false;
    try {
      std::optional<Work> counted;
      if (options_.limits) {
        WorkLimits limits = *options_.limits;
        limits.wanted = job.wanted.get();
        counted.emplace(limits);
      }
      job.work();
      much = counted && (counted->held() > kMuch || counted->spent() > kManySteps);
    } catch (const NotWanted&) {
    } catch (const std::exception& error) {
      if (failed_) failed_(error.what());
    }
    job.work = nullptr;  // without the lock
    if (much) malloc_trim(0);
    lock.lock();
    queue_->running.erase(job.id);
  }
}

}  // namespace larder::serving::admission
