// Conversations in the forms that some templates insist on: one call per message, ids of nine
// characters, turns that alternate. Messages are in OpenAI's form. No state; any thread.
#pragma once

#include <nlohmann/json.hpp>

namespace larder::model::inline chat {

// A message with several calls becomes one message per call, each followed by its result.
nlohmann::ordered_json SplitCalls(const nlohmann::ordered_json& messages);

// Mistral's ids have nine letters or digits. Any other id is replaced by one that depends on it
// alone, so that the next turn's prompt begins like this one's. Calls and results without ids are
// matched by their order.
nlohmann::ordered_json WithShortIds(const nlohmann::ordered_json& messages);

// Puts the results of a message's calls in the order of the calls: most templates write no ids, so
// only the order says which result belongs to which call.
void OrderResults(nlohmann::ordered_json& messages);

// If `late` is false, system messages after the first message become messages of the user. If
// `several` is false, the system messages that begin the conversation are joined to one.
void FoldSystems(nlohmann::ordered_json& messages, bool several, bool late);

// A message with text and calls becomes two messages, for templates that would write only one of
// them.
nlohmann::ordered_json SplitTexts(const nlohmann::ordered_json& messages);

// Results without a preceding call become messages of the user.
void TellLoneResults(nlohmann::ordered_json& messages);

// Makes alternating turns of user and assistant, which some templates demand. A message of the user
// is joined to a preceding one of the user or to a result; messages of the assistant are joined to
// each other. Where calls stand between two messages of a kind, they are told as text, or an empty
// user message is put in. Returns false if the messages already alternate.
bool MakeTurns(nlohmann::ordered_json& messages);

}  // namespace larder::model::chat
