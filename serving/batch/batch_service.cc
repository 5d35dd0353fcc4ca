#include "serving/batch/batch_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace larder::serving::inline batch {
namespace {

constexpr size_t kMostAsked = 4;             // requests prepared at once: others' work waits for it
constexpr int64_t kPauseNs = 1'000'000'000;  // when the service is full, or a socket is lost
const std::string kOwn = "batches";          // the peer whose turn our own work is

}  // namespace

struct BatchService::Running {
  BatchTicket ticket;
  bool stopped = false;
  std::unique_ptr<RunningBatchRequest> request;
};

BatchService::BatchService(const std::string& folder, const BatchQuota& quota, BatchStore::Log log,
                           std::function<void(std::function<void()>)> to_io,
                           Background::FailureHandler failed)
    : to_io_(std::move(to_io)),
      failed_(std::move(failed)),
      store_(folder, quota, std::move(log)),
      thread_(failed_, {.name = "larder-files"}) {}

BatchService::~BatchService() {
  Close();
  *self_ = nullptr;
}

void BatchService::Close() {
  thread_.Close();
  running_.clear();
}

void BatchService::Begin(GenerationService& service, const CompletionDefaults& defaults,
                         BatchFacts facts, std::function<bool(Tenant)> knows) {
  jobs_ = std::make_unique<BatchJobs>(store_, defaults, std::move(facts), std::move(knows),
                                      store_.log());
  for (const std::string& batch : store_.Unfinished()) jobs_->Open(batch);
  service_ = &service;
  Tick();
}

uint64_t BatchService::Post(const std::string& peer, std::function<void(Files&)> work,
                            std::function<void(bool)> then) {
  const uint64_t number = ++posted_;
  tickets_[number] =
      thread_.Post(peer, [this, number, work = std::move(work), then = std::move(then)]() mutable {
        bool ok = true;
        try {
          Files files{store_, *jobs_};
          work(files);
        } catch (const std::exception& error) {
          ok = false;
          failed_(error.what());
        }
        work = nullptr;
        to_io_([self = self_, number, ok, then = std::move(then)] {
          if (*self == nullptr) return;
          (*self)->tickets_.erase(number);
          if (then) then(ok);
        });
      });
  return number;
}

void BatchService::Tick() {
  if (service_ == nullptr) return;
  Collect();
  Fill();
  StepFiles();
}

// What is done a little at a time on the thread of files: checking, and syncing.
void BatchService::StepFiles() {
  if (stepping_ || draining_ || jobs_->counts().jobs == 0) return;
  stepping_ = true;
  auto more = std::make_shared<bool>(false);
  Post(
      kOwn,
      [more](Files& files) {
        *more = files.jobs.Step();
        files.jobs.SyncIfDue();
      },
      [this, more](bool) {
        stepping_ = false;
        if (*more) StepFiles();
        Fill();
      });
}

// How many requests may be begun. Two for each slot that no client's text has: the second one is
// there when the first one ends.
size_t BatchService::Room() const {
  const size_t background = service_->live_background();
  const size_t clients = service_->live() - background;
  const size_t slots = service_->options().slots;
  const size_t most = clients < slots ? 2 * (slots - clients) : 0;
  const size_t now = std::max(background, running_.size());
  return most > now ? most - now : 0;
}

void BatchService::Fill() {
  if (asking_ || draining_ || !jobs_->has_requests() || NowNs() < not_before_ns_) return;
  const size_t most = std::min(Room(), kMostAsked);
  if (most == 0) return;
  asking_ = true;
  auto begun = std::make_shared<std::vector<BegunRequest>>();
  Post(
      kOwn, [begun, most](Files& files) { files.jobs.Next(most, *begun); },
      [this, begun](bool) {
        asking_ = false;
        const bool any = !begun->empty();
        for (BegunRequest& one : *begun) Start(std::move(one));
        if (any) Fill();
      });
}

void BatchService::Start(BegunRequest begun) {
  for (GenerationSpec& spec : begun.request.prepared.specs) {
    spec.tenant = begun.tenant;
    spec.background = true;
  }
  auto running = std::make_unique<Running>();
  running->ticket = std::move(begun.ticket);
  running->request = std::make_unique<RunningBatchRequest>(std::move(begun.request), *service_,
                                                           [this] { CollectSoon(); });
  if (running->request->ended()) CollectSoon();
  running_.push_back(std::move(running));
}

void BatchService::CollectSoon() {
  if (collecting_) return;
  collecting_ = true;
  to_io_([self = self_] {
    if (*self == nullptr) return;
    (*self)->collecting_ = false;
    (*self)->Collect();
    (*self)->Fill();
  });
}

// Hands the answers that are there to the thread of files.
void BatchService::Collect() {
  std::erase_if(running_, [this](const std::unique_ptr<Running>& one) {
    if (!one->request->ended() && !one->stopped) return false;
    if (!one->request->ended()) {
      Post(kOwn, [ticket = one->ticket](Files& files) { files.jobs.Drop(ticket); }, {});
      return true;
    }
    auto answer = std::make_shared<BatchAnswer>(std::move(one->request->answer()));
    if (!answer->is_final()) not_before_ns_ = NowNs() + kPauseNs;
    Post(kOwn,
         [ticket = one->ticket, line = one->request->line(), answer](Files& files) {
           files.jobs.Answer(ticket, line, std::move(*answer));
         },
         {});
    return true;
  });
}

void BatchService::Stop(const std::string& batch) {
  for (const auto& one : running_) one->stopped = one->stopped || one->ticket.batch == batch;
  Collect();
}

void BatchService::Drain() {
  draining_ = true;
  running_.clear();  // they begin anew with the next process
}

BatchCounts BatchService::counts() const {
  if (jobs_ != nullptr) return jobs_->counts();
  BatchCounts counts;
  counts.most_file_bytes = store_.quota().disk_bytes;
  return counts;
}

}  // namespace larder::serving::batch
