// A job's files: what is wrong with a line, and how an output that was cut goes on.
#include "serving/batch/batch_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/temporary_folder_testing.h"

namespace larder::serving::inline batch {
namespace {

using nlohmann::json;

constexpr auto kAllGood = [](const BatchLine&) {};

std::string Request(const std::string& id) {
  return fmt::format(
      R"({{"custom_id":"{}","method":"POST","url":"/v1/completions","body":{{"prompt":"x"}}}})",
      id);
}

std::string WhyNot(const std::string& text) {
  try {
    ReadBatchLine(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

class BatchFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  BatchInput Input(const std::string& text) {
    BatchInput input(Write("in", text), kAllGood);
    while (!input.CheckMore(2)) {
    }
    return input;
  }

  TemporaryFolder folder_;
};

TEST(BatchLineTest, SaysWhatIsWrong) {
  EXPECT_EQ(WhyNot(Request("a")), "");
  EXPECT_EQ(WhyNot("[]"), "expected a JSON object");
  EXPECT_NE(WhyNot("{").find("not JSON"), std::string::npos);
  EXPECT_EQ(WhyNot(R"({"url":"/v1/completions","body":{}})"),
            "custom_id is missing: expected a string");
  EXPECT_EQ(WhyNot(R"({"custom_id":7})"), "custom_id is 7: expected a string");
  EXPECT_EQ(WhyNot(R"({"custom_id":""})"),
            "custom_id is empty: expected a name that no other line has");
  EXPECT_EQ(WhyNot(R"({"custom_id":"a","method":"GET"})"), "method is \"GET\": expected \"POST\"");
  EXPECT_EQ(
      WhyNot(R"({"custom_id":"a","url":"/v1/rerank"})"),
      "url is \"/v1/rerank\": expected /v1/chat/completions, /v1/completions, /v1/responses or "
      "/v1/embeddings");
  EXPECT_EQ(WhyNot(R"({"custom_id":"a","url":"/v1/completions","body":[]})"),
            "body is missing: expected the request's object");
  EXPECT_EQ(WhyNot(R"({"custom_id":"a","url":"/v1/completions","body":{"stream":true}})"),
            "body.stream is true: expected false in a batch");
}

TEST_F(BatchFileTest, HandsOutItsRequestsInOrder) {
  BatchInput input = Input(Request("a") + "\n\n  \r\n" + Request("b"));
  EXPECT_TRUE(input.problems().empty());
  EXPECT_EQ(input.requests(), 2u);
  EXPECT_EQ(input.Find("a"), 0u);
  EXPECT_EQ(input.Find("b"), 1u);
  EXPECT_FALSE(input.Find("c"));
  const auto first = input.Next(), second = input.Next();
  EXPECT_EQ(first->custom_id, "a");
  EXPECT_EQ(second->custom_id, "b");
  EXPECT_EQ(second->number, 4u);
  EXPECT_FALSE(input.Next());
}

TEST_F(BatchFileTest, KeepsTheFirstProblemsAndCountsAll) {
  std::string text;
  for (int i = 0; i < 15; ++i) text += "{}\n";
  const BatchInput input = Input(text + Request("a") + "\n" + Request("a") + "\n");
  EXPECT_EQ(input.problems().size(), BatchInput::kMostProblems);
  EXPECT_EQ(input.wrong_lines(), 16u);
  EXPECT_EQ(input.problems()[2].line, 3u);
  EXPECT_EQ(input.problems()[2].what, "custom_id is missing: expected a string");
  EXPECT_EQ(Input("\n\n").problems().size(), 1u) << "no request at all";
  EXPECT_THROW(BatchInput("/dev/null", kAllGood), Error) << "not a file";
  EXPECT_THROW(BatchInput(folder_ / "none", kAllGood), Error);
}

TEST_F(BatchFileTest, AnInputThatChangesUnderTheJobIsAnError) {
  BatchInput input = Input(Request("a") + "\n" + Request("b") + "\n");
  Write("in", Request("a") + "\n" + Request("c") + "\n");
  EXPECT_EQ(input.Next()->custom_id, "a");
  EXPECT_THROW(input.Next(), Error);
  BatchInput cut = Input(Request("a") + "\n" + Request("b") + "\n");
  Write("in", Request("a") + "\n");
  cut.Next();
  EXPECT_THROW(cut.Next(), Error);
}

TEST_F(BatchFileTest, AnOutputThatWasCutGoesOnAfterItsLastWholeLine) {
  BatchInput input = Input(Request("a") + "\n" + Request("b") + "\n" + Request("c") + "\n");
  const BatchLine a = *input.Next(), b = *input.Next();
  const std::string path = folder_ / "out";
  {
    BatchOutput output = BatchOutput::Create(path);
    output.Append(b, 200, json{{"text", "of b"}});
    output.Append(a, 400, json{{"error", "of a"}});
    output.Sync();
  }
  EXPECT_THROW(BatchOutput::Create(path), Error) << "it exists";
  const std::string whole = Read(path);
  const size_t first_line = whole.find('\n') + 1;
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    Write("out", whole.substr(0, bytes));
    std::vector<bool> done(3);
    BatchOutput output = BatchOutput::Resume(path, input, done);
    EXPECT_EQ(done, (std::vector<bool>{bytes == whole.size(), bytes >= first_line, false}))
        << bytes;
    EXPECT_EQ(Read(path), whole.substr(0, bytes == whole.size() ? bytes
                                          : bytes >= first_line ? first_line
                                                                : 0));
    if (!done[1]) output.Append(b, 200, json{{"text", "of b"}});
    if (!done[0]) output.Append(a, 400, json{{"error", "of a"}});
    EXPECT_EQ(Read(path), whole);
  }
}

TEST_F(BatchFileTest, AnOutputOfSomethingElseIsAnError) {
  BatchInput input = Input(Request("a") + "\n");
  std::vector<bool> done(1);
  for (const char* text :
       {"text\n", "{}\n", "{\"custom_id\":\"z\"}\n", "[1]\n", "{\"custom_id\":1}\n"}) {
    const std::string path = Write("out", text);
    EXPECT_THROW(BatchOutput::Resume(path, input, done), Error) << text;
    EXPECT_EQ(Read(path), text) << "and is left as it was";
  }
}

TEST_F(BatchFileTest, AnOutputIsItsOwnersAndNoLinkIsFollowed) {
  BatchInput input = Input(Request("a") + "\n");
  std::vector<bool> done(1);
  BatchOutput::Resume(folder_ / "new", input, done);
  EXPECT_EQ(std::filesystem::status(folder_ / "new").permissions(), std::filesystem::perms(0600));
  const std::string target = Write("target", "precious");
  std::filesystem::create_symlink(target, folder_ / "link");
  EXPECT_THROW(BatchOutput::Resume(folder_ / "link", input, done), Error);
  EXPECT_EQ(Read(target), "precious");
}

TEST_F(BatchFileTest, AJobIsReadAsItWasWritten) {
  const BatchJob job = {.input_hash = 0xfedcba9876543210u,
                        .requests = 3,
                        .model = "tiny",
                        .model_fingerprint = 5,
                        .engine = "larder 1",
                        .options = "temp 0.8",
                        .seed = ~uint64_t{0},
                        .created = 1'700'000'000};
  job.Save(folder_ / "job");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "job.tmp"));
  EXPECT_EQ(std::filesystem::status(folder_ / "job").permissions(), std::filesystem::perms(0600));
  const BatchJob read = BatchJob::Load(folder_ / "job");
  EXPECT_EQ(read.seed, job.seed);
  EXPECT_EQ(read.created, job.created);
  EXPECT_EQ(job.Differs(read), "");
  const auto differs = [&](auto&& change) {
    BatchJob other = job;
    change(other);
    return other.Differs(read);
  };
  EXPECT_EQ(differs([](BatchJob& j) { ++j.input_hash; }), "the input has changed");
  EXPECT_EQ(differs([](BatchJob& j) { ++j.model_fingerprint; }), "the model is another one");
  EXPECT_EQ(differs([](BatchJob& j) { j.options = "temp 1"; }),
            "the options are \"temp 1\"; they were \"temp 0.8\"");
  EXPECT_NE(differs([](BatchJob& j) { j.engine = "larder 2"; }), "");
  EXPECT_NE(differs([](BatchJob& j) { j.model = "other"; }), "");
  EXPECT_THROW(BatchJob::Load(folder_ / "none"), Error);
  for (const char* text :
       {"", "{}", "[]", "{\"version\":2,\"input_hash\":\"zz\"}", "{\"version\":1}"})
    EXPECT_THROW(BatchJob::Load(Write("bad", text)), Error) << text;
}

}  // namespace
}  // namespace larder::serving::batch
