#include "model/reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/test_data_testing.h"
#include "model/reference/divergence.h"
#include "model/reference/tiny_model_testing.h"

namespace larder::model::inline reference {
namespace {

ReferenceModel Open(const TinyModel& tiny, ReferenceOptions options = {}) {
  return ReferenceModel::Make(GgufFile::Open(tiny.path()), options);
}

std::vector<float> LogitsOf(const TinyModel& tiny, std::span<const TokenId> tokens,
                            ReferenceOptions options = {}) {
  return Open(tiny, options).TeacherForced(tokens);
}

const TinyShape kLlama = {"llama", 12, 20, 4, 2, 6, 4, 1e4f, false};
const TinyShape kQwen2 = {"qwen2", 12, 20, 3, 1, 4, 4, 1e4f, true};
const TinyShape kQwen3 = {"qwen3", 12, 20, 4, 4, 10, 10, 1e6f, true};
const std::vector<TokenId> kTokens = {1, 5, 3, 12, 0, 7};

// Expected values: printed by reference_golden.py to 6 places. 1e-5: a few float32 roundings of
// values below 8.
void ExpectLastRow(const std::vector<float>& logits, const std::vector<float>& expected) {
  ASSERT_EQ(logits.size(), expected.size() * kTokens.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(logits[logits.size() - expected.size() + i], expected[i], 1e-5) << "logit " << i;
  }
}

TEST(Reference, LlamaEqualsTheGolden) {  // grouped heads, partial rotation, rope_freqs, separate
                                         // lm_head
  ExpectLastRow(LogitsOf(TinyModel(kLlama, TensorType::kF32, {1.0f, 2.5f}), kTokens),
                {-1.122523f, -1.143198f, 0.674788f, -0.645017f, -2.253985f, -2.487876f, -4.642059f,
                 2.042997f, -3.551308f, -2.679433f, -0.906044f, -1.777650f, 0.754994f});
}

TEST(Reference, Qwen2EqualsTheGolden) {  // biases, one key/value head, linear rope scaling, tied
                                         // embeddings
  ExpectLastRow(LogitsOf(TinyModel(kQwen2, TensorType::kF32, {}, 4), kTokens),
                {2.634534f, -0.801836f, -0.458276f, 2.181618f, -2.770606f, -0.358963f, 0.713293f,
                 -2.010589f, 0.172160f, 1.676209f, 0.788671f, -4.749719f, -1.206293f});
}

TEST(Reference, Qwen3EqualsTheGolden) {  // norms per head, heads * head_size != dim
  ExpectLastRow(LogitsOf(TinyModel(kQwen3), kTokens),
                {-3.722863f, -3.064761f, 1.679183f, -0.746587f, 0.012694f, -1.917000f, 0.932993f,
                 -1.661376f, -2.844086f, -0.114438f, 0.116494f, 0.926730f, 0.357614f});
}

// The families beyond, each with what only it has.
struct Golden {
  const char* what;
  TinyShape shape;
  std::vector<float> rope_factors;
  size_t context;  // of the run; 0: the model's
  std::vector<float> expected;
};
const std::vector<Golden> kGolden = {
    {"ernie4_5",
     {"ernie4_5", 12, 20, 4, 2, 4, 4, 5e5f, true},
     {},
     0,
     {0.099782f, -2.287330f, -0.329139f, 0.791060f, -2.545231f, -0.070257f, 0.883209f, -0.065633f,
      -1.350532f, 3.147580f, 2.576408f, -2.876173f, 1.106344f}},
    {"seed_oss: its post_attention_norm is the FFN's",
     {"seed_oss", 12, 20, 4, 2, 4, 4, 1e6f, false},
     {},
     0,
     {0.696796f, -0.515162f, -1.631055f, -2.956806f, 0.142729f, -0.788031f, -0.790836f, -0.703289f,
      -2.465140f, -0.649004f, -0.581726f, -3.027760f, -0.315499f}},
    {"smollm3: the fourth layer does not rotate",
     {"smollm3", 12, 20, 4, 2, 4, 4, 1e6f, true, 13, 4},
     {},
     0,
     {0.419869f, -2.617124f, -0.310359f, 0.826748f, -2.248021f, -1.566169f, 0.543249f, -0.499716f,
      -2.764078f, 3.204415f, 2.187064f, -2.741186f, 1.920121f}},
    {"granite: four scales",
     {"granite",
      12,
      20,
      4,
      2,
      4,
      4,
      1e6f,
      true,
      13,
      2,
      {{"embedding_scale", 3.0f},
       {"residual_scale", 0.375f},
       {"attention.scale", 0.1875f},
       {"logit_scale", 2.5f}}},
     {},
     0,
     {0.440613f, -0.003419f, -0.569715f, -0.498034f, -0.212648f, 0.569179f, -0.197959f, 1.575348f,
      -0.374605f, 1.193629f, 0.552624f, -0.427592f, 0.590275f}},
    {"hunyuan-dense: heads are normalised after their rotation",
     {"hunyuan-dense", 12, 20, 4, 2, 4, 4, 1e4f, true},
     {},
     0,
     {1.708178f, -0.379686f, -0.747285f, -2.422283f, -1.084535f, 1.992074f, -2.562251f, 3.810886f,
      1.152348f, 2.347471f, 0.822931f, -2.445829f, 2.225153f}},
    {"mistral3: YaRN of magnitude 1, temperature",
     {"mistral3",
      12,
      20,
      4,
      2,
      4,
      4,
      1e6f,
      false,
      13,
      2,
      {{"rope.scaling.yarn_log_multiplier", 1.0f}, {"attention.temperature_scale", 0.5f}},
      4.0f,
      2},
     {},
     0,
     {1.494624f, -1.669940f, 0.447206f, -2.759313f, -1.312562f, -1.427750f, -1.467911f, 0.102404f,
      -4.206154f, -1.257519f, -2.610803f, -3.601605f, 0.098982f}},
    {"olmo2: norms behind, and of whole rows of q and k",
     {"olmo2", 12, 20, 4, 2, 4, 4, 5e5f, false},
     {},
     0,
     {1.084820f, -1.163846f, -1.190000f, -0.975639f, -1.961869f, -1.852975f, -1.294127f, 0.301031f,
      -3.262236f, -0.633491f, -0.848852f, -2.380275f, -0.230938f}},
    {"exaone4: norms behind, and of heads",
     {"exaone4", 12, 20, 4, 2, 4, 4, 1e6f, false},
     {},
     0,
     {0.211111f, -0.234648f, -2.731389f, -1.200721f, 0.751087f, -0.300873f, 0.683756f, -2.755830f,
      -1.237760f, 1.034719f, -1.016452f, -2.612121f, -1.014966f}},
    {"phi3: fused tensors, a part of each head rotates, short factors",
     {"phi3", 12, 20, 4, 2, 6, 4, 1e4f, false, 13, 2, {{"rope.scaling.attn_factor", 1.25f}}, 0, 64},
     {1.5f, 3.0f},
     64,
     {0.330054f, -2.109575f, 1.751922f, -1.617318f, -2.357397f, -1.776765f, -1.217756f, 4.333600f,
      -1.965119f, -3.416325f, 0.377830f, -2.491044f, 1.260219f}},
    {"phi3: long factors",
     {"phi3", 12, 20, 4, 2, 6, 4, 1e4f, false, 13, 2, {{"rope.scaling.attn_factor", 1.25f}}, 0, 64},
     {1.5f, 3.0f},
     65,
     {0.335981f, -3.075734f, 2.076858f, -1.456568f, -2.621156f, -1.644100f, -2.188226f, 4.743354f,
      -2.391430f, -3.727979f, 0.145733f, -1.833588f, 1.641926f}},
    {"glm4: norms before and behind, half of each head rotates",
     {"glm4", 12, 20, 4, 2, 4, 2, 1e4f, false},
     {},
     0,
     {-1.913176f, 3.318103f, -0.634041f, 0.640613f, 1.095563f, -0.332931f, 0.497322f, -1.388436f,
      -1.438952f, 1.146052f, -2.560241f, -3.058262f, -1.672563f}},
    {"llama with windows of three positions",
     {"llama", 12, 20, 4, 2, 4, 4, 1e4f, false, 13, 2, {}, 0, 0, 3},
     {},
     0,
     {-2.122492f, -0.668138f, -0.430630f, 0.593863f, -2.070356f, -1.277214f, -0.828257f, -0.773144f,
      -0.237613f, 0.929945f, -1.168403f, -1.601583f, 0.076656f}},
    {"phi3 with windows of two",
     {"phi3",
      12,
      20,
      4,
      2,
      6,
      4,
      1e4f,
      false,
      13,
      2,
      {{"rope.scaling.attn_factor", 1.25f}},
      0,
      64,
      2},
     {1.5f, 3.0f},
     64,
     {2.760254f, -3.295602f, 1.995491f, -2.509853f, -2.619143f, -1.417392f, -2.006437f, 5.361830f,
      -2.746254f, -3.508251f, 0.777714f, -1.043183f, 1.774337f}},
    {"OLMo 3: windows in three layers of four, which turn without YaRN",
     {"olmo2", 12, 20, 4, 2, 4, 4, 5e5f, false, 13, 4, {}, 4.0f, 2, 2},
     {},
     0,
     {-1.289533f, 0.765522f, -0.419074f, 1.286887f, -1.519528f, -1.716796f, 0.554353f, 0.791851f,
      1.028979f, 1.248506f, -0.080618f, -2.008557f, 0.272461f}},
    {"exaone4 with windows: the fourth layer does not rotate",
     {"exaone4", 12, 20, 4, 2, 4, 4, 1e6f, false, 13, 4, {}, 0, 0, 2},
     {},
     0,
     {-1.231942f, 0.671166f, 0.006418f, 1.022549f, -1.537161f, -1.684803f, 0.494327f, 0.908409f,
      1.024194f, 0.897642f, 0.065818f, -1.773861f, 0.485460f}},
    {"gemma: gates of GELU, a scale that no key gives",
     {"gemma", 12, 20, 4, 1, 6, 6, 1e4f, true},
     {},
     0,
     {-2.297803f, -0.818757f, -0.788371f, -0.868932f, -0.319289f, 1.730699f, 0.498318f, 0.609683f,
      -1.481214f, -0.513336f, 1.063732f, 2.387598f, -0.974428f}},
    {"gemma2: windows in even layers, norms behind, caps",
     {"gemma2",
      12,
      20,
      4,
      2,
      4,
      4,
      1e4f,
      true,
      13,
      2,
      {{"attn_logit_softcapping", 2.0f}, {"final_logit_softcapping", 3.0f}},
      0,
      0,
      2},
     {},
     0,
     {0.920559f, 0.445179f, -1.425353f, -1.914778f, 1.157655f, 0.980704f, -1.139791f, 2.767995f,
      -1.154470f, 1.669882f, 0.384278f, 0.442243f, 1.190601f}},
    {"gemma3: two rotations, the factor is of one",
     {"gemma3", 12, 20, 4, 2, 4, 4, 1e6f, true, 13, 6, {{"rope.scaling.factor", 8.0f}}, 0, 0, 2},
     {},
     0,
     {-0.136325f, -1.233058f, -1.581817f, -3.054714f, 0.154769f, 0.166327f, -1.150431f, 3.870222f,
      -0.102165f, 1.726090f, -1.417408f, -0.992411f, 1.731754f}},
    {"gemma4: heads of two sizes, V is K, norms of values, factors of layers without windows",
     {"gemma4",
      12,
      20,
      4,
      2,
      6,
      6,
      1e6f,
      true,
      13,
      6,
      {{"final_logit_softcapping", 3.0f}},
      0,
      0,
      2},
     {1.0f, 2.5f, 1e30f},
     0,
     {-0.361233f, -0.621145f, -0.800978f, -1.655319f, -0.718174f, -0.211782f, -0.097934f, 1.952240f,
      -1.502385f, 1.133526f, -1.248655f, 0.411259f, 0.758645f}},
    {"gemma4: layer inputs, and layers that attend to keys and values of one before them",
     {"gemma4", 12, 20, 4,  2,  6,  6, 1e6f, true, 13, 12, {{"final_logit_softcapping", 3.0f}},
      0,        0,  2,  {}, {}, {}, 6, 5},
     {1.0f, 2.5f, 1e30f},
     0,
     {0.680699f, 0.245372f, 0.254639f, 0.740743f, -1.690090f, 1.295199f, 1.219695f, 1.062217f,
      -1.537870f, 1.450837f, 1.409155f, -0.799175f, -1.502824f}},
    {"gemma4: experts beside the FFN, whose router looks at the residual",
     {"gemma4",
      12,
      20,
      4,
      2,
      6,
      6,
      1e6f,
      true,
      13,
      6,
      {{"final_logit_softcapping", 3.0f}},
      0,
      0,
      2,
      {},
      {5, 2, 8}},
     {1.0f, 2.5f, 1e30f},
     0,
     {1.518229f, -0.109490f, -0.428958f, 1.308896f, -0.425272f, -0.107876f, 1.224900f, 0.451110f,
      -0.669868f, 0.378043f, 0.728917f, -1.135109f, -2.016492f}},
    {"cohere2: only layers with windows rotate",
     {"cohere2", 12, 20, 4, 2, 4, 4, 5e4f, true, 13, 4, {{"logit_scale", 0.0625f}}, 0, 0, 2},
     {},
     0,
     {-0.090475f, -0.153833f, 0.174610f, -0.201378f, 0.061242f, -0.165475f, -0.181688f, -0.008043f,
      -0.037732f, -0.091483f, -0.156883f, 0.063311f, 0.158401f}},
    {"command-r: LayerNorm, FFN beside attention",
     {"command-r", 12, 20, 4, 2, 4, 4, 1e4f, true, 13, 2, {{"logit_scale", 0.0625f}}},
     {},
     0,
     {0.236991f, -0.014029f, 0.033369f, 0.180373f, -0.108712f, -0.026180f, 0.055886f, 0.016464f,
      -0.130639f, 0.277988f, 0.298261f, -0.248433f, 0.013154f}},
    {"command-r: LayerNorms of q and k, each head with weights of its own",
     {.architecture = "command-r",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = true,
      .keys = {{"logit_scale", 0.0625f}},
      .qk_norm = true},
     {},
     0,
     {0.274286f, 0.019743f, -0.012938f, 0.187310f, -0.115107f, -0.000373f, 0.056031f, 0.033027f,
      -0.117887f, 0.285134f, 0.291357f, -0.257472f, -0.005052f}},
    {"qwen35: the gated delta rule in the first layer, an output gate in the second",
     {"qwen35", 12, 20, 4, 2, 6, 4, 1e7f, false, 13, 2, {}, 0, 0, 0, {2, 4, 16, 32, 3}},
     {},
     0,
     {1.190041f, 0.227108f, -2.083700f, -2.158050f, -0.606441f, -0.852167f, 0.230258f, -0.478223f,
      -1.809869f, 0.184602f, -1.172865f, -3.261712f, -2.026856f}},
    {"lfm2: a gated convolution in the first layer",
     {"lfm2", 12, 20, 4, 2, 6, 6, 1e6f, true, 13, 2, {}, 0, 0, 0, {.taps = 3}},
     {},
     0,
     {0.739299f, -0.453276f, 0.636267f, -0.677704f, -3.422780f, 2.679009f, -1.129271f, 0.789402f,
      2.731210f, -1.123828f, -1.712931f, -3.216129f, -0.863712f}},
    {"granitehybrid: Mamba-2 in the first layer",
     {"granitehybrid",
      12,
      20,
      4,
      2,
      4,
      4,
      1e6f,
      true,
      13,
      2,
      {{"embedding_scale", 3.0f},
       {"residual_scale", 0.375f},
       {"attention.scale", 0.1875f},
       {"logit_scale", 2.5f}},
      0,
      0,
      0,
      {2, 4, 16, 16, 3}},
     {},
     0,
     {0.574239f, 0.285604f, -0.742804f, 0.462047f, -0.854789f, 0.820962f, 0.530454f, 0.159176f,
      0.878785f, 1.254822f, 0.502302f, -1.737972f, -0.194433f}},
    {"llama with experts",
     {.architecture = "llama",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .experts = {.count = 4, .used = 2, .ffn = 8}},
     {},
     0,
     {-1.713217f, -1.255951f, -1.059761f, 0.289242f, -0.374622f, 0.120611f, -0.003688f, -2.403386f,
      0.062611f, 1.023561f, -2.152563f, -1.598302f, -1.059663f}},
    {"qwen3moe: three of six experts",
     {.architecture = "qwen3moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e6f,
      .tied = false,
      .experts = {.count = 6, .used = 3, .ffn = 8}},
     {},
     0,
     {-1.850994f, 2.086712f, 0.311459f, 2.100780f, 0.306073f, -0.351646f, 0.921632f, -2.484842f,
      -0.553486f, 2.583093f, -2.450726f, -1.639410f, 0.240849f}},
    {"qwen2moe: weights as they are, a shared expert with its sigmoid",
     {.architecture = "qwen2moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e6f,
      .tied = false,
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {-1.091752f, 2.955099f, 0.166770f, 0.735842f, -0.708750f, -1.647694f, -0.453724f, -1.776840f,
      -0.677554f, 1.656602f, -1.102312f, -1.529732f, -0.013770f}},
    {"dots1: sigmoids, a bias that only chooses, a scale, a layer without experts",
     {.architecture = "dots1",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 4,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 3,
      .keys = {{"expert_weights_scale", 2.5f}},
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16, .dense = 1}},
     {},
     0,
     {1.992250f, -0.153914f, -0.339615f, -1.190793f, -0.759247f, -0.513888f, -0.946172f, -0.250180f,
      -3.841594f, -0.964998f, -0.423523f, -0.048794f, -0.308474f}},
    {"arcee: squares of ReLU without a gate",
     {"arcee", 12, 20, 4, 2, 4, 4, 1e4f, false},
     {},
     0,
     {-0.204705f, -0.823458f, -0.704504f, -0.888865f, -1.603111f, -2.000111f, 0.243341f, -1.025390f,
      -2.291788f, -0.464576f, -0.644587f, -3.239977f, 0.541872f}},
    {"nemotron_h: blocks of Mamba-2, attention or an FFN",
     {.architecture = "nemotron_h",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 5,
      .delta = {2, 4, 16, 16, 3}},
     {},
     0,
     {0.366810f, -1.318623f, 3.998936f, 1.735697f, -0.899925f, 0.825861f, -0.529644f, 3.271702f,
      0.515525f, -0.177027f, -1.818796f, 1.290230f, 1.309748f}},
    {"nemotron_h_moe: experts without gates",
     {.architecture = "nemotron_h_moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 5,
      .keys = {{"expert_weights_scale", 2.5f}},
      .delta = {2, 4, 16, 16, 3},
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {-1.846354f, -2.364204f, -1.904344f, 0.997176f, 1.625361f, 2.821442f, -1.281531f, -1.677484f,
      -0.588133f, 1.341517f, -1.629922f, 2.450879f, -0.700432f}},
    {"lfm2moe: experts behind a convolution",
     {.architecture = "lfm2moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 6,
      .rotary_dim = 6,
      .rope_base = 1e6f,
      .tied = true,
      .delta = {.taps = 3},
      .experts = {.count = 5, .used = 2, .ffn = 8}},
     {},
     0,
     {2.790746f, 2.081714f, 0.173525f, 0.924593f, -0.258951f, 2.425517f, -0.273132f, 1.873243f,
      0.261128f, -0.198442f, 0.933150f, -1.619561f, -2.677849f}},
    {"qwen35moe: experts behind the gated delta rule",
     {.architecture = "qwen35moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 6,
      .rotary_dim = 4,
      .rope_base = 1e7f,
      .tied = false,
      .delta = {2, 4, 16, 32, 3},
      .experts = {.count = 6, .used = 3, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {1.965190f, 3.915740f, 1.242055f, 1.968870f, 0.647015f, -0.233411f, 1.938827f, 0.063936f,
      1.741480f, 2.545637f, -1.329321f, 0.491309f, -1.453870f}},
    {"qwen3next: heads in their order, betas and alphas in one tensor",
     {.architecture = "qwen3next",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 6,
      .rotary_dim = 4,
      .rope_base = 1e7f,
      .tied = false,
      .delta = {2, 4, 16, 32, 3},
      .experts = {.count = 6, .used = 3, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {0.786916f, 1.875781f, -1.562226f, 1.025632f, 1.142659f, 1.391565f, 0.951320f, 0.715622f,
      0.723103f, 2.669485f, -1.889456f, 0.036286f, -2.832361f}},
    {"granitehybrid with experts",
     {.architecture = "granitehybrid",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e6f,
      .tied = true,
      .keys = {{"embedding_scale", 3.0f},
               {"residual_scale", 0.375f},
               {"attention.scale", 0.1875f},
               {"logit_scale", 2.5f}},
      .delta = {2, 4, 16, 16, 3},
      .experts = {.count = 4, .used = 2, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {-0.022331f, -0.194182f, 0.091833f, 0.076346f, 0.768029f, -0.359663f, 0.153229f, 0.631321f,
      -1.085750f, 0.853162f, 1.120936f, -0.177003f, 0.263167f}},
    {"granitemoe: experts, a shared one",
     {.architecture = "granitemoe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e6f,
      .tied = true,
      .keys = {{"embedding_scale", 3.0f},
               {"residual_scale", 0.375f},
               {"attention.scale", 0.1875f},
               {"logit_scale", 2.5f}},
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16}},
     {},
     0,
     {0.435342f, 0.492703f, -0.504747f, -0.404222f, 0.428060f, 0.743302f, -0.090860f, 1.697888f,
      0.055295f, 1.004182f, 0.601584f, -0.366226f, 0.238408f}},
    {"olmoe: norms of q and k over all heads, weights of experts as they are",
     {.architecture = "olmoe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .experts = {.count = 5, .used = 2, .ffn = 8}},
     {},
     0,
     {-2.542258f, 2.890356f, 0.387733f, 2.815874f, 0.528257f, -0.392944f, 0.503467f, -2.526618f,
      -0.222232f, 2.676219f, -2.225991f, -0.974633f, 0.214784f}},
    {"minimax-m2: norms of q and k over all heads, half of each head rotates",
     {.architecture = "minimax-m2",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 2,
      .rope_base = 5e6f,
      .tied = false,
      .experts = {.count = 5, .used = 2, .ffn = 8}},
     {},
     0,
     {-1.612642f, -0.095865f, -0.039131f, 0.821066f, 0.049353f, 0.524374f, 0.804332f, -3.749815f,
      1.366711f, 2.383971f, -2.615487f, -0.560016f, -0.958328f}},
    {"ernie4_5-moe: experts chosen by probability plus a bias",
     {.architecture = "ernie4_5-moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 5e5f,
      .tied = true,
      .layers = 3,
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16, .dense = 1}},
     {},
     0,
     {0.108719f, -1.541468f, 0.456304f, -2.583629f, -1.059882f, 0.215311f, -2.647587f, 2.784824f,
      -1.205327f, 0.415554f, -0.014446f, -0.402649f, 2.534983f}},
    {"glm4moe: norms of heads, biases, half of each head rotates",
     {.architecture = "glm4moe",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 2,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 3,
      .keys = {{"expert_weights_scale", 2.5f}},
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16, .dense = 1}},
     {},
     0,
     {-0.763428f, -0.119177f, -0.976339f, -2.262556f, -0.221570f, -0.806991f, 1.847253f, -4.322413f,
      3.004207f, 0.107511f, 1.161117f, -1.499817f, -0.692561f}},
    {"bailingmoe2: groups of experts",
     {.architecture = "bailingmoe2",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 2,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 3,
      .keys = {{"expert_weights_scale", 2.5f}},
      .experts = {.count = 9,
                  .used = 3,
                  .ffn = 8,
                  .shared_ffn = 16,
                  .dense = 1,
                  .groups = 3,
                  .groups_used = 2}},
     {},
     0,
     {4.044488f, -1.367576f, 2.090600f, -0.896326f, -2.609558f, -1.740586f, -0.277550f, 4.636526f,
      -2.819678f, -1.301797f, -0.863308f, -1.248596f, 0.737949f}},
    {"gpt-oss: sinks, biases of experts, clamped gates, a ramp of YaRN between pairs",
     {.architecture = "gpt-oss",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 2,
      .head_size = 4,
      .rotary_dim = 4,
      .rope_base = 30.0f,
      .tied = false,
      .yarn_factor = 4.0f,
      .original_context = 64,
      .window = 2,
      .experts = {.count = 5, .used = 2, .ffn = 8}},
     {},
     0,
     {-0.702798f, 1.650754f, -2.328562f, -0.421624f, 1.261011f, -0.287166f, 1.023642f, -3.701653f,
      -0.210770f, 1.816064f, -0.203057f, -1.791042f, -0.448827f}},
    {"deepseek2: latent attention, queries of a latent, too, YaRN in scores, groups of experts",
     {.architecture = "deepseek2",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 1,
      .head_size = 12,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .layers = 3,
      .keys = {{"rope.scaling.yarn_log_multiplier", 0.1f}, {"expert_weights_scale", 2.5f}},
      .yarn_factor = 4.0f,
      .original_context = 2,
      .experts = {.count = 6,
                  .used = 2,
                  .ffn = 8,
                  .shared_ffn = 16,
                  .dense = 1,
                  .groups = 2,
                  .groups_used = 1},
      .latent = {.rank = 8, .query_rank = 5, .key_size = 6, .value_size = 7}},
     {},
     0,
     {-0.303245f, 3.368216f, -2.376236f, -0.709070f, 0.315932f, -1.049063f, 0.158125f, -0.771229f,
      -2.047552f, 0.843566f, -0.142961f, -2.687996f, -1.558480f}},
    {"deepseek2, lite: latent attention, weights of experts as they are",
     {.architecture = "deepseek2",
      .dim = 12,
      .ffn = 20,
      .heads = 4,
      .kv_heads = 1,
      .head_size = 12,
      .rotary_dim = 4,
      .rope_base = 1e4f,
      .tied = false,
      .experts = {.count = 5, .used = 2, .ffn = 8, .shared_ffn = 16},
      .latent = {.rank = 8, .key_size = 6, .value_size = 7}},
     {},
     0,
     {-2.074366f, -0.724937f, -0.686570f, -3.234275f, -1.290644f, -1.662047f, -3.062056f, 0.102774f,
      -0.348042f, -3.294365f, 2.280243f, -1.284331f, 0.271981f}},
    {"falcon-h1: attention and Mamba-2 side by side",
     {"falcon-h1", 12, 20, 4, 2, 8, 8, 1e11f, false, 13, 2, {}, 0, 0, 0, {1, 2, 16, 16, 4}},
     {},
     0,
     {2.969048f, -4.552608f, -0.190806f, -1.576848f, -0.153387f, 1.920875f, 1.326388f, 0.740363f,
      -0.858400f, 0.403925f, -1.820839f, 0.154187f, -0.326104f}}};

TEST(Reference, EachFamilyEqualsItsGolden) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(golden.what);
    ExpectLastRow(LogitsOf(TinyModel(golden.shape, TensorType::kF32, golden.rope_factors), kTokens,
                           {.context = golden.context}),
                  golden.expected);
  }
}

TEST(Reference, RewindsAndResets) {
  ReferenceModel model = Open(TinyModel(kQwen3));
  const std::vector<float> all = model.TeacherForced(kTokens);
  model.Forward(9, 2);  // another token at position 2 replaces the rest of the sequence
  EXPECT_EQ(model.positions(), 3u);
  for (size_t i = 2; i < kTokens.size(); ++i) {
    const std::vector<float> row = model.Forward(kTokens[i], i);
    EXPECT_TRUE(
        std::equal(row.begin(), row.end(), all.begin() + static_cast<ptrdiff_t>(i * row.size())))
        << i;
  }
  EXPECT_EQ(model.TeacherForced(kTokens), all);
}

// The rotation table grows (at first it has 256 positions): the result is as if made at once.
TEST(Reference, LongSequencesGrowTheRotationTable) {
  const TinyModel tiny({"llama", 4, 4, 1, 1, 4, 4, 1e4f, true, 5, 1});
  std::vector<TokenId> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * i % 5);
  ReferenceModel model = Open(tiny);
  const std::vector<float> grown = model.TeacherForced(tokens);
  EXPECT_EQ(model.TeacherForced(tokens), grown);
}

TEST(Reference, UnknownTokenIsAnError) {
  ReferenceModel model = Open(TinyModel(kLlama));
  EXPECT_THROW(model.Forward(13, 0), Error);
  EXPECT_THROW(model.Forward(-1, 0), Error);
}

TEST(RoundThroughQ8, RoundsToNearestEvenInUnitsOfTheLargest) {
  std::vector<float> x(40, 0);  // a whole block and a partial one
  x[0] = 127;
  x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -1.5f, x[5] = -0.4f;
  x[32] = -254, x[33] = 3.1f;  // d = 2
  RoundThroughQ8(x, Scale::kF32);
  EXPECT_EQ(x[0], 127);
  EXPECT_EQ((std::vector<float>(x.begin() + 1, x.begin() + 7)),
            (std::vector<float>{0, 2, 2, -2, 0, 0}));
  EXPECT_EQ(x[32], -254);
  EXPECT_EQ(x[33], 4);
}

TEST(RoundThroughQ8, F16ScaleIsRoundedAfterTheDivision) {
  std::vector<float> x = {127 * 1.0003f, 62.51f};  // d = 1.0003, in f16 1.0; 62.51 / d = 62.49
  RoundThroughQ8(x, Scale::kF16);
  EXPECT_EQ(x, (std::vector<float>{127, 62}));
}

// Rows of 32: a Q8_0 file, and the same file in F32 that is quantised when read.
TEST(Reference, WeightsAsQ8_0EqualAQ8_0File) {
  const TinyShape shape = {"llama", 32, 64, 4, 2, 8, 8, 1e4f, false};
  const TinyModel f32(shape), q8(shape, TensorType::kQ8_0);
  const std::vector<float> rounded = LogitsOf(f32, kTokens, {.weights_as_q8_0 = true});
  EXPECT_EQ(rounded, LogitsOf(q8, kTokens));
  EXPECT_EQ(rounded, LogitsOf(q8, kTokens, {.weights_as_q8_0 = true}));
  EXPECT_NE(rounded, LogitsOf(f32, kTokens));
}

std::string Stories260K() { return TestData("models/stories260K.gguf"); }

// Decoded with the vocabulary alone, in which U+2581 begins a word and <0x0A> ends a line.
std::string Text(const GgufFile& file, const std::vector<TokenId>& ids) {
  const auto tokens = *file.FindStrings("tokenizer.ggml.tokens");
  std::string text;
  for (const TokenId id : ids) {
    std::string_view token = tokens[static_cast<size_t>(id)];
    if (token == "<0x0A>") token = "\n";
    if (token.starts_with("\u2581")) {
      text += ' ';
      token.remove_prefix(3);
    }
    text += token;
  }
  return text;
}

std::vector<TokenId> Greedy(ReferenceModel& model, std::vector<TokenId> ids, size_t more,
                            TokenId eos = -1) {
  std::vector<float> logits = model.TeacherForced(ids);
  logits.erase(logits.begin(), logits.end() - static_cast<ptrdiff_t>(model.config().vocab));
  for (size_t i = 0; i < more; ++i) {
    ids.push_back(Top1(logits));
    if (ids.back() == eos) break;
    logits = model.Forward(ids.back(), ids.size() - 1);
  }
  return ids;
}

const std::vector<TokenId> kOnceUponATime = {1, 403, 407, 261, 378};  // BOS first

TEST(Reference, Stories260KTellsTheKnownStory) {
  LARDER_NEEDS_TEST_DATA(Stories260K());
  const auto file = GgufFile::Open(Stories260K());
  ReferenceModel model = ReferenceModel::Make(file);
  std::vector<TokenId> ids = Greedy(model, kOnceUponATime, 100);
  ids.erase(ids.begin());
  const std::string text = Text(*file, ids);
  // The greedy continuation that another engine made with the F32 model.
  EXPECT_EQ(text,
            " Once upon a time, there was a little girl named Lily. She loved to play outside in "
            "the park. One day, she saw a big, red ball. She wanted to play with it, but it was "
            "too high.\nLily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't "
            "know what to do");
}

// Each quantisation's share of the divergence from the unquantised computation, on a trained model.
// The bounds are about 3 times the known shares.
struct Shares {
  double weights, activations, kv, all;
};
Shares SharesOf(const std::string& path) {
  const auto file = GgufFile::Open(path);
  ReferenceModel exact = ReferenceModel::Make(file);
  const std::vector<TokenId> ids = Greedy(exact, kOnceUponATime, 115);
  const std::vector<float> truth = exact.TeacherForced(ids);
  const auto mean_kl = [&](ReferenceOptions options) {
    const auto logits = ReferenceModel::Make(file, options).TeacherForced(ids);
    return CompareLogits(truth, logits, exact.config().vocab).mean_kl;
  };
  const Shares shares = {mean_kl({.weights_as_q8_0 = true}), mean_kl({.activations_q8 = true}),
                         mean_kl({.kv_q8 = true}), mean_kl({true, true, true})};
  std::printf("mean KL over %zu tokens: weights %.6f, activations %.6f, KV %.6f, all %.6f\n",
              ids.size(), shares.weights, shares.activations, shares.kv, shares.all);
  return shares;
}

TEST(Reference, EachQuantisationCostsItsShare) {
  LARDER_NEEDS_TEST_DATA(Stories260K());
  const Shares of = SharesOf(Stories260K());
  for (const double share : {of.weights, of.activations, of.kv}) {
    EXPECT_GT(share, 1e-7);
    EXPECT_LT(share, of.all * 2);
  }
  EXPECT_LT(of.all, 0.004);
}

// The demo model's weights are in Q8_0 already.
TEST(Reference, EachQuantisationOfTheDemoModelCostsItsShare) {
  const Shares of = SharesOf(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf");
  EXPECT_EQ(of.weights, 0);
  for (const double share : {of.activations, of.kv}) {
    EXPECT_GT(share, 1e-7);
    EXPECT_LT(share, of.all * 2);
  }
  EXPECT_LT(of.all, 0.004);
}

void ExpectStories(const std::string& name, const std::string& greedy) {
  const std::string folder = LARDER_SOURCE_DIR "/model/demo/";
  const auto file = GgufFile::Open(folder + name);
  ReferenceModel model = ReferenceModel::Make(file);
  const auto eos = static_cast<TokenId>(file->GetUnsigned("tokenizer.ggml.eos_token_id"));
  std::ifstream in(folder + greedy);
  const auto stories = nlohmann::json::parse(in);
  ASSERT_FALSE(stories.empty());
  for (const auto& story : stories) {
    std::vector<TokenId> expected = story.at("prompt_ids");
    const auto prompt = expected;
    for (const auto& id : story.at("greedy_ids")) expected.push_back(id);
    EXPECT_EQ(Greedy(model, prompt, expected.size() - prompt.size(), eos), expected)
        << story.at("prompt");
  }
}

TEST(Reference, DemoModelsTellTheStoriesOfTheirOwnChecker) {
  ExpectStories("larder-stories.gguf", "greedy.json");
  ExpectStories("larder-stories-experts.gguf", "greedy-experts.json");
}

}  // namespace
}  // namespace larder::model::reference
