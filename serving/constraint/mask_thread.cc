#include "serving/constraint/mask_thread.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <list>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "serving/constraint/constraint.h"
#include "serving/constraint/vocabulary.h"

namespace larder::serving::inline constraint {
namespace {

constexpr size_t kMostAutomata = 16;                 // automata of grammars that no running
                                                     // sequence needs
constexpr size_t kMostIdleBytes = size_t{16} << 20;  // memory of all of these
constexpr size_t kMostOfOneIdle = size_t{4} << 20;   // memory of one, before it drops what it need
                                                     // not keep
constexpr uint64_t kStepsOfATurn = 30'000;           // some ms
constexpr uint64_t kSpinNs = 20'000;

// Adaptive: on a machine whose cores all compute, the one that waits must give way to the other.
sync::WaitPolicy Waiting() {
  static const sync::WaitPolicy policy{sync::WaitPolicy::Mode::kAdaptive,
                                       sync::SpinIterationsFor(kSpinNs)};
  return policy;
}

}  // namespace

// One sequence's mask. The mask thread has it from when the compute thread posts a token until it
// signals `ready`; the compute thread the rest of the time.
struct MaskJob {
  std::shared_ptr<const Grammar> grammar;
  std::vector<std::string> triggers;
  bool required = false;
  uint32_t asked = 0;  // compute thread
  std::optional<Constraint> constraint;

  std::vector<uint64_t> mask;
  bool all = false, complete = false, only_the_end = false;
  std::string failure;
  sync::EpochFlag ready;
};

namespace {

// What the compute thread wants to know besides the mask.
void Describe(MaskJob& job, Constraint::Allowed allowed) {
  const Vocabulary& vocabulary = job.constraint->automaton()->vocabulary();
  job.all = allowed == Constraint::Allowed::kAll;
  job.complete = job.constraint->complete();
  job.only_the_end = false;
  if (allowed == Constraint::Allowed::kTooMuchWork) {
    job.failure = "the grammar is too ambiguous: finding the tokens that may follow takes too long";
  } else if (!job.all) {
    size_t set = 0, ends = 0;
    for (const uint64_t word : job.mask) set += static_cast<size_t>(__builtin_popcountll(word));
    if (job.complete) ends = vocabulary.end_of_generation().size();
    job.only_the_end = job.complete && set <= ends;
    if (set == 0 && !job.complete)
      job.failure = "the vocabulary has no token with which the grammar lets the text go on";
  }
}

void Close(MaskJob& job) {
  if (!job.constraint) return;
  const std::shared_ptr<Automaton> automaton = job.constraint->automaton();
  const Automaton::Turn turn(*automaton);
  job.constraint.reset();
}

}  // namespace

MaskedSequence::~MaskedSequence() {
  thread_->Post({std::move(job_), MaskThread::Message::Kind::kClose, 0});
}

void MaskedSequence::Wait() { job_->ready.Wait(job_->asked, Waiting()); }
bool MaskedSequence::WaitFor(uint64_t ns) {
  if (job_->ready.Reached(job_->asked)) return true;
  // The mask thread may need this core.
  for (const int64_t end = NowNs() + static_cast<int64_t>(ns); NowNs() < end;) {
    std::this_thread::yield();
    if (job_->ready.Reached(job_->asked)) return true;
  }
  return false;
}
std::span<const uint64_t> MaskedSequence::allowed() const {
  return job_->all ? std::span<const uint64_t>() : std::span<const uint64_t>(job_->mask);
}
bool MaskedSequence::complete() const { return job_->complete; }
bool MaskedSequence::only_the_end() const { return job_->only_the_end; }
const std::string& MaskedSequence::failure() const { return job_->failure; }

uint32_t MaskedSequence::asked() const { return job_->asked; }

void MaskedSequence::Accept(TokenId token) {
  if (job_->constraint && job_->constraint->AcceptKnown(token, job_->mask)) {
    Describe(*job_, Constraint::Allowed::kSome);
    return;
  }
  ++job_->asked;
  thread_->Post({job_, MaskThread::Message::Kind::kToken, token});
}

std::shared_ptr<MaskThread> MaskThread::Start(std::shared_ptr<const model::Tokenizer> tokenizer,
                                              size_t vocab, size_t sequences) {
  return std::make_shared<MaskThread>(std::move(tokenizer), vocab, sequences);
}

MaskThread::MaskThread(std::shared_ptr<const model::Tokenizer> tokenizer, size_t vocab,
                       size_t sequences)
    : tokenizer_(std::move(tokenizer)), vocab_(vocab), ring_(3 * sequences + 64) {
  Waiting();  // measured here, not by the compute thread
  thread_ = std::thread([this] { Run(); });
}

MaskThread::~MaskThread() {
  stop_.store(true);
  posted_.Signal(++posted_count_);
  thread_.join();
}

std::unique_ptr<MaskedSequence> MaskThread::Open(std::shared_ptr<const Grammar> grammar,
                                                 std::vector<std::string> triggers, bool required) {
  auto job = std::make_shared<MaskJob>();
  job->grammar = std::move(grammar);
  job->triggers = std::move(triggers);
  job->required = required;
  job->asked = 1;
  Post({job, Message::Kind::kOpen, 0});
  return std::unique_ptr<MaskedSequence>(new MaskedSequence(shared_from_this(), std::move(job)));
}

void MaskThread::Post(Message message) {
  // Each sequence has one message on its way and one to close it; only those of closed ones may
  // fill the ring. NOLINTNEXTLINE(bugprone-use-after-move): a full ring leaves the message here
  while (!ring_.Push(std::move(message))) std::this_thread::yield();
  posted_.Signal(++posted_count_);
}

// The automata, the latest used first.
class MaskThread::Automata {
 public:
  std::shared_ptr<Automaton> Of(const std::shared_ptr<const Grammar>& grammar,
                                const std::shared_ptr<const Vocabulary>& vocabulary) {
    auto found = std::find_if(list_.begin(), list_.end(),
                              [&](const Entry& entry) { return entry.grammar == grammar; });
    if (found == list_.end()) {
      list_.push_front({grammar, std::make_shared<Automaton>(grammar, vocabulary)});
    } else {
      list_.splice(list_.begin(), list_, found);
    }
    return list_.front().automaton;
  }

  // Drops automata, and states of automata, that no sequence uses, those unused for longest first,
  // as far as they are too many. Returns the bytes of all.
  size_t Trim() {
    size_t all = 0, idle = 0, idle_bytes = 0;
    for (auto entry = list_.begin(); entry != list_.end();) {
      Automaton& automaton = *entry->automaton;
      const bool is_idle = entry->automaton.use_count() == 1;  // no sequence has it, nor gets it
      if (is_idle && automaton.bytes() > kMostOfOneIdle) automaton.DropUnused();
      const size_t bytes = automaton.bytes();
      if (is_idle && (++idle > kMostAutomata || idle_bytes + bytes > kMostIdleBytes)) {
        entry = list_.erase(entry);
        continue;
      }
      idle_bytes += is_idle ? bytes : 0;
      all += bytes;
      ++entry;
    }
    return all;
  }

 private:
  struct Entry {
    std::shared_ptr<const Grammar> grammar;
    std::shared_ptr<Automaton> automaton;
  };
  std::list<Entry> list_;
};

// What the thread has: the automata, and the masks that are being made, whose turns come one after
// the other.
class MaskThread::Maker {
 public:
  Maker(const model::Tokenizer& tokenizer, size_t vocab)
      : vocabulary_(std::make_shared<const Vocabulary>(tokenizer, vocab)) {}

  bool busy() const { return !making_.empty(); }
  size_t Trim() { return automata_.Trim(); }

  void Take(const Message& message) {
    MaskJob& job = *message.job;
    if (message.kind == Message::Kind::kClose) {
      std::erase(making_, message.job);  // nobody waits for it
      Close(job);
      return;
    }
    Try(message.job, [&] {
      if (message.kind == Message::Kind::kOpen) {
        const std::shared_ptr<Automaton> automaton = automata_.Of(job.grammar, vocabulary_);
        const Automaton::Turn turn(*automaton);
        job.constraint.emplace(automaton, std::move(job.triggers), job.required);
        job.mask.resize(vocabulary_->words());
      } else if (job.constraint) {
        const Automaton::Turn turn(*job.constraint->automaton());
        // Not accepted: the sampler ignored the mask.
        if (!job.constraint->Accept(message.token))
          job.failure = "the grammar does not allow the chosen token";
      }
      GoOn(message.job);
    });
  }

  // The turn of the mask that has waited for longest.
  void Next() {
    const std::shared_ptr<MaskJob> job = std::move(making_.front());
    making_.pop_front();
    Try(job, [&] { GoOn(job); });
  }

 private:
  void GoOn(const std::shared_ptr<MaskJob>& job) {
    if (job->constraint && job->failure.empty()) {
      const Automaton::Turn turn(*job->constraint->automaton());
      const Constraint::Allowed allowed = job->constraint->Mask(job->mask, kStepsOfATurn);
      if (allowed == Constraint::Allowed::kNotYet) {
        making_.push_back(job);
        return;
      }
      Describe(*job, allowed);
    }
    job->ready.Signal(job->ready.Load() + 1);
  }

  template <typename Work>
  void Try(const std::shared_ptr<MaskJob>& job, Work work) {
    try {
      work();
    } catch (const std::exception& error) {  // no memory
      job->failure = error.what();
      job->ready.Signal(job->ready.Load() + 1);
    }
  }

  const std::shared_ptr<const Vocabulary> vocabulary_;
  Automata automata_;
  std::deque<std::shared_ptr<MaskJob>> making_;
};

void MaskThread::Run() {
  pthread_setname_np(pthread_self(), "larder-masks");
  Maker maker(*tokenizer_, vocab_);
  for (uint32_t seen = 0; !stop_.load();) {
    if (!maker.busy()) posted_.Wait(seen + 1, Waiting());
    seen = posted_.Load();
    bool closed = false;
    for (Message message; ring_.Pop(message); message = {}) {
      closed = closed || message.kind != Message::Kind::kToken;
      maker.Take(message);
    }
    if (maker.busy()) maker.Next();
    if (closed) bytes_.store(maker.Trim(), std::memory_order_relaxed);
  }
}

}  // namespace larder::serving::constraint
