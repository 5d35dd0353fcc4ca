// /v1/files and /v1/batches, as in OpenAI's API, except for sending a file (FileUpload). They are
// answered on the thread of files.
#pragma once

#include <cstdint>
#include <string>

#include "serving/batch/batch_service.h"
#include "serving/http/http_parser.h"
#include "serving/net/http_routes.h"

namespace larder::serving::inline net {

// A file that is sent in pieces. It is opened anew for each piece: otherwise a client that does not
// read would keep the bytes of a deleted file, which no limit counts.
struct Download {
  std::string id;
  uint64_t at = 0, bytes = 0;
};

struct BatchReply {
  HttpReply reply;
  Download download;    // with an id: instead of the reply's body
  std::string stopped;  // the batch whose running requests are to end: BatchService::Stop
};

// Why the server keeps no files, for clients.
inline constexpr const char* kNoBatches =
    "this server keeps no files and batches; start larder serve with --batch-dir DIR";

// Whether the request is one that FileUpload takes.
bool IsUpload(const HttpRequest& request);
// Reads the next bytes, at most as many as `part` has; empties `part` if they are gone.
void ReadPart(const BatchStore& store, const Download& of, std::string& part);
// Throws Refused or Error.
BatchReply AnswerBatchRoute(const HttpRequest& request, Tenant tenant, BatchService::Files& files);

}  // namespace larder::serving::net
