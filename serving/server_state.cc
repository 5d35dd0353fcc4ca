#include "serving/server_state.h"

#include <ctime>

#include "base/clock.h"

namespace larder::serving {
namespace {

constexpr size_t kMostBytesAtOnce = size_t{8} << 10;  // some 0.2 ms to read and tokenize

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

bool ServerState::KeyIsGood(std::string_view key) const {
  if (api_keys.empty()) return true;
  bool good = false;
  for (const std::string& known : api_keys) {
    unsigned difference = known.size() != key.size();
    for (size_t i = 0; i < known.size(); ++i)
      difference |= static_cast<unsigned char>(known[i] ^ (i < key.size() ? key[i] : 0));
    good |= difference == 0;
  }
  return good;
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
