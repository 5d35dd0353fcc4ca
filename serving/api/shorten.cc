#include "serving/api/shorten.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace larder::serving::inline api {
namespace {

// The conversation from a message on, with the system's messages before it.
Json From(const Json& messages, size_t begin) {
  Json kept = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i >= begin || messages[i]["role"] == "system") kept.push_back(messages[i]);
  }
  return kept;
}

// SIZE_MAX: more than any context, or the template does not write it.
size_t TokensOf(const CompletionRequest& request, const CompletionDefaults& defaults) {
  try {
    const std::vector<model::TextPiece> pieces = RenderedChat(request, defaults);
    if (model::JoinPieces(pieces).size() / defaults.longest_token_bytes > defaults.context)
      return SIZE_MAX;
    return defaults.tokenizer->EncodePieces(pieces, defaults.tokenizer->wants_bos()).size();
  } catch (const Refused&) {
    return SIZE_MAX;
  }
}

// Where the end that is kept may begin: at the user's messages, and if none will do, behind them.
std::pair<std::vector<size_t>, std::vector<size_t>> Beginnings(const Json& messages) {
  std::vector<size_t> users, others;
  for (size_t i = 1; i < messages.size(); ++i) {
    if (messages[i]["role"] == "user") {
      users.push_back(i);
      others.clear();
    } else if (messages[i]["role"] == "assistant" || i + 1 == messages.size()) {
      others.push_back(i);
    }
  }
  return {users, others};
}

}  // namespace

void ShortenConversation(CompletionRequest& request, const CompletionDefaults& defaults) {
  if (TokensOf(request, defaults) <= defaults.context) return;
  const size_t answer =
      request.spec.max_tokens < 0 ? SIZE_MAX : static_cast<size_t>(request.spec.max_tokens);
  const size_t most = defaults.context - std::min(answer, defaults.context / 4);
  const Json all = std::exchange(request.messages, nullptr);
  const auto too_long = [&](size_t begin) {
    request.messages = From(all, begin);
    return TokensOf(request, defaults) > most;
  };
  const auto [users, others] = Beginnings(all);
  for (const std::vector<size_t>& from : {users, others}) {
    const auto found = std::ranges::partition_point(from, too_long);
    if (found == from.end()) continue;
    request.messages = From(all, *found);
    return;
  }
  // The end alone may still fit, with less room for an answer.
  for (const std::vector<size_t>& from : {users, others}) {
    if (from.empty()) continue;
    request.messages = From(all, from.back());
    if (TokensOf(request, defaults) <= defaults.context) return;
  }
  request.messages = all;
}

}  // namespace larder::serving::api
