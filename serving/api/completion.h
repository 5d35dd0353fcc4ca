// Completion: the choices of one request on their way, gathered into an answer: chunks as they come, or all
// at the end. Owned by the session that asked; dropping it cancels what still runs. I/O thread.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/completion_reply.h"
#include "serving/api/completion_request.h"
#include "serving/scheduling/service.h"

namespace larder::serving {

class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void OnChunk(std::string object) = 0;  // of a streamed request: a JSON object's text
  // The last call. Of a request that is not streamed, the answer; else nothing.
  virtual void OnDone(const nlohmann::json* whole) = 0;
  virtual void OnFailure(int status, const std::string& message) = 0;  // the last call
};

class Completion {
 public:
  // Starts all choices or throws Refused and starts none.
  Completion(Service&, const CompletionRequest&, std::vector<GenerationSpec>, ReplyHead, Protocol,
             CompletionSink&);
  ~Completion();
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  void Cancel();  // the choices end as they are; the sink is told as usual

 private:
  struct Choice;
  void ChoiceEnded(Choice&, const GenerationEnd&);

  CompletionSink& sink_;
  ReplyHead head_;
  bool stream_;
  bool cancelled_ = false;  // by the client; else the server ends it
  size_t running_ = 0;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::vector<ChoiceResult> results_;
};

}  // namespace larder::serving
