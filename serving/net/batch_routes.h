// /v1/files and /v1/batches, as OpenAI's API has them, but for the sending of a file (FileUpload).
// They are answered on the thread of files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/descriptor.h"
#include "serving/batch/batch_service.h"
#include "serving/http/http_parser.h"
#include "serving/net/http_routes.h"

namespace larder::serving::inline net {

// A file that is sent in pieces.
struct Download {
  std::shared_ptr<const Descriptor> file;
  uint64_t at = 0, bytes = 0;
};

struct BatchReply {
  HttpReply reply;
  Download download;    // with a file: instead of the reply's body
  std::string stopped;  // a batch whose requests that run are to end: BatchService::Stop
};

// Why the server keeps no files, for clients.
inline constexpr const char* kNoBatches =
    "this server keeps no files and batches; start larder serve with --batch-dir DIR";

// Whether it is one that FileUpload takes.
bool IsUpload(const HttpRequest& request);
// Throws Refused or Error.
BatchReply AnswerBatchRoute(const HttpRequest& request, Tenant tenant, BatchService::Files& files);

}  // namespace larder::serving::net
