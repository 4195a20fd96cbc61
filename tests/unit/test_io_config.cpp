// SPDX-License-Identifier: Apache-2.0
// The reader of config.json, on the shapes that real model families write.
#include <gtest/gtest.h>

#include <string>

#include "io/model_config.hpp"
#include "test_io_support.hpp"

namespace flce::io {
namespace {

ModelConfig parse(const std::string& json) {
  return parse_model_config(bytes_of(json, "dir/config.json"));
}

// A config with the two required sizes and `rest`.
std::string with(const std::string& rest) {
  return R"({"hidden_size": 8, "vocab_size": 16, )" + rest + "}";
}

TEST(IoConfig, ReadsLlama) {
  const ModelConfig config = parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "vocab_size": 128256, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"}})");
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.vocab_size, 128256);
  EXPECT_EQ(config.num_hidden_layers, 32);
  EXPECT_EQ(config.num_attention_heads, 32);
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.intermediate_size, 14336);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.tie_word_embeddings, false);
  EXPECT_EQ(config.dtype, Dtype::kBF16);
  EXPECT_EQ(config.dtype_name, "bfloat16");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.architectures, std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(config.final_logit_softcapping, std::nullopt);
  EXPECT_EQ(config.scale(), 1.0);
}

TEST(IoConfig, ReadsGpt2Spellings) {
  const ModelConfig config = parse(R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12,
    "n_head": 12, "n_inner": null, "n_positions": 1024, "n_ctx": 512, "vocab_size": 50257})");
  EXPECT_EQ(config.hidden_size, 768);
  EXPECT_EQ(config.num_hidden_layers, 12);
  EXPECT_EQ(config.num_attention_heads, 12);
  EXPECT_EQ(config.intermediate_size, std::nullopt);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_EQ(parse(with(R"("n_inner": 3072)")).intermediate_size, 3072);
}

TEST(IoConfig, PrefersTheNestedTextConfig) {
  const ModelConfig config = parse(R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3", "hidden_size": 1, "torch_dtype": "bfloat16",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "vocab_size": 262208,
                    "final_logit_softcapping": null},
    "vision_config": {"hidden_size": 1152}})");
  EXPECT_EQ(config.hidden_size, 2560);
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.dtype, Dtype::kBF16);
  EXPECT_EQ(config.model_type, "gemma3");
  EXPECT_EQ(config.final_logit_softcapping, std::nullopt);
  const ModelConfig text_only =
      parse(R"({"text_config": {"model_type": "llama", "hidden_size": 8}, "vocab_size": 32064})");
  EXPECT_EQ(text_only.vocab_size, 32064);
  EXPECT_EQ(text_only.model_type, "llama");
}

TEST(IoConfig, ReadsWhatHappensToTheLogits) {
  EXPECT_EQ(parse(with(R"("final_logit_softcapping": 30)")).final_logit_softcapping, 30.0);
  EXPECT_EQ(parse(with(R"("final_logit_softcapping": 0.0)")).final_logit_softcapping, 0.0);
  EXPECT_EQ(parse(with(R"("logit_scale": 0.0625)")).scale(), 0.0625);
  EXPECT_EQ(parse(with(R"("logits_scaling": 16)")).scale(), 0.0625);
  EXPECT_EQ(parse(with(R"("logit_scale": 8, "logits_scaling": 16.0)")).scale(), 0.5);
}

TEST(IoConfig, ReadsTypesByNewAndOldSpelling) {
  EXPECT_EQ(parse(with(R"("dtype": "float16", "torch_dtype": "float32")")).dtype, Dtype::kF16);
  EXPECT_EQ(parse(with(R"("torch_dtype": "torch.float64")")).dtype, Dtype::kF64);
  const ModelConfig foreign = parse(with(R"("torch_dtype": "float8_e4m3fn")"));
  EXPECT_EQ(foreign.dtype, std::nullopt);
  EXPECT_EQ(foreign.dtype_name, "float8_e4m3fn");
}

TEST(IoConfig, ReadsOneNumberPerLayer) {
  EXPECT_EQ(parse(with(R"("intermediate_size": [32, 32, 32])")).intermediate_size, 32);
  EXPECT_EQ(parse(with(R"("intermediate_size": [32, 64])")).intermediate_size, std::nullopt);
  EXPECT_EQ(parse(with(R"("num_key_value_heads": [])")).num_key_value_heads, std::nullopt);
  expect_contains(error_of([] { parse(with(R"("intermediate_size": [32, "64"])")); }),
                  "intermediate_size must be a whole number from 1 to 1000000000, got");
}

TEST(IoConfig, LongListsTakeLinearTime) {
  std::string list;
  for (int i = 0; i < 1'000'000; ++i) list += "{},";
  EXPECT_EQ(parse(with("\"a\": [" + list + "{}]")).hidden_size, 8);
}

TEST(IoConfig, NamesAMissingFieldAndItsSpellings) {
  EXPECT_EQ(error_of([] { parse(R"({"hidden_size": 8})"); }),
            "dir/config.json: vocab_size is missing; accepted spellings: vocab_size, "
            "padded_vocab_size, at the top level or in text_config");
  EXPECT_EQ(error_of([] { parse(R"({"vocab_size": 8, "hidden_size": null})"); }),
            "dir/config.json: hidden_size is missing; accepted spellings: hidden_size, n_embd, "
            "d_model, at the top level or in text_config");
}

struct Malformed {
  const char* name;
  std::string json;
  const char* problem;
};

class IoConfigMalformed : public testing::TestWithParam<Malformed> {};

TEST_P(IoConfigMalformed, IsRefusedByName) {
  const std::string text = error_of([&] { parse(GetParam().json); });
  expect_contains(text, "dir/config.json: ");
  expect_contains(text, GetParam().problem);
  EXPECT_LT(text.size(), 600u);
}

std::string with_hidden(const std::string& value) {
  return R"({"vocab_size": 16, "hidden_size": )" + value + "}";
}

const Malformed kMalformed[] = {
    {"SizeText", with_hidden(R"("4096")"), "hidden_size must be a whole number from 1 to"},
    {"SizeNegative", with_hidden("-8"), "got -8"},
    {"SizeZero", with_hidden("0"), "got 0"},
    {"SizeFloat", with_hidden("8.0"), "got 8.0"},
    {"SizeHuge", with_hidden("1000000001"), "got 1000000001"},
    {"SizePastUint64", with_hidden("18446744073709551616"), "got 1.8446744073709552e+19"},
    {"SizeBool", with_hidden("true"), "got true"},
    {"SizeList", with_hidden("[8]"), "got array"},
    {"SizeObject", with_hidden("{}"), "got object"},
    {"NestedSizeText", R"({"text_config": {"vocab_size": "8", "hidden_size": 8}})",
     "text_config.vocab_size must be a whole number"},
    {"OptionalSizeText", with(R"("head_dim": "64")"), "head_dim must be a whole number"},
    {"LayersList", with(R"("n_layer": [1])"), "n_layer must be a whole number"},
    {"SoftcapText", with(R"("final_logit_softcapping": "30")"),
     "final_logit_softcapping must be 0 or a number from 1e-30 to 1e30, got \"30\""},
    {"SoftcapNegative", with(R"("final_logit_softcapping": -30.0)"), "got -30.0"},
    {"ScaleText", with(R"("logit_scale": "inv_sqrt_d_model")"),
     "logit_scale must be a number from 1e-30 to 1e30, got \"inv_sqrt_d_model\""},
    {"ScalingZero", with(R"("logits_scaling": 0)"), "logits_scaling must be a number"},
    {"ScaleHuge", with(R"("logit_scale": 1e300)"), "got 1e+300"},
    {"ScaleOverflow", with(R"("logit_scale": 1e999)"), "number overflow"},
    {"TieNumber", with(R"("tie_word_embeddings": 1)"), "tie_word_embeddings must be true or false"},
    {"DtypeNumber", with(R"("torch_dtype": 16)"), "torch_dtype must be a text, got 16"},
    {"ModelTypeList", with(R"("model_type": [])"), "model_type must be a text, got array"},
    {"ArchitecturesText", with(R"("architectures": "A")"), "architectures must be a list of texts"},
    {"ArchitecturesMixed", with(R"("architectures": ["A", 1])"), "must be a list of texts"},
    {"TextConfigNumber", with(R"("text_config": 3)"), "text_config must be an object, got 3"},
    {"DuplicateKey", with(R"("vocab_size": 32)"), "the key 'vocab_size' stands twice"},
    {"DuplicateDeep", with(R"("a": [{"b": 1, "b": 2}])"), "the key 'b' stands twice"},
    {"DeeplyNested", with("\"a\": " + std::string(100'000, '[')), "nested deeper than 64"},
    {"List", "[1, 2]", "holds a JSON array; expected an object"},
    {"Empty", "", "not valid JSON"},
    {"Cut", R"({"hidden_size": 8, )", "not valid JSON"},
    {"Trailing", with(R"("a": 1)") + "{}", "not valid JSON"},
    {"ZeroByte", with(R"("a": 1)") + std::string("\0{}", 3), "zero byte"},
    {"BadUtf8", with("\"a\": \"\xff\""), "not valid JSON"},
    {"LongToken", with("\"a\": " + std::string(100'000, 'x')), "not valid JSON"},
    {"LongText", with_hidden("\"" + std::string(100'000, 'x') + "\""), "got \"xxx"},
    {"TooLong", with("\"a\": 1") + std::string(std::size_t{4} << 20, ' '), "has at most 4194304"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, IoConfigMalformed, testing::ValuesIn(kMalformed),
                         [](const auto& kind) { return std::string(kind.param.name); });

using IoConfigFile = WithFolder;

TEST_F(IoConfigFile, IsReadByItsNameOrItsFolder) {
  put("config.json", with(R"("model_type": "x")"));
  EXPECT_EQ(read_model_config(path("config.json")).model_type, "x");
  EXPECT_EQ(read_model_config(folder_).model_type, "x");
  expect_contains(error_of([&] { read_model_config(path("missing.json")); }),
                  "missing.json: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace flce::io
