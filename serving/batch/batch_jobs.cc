#include "serving/batch/batch_jobs.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "serving/api/routes.h"

namespace larder::serving::inline batch {
namespace {

constexpr size_t kLinesAtOnce = 1;  // a line may have 1 MiB, and requests for files wait meanwhile
constexpr double kCheckS = 0.002;   // time for each batch before others have their turn
constexpr int64_t kRetryNs = 30'000'000'000;

uint64_t RandomSeed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != sizeof seed) throw Error("no random numbers");
  return seed;
}

uint64_t SizeOf(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 ? static_cast<uint64_t>(about.st_size) : 0;
}

}  // namespace

struct BatchJobs::Job {
  enum class Phase { kChecking, kRunning, kPaused };
  explicit Job(BatchRecord& of) : record(of) {}

  BatchRecord& record;
  Phase phase = Phase::kPaused;
  Descriptor check;  // its file, while the input is being checked
  uint64_t line = 0;
  uint64_t opening = 0;
  int64_t retry_ns = 0;  // kPaused
  std::string said;      // the last line of the log about it
  std::unique_ptr<BatchInput> input;
  BatchJob job;
  std::optional<BatchOutput> output, errors;
  std::unique_ptr<BatchWork> work;
  std::deque<BatchLine> again;  // came back without an answer
  size_t running = 0;           // handed out
  size_t failed_before = 0;     // answers that are errors, when it was opened
  uint64_t charged = 0;         // bytes of answers
  uint64_t charged_run = 0;     // the part of work->progress().bytes that was charged
};

BatchJobs::BatchJobs(BatchStore& store, const CompletionDefaults& defaults, BatchFacts facts,
                     std::function<bool(Tenant)> knows, BatchStore::Log log)
    : store_(store),
      defaults_(defaults),
      facts_(std::move(facts)),
      knows_(std::move(knows)),
      log_(std::move(log)) {
  Count();
}

// An orderly end is not the input's fault.
BatchJobs::~BatchJobs() {
  for (const auto& [id, job] : jobs_) ForgetCheck(*job);
}

// A process that ended in the middle of the check has left the line. One that ends it twice would
// end each one that comes after it. Returns what is wrong; empty: the check may begin.
std::string BatchJobs::WhyNotCheck(Job& job) {
  BatchRecord& record = job.record;
  const std::string path = store_.CheckPathOf(record);
  uint64_t line = 0;
  const Descriptor left(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (left && ::read(left.get(), &line, sizeof line) == sizeof line && line > 0) {
    if (record.ended_at_line == line)
      return fmt::format("the server ended twice while it checked line {}", line);
    record.ended_at_line = line;
    store_.Save(record);
  }
  ::unlink(path.c_str());
  job.check =
      Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!job.check) throw Error("{}: can't create: {}", path, std::strerror(errno));
  job.line = 0;
  return "";
}

// 0: none is being checked.
void BatchJobs::NoteLine(Job& job, uint64_t line) {
  if (::pwrite(job.check.get(), &line, sizeof line, 0) != sizeof line)
    throw Error("{}: can't write: {}", store_.CheckPathOf(job.record), std::strerror(errno));
}

void BatchJobs::ForgetCheck(Job& job) {
  if (!job.check) return;
  job.check = Descriptor();
  ::unlink(store_.CheckPathOf(job.record).c_str());
}

void BatchJobs::Open(const std::string& batch) {
  jobs_[batch] = std::make_unique<Job>(store_.batch(batch));
  Count();
}

// The disk's errors are not the batch's: it waits until they are gone.
void BatchJobs::Try(Job& job, const std::function<void()>& what) {
  const std::string id = job.record.id;
  try {
    what();
  } catch (const std::exception& error) {  // also no memory
    if (jobs_.contains(id)) Pause(job, error.what());
  }
}

void BatchJobs::Begin(Job& job) {
  if (!std::filesystem::exists(store_.PathOf(job.record.input)))
    return Fail(job, {{0, "its input file was deleted"}});
  if (const std::string why = WhyNotCheck(job); !why.empty()) {
    log_(fmt::format("{}: failed: {} of the input {}", job.record.id, why, job.record.input));
    return Fail(job, {{job.record.ended_at_line, why + ": it is not tried again"}});
  }
  job.opening = ++openings_;
  const Dialect dialect = FindRoute(job.record.endpoint)->dialect;
  job.input = std::make_unique<BatchInput>(
      store_.PathOf(job.record.input),
      [this, dialect, endpoint = job.record.endpoint](const BatchLine& line) {
        if (line.dialect != dialect)
          throw Error("its url is not that of the batch: expected {}", endpoint);
        CheckBatchLine(line, defaults_);
      },
      BatchInputLimits{.line_bytes = store_.quota().line_bytes,
                       .requests = store_.quota().requests});
  job.phase = Job::Phase::kChecking;
}

bool BatchJobs::Step() {
  bool more = false;
  std::vector<Job*> all;  // a step may end some
  for (const auto& [id, job] : jobs_) all.push_back(job.get());
  for (Job* job : all) {
    if (job->phase == Job::Phase::kPaused) {
      if (NowNs() < job->retry_ns) continue;
      Try(*job, [&] { Begin(*job); });
      more = true;
    } else if (job->phase == Job::Phase::kChecking) {
      Try(*job, [&] { CheckSome(*job); });
      more = true;
    }
  }
  Count();
  return more;
}

void BatchJobs::CheckSome(Job& job) {
  const int64_t begin_ns = NowNs();
  while (SecondsSince(begin_ns) < kCheckS) {
    NoteLine(job, ++job.line);
    const bool all = job.input->CheckMore(kLinesAtOnce);
    NoteLine(job, 0);  // between two lines it is not this input's fault
    if (!all) continue;
    ForgetCheck(job);
    if (!job.input->problems().empty()) return Fail(job, job.input->problems());
    return Checked(job);
  }
}

// Opens the job's files, new or as they were left.
void BatchJobs::Checked(Job& job) {
  BatchRecord& record = job.record;
  job.job = {.input_hash = job.input->hash(),
             .requests = job.input->requests(),
             .model = defaults_.model,
             .model_fingerprint = defaults_.fingerprint,
             .engine = facts_.engine,
             .options = facts_.options,
             .seed = defaults_.seed ? *defaults_.seed : RandomSeed(),
             .created = static_cast<int64_t>(std::time(nullptr))};
  std::string differs;
  const std::string path = store_.JobPathOf(record);
  if (std::filesystem::exists(path)) {
    const BatchJob before = BatchJob::Load(path);
    differs = job.job.Differs(before);
    job.job.seed = before.seed;
    job.job.created = before.created;
  } else {
    job.job.Save(path);
  }
  std::vector<bool> done(job.input->requests());
  const auto count = [&] {
    return static_cast<size_t>(std::count(done.begin(), done.end(), true));
  };
  job.output = BatchOutput::Resume(store_.PathOf(record.output), *job.input, done);
  record.completed = count();
  job.errors = BatchOutput::Resume(store_.PathOf(record.errors), *job.input, done);
  record.total = job.input->requests();
  record.failed = job.failed_before = count() - record.completed;
  job.charged = SizeOf(store_.PathOf(record.output)) + SizeOf(store_.PathOf(record.errors));
  store_.Charge(record.tenant, job.charged);
  job.charged_run = 0;
  if (!differs.empty()) {
    return Fail(job, {{0, fmt::format("it can't be continued here: {}; the answers that it "
                                      "has are in its files",
                                      differs)}});
  }
  job.work = std::make_unique<BatchWork>(
      job.job, *job.input, *job.output, *job.errors, std::move(done), [] { return false; },
      [](const BatchProgress&) {});
  if (record.status == BatchStatus::kValidating) record.Become(BatchStatus::kInProgress);
  record.ended_at_line = 0;
  store_.Save(record);
  job.phase = Job::Phase::kRunning;
  EndIfDone(job);
}

void BatchJobs::Fail(Job& job, std::vector<BatchProblem> problems) {
  if (!job.output) {  // what an earlier process wrote, whose input it was good for
    BatchOutput::CutUnfinished(store_.PathOf(job.record.output));
    BatchOutput::CutUnfinished(store_.PathOf(job.record.errors));
  }
  job.record.problems = std::move(problems);
  End(job, BatchStatus::kFailed);
}

// Publishes its answers. The job is gone with it; if it throws, the batch has not ended: who thinks
// that it has may forget it, or delete its input.
void BatchJobs::End(Job& job, BatchStatus status) {
  BatchRecord ended = job.record;
  ended.has_output = store_.Publish(ended, ended.output, ended.id + "_output.jsonl");
  ended.has_errors = store_.Publish(ended, ended.errors, ended.id + "_error.jsonl");
  ended.Become(status);
  store_.Save(ended);
  job.record = std::move(ended);
  Close(job);
}

void BatchJobs::Pause(Job& job, const std::string& why) {
  const std::string line = fmt::format(
      "{}: {}; tried again every 30 s until the batch is cancelled", job.record.id, why);
  if (line != job.said) log_(line);
  job.said = line;
  ForgetCheck(job);
  job.work = nullptr;
  job.output.reset();
  job.errors.reset();
  job.input = nullptr;
  job.again.clear();
  job.running = 0;
  job.opening = 0;
  store_.Discharge(job.record.tenant, std::exchange(job.charged, 0));
  job.phase = Job::Phase::kPaused;
  job.retry_ns = NowNs() + kRetryNs;
}

// The batch has ended. The job is gone with it.
void BatchJobs::Close(Job& job) {
  store_.Discharge(job.record.tenant, job.charged);  // they are files now
  store_.ForgetJob(job.record);
  jobs_.erase(std::string(job.record.id));
}

void BatchJobs::EndIfDone(Job& job) {
  BatchRecord& record = job.record;
  if (job.phase != Job::Phase::kRunning || job.running > 0) return;
  const bool cancelled = record.status == BatchStatus::kCancelling;
  if (!cancelled && record.completed + record.failed < record.total) return;
  if (!cancelled) {
    record.Become(BatchStatus::kFinalizing);
    store_.Save(record);
  }
  job.output->Sync();
  job.errors->Sync();
  End(job, cancelled ? BatchStatus::kCancelled : BatchStatus::kCompleted);
}

// Whether a request of the batch may be begun now.
bool BatchJobs::MayBegin(Job& job) {
  if (job.phase != Job::Phase::kRunning || job.record.status == BatchStatus::kCancelling ||
      (job.again.empty() && job.work->all_begun()) || !knows_(job.record.tenant))
    return false;
  const std::string why = store_.WhyNoRoom(job.record.tenant, 1);
  if (why.empty()) return true;
  const std::string line = fmt::format(
      "{}: it waits for room on the disk: {}, or raise --batch-disk", job.record.id, why);
  if (line != job.said) log_(line);
  job.said = line;
  return false;
}

void BatchJobs::Next(size_t most, std::vector<BegunRequest>& begun) {
  const size_t all = jobs_.size();
  for (size_t without = 0; without < all && begun.size() < most;) {
    auto at = jobs_.upper_bound(last_);
    if (at == jobs_.end()) at = jobs_.begin();
    if (at == jobs_.end()) break;
    last_ = at->first;
    Job& job = *at->second;
    bool any = false;
    Try(job, [&] { any = BeginNext(job, begun); });
    without = any ? 0 : without + 1;
  }
  Count();
}

// Returns whether there was a request that may be begun.
bool BatchJobs::BeginNext(Job& job, std::vector<BegunRequest>& begun) {
  if (!MayBegin(job)) return false;
  std::optional<BatchLine> line;
  if (!job.again.empty()) {
    line = std::move(job.again.front());
    job.again.pop_front();
  } else {
    line = job.work->Next();
  }
  if (!job.work->error().empty()) throw Error("{}", job.work->error());
  if (!line) return false;
  begun.push_back({.ticket = {.batch = job.record.id, .opening = job.opening},
                   .tenant = job.record.tenant,
                   .request = PrepareBatchRequest(job.job, std::move(*line), defaults_)});
  ++job.running;
  return true;
}

BatchJobs::Job* BatchJobs::Find(const BatchTicket& ticket) {
  const auto found = jobs_.find(ticket.batch);
  if (found == jobs_.end() || found->second->opening != ticket.opening) return nullptr;
  return found->second.get();
}

void BatchJobs::Answer(const BatchTicket& ticket, const BatchLine& line, BatchAnswer answer) {
  Job* job = Find(ticket);
  if (job == nullptr) return;
  --job->running;
  Try(*job, [&] {
    if (!answer.is_final()) {
      job->again.push_back(line);
    } else if (answer.status == 200) {
      job->work->Answer(line, answer.TakeBody());
    } else {
      job->work->AnswerError(line, answer.status, answer.TakeBody());
    }
    Written(*job);
    EndIfDone(*job);
  });
  Count();
}

// Notes what was written. Throws Error if it could not be.
void BatchJobs::Written(Job& job) {
  if (!job.work->error().empty()) throw Error("{}", job.work->error());
  const BatchProgress& made = job.work->progress();
  BatchRecord& record = job.record;
  const size_t failed = job.failed_before + made.failed, completed = made.done - failed;
  failed_ += failed - record.failed;
  completed_ += completed - record.completed;
  record.failed = failed;
  record.completed = completed;
  const uint64_t grown = made.bytes - job.charged_run;
  store_.Charge(record.tenant, grown);
  job.charged += grown;
  job.charged_run = made.bytes;
}

void BatchJobs::Drop(const BatchTicket& ticket) {
  Job* job = Find(ticket);
  if (job == nullptr) return;
  --job->running;
  Try(*job, [&] { EndIfDone(*job); });
  Count();
}

void BatchJobs::Cancel(BatchRecord& record) {
  const auto found = jobs_.find(record.id);
  if (record.ended() || found == jobs_.end())
    throw Refused(409, "{} is {}: there is nothing to cancel", record.id,
                  BatchStatusName(record.status));
  if (record.status != BatchStatus::kCancelling) record.Become(BatchStatus::kCancelling);
  Job& job = *found->second;
  job.retry_ns = 0;
  Try(job, [&] {
    store_.Save(record);
    EndIfDone(job);
  });
  Count();
}

void BatchJobs::SyncIfDue() {
  for (const auto& [id, job] : jobs_) {
    if (job->work) job->work->SyncIfDue();
  }
}

void BatchJobs::Count() {
  uint64_t left = 0;
  bool any = false;
  for (const auto& [id, job] : jobs_) {
    left += job->record.total - job->record.completed - job->record.failed;
    any = any ||
          (job->phase == Job::Phase::kRunning && job->record.status != BatchStatus::kCancelling &&
           (!job->again.empty() || !job->work->all_begun()));
  }
  has_requests_.store(any, std::memory_order_relaxed);
  counted_jobs_ = jobs_.size();
  counted_left_ = left;
  counted_completed_ = completed_;
  counted_failed_ = failed_;
  counted_files_ = store_.files();
  counted_bytes_ = store_.bytes();
}

BatchCounts BatchJobs::counts() const {
  return {.jobs = counted_jobs_,
          .requests_left = counted_left_,
          .completed = counted_completed_,
          .failed = counted_failed_,
          .files = counted_files_,
          .file_bytes = counted_bytes_,
          .most_file_bytes = store_.quota().disk_bytes};
}

}  // namespace larder::serving::batch
