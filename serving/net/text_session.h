// TextSession: the text stream (docs/text-stream.md) on one connection. A line of plain text is a
// prompt; its answer is raw text, then the connection closes. A line that begins with "{" is a JSON
// request, answered by lines of JSON; several such requests may run at once. I/O thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serving/net/server_state.h"
#include "serving/net/session.h"

namespace larder::serving::inline net {

struct TextLimits {
  size_t line_bytes = size_t{1} << 20;
  size_t requests = 16;  // requests at the same time per connection
  // The bytes of a line in which a key must appear, on a server with keys, until the client has
  // shown one.
  size_t bytes_before_key = size_t{8} << 10;
};

class TextSession : public Session {
 public:
  TextSession(Wire&, ServerState&, const TextLimits&);
  ~TextSession() override;

  void OnBytes(std::string_view bytes) override;
  void OnEndOfInput() override;
  Turn turn() const override;
  bool wants_bytes() const override;
  size_t held_bytes() const override { return input_.size(); }
  uint64_t requests() const override { return requests_; }
  void OnTurn() override;
  void OnNoRoom(Scope) override;
  void OnTimeout() override;
  void OnQuiet() override;

 private:
  struct Plain;
  struct Asked;
  struct PreparedLine;

  void Proceed();
  void AskLater();
  bool ShowsKey(std::string_view beginning);
  void OnLine(std::string line);
  void Take(PreparedLine&);
  size_t input_bytes() const { return input_.size() - at_; }
  void TakePlain(PreparedLine&);
  void TakeJson(PreparedLine&);
  void Ask(PreparedLine&, const nlohmann::json& id);
  void Cancel(const nlohmann::json& id);
  void Remove(const Asked*);
  void CloseIfDone();
  void WriteLine(const nlohmann::json& id, nlohmann::json object);
  void WriteError(const nlohmann::json& id, const Refused& why);
  void FailPlain(int status, const std::string& why);
  void FailProtocol(const char* what);

  Wire& wire_;
  ServerState& state_;
  const TextLimits limits_;
  std::string input_;   // an incomplete line, or lines that wait while one is being prepared
  size_t at_ = 0;       // where the next line begins in input_
  size_t scanned_ = 0;  // bytes from at_ on that are known to have no line end
  JobTicket ticket_;    // the line that is being prepared
  uint64_t requests_ = 0;
  std::unique_ptr<Plain> plain_;
  std::vector<std::unique_ptr<Asked>> asked_;
  // null once the session is destroyed
  std::shared_ptr<TextSession*> self_ = std::make_shared<TextSession*>(this);
  uint64_t next_id_ = 1;
  bool preparing_ = false, proceeding_ = false, later_ = false;
  std::optional<Tenant> tenant_;  // set once a key was shown, or if none is needed
  bool end_of_input_ = false, closed_ = false;
};

// The kind of a line. Exposed for tests.
enum class LineKind { kBlank, kJson, kPlain };
LineKind KindOfLine(std::string_view line);
// The protocol of a client that connected to the wrong port, by its first line; null if unknown.
const char* OtherProtocol(std::string_view line);

}  // namespace larder::serving::net
