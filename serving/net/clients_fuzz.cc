// Arbitrary bytes from a client, over HTTP and the text stream, in pieces that the first byte
// determines. Each is answered or refused, and only requests are begun. The second byte determines
// how far the model gets between two pieces. At the end all requests have ended, or the client
// leaves in the middle.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/counted_testing.h"
#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"
#include "serving/net/text_session.h"

namespace larder::serving::inline net {
namespace {

// Runs compute side and I/O side alternately on this thread, so that the same input always does the
// same.
class Machine {
 public:
  explicit Machine(TestState& test)
      : service_(*test.service), model_(service_, test.state.defaults.vocab) {}

  void Run(size_t steps) {
    for (; steps > 0 && service_.live() > 0; --steps) {
      model_.Step();
      service_.Dispatch();
    }
  }
  // No text is longer than the context, so all requests end.
  void RunToTheEnd() {
    for (size_t round = 0; service_.live() > 0; ++round) {
      LARDER_CHECK(round < 1000, "{} live generations that never end", service_.live());
      Run(TestState::kContext + 2);
    }
    LARDER_CHECK(service_.waiting() == 0 && model_.idle(), "nothing is left of what was begun");
  }

 private:
  GenerationService& service_;
  TestModel model_;
};

// Runs until all requests are answered: an answer may make room for the next turn.
void Settle(Session& session, TestWire& wire, Machine& machine) {
  do {
    wire.TakeTurns(session);
    machine.RunToTheEnd();
  } while (wire.later && !wire.closed);
}

void Feed(Session& session, TestWire& wire, std::string_view bytes, size_t piece, size_t steps,
          Machine& machine) {
  while (!bytes.empty() && !wire.closed) {
    if (!session.wants_bytes()) {  // bytes of later requests wait for the answer
      Settle(session, wire, machine);
      if (!session.wants_bytes()) break;
    }
    session.OnBytes(bytes.substr(0, piece));
    wire.TakeTurns(session);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    machine.Run(steps);
  }
}

// One client from its first byte until it ends its input, or the connection ends because it leaves.
template <typename OneSession, typename Limits>
void Talk(TestState& test, std::string_view bytes, size_t piece, uint8_t how,
          const Limits& limits) {
  Machine machine(test);
  TestWire wire;
  {
    OneSession session(wire, test.state, limits);
    Feed(session, wire, bytes, piece, how & 7, machine);
    const bool leaves = (how & 8) != 0;
    if (!leaves) {
      session.OnEndOfInput();
      Settle(session, wire, machine);
      LARDER_CHECK(session.turn() != Turn::kAnswering || wire.closed, "what was asked is answered");
    }
  }
  machine.RunToTheEnd();
}

constexpr uint64_t kMostSteps = 50'000;  // with a sanitizer a step takes microseconds

// Parses like the routes, for inputs that do not get beyond the protocol.
void Convert(std::string_view text, const TestState& test) {
  for (const Dialect dialect :
       {Dialect::kCompletion, Dialect::kChat, Dialect::kNative, Dialect::kInfill,
        Dialect::kResponses, Dialect::kMessages, Dialect::kOllamaChat, Dialect::kOllamaGenerate}) {
    try {
      const CountedReading counted(text, kMostSteps);
      CompletionRequest request =
          ReadCompletionRequest(ParseJson(text), dialect, test.state.defaults);
      const auto specs = MakeSpecs(request, test.state.defaults);
      LARDER_CHECK(specs.size() == request.choices() && specs.size() <= kMostEmbedded);
      for (const GenerationSpec& spec : specs) {
        LARDER_CHECK(!spec.prompt.empty() && spec.prompt.size() <= TestState::kContext);
        Validate(spec.sampling, test.state.defaults.vocab);
        const StopStrings stops(spec.stops);
      }
    } catch (const Refused& refused) {
      LARDER_CHECK(refused.status() >= 400 && refused.status() < 600 && refused.what()[0] != '\0');
      Dump(ErrorJson(refused));
    } catch (const TooMuchWork&) {  // as the threads for large requests do it
    }
  }
}

void Check(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t piece = bytes[0] == 0 ? SIZE_MAX : static_cast<unsigned char>(bytes[0]);
  const auto how = static_cast<uint8_t>(bytes[1]);
  bytes.remove_prefix(2);
  TestState test;
  // What takes long is done where it may take a little longer.
  test.state.in_background = [](const std::string&, const std::function<void()>& work,
                                const std::function<void()>& then) {
    {
      const Work counted({.steps = kMostSteps});
      work();
    }
    then();
    return JobTicket();
  };
  Convert(bytes, test);
  Talk<HttpSession>(test, bytes, piece, how, HttpLimits{.header_bytes = 4096, .body_bytes = 65536});
  Talk<TextSession>(test, bytes, piece, how, TextLimits{.line_bytes = 4096, .requests = 4});
}

}  // namespace
}  // namespace larder::serving::net

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::serving::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
