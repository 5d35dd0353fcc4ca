// /v1/responses/ID, as OpenAI's API has it: what clients ask of stored responses, and how a
// response comes into the store. The routes are answered on the background thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "serving/api/completion_request.h"
#include "serving/history/response_store.h"
#include "serving/http/http_parser.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline stored {

// A tenant's response that is being made and is to be kept.
struct ResponseToStore {
  std::string id;
  std::shared_ptr<const StoredTurn> previous;
  std::string input;
};

// Finds the turns that a tenant's request may continue; without a store there are none. Any thread
// may call it while the store lives.
FindTurn TurnsOf(ResponseStore*, Tenant);
// Throws Refused if the turn can't be kept after those before it.
ResponseToStore BeginToStore(const ResponseStore&, const ReplyFacts&, CompletionRequest&);
void Store(ResponseStore&, Tenant, ResponseToStore&&, const nlohmann::json& whole);

// The JSON text of the answer; without a store all ids are unknown. Any thread. Throws Refused.
std::string AnswerStoredResponse(const HttpRequest&, ResponseStore*, Tenant);

}  // namespace larder::serving::stored
