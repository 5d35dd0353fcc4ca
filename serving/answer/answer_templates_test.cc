// The parsers against the published chat templates: a template says how its model is told to call
// tools, and renders the calls of the conversation so far in the same way. What python3 with jinja2
// renders of an assistant's message with calls is parsed back to these calls.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "base/temporary_folder_testing.h"
#include "base/test_data_testing.h"
#include "serving/answer/answer_testing.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

const std::map<std::string, std::string, std::less<>> kExpected = {
    {"Apriel-1.6-15b-Thinker-fixed", "apriel"},
    {"Bielik-11B-v3.0-Instruct", "hermes"},
    {"ByteDance-Seed-OSS", "seed_oss"},
    {"Cohere2MoE", "cohere2"},
    {"CohereForAI-c4ai-command-r-plus-tool_use", "command_r"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere2"},
    {"GLM-4.6", "glm45"},
    {"GLM-4.7-Flash", "glm45"},
    {"GigaChat3-10B-A1.8B", "gigachat"},
    {"GigaChat3.1-10B-A1.8B", "gigachat"},
    {"HuggingFaceTB-SmolLM3-3B", "generic"},
    {"Kimi-K2-Instruct", "kimi_k2"},
    {"LFM2-8B-A1B", "lfm2"},
    {"MiMo-VL", "hermes"},
    {"MiroThinker", "mirothinker"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
    {"Qwen-QwQ-32B", "hermes"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
    {"Qwen-Qwen3-0.6B", "hermes"},
    {"Qwen3-Coder", "qwen3_coder"},
    {"Reka-Edge", "hermes"},
    {"StepFun3.5-Flash", "qwen3_coder"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"},
    {"deepseek-ai-DeepSeek-V4", "deepseek_v4"},
    {"fireworks-ai-llama-3-firefunction-v2", "firefunction"},
    {"google-gemma-2-2b-it", "generic"},
    {"google-gemma-4-31B-it", "gemma4"},
    {"llama-cpp-deepseek-r1", "deepseek_v3"},
    {"llama-cpp-rwkv-world", "generic"},
    {"meetkai-functionary-medium-v3.1", "functionary_v31"},
    {"meetkai-functionary-medium-v3.2", "functionary_v32"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3_json"},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json"},
    {"microsoft-Phi-3.5-mini-instruct", "generic"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral_args"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
    {"moonshotai-Kimi-K2", "kimi_k2"},
    {"openai-gpt-oss-120b", "openai"},
    {"stepfun-ai-Step-3.5-Flash", "qwen3_coder"},
    {"unsloth-Apriel-1.5", "apriel"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral_args"},
};

// Prints one JSON object a line for each rendering with calls: the template's name, the prompt that
// the model would have continued, its own part, and the calls that are in it.
constexpr char kScript[] = R"(
import datetime, glob, json, os, re, sys, types
import jinja2.ext
from jinja2.sandbox import SandboxedEnvironment
class Generation(jinja2.ext.Extension):
    tags = {'generation'}
    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(['name:endgeneration'], drop_needle=True)
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    if isinstance(x, types.GeneratorType): x = list(x)
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
def fail(message): raise jinja2.TemplateError(message)
environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=['jinja2.ext.loopcontrols', Generation])
environment.filters['tojson'] = tojson
environment.filters['from_json'] = json.loads
environment.globals.update(raise_exception=fail, strftime_now=lambda f: datetime.datetime(2025, 1, 2).strftime(f))
tools = json.load(open(sys.argv[2], encoding='utf-8'))
values = [('get_weather', {'city': 'Zürich "x"\n<b>', 'days': 3, 'o': {'k': 'v{}'}}), ('add', {'a': 1.5, 'b': 2})]
ends = re.compile(r'<EOS>|<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<sep>|<\|END_OF_TURN_TOKEN\|>|<\|call\|>'
                  r'|<｜end▁of▁sentence｜>|<turn\|>|\n<\|end\|>|<\|message_sep\|>\n\n$')
for path in sorted(glob.glob(sys.argv[1] + '/*.jinja')):
    template = environment.from_string(open(path, encoding='utf-8').read())
    def render(messages, prompt):
        return template.render(messages=messages, tools=tools, bos_token='<BOS>', eos_token='<EOS>', datetime='now',
                               functions=json.dumps(tools), add_generation_prompt=prompt)
    user = {'role': 'user', 'content': 'USER'}
    for content in ['', None, 'CONTENT']:
        for thought in [None, 'THOUGHT']:
            for as_string in [False, True]:
                for count in [2, 1]:
                    calls = [{'id': 'abcdefgh%d' % i, 'type': 'function', 'function': {'name': n,
                              'arguments': json.dumps(a) if as_string else a}} for i, (n, a) in enumerate(values[:count])]
                    message = {'role': 'assistant', 'content': content, 'tool_calls': calls}
                    if thought: message['reasoning_content'] = thought
                    try:
                        prompt = render([user], True)
                        whole = render([user, message], False)
                    except Exception:
                        continue
                    if not whole.startswith(prompt):
                        prompt = re.sub(r'[<|\[]+[A-Za-z_]*$', '', os.path.commonprefix([prompt, whole]))
                    part = ends.split(whole[len(prompt):])[0]
                    if 'command-r-plus' in path:  # its prompt ends with another turn than the one that calls
                        part = part.removeprefix('<|CHATBOT_TOKEN|>').split('<|START_OF_TURN_TOKEN|>')[0]
                    shown = [{'name': n, 'arguments': a} for n, a in values[:count] if n in part]
                    if shown:
                        print(json.dumps({'file': os.path.basename(path)[:-6], 'prompt': prompt, 'part': part,
                                          'as_string': as_string, 'calls': shown}))
)";

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": {"type": "object",
   "properties": {"city": {"type": "string", "description": "c"}, "days": {"type": "integer", "description": "d"},
   "o": {"type": "object", "additionalProperties": {"type": "string"}, "description": "o"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "add", "description": "a", "parameters": {"type": "object",
   "properties": {"a": {"type": "number", "description": "a"}, "b": {"type": "number", "description": "b"}},
   "required": ["a"]}}}])";

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

AnswerFormat FormatOf(const std::string& file) {
  return DetectAnswerFormat(ReadText(TestData("templates/" + file + ".jinja")));
}

TEST(AnswerTemplates, FormatsAreDetected) {
  const std::filesystem::path folder = TestData("templates");
  LARDER_NEEDS_TEST_DATA(folder);
  size_t known = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string file = entry.path().stem();
    const auto expected = kExpected.find(file);
    if (expected == kExpected.end()) continue;
    ++known;
    EXPECT_EQ(AnswerFormatName(FormatOf(file)), expected->second) << file;
  }
  EXPECT_EQ(known, kExpected.size());
}

// Of families whose templates are not at hand: by what these have of their own.
TEST(AnswerTemplates, OthersAreDetectedByTheirMarkers) {
  for (const auto& [text, name] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"<tool_call>\n<function=x>\n<parameter=y>\n", "qwen3_coder"},  // Qwen3.5
           {"<minimax:tool_call>\n<invoke name=", "minimax_m2"},
           {"<AVAILABLE_TOOLS>[ <TOOLCALL>[", "nemotron_json"},
           {"<|tool|>' + tools + '<|/tool|>", "phi4_mini_json"},
           {"respond with <|tool_call|> followed by", "granite"},
           {"<tools> </tools> <tool_call>", "hermes"},
           {"content.split('<answer>') '</answer>'", "hunyuan_a13b"},
           {"<functions> <function_calls>", "olmo3"}})
    EXPECT_EQ(AnswerFormatName(DetectAnswerFormat(text)), name) << text;
}

TEST(AnswerTemplates, NamesAreOfFormats) {
  for (const std::string_view name : AnswerFormatNames()) {
    ASSERT_TRUE(AnswerFormatByName(name).has_value());
    EXPECT_EQ(AnswerFormatName(*AnswerFormatByName(name)), name);
  }
  EXPECT_FALSE(AnswerFormatByName("none of these").has_value());
}

// With its keys in a fixed order, because one template sorts them.
Json Sorted(const Json& json) { return Json::parse(nlohmann::json::parse(json.dump()).dump()); }

TEST(AnswerTemplates, RenderedCallsAreParsedBack) {
  const std::filesystem::path folder = TestData("templates");
  LARDER_NEEDS_TEST_DATA(folder);
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0)
    GTEST_SKIP() << "python3-jinja2 is not installed";
  const TemporaryFolder work;
  const std::string base = work.path();
  std::ofstream(base + "/render.py") << kScript;
  std::ofstream(base + "/tools.json") << kTools;
  const std::string command = "python3 " + base + "/render.py " + folder.string() + " " + base +
                              "/tools.json > " + base + "/out";
  ASSERT_EQ(std::system(command.c_str()), 0);

  std::ifstream lines(base + "/out");
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    const Json rendering = Json::parse(line);
    const std::string file = rendering["file"], prompt = rendering["prompt"];
    std::string part = rendering["part"];
    SCOPED_TRACE(file + ": " + prompt.substr(prompt.rfind("USER")) + " ## " + part);
    const AnswerFormat format = FormatOf(file);
    for (const std::string_view token : TokensOf(format, true).hidden) {
      for (size_t at = 0; (at = part.find(token, at)) != std::string::npos;)
        part.erase(at, token.size());
    }
    // One template renders a thought's end, but not its beginning, which is in the prompt.
    const bool unopened = part.find("[BEGIN FINAL RESPONSE]") != std::string::npos;
    const AnswerParserOptions options{
        .format = format,
        .starts_in_reasoning = StartsInReasoning(format, prompt) || unopened,
        .tools = Json::parse(kTools)};
    const ParsedAnswer answer = ParseAnswer(options, part);
    // Arguments that are given as text are printed as text by some templates, in forms that no
    // model is told.
    const bool as_told =
        !rendering["as_string"] || answer.calls.size() == rendering["calls"].size();
    if (!as_told) continue;
    ASSERT_EQ(answer.calls.size(), rendering["calls"].size()) << answer.content;
    bool quoted = false;  // printed as text in such a form
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      const Json& expected = rendering["calls"][i];
      EXPECT_EQ(answer.calls[i].name, expected["name"].get<std::string>());
      const Json arguments = Json::parse(answer.calls[i].arguments, nullptr, false);
      if (rendering["as_string"] &&
          (arguments.is_discarded() || arguments != expected["arguments"])) {
        quoted = true;
        continue;
      }
      ASSERT_FALSE(arguments.is_discarded()) << answer.calls[i].arguments;
      EXPECT_EQ(Sorted(arguments), Sorted(expected["arguments"]));
      seen.insert(file);
    }
    if (quoted) continue;
    // Some templates print "None" for content that is null.
    const bool none_is_printed = answer.content == "None";
    // Reka's prompt ends with a colon, and the answer begins with a space.
    const std::string content_text =
        answer.content.starts_with(' ') ? answer.content.substr(1) : answer.content;
    EXPECT_TRUE(content_text.empty() || content_text == "CONTENT" || none_is_printed)
        << answer.content;
    const bool content = (answer.content + answer.reasoning).find("CONTENT") != std::string::npos;
    EXPECT_EQ(content, part.find("CONTENT") != std::string::npos)
        << answer.content << "##" << answer.reasoning;
    const bool thought = answer.reasoning.find("THOUGHT") != std::string::npos;
    EXPECT_EQ(thought, part.find("THOUGHT") != std::string::npos) << answer.reasoning;
  }
  // Templates that render no calls: they know no tools, or refuse these messages.
  for (const auto& [file, format] : kExpected) {
    const bool none = format == "generic" || file == "LFM2-8B-A1B" ||
                      file == "HuggingFaceTB-SmolLM3-3B" || file == "MiroThinker";
    EXPECT_EQ(seen.contains(file), !none) << file;
  }
}

}  // namespace
}  // namespace larder::serving::answer
