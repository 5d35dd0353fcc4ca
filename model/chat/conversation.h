// Conversations in the forms that some templates insist on: one call per message, ids of nine
// characters, turns that alternate. Messages are in OpenAI's form. No state; any thread.
#pragma once

#include <nlohmann/json.hpp>

namespace larder::model::inline chat {

// A message with several calls becomes one message per call, each followed by its result.
nlohmann::ordered_json SplitCalls(const nlohmann::ordered_json& messages);

// Mistral's ids have nine letters or digits. An id that has not becomes one that depends on nothing
// else, so that the next turn's prompt begins as this one's; calls and results without one are
// matched by their order.
nlohmann::ordered_json WithShortIds(const nlohmann::ordered_json& messages);

// Joins a user's message to one in front of it that is the user's too, or a result. False: there is
// none.
bool MergeUsers(nlohmann::ordered_json& messages);

}  // namespace larder::model::chat
