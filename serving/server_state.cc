#include "serving/server_state.h"

#include <ctime>

#include "base/clock.h"

namespace larder::serving {
namespace {

constexpr size_t kMostBytesAtOnce = size_t{8} << 10;  // some 0.2 ms to read and tokenize
constexpr double kDeniedEveryS = 10;

}  // namespace

void ServerState::Prepare(size_t bytes, const std::function<void()>& work,
                          const std::function<void()>& then) const {
  if (bytes > kMostBytesAtOnce && in_background) {
    in_background(work, then);
    return;
  }
  work();
  then();
}

void ServerState::CountError(Protocol protocol, int status) const {
  if (metrics != nullptr) metrics->ErrorAnswered(protocol, status);
}

void ServerState::CountRefused(Protocol protocol) const {
  if (metrics != nullptr) metrics->Finished(protocol, Outcome::kRefused, 0, 0, 0);
}

void ServerState::Denied(const std::string& peer, std::string_view why) {
  if (!on_denied) return;
  if (said_denied_ns_ != 0 && SecondsSince(said_denied_ns_) < kDeniedEveryS) {
    ++denied_unsaid_;
    return;
  }
  const std::string others =
      denied_unsaid_ > 0 ? fmt::format("; {} more since the last line like this", denied_unsaid_) : "";
  on_denied(fmt::format("{}: {}{}", peer, why, others));
  said_denied_ns_ = NowNs();
  denied_unsaid_ = 0;
}

ReplyHead ServerState::NewHead(Dialect dialect) {
  return {
      .dialect = dialect,
      .id = fmt::format("{}-{:x}-{}", dialect == Dialect::kChat ? "chatcmpl" : "cmpl", created, next_id++),
      .model = defaults.model,
      .created = static_cast<int64_t>(std::time(nullptr)),
      .include_usage = false,
      .tokenizer = defaults.tokenizer.get()};
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

}  // namespace larder::serving
