// Files and batches of a server, over sockets: what clients get, what they cannot do, and that a
// server that ends in the middle loses nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/temporary_folder_testing.h"
#include "serving/net/client_testing.h"
#include "serving/net/server.h"
#include "serving/net/sessions_testing.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

struct Answered {
  int status = 0;
  std::string headers, body;
  json Json() const { return json::parse(body); }
  std::string Error() const { return Json()["error"]["message"]; }
};

// A server with a folder of batches and a model of made-up logits.
class BatchServer {
 public:
  explicit BatchServer(const std::string& folder, BatchQuota quota = {},
                       std::vector<std::string> keys = {}) {
    test_.service = nullptr;  // the server makes its own
    ServerOptions options;
    options.port = 0;
    options.text_port = -1;
    options.drain_s = 0;
    options.batch_folder = folder;
    options.batch_quota = quota;
    options.api_keys = std::move(keys);
    options.version = "test";
    options.log = [](const std::string&) {};
    server_ = std::make_unique<Server>(options);
    ReadyServer about;
    about.defaults = test_.state.defaults;
    about.slots = 2;
    about.sockets = {"socket"};
    about.plan = {{"object", "larder.plan"}};
    about.batch = {.engine = "test", .options = "none"};
    pipeline::Intake& intake = server_->Ready(std::move(about));
    model_ =
        std::thread([this, &intake] { RunTestModel(intake, test_.state.defaults.vocab, step_); });
  }
  ~BatchServer() {
    server_->Drain();
    model_.join();
    server_->Close();
  }

  int port() const { return server_->port(); }
  // No token is made while the result lives.
  std::unique_lock<std::mutex> Hold() { return std::unique_lock(step_); }

  Answered Ask(const std::string& method, const std::string& path, const std::string& body = "",
               const std::string& headers = "") {
    Client client(port());
    client.Send(fmt::format(
        "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n",
        method, path, body.size(), headers));
    client.Send(body);
    return Read(client);
  }
  static Answered Read(Client& client) {
    const std::string all = client.ReadTo("no such text");
    const size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    return {std::stoi(all.substr(9, 3)), all.substr(0, end), all.substr(end + 4)};
  }
  Answered Get(const std::string& path, const std::string& headers = "") {
    return Ask("GET", path, "", headers);
  }
  Answered Upload(const std::string& text, const std::string& headers = "",
                  const std::string& purpose = "batch") {
    return Ask("POST", "/v1/files", Form(text, purpose),
               headers + "Content-Type: multipart/form-data; boundary=b\r\n");
  }
  static std::string Form(const std::string& text, const std::string& purpose = "batch") {
    return fmt::format(
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{}\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../in.jsonl\"\r\n"
        "Content-Type: application/octet-stream\r\n\r\n{}\r\n--b--\r\n",
        purpose, text);
  }
  Answered Create(const std::string& file, const std::string& headers = "") {
    return Ask("POST", "/v1/batches",
               json{{"input_file_id", file},
                    {"endpoint", "/v1/completions"},
                    {"completion_window", "24h"},
                    {"metadata", {{"whose", "mine"}}}}
                   .dump(),
               headers);
  }
  // The batch, once it has ended.
  json Wait(const std::string& id, const std::function<bool(const json&)>& until = Ended) {
    const int64_t begin_ns = NowNs();
    json batch;
    do {
      batch = Get("/v1/batches/" + id).Json();
      usleep(2000);
    } while (!until(batch) && SecondsSince(begin_ns) < kLongS);
    EXPECT_TRUE(until(batch)) << batch;
    return batch;
  }
  static bool Ended(const json& batch) {
    const std::string status = batch.value("status", "");
    return status == "completed" || status == "failed" || status == "cancelled";
  }
  std::vector<std::string> Lines(const std::string& file) {
    std::istringstream all(Get("/v1/files/" + file + "/content").body);
    std::vector<std::string> lines;
    for (std::string line; std::getline(all, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }

 private:
  TestState test_;
  std::mutex step_;
  std::unique_ptr<Server> server_;
  std::thread model_;
};

std::string Requests(int count, int tokens = 8) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += json{{"custom_id", fmt::format("r{}", i)},
                 {"method", "POST"},
                 {"url", "/v1/completions"},
                 {"body", {{"prompt", "hello"}, {"max_tokens", tokens}, {"temperature", 1}}}}
                .dump() +
            "\n";
  return text;
}

class BatchServerTest : public testing::Test {
 protected:
  std::string Folder() const { return folder_ / "batches"; }
  // Files in the folder, without its lock.
  size_t FilesThere() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Folder()))
      count += entry.path().filename() != "lock";
    return count;
  }
  // Waits, because files of refused uploads and of clients that left are removed after the answer.
  void WaitForFiles(size_t count) const {
    const int64_t begin_ns = NowNs();
    while (FilesThere() != count && SecondsSince(begin_ns) < kLongS) usleep(2000);
    EXPECT_EQ(FilesThere(), count);
  }
  TemporaryFolder folder_;
};

// A file that is larger than the body of any other request may be, and than what the server holds
// of an upload in memory.
TEST_F(BatchServerTest, AFileComesBackAsItWasSent) {
  BatchServer server(Folder());
  std::string text;
  for (int i = 0; text.size() < (size_t{5} << 20); ++i) text += fmt::format("{} \r\n-b\r\n--\n", i);
  text += "\r\n-";
  const Answered sent = server.Upload(text);
  ASSERT_EQ(sent.status, 200) << sent.body;
  const json file = sent.Json();
  EXPECT_EQ(file["object"], "file");
  EXPECT_EQ(file["filename"], "in.jsonl");
  EXPECT_EQ(file["purpose"], "batch");
  EXPECT_EQ(file["bytes"], text.size());
  const std::string path = "/v1/files/" + file["id"].get<std::string>();
  EXPECT_EQ(server.Get(path).Json(), file);
  EXPECT_EQ(server.Get("/v1/files").Json()["data"], json::array({file}));
  EXPECT_EQ(server.Get("/v1/files?purpose=batch_output").Json()["data"], json::array());
  EXPECT_TRUE(server.Get(path + "/content").body == text);
  const Answered head = server.Ask("HEAD", path + "/content");
  EXPECT_NE(head.headers.find(fmt::format("Content-Length: {}", text.size())), std::string::npos);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(server.Ask("DELETE", path).Json()["deleted"], true);
  EXPECT_EQ(server.Get(path).status, 404);
  EXPECT_EQ(FilesThere(), 0u);
}

TEST_F(BatchServerTest, ABatchIsAnsweredBesideItsClients) {
  BatchServer server(Folder());
  const std::string bad = json{{"custom_id", "long"},
                               {"url", "/v1/completions"},
                               {"body", {{"prompt", std::string(2000, 'x')}}}}
                              .dump();
  const std::string file = server.Upload(Requests(30) + bad).Json()["id"];
  const Answered created = server.Create(file);
  ASSERT_EQ(created.status, 200) << created.body;
  EXPECT_EQ(created.Json()["status"], "validating");
  EXPECT_EQ(created.Json()["metadata"]["whose"], "mine");
  const std::string id = created.Json()["id"];
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(server.Ask("POST", "/v1/completions", R"({"prompt":"hello","max_tokens":3})").status,
              200);
  const json batch = server.Wait(id);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(batch["request_counts"], json({{"total", 31}, {"completed", 30}, {"failed", 1}}));
  const auto lines = server.Lines(batch["output_file_id"]);
  ASSERT_EQ(lines.size(), 30u);
  const json line = json::parse(lines[0]);
  EXPECT_EQ(line["response"]["status_code"], 200);
  EXPECT_EQ(line["response"]["body"]["usage"]["completion_tokens"], 8);
  const auto errors = server.Lines(batch["error_file_id"]);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(json::parse(errors[0])["response"]["status_code"], 400);
  EXPECT_EQ(server.Get("/v1/batches").Json()["data"], json::array({batch}));
  const std::string metrics = server.Get("/metrics").body;
  for (const char* wanted :
       {"larder_batches 0", "larder_batch_requests_total{outcome=\"completed\"} 30",
        "larder_batch_requests_total{outcome=\"failed\"} 1", "larder_batch_files 3",
        "larder_requests_total{outcome=\"length\",protocol=\"batch\"} 30",
        "larder_requests_total{outcome=\"length\",protocol=\"http\"} 5",
        "larder_time_to_first_token_seconds_count 5"})
    EXPECT_NE(metrics.find(wanted), std::string::npos) << wanted;
  EXPECT_EQ(server.Get("/v1/larder/status").Json()["batches"]["jobs"], 0);
  EXPECT_EQ(server.Ask("POST", "/v1/batches/" + id + "/cancel").status, 409);
}

// Large answers are made on the thread that writes them.
TEST_F(BatchServerTest, ALargeAnswerIsTheOneThatAClientGets) {
  BatchServer server(Folder());
  const json body = {{"prompt", std::vector<int>(60, 5)},
                     {"prompt_logprobs", 20},
                     {"max_tokens", 1},
                     {"temperature", 0}};
  const std::string line =
      json{{"custom_id", "large"}, {"url", "/v1/completions"}, {"body", body}}.dump();
  const Answered created = server.Create(server.Upload(line).Json()["id"]);
  ASSERT_EQ(created.status, 200) << created.body;
  const json batch = server.Wait(created.Json()["id"]);
  const auto lines = server.Lines(batch["output_file_id"]);
  ASSERT_EQ(lines.size(), 1u);
  const Answered direct = server.Ask("POST", "/v1/completions", body.dump());
  ASSERT_EQ(direct.status, 200) << direct.body;
  EXPECT_EQ(json::parse(lines[0])["response"]["body"]["choices"], direct.Json()["choices"]);
  EXPECT_EQ(direct.Json()["choices"][0]["prompt_logprobs"].size(), 60u);
}

TEST_F(BatchServerTest, ListsComeInPages) {
  BatchServer server(Folder());
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(server.Upload("x").Json()["id"]);
  std::reverse(ids.begin(), ids.end());
  std::vector<std::string> seen;
  json page;
  for (std::string after; after.empty() || page["has_more"] == true;) {
    page = server.Get("/v1/files?limit=2" + (after.empty() ? "" : "&after=" + after)).Json();
    for (const json& one : page["data"]) seen.push_back(one["id"]);
    after = page["last_id"];
  }
  EXPECT_EQ(seen, ids);
  EXPECT_EQ(server.Get("/v1/files?order=asc&limit=1").Json()["data"][0]["id"], ids.back());
  for (const char* wrong : {"limit=0", "limit=x", "limit=-1", "after=file-1", "order=up"})
    EXPECT_EQ(server.Get(std::string("/v1/files?") + wrong).status, 400) << wrong;
}

TEST_F(BatchServerTest, AFileThatIsNoJobIsToldByLine) {
  BatchServer server(Folder());
  const std::string file = server.Upload(Requests(2) + "hello\n").Json()["id"];
  const json batch = server.Wait(server.Create(file).Json()["id"]);
  EXPECT_EQ(batch["status"], "failed");
  EXPECT_EQ(batch["errors"]["object"], "list");
  EXPECT_EQ(batch["errors"]["data"][0]["line"], 3);
  EXPECT_NE(batch["errors"]["data"][0]["message"].get<std::string>().find("JSON"),
            std::string::npos);
  EXPECT_EQ(batch["output_file_id"], nullptr);
}

TEST_F(BatchServerTest, WhatIsOneKeysIsNoOthers) {
  BatchServer server(Folder(), {}, {"secret-one", "secret-two"});
  const std::string one = "Authorization: Bearer secret-one\r\n",
                    two = "Authorization: Bearer secret-two\r\n";
  EXPECT_EQ(server.Upload("x").status, 401);
  const std::string file = server.Upload(Requests(1), one).Json()["id"];
  const std::string batch = server.Create(file, one).Json()["id"];
  for (const std::string& path :
       {"/v1/files/" + file, "/v1/files/" + file + "/content", "/v1/batches/" + batch}) {
    EXPECT_EQ(server.Get(path, one).status, 200) << path;
    EXPECT_EQ(server.Get(path, two).status, 404) << path;
    EXPECT_EQ(server.Get(path).status, 401) << path;
  }
  EXPECT_EQ(server.Ask("DELETE", "/v1/files/" + file, "", two).status, 404);
  EXPECT_EQ(server.Ask("POST", "/v1/batches/" + batch + "/cancel", "", two).status, 404);
  EXPECT_EQ(server.Create(file, two).status, 404);
  for (const char* list : {"/v1/files", "/v1/batches"}) {
    EXPECT_EQ(server.Get(list, two).Json()["data"], json::array());
    EXPECT_GE(server.Get(list, one).Json()["data"].size(), 1u);
  }
}

TEST_F(BatchServerTest, WhatIsWrongIsSaidInALine) {
  BatchServer server(Folder(), {.disk_bytes = 5 << 20, .file_bytes = 3 << 20});
  const auto sends = [&](const std::string& type, const std::string& body) {
    return server.Ask("POST", "/v1/files", body, "Content-Type: " + type + "\r\n");
  };
  const std::string form = "multipart/form-data; boundary=b";
  EXPECT_EQ(sends("application/json", "{}").status, 400);
  EXPECT_EQ(sends("multipart/form-data", BatchServer::Form("x")).status, 400);
  EXPECT_EQ(sends("multipart/form-data; boundary=" + std::string(71, 'b'), "x").status, 400);
  EXPECT_EQ(sends(form, "").status, 400);
  EXPECT_EQ(sends(form, "{}").status, 400);
  EXPECT_EQ(sends(form, "--b\r\nContent-Disposition: form-data; name=file\r\n\r\nx").status, 400);
  EXPECT_EQ(server.Upload("x", "", "fine-tune").Error(),
            "purpose is \"fine-tune\": expected batch");
  EXPECT_EQ(server.Upload("x", "", std::string(1 << 20, 'p')).status, 400);
  EXPECT_EQ(sends(form,
                  "--b\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n"
                  "--b--\r\n")
                .Error(),
            "file is missing: expected one");
  const std::string two = BatchServer::Form("x");
  EXPECT_EQ(sends(form, two.substr(0, two.size() - 4) +
                            "\r\nContent-Disposition: form-data; name=file\r\n\r\ny\r\n--b--\r\n")
                .Error(),
            "file: expected one");
  EXPECT_EQ(server.Upload(std::string(4 << 20, 'x')).status, 413) << "by its header";
  WaitForFiles(0);
  EXPECT_EQ(server.Upload(std::string(3 << 20, 'x')).status, 200);
  EXPECT_EQ(server.Upload(std::string(3 << 20, 'x')).status, 413) << "the disk is full";
  WaitForFiles(2);  // one file, and what it is
  const std::string file = server.Get("/v1/files").Json()["data"][0]["id"];

  for (const std::string& path :
       {std::string("/v1/files/"), std::string("/v1/files/lock"), std::string("/v1/files/../lock"),
        "/v1/files/" + file + ".json", "/v1/files/" + file + "/", "/v1/files/" + file + "%00",
        std::string("/v1/files//content"), std::string("/v1/batches/"), "/v1/batches/" + file,
        std::string("/v1/batches/..%2f..%2fetc%2fpasswd"), std::string("/v1/batches//cancel")}) {
    EXPECT_EQ(server.Get(path).status, 404) << path;
    EXPECT_EQ(server.Ask("DELETE", path).status, 404) << path;
  }
  for (const auto& [method, path] : {std::pair<std::string, std::string>{"DELETE", "/v1/files"},
                                     {"PUT", "/v1/files/" + file},
                                     {"POST", "/v1/files/" + file + "/content"},
                                     {"DELETE", "/v1/batches"}})
    EXPECT_EQ(server.Ask(method, path).status, 405) << method << " " << path;

  const auto creates = [&](json changed) {
    json body = {
        {"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}};
    body.merge_patch(changed);
    return server.Ask("POST", "/v1/batches", body.dump());
  };
  EXPECT_EQ(creates({{"input_file_id", "file-x"}}).status, 404);
  EXPECT_EQ(creates({{"input_file_id", "../lock"}}).status, 404);
  EXPECT_EQ(creates({{"endpoint", "/v1/rerank"}}).status, 400);
  EXPECT_EQ(creates({{"completion_window", "1h"}}).Error(),
            "completion_window is \"1h\": expected 24h; batches do not expire here");
  EXPECT_EQ(creates({{"metadata", {{"x", 7}}}}).status, 400);
  EXPECT_EQ(creates({{"metadata", {{"x", std::string(513, 'x')}}}}).status, 400);
  EXPECT_EQ(server.Ask("POST", "/v1/batches", "[]").status, 400);
  EXPECT_EQ(server.Get("/health").status, 200);
}

TEST_F(BatchServerTest, AServerWithoutAFolderSaysWhichOptionItNeeds) {
  BatchServer server("");
  for (const auto& [method, path] : {std::pair<std::string, std::string>{"GET", "/v1/files"},
                                     {"POST", "/v1/files"},
                                     {"GET", "/v1/files/x"},
                                     {"POST", "/v1/batches"}}) {
    const Answered answer = server.Ask(method, path);
    EXPECT_EQ(answer.status, 501);
    EXPECT_NE(answer.Error().find("--batch-dir"), std::string::npos);
  }
  // By its header: the body need not be sent.
  Client client(server.port());
  client.Send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000\r\n\r\n");
  EXPECT_EQ(BatchServer::Read(client).status, 501);
}

TEST_F(BatchServerTest, ABatchIsCancelled) {
  BatchServer server(Folder());
  const std::string id = server.Create(server.Upload(Requests(500, 40)).Json()["id"]).Json()["id"];
  server.Wait(id, [](const json& batch) { return batch["request_counts"]["completed"] > 3; });
  EXPECT_EQ(server.Ask("POST", "/v1/batches/" + id + "/cancel").status, 200);
  const json batch = server.Wait(id);
  EXPECT_EQ(batch["status"], "cancelled");
  const size_t completed = batch["request_counts"]["completed"];
  EXPECT_LT(completed, 500u);
  EXPECT_EQ(server.Lines(batch["output_file_id"]).size(), completed);
}

// Clients' requests are admitted while a batch has all slots and more wait.
TEST_F(BatchServerTest, TheQueueIsTheClients) {
  BatchServer server(Folder());
  const std::string id = server.Create(server.Upload(Requests(200, 40)).Json()["id"]).Json()["id"];
  server.Wait(id, [](const json& batch) { return batch["request_counts"]["completed"] > 0; });
  EXPECT_EQ(server.Get("/v1/larder/status").Json()["queue"]["waiting"], 0);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(server.Ask("POST", "/v1/completions", R"({"prompt":"hello","max_tokens":2})").status,
              200);
}

TEST_F(BatchServerTest, AServerThatEndsInTheMiddleGoesOnWithTheNext) {
  std::string id, file;
  std::vector<std::string> expected;
  {
    BatchServer server(Folder());
    file = server.Upload(Requests(60, 20)).Json()["id"];
    id = server.Create(file).Json()["id"];
    server.Wait(id, [](const json& batch) { return batch["request_counts"]["completed"] > 5; });
    // Copied while answers are being written: the copy ends in the middle of a file.
    const auto held = server.Hold();
    std::filesystem::copy(Folder(), folder_ / "copy");
  }
  for (int round = 0; round < 2; ++round) {
    BatchServer server(Folder());
    const json batch =
        server.Wait(id, [](const json& now) { return now["request_counts"]["completed"] > 20; });
    EXPECT_GT(batch["request_counts"]["completed"], 5);
  }
  BatchServer server(Folder());
  const json batch = server.Wait(id);
  EXPECT_EQ(batch["status"], "completed");
  EXPECT_EQ(server.Lines(batch["output_file_id"]).size(), 60u);
  // The copy goes on with the same job and ends with the same answers.
  std::filesystem::permissions(folder_ / "copy", std::filesystem::perms::owner_all);
  BatchServer other(folder_ / "copy");
  EXPECT_EQ(other.Lines(other.Wait(id)["output_file_id"]), server.Lines(batch["output_file_id"]));
}

TEST_F(BatchServerTest, ClientsAndServersThatLeaveInTheMiddleLeaveNothing) {
  const std::string head = fmt::format(
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n"
      "Content-Type: multipart/form-data; boundary=b\r\n\r\n",
      3 << 20);
  const std::string half = BatchServer::Form(std::string(1 << 20, 'x')).substr(0, 1 << 20);
  {
    BatchServer server(Folder());
    for (int i = 0; i < 3; ++i) {
      Client client(server.port());
      client.Send(head + half);
    }
    const std::string file = server.Upload(std::string(4 << 20, 'x')).Json()["id"];
    for (int i = 0; i < 3; ++i) {
      Client client(server.port());
      client.Send("GET /v1/files/" + file + "/content HTTP/1.1\r\nHost: localhost\r\n\r\n");
      EXPECT_TRUE(client.Read(1000).starts_with("HTTP/1.1 200"));
    }
    EXPECT_EQ(server.Ask("DELETE", "/v1/files/" + file).status, 200);
    WaitForFiles(0);
    Client client(server.port());
    client.Send(head + half);
    WaitForFiles(1);
  }
  EXPECT_LE(FilesThere(), 1u);
  BatchServer server(Folder());
  EXPECT_EQ(FilesThere(), 0u) << "a rest goes when the next server begins";
}

// Clients that leave while the disk hangs. A pipe in place of a file stands for such a disk.
TEST_F(BatchServerTest, ClientsThatLeaveHoldNoMemory) {
  Descriptor writes;  // ends the hanging; outlives the server
  BatchServer server(Folder());
  const std::string file = server.Upload("x").Json()["id"];
  const std::string path = Folder() + "/" + file;
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  Client hangs(server.port());  // opens it for reading, until somebody opens it for writing
  hangs.Send("GET /v1/files/" + file + "/content HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto held = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const std::string piece = BatchServer::Form(std::string(300 << 10, 'x')).substr(0, 290 << 10);
  const std::string upload = fmt::format(
      "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n"
      "Content-Type: multipart/form-data; boundary=b\r\n\r\n",
      3 << 20);
  const std::string create =
      fmt::format("POST /v1/batches HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                  60 << 10, std::string(60 << 10, ' '));
  const size_t most = held() + (size_t{16} << 20);
  for (int i = 0; i < 200; ++i) {  // 68 MiB
    Client one(server.port()), other(server.port());
    one.Send(upload + piece);
    other.Send(create);
  }
  EXPECT_EQ(server.Ask("POST", "/v1/batches", std::string(65 << 10, ' ')).status, 413);
  const int64_t begin_ns = NowNs();
  while (held() > most && SecondsSince(begin_ns) < kLongS) usleep(2000);
  EXPECT_LE(held(), most);
  writes = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
}

// No limit counts a deleted file, so a client that does not read must not keep its bytes.
TEST_F(BatchServerTest, ADeletedFileIsGoneThoughItIsBeingSent) {
  BatchServer server(Folder());
  const std::string text(8 << 20, 'x');
  const std::string path = "/v1/files/" + server.Upload(text).Json()["id"].get<std::string>();
  Client client(server.port());
  client.Send("GET " + path + "/content HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(client.Read(1000).starts_with("HTTP/1.1 200"));
  EXPECT_EQ(server.Ask("DELETE", path).status, 200);
  const auto open_there = [&] {
    size_t count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      count += std::filesystem::read_symlink(entry, ignored).string().starts_with(Folder() + "/f");
    return count;
  };
  const int64_t begin_ns = NowNs();
  while (open_there() > 0 && SecondsSince(begin_ns) < kLongS) usleep(2000);
  EXPECT_EQ(open_there(), 0u);
  EXPECT_LT(client.ReadTo("no such text").size(), text.size()) << "it ends, and says so";
}

}  // namespace
}  // namespace larder::serving::net
