// Completion: the running choices of one request, collected into an answer: events as they come, or
// one object at the end. The session that made the request owns it; its destructor cancels what
// still runs. I/O thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/completion_request.h"
#include "serving/generation/generation_service.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline reply {

// Its functions may not destroy the Completion, but OnDone and OnFailure may.
class CompletionSink : public EventSink {
 public:
  virtual ~CompletionSink() = default;
  // The last call. `whole` is the answer of a request that is not streamed, else null.
  virtual void OnDone(const nlohmann::json* whole) = 0;
  // Called before the end of an answer that is stored (ReplyFacts), with the answer as a request
  // without streaming gets it.
  virtual void OnStored(const nlohmann::json& /*whole*/) {}
  // Instead of OnDone, of a whole answer that takes long to make: true, and then it is the last
  // call, where the sink has another thread to make it on. `make`: the answer; to be called once,
  // on any thread, also when the Completion is gone.
  virtual bool MakesElsewhere(const std::function<nlohmann::json()>& /*make*/) { return false; }
  // The last call. A sink that has begun a stream says so in it, with SayFailed.
  virtual void OnFailure(int status, const std::string& message) = 0;
};

class Completion {
 public:
  // Starts the choices, or throws Refused and starts none.
  Completion(GenerationService&, const CompletionRequest&, std::vector<GenerationSpec>, ReplyFacts,
             Protocol, CompletionSink&);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool streams() const { return stream_; }
  void SayFailed(int status, const std::string& message);  // an event
  void Cancel();  // the choices end with the text that they have; the sink is called as usual

 private:
  struct Choice;
  void StartMore();
  void TakePrompt(Choice&, const PromptLogprobs&);
  void ChoiceEnded(Choice&, const GenerationEnd&);
  bool IsMadeElsewhere();
  void Fail(int status, const std::string& message);

  CompletionSink& sink_;
  const bool stored_;
  const std::shared_ptr<ReplyEncoder> encoder_;
  bool stream_;
  const bool echoes_;           // the prompts' log-probabilities come first in those of the texts
  const size_t n_;              // choices of a prompt
  const size_t most_logprobs_;  // how many of the likeliest tokens get log-probabilities, besides
                                // the token itself
  bool cancelled_ = false;      // by the client, not by the server
  GenerationService& service_;
  const Protocol protocol_;
  const size_t most_at_once_;      // choices that run or wait
  size_t started_ = 0, left_ = 0;  // choices that were started; that have not ended
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<ChoiceResult> results_;
  std::vector<GenerationSpec> specs_;  // specs of the choices; those from started_ on are unused
};

}  // namespace larder::serving::reply
