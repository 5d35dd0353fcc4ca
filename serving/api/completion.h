// Completion: the running choices of one request, collected into an answer: chunks as they come, or one
// object at the end. The session that made the request owns it; its destructor cancels what still runs. I/O
// thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/completion_reply.h"
#include "serving/api/completion_request.h"
#include "serving/scheduling/generation_service.h"

namespace larder::serving::inline api {

class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void OnChunk(std::string object) = 0;  // streamed requests: the text of a JSON object
  // The last call. `whole` is the answer of a request that is not streamed, else null.
  virtual void OnDone(const nlohmann::json* whole) = 0;
  virtual void OnFailure(int status, const std::string& message) = 0;  // the last call
};

class Completion {
 public:
  // Starts all choices, or throws Refused and starts none.
  Completion(GenerationService&, const CompletionRequest&, std::vector<GenerationSpec>, ReplyHead, Protocol,
             CompletionSink&);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool streams() const { return stream_; }
  void Cancel();  // the choices end with the text that they have; the sink is called as usual

 private:
  struct Choice;
  void ChoiceEnded(Choice&, const GenerationEnd&);

  CompletionSink& sink_;
  ReplyHead head_;
  bool stream_;
  bool cancelled_ = false;  // by the client, not by the server
  size_t running_ = 0;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<ChoiceResult> results_;
};

}  // namespace larder::serving::api
