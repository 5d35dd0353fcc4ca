// /v1/files and /v1/batches, as OpenAI's API has them, but for the sending of a file (FileUpload).
// They are answered on the thread of files.
#pragma once

#include <cstdint>
#include <string>

#include "serving/batch/batch_service.h"
#include "serving/http/http_parser.h"
#include "serving/net/http_routes.h"

namespace larder::serving::inline net {

// A file that is sent in pieces. It is opened for each: a client that does not read must not keep
// the bytes of one that is deleted, which no limit counts any more.
struct Download {
  std::string id;
  uint64_t at = 0, bytes = 0;
};

struct BatchReply {
  HttpReply reply;
  Download download;    // with an id: instead of the reply's body
  std::string stopped;  // a batch whose requests that run are to end: BatchService::Stop
};

// Why the server keeps no files, for clients.
inline constexpr const char* kNoBatches =
    "this server keeps no files and batches; start larder serve with --batch-dir DIR";

// Whether it is one that FileUpload takes.
bool IsUpload(const HttpRequest& request);
// Reads the next bytes, at most as many as `part` has; empties it if they are not there.
void ReadPart(const BatchStore& store, const Download& of, std::string& part);
// Throws Refused or Error.
BatchReply AnswerBatchRoute(const HttpRequest& request, Tenant tenant, BatchService::Files& files);

}  // namespace larder::serving::net
