#include "serving/net/server_state.h"

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/work.h"

namespace larder::serving::inline net {
namespace {

constexpr size_t kMostBytesAtOnce = kInBackground - 1;  // takes about 0.2 ms to parse and tokenize
constexpr uint64_t kMostStepsAtOnce = 5'000;            // about as long
constexpr double kDeniedEveryS = 10;

// Returns false if the work threw an unexpected exception, which is counted.
bool Succeeds(Failures* failures, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const std::exception& error) {
    if (failures != nullptr) failures->Count("a request", error.what());
    return false;
  }
}

// What a prompt's log-probabilities take until they are sent: the numbers, a copy of them behind
// which a choice's own follow, and their text. (The text is made of a tree, of as many answers at a
// time as there are background threads.)
size_t PromptLogprobBytes(const CompletionRequest& request, const GenerationSpec& spec) {
  constexpr size_t kToken = 64, kEntry = 40, kNamedEntry = 80;  // bytes of the text
  const auto numbers = [](int top) {
    return sizeof(TokenLogprobs) + 16 +
           static_cast<size_t>(top) * sizeof(std::pair<TokenId, float>);
  };
  const auto entries = [](int top) { return static_cast<size_t>(top) + 1; };
  size_t bytes = spec.prompt_logprobs < 0 ? 0 : numbers(spec.prompt_logprobs);
  if (request.echo && request.spec.logprobs >= 0)
    bytes += numbers(request.spec.logprobs) + kToken + entries(request.spec.logprobs) * kEntry;
  if (request.prompt_logprobs >= 0) bytes += entries(request.prompt_logprobs) * kNamedEntry;
  return bytes * spec.prompt.size();
}

}  // namespace

// nullopt: it takes too long for this thread.
std::optional<bool> ServerState::PreparedAtOnce(size_t bytes,
                                                const std::function<void()>& work) const {
  if (!in_background) return Succeeds(failures, work);
  if (bytes > kMostBytesAtOnce) return std::nullopt;
  const Work counted({.steps = kMostStepsAtOnce, .may_take_long = false});
  try {
    return Succeeds(failures, work);
  } catch (const TakesLong&) {
    return std::nullopt;
  }
}

JobTicket ServerState::Prepare(const Admission::Client& client, size_t bytes,
                               const std::function<void()>& work,
                               const std::function<void(bool)>& then) {
  if (const auto done = PreparedAtOnce(bytes, work)) {
    then(*done);
    return nullptr;
  }
  bytes = std::max(bytes, kInBackground);
  for (const Resource resource : {Resource::kQueuedBytes, Resource::kBytes}) {
    if (const auto scope = client.WhyNot(resource, bytes)) throw TooMuch(*scope, "large requests");
  }
  struct Job {
    Admission::Hold queued, held;
    bool ok = false;
  };
  // The hold is freed on this thread with `then`: when the ticket is dropped before the job's turn,
  // else after it.
  auto job = std::make_shared<Job>(Job{.queued = client.Take(Resource::kQueuedBytes, bytes),
                                       .held = client.Take(Resource::kBytes, bytes)});
  return in_background(
      client.peer(),
      [work, job = job.get(), failures = failures] { job->ok = Succeeds(failures, work); },
      [then, job] {
        job->queued.Resize(0);
        job->held.Resize(0);
        then(job->ok);
      });
}

Refused TooMuch(Scope scope, const char* what) {
  if (scope == Scope::kAll) return Refused(503, "too many {} at once; try again later", what);
  return Refused(429, "too many {} of this {} at once; try again later", what,
                 scope == Scope::kPeer ? "address" : "connection");
}

Admitted ServerState::Admit(const Admission::Client& client, const CompletionRequest& request,
                            const std::vector<GenerationSpec>& specs) {
  size_t bytes = request.held_bytes();
  if (!specs.empty() && specs[0].grammar != nullptr) bytes += specs[0].grammar->bytes();
  for (const GenerationSpec& spec : specs) {
    bytes +=
        sizeof spec + spec.prompt.size() * sizeof(TokenId) +
        spec.sampling.logit_bias.size() * sizeof(decltype(spec.sampling.logit_bias)::value_type);
    bytes += PromptLogprobBytes(request, spec);
    for (const std::string& stop : spec.stops) bytes += sizeof(std::string) + stop.size();
  }
  // Only this many texts to embed run or wait at once (Completion).
  const bool embeds = request.spec.pooling != model::Pooling::kNone;
  const size_t at_once = embeds ? std::min(specs.size(), kMostChoices) : specs.size();
  if (const auto scope = client.WhyNot(Resource::kRequests, at_once))
    throw TooMuch(*scope, "requests");
  if (const auto scope = client.WhyNot(Resource::kBytes, bytes))
    throw TooMuch(*scope, "large requests");
  return {client.Take(Resource::kRequests, at_once), client.Take(Resource::kBytes, bytes)};
}

void ServerState::CountError(Protocol protocol, int status) const {
  if (metrics != nullptr) metrics->ErrorAnswered(protocol, status);
}

void ServerState::CountRefused(Protocol protocol) const {
  if (metrics != nullptr) metrics->Finished(protocol, RequestOutcome::kRefused, 0, 0, 0);
}

void ServerState::Denied(const std::string& peer, std::string_view why) {
  if (!on_denied) return;
  if (said_denied_ns_ != 0 && SecondsSince(said_denied_ns_) < kDeniedEveryS) {
    ++denied_unsaid_;
    return;
  }
  const std::string others =
      denied_unsaid_ > 0 ? fmt::format("; {} more since the last line like this", denied_unsaid_)
                         : "";
  on_denied(fmt::format("{}: {}{}", peer, why, others));
  said_denied_ns_ = NowNs();
  denied_unsaid_ = 0;
}

ReplyFacts ServerState::NewFacts(Dialect dialect) {
  ReplyFacts facts;
  facts.dialect = dialect;
  do {  // a process that was started within the same second may have left it
    facts.id = fmt::format("{:x}-{}", created, next_id++);
  } while (responses != nullptr && responses->Has("resp_" + facts.id));
  facts.model = defaults.model;
  facts.fingerprint = defaults.fingerprint;
  facts.created = static_cast<int64_t>(std::time(nullptr));
  facts.tokenizer = defaults.tokenizer.get();
  facts.rank_head = defaults.rank_head;
  return facts;
}

StatusView ServerState::Status() const {
  StatusView view;
  view.state = name();
  view.loading_share = service == nullptr ? loading_share : 1;
  view.version = version;
  view.uptime_s = SecondsSince(start_ns);
  view.http_connections = http_connections;
  view.text_connections = text_connections;
  if (service == nullptr) return view;
  if (batches != nullptr) view.batches = batches->counts();
  view.queue_length = service->waiting();
  view.queue_limit = service->options().queue_limit;
  view.generated_tokens_per_s = metrics->GeneratedPerSecond();
  view.prompt_tokens_per_s = metrics->PromptPerSecond();
  view.generated_tokens = metrics->generated_tokens();
  view.prompt_tokens = metrics->prompt_tokens();
  view.tpot = metrics->TpotHistogram();
  if (fill_status) fill_status(view);
  return view;
}

}  // namespace larder::serving::net
