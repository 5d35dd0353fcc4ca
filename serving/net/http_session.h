// HttpSession: HTTP/1.1 on one connection. Requests are handled one after another and answered
// whole or as server-sent events or lines. Bytes of pipelined requests are kept up to a limit. I/O
// thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serving/http/http_parser.h"
#include "serving/net/batch_routes.h"
#include "serving/net/http_routes.h"
#include "serving/net/server_state.h"
#include "serving/net/session.h"
#include "serving/reply/completion.h"
#include "serving/stored/file_upload.h"
#include "serving/stored/stored_responses.h"

namespace larder::serving::inline net {

class HttpSession : public Session, private CompletionSink {
 public:
  HttpSession(Wire&, ServerState&, const HttpLimits&);
  ~HttpSession() override;

  void OnBytes(std::string_view bytes) override;
  void OnEndOfInput() override;
  Turn turn() const override;
  bool wants_bytes() const override;
  size_t held_bytes() const override {
    return parser_.held_bytes() + ahead_.size() + (upload_ ? upload_->held_bytes() : 0);
  }
  uint64_t requests() const override { return requests_ + uploaded_ / kProgressBytes; }
  void OnTurn() override;
  void OnNoRoom(Scope) override;
  void OnTimeout() override;
  void OnQuiet() override;

 private:
  void OnEvent(const char* name, std::string object) override;
  void OnDone(const nlohmann::json* whole) override;
  void OnStored(const nlohmann::json& whole) override;
  bool MakesElsewhere(const std::function<nlohmann::json()>& make) override;
  void OnFailure(int status, const std::string& message) override;

  void Proceed();
  std::optional<HttpReply> Refusal(const HttpRequest&);
  bool AsksFirst(const HttpRequest&) const;
  void Handle();
  void Answer(const Route*);  // answers routes that do not generate; null: no such route
  void AnswerBatch();         // answers routes of files and batches
  void BeginUpload(const HttpRequest& header);
  void TakeUpload(std::string_view bytes);
  void UploadChanged();
  void SendMore();     // sends more of download_
  void ForgetFiles();  // gives up work for this client that the thread of files has not begun
  void SendError(const Refused&);
  void Prepare(std::optional<Protocol> generating, size_t bytes, const std::function<void()>& work,
               const std::function<void(bool ok)>& then);
  void Generate(PreparedRequest&, bool ok);
  bool has_ahead() const { return ahead_at_ < ahead_.size(); }
  void AskLater();
  void Send(const HttpReply&);
  void Refuse(const HttpReply&);  // an incomplete request: the connection ends with this answer
  void SendHeader(int status, const HttpReply&, const std::string& framing);
  void SendPart(std::string_view data);  // one part of a stream
  void EndStream();
  void EndAnswer();
  void Leave();

  // A client that sends a file has as long for each so many bytes as for another request.
  static constexpr uint64_t kProgressBytes = uint64_t{1} << 20;

  Wire& wire_;
  ServerState& state_;
  HttpParser parser_;
  std::string ahead_;  // bytes of later requests, from ahead_at_ on
  size_t ahead_at_ = 0;
  uint64_t requests_ = 0;
  HttpRequest request_;
  Dialect dialect_ = Dialect::kChat;  // the dialect of request_, if it generates
  Tenant tenant_ = kEverybody;        // who sent request_
  JobTicket preparing_;               // a large request or answer that is being prepared
  Admitted admitted_;                 // completion_'s part of the budget
  std::unique_ptr<Completion> completion_;
  ResponseToStore to_store_;            // completion_'s answer; no id: it is not stored
  std::unique_ptr<FileUpload> upload_;  // the upload of the request that is being received or
                                        // answered
  uint64_t uploaded_ = 0;               // bytes of all uploads
  Download download_;                   // with an id: it is being sent
  uint64_t posted_ = 0;                 // the last job for the thread of files; 0: there was none
  bool reading_ = false;                // a piece of the download is being read
  // null once the session is destroyed
  std::shared_ptr<HttpSession*> self_ = std::make_shared<HttpSession*>(this);
  bool answering_ = false, streaming_ = false, proceeding_ = false, later_ = false, closed_ = false,
       input_ended_ = false;
};

}  // namespace larder::serving::net
