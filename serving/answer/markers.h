// Marker: a text that opens or closes a thought or a call. Constant; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "serving/answer/answer_format.h"
#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {

struct Marker {
  enum class Action : uint8_t { kThink, kThinkEnd, kCall, kSkip };
  enum class Where : uint8_t {
    kAnywhere,      // anywhere: it is a control token, or is never written with another meaning
    kFresh,         // at the start of the message, or behind another marker
    kAfterCall,     // behind a call
    kAnywhereEven,  // anywhere, in a thought too
  };
  std::string_view text;
  Action action = Action::kSkip;
  Where where = Where::kAnywhere;
  std::unique_ptr<CallMachine> (*make)(CallSink&, const ToolTable&) = nullptr;  // kCall
  size_t feed = 0;  // this many bytes at its end belong to the call's text as well
};

// Those of a format. Without parse_tools or parse_reasoning, the markers of calls or of thoughts
// are text.
std::vector<Marker> MarkersOf(AnswerFormat, bool parse_tools, bool parse_reasoning);

}  // namespace larder::serving::answer
