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

// The results of a message's calls in the order of these: most templates write no ids, so that only
// the order says which result is whose.
void OrderResults(nlohmann::ordered_json& messages);

// Texts of the system's behind the first message become the user's where `late` is false, and those
// that begin the conversation one message where `several` is false.
void FoldSystems(nlohmann::ordered_json& messages, bool several, bool late);

// A message of text and calls becomes two: templates that write either lose the other.
nlohmann::ordered_json SplitTexts(const nlohmann::ordered_json& messages);

// Results of no call in front of them become texts of the user's.
void TellLoneResults(nlohmann::ordered_json& messages);

// Turns of the user's and the assistant's, which some templates insist on. A user's message joins
// one in front of it that is the user's too, or a result; so does one of the assistant's. Where
// calls stand between two of a kind, what is between them is told as text, or the user says
// nothing. False: these are turns.
bool MakeTurns(nlohmann::ordered_json& messages);

}  // namespace larder::model::chat
