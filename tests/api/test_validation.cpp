// SPDX-License-Identifier: Apache-2.0
// Wrong views: each is refused by name, with what was given, before anything is written.
#include <gtest/gtest.h>

#include "api/wrong_call.hpp"

namespace flce_test {
namespace {

using flce::Dtype;

class WrongView : public testing::TestWithParam<Wrong> {};

TEST_P(WrongView, IsRefusedByName) { expect_refused(right_case(), GetParam()); }

TEST(RightCall, IsAccepted) {
  for (const Dtype dtype : kDtypes) {
    Call call(right_case(dtype));
    EXPECT_NO_THROW(call.make());
    EXPECT_EQ(call.memory.damage(), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    NoMemory, WrongView,
    testing::Values(
        Wrong{"hidden", [](Call& call) { call.inputs.hidden.data = nullptr; }, {"hidden"}},
        Wrong{"weight", [](Call& call) { call.inputs.weight.data = nullptr; }, {"weight"}},
        Wrong{"target", [](Call& call) { call.inputs.target.data = nullptr; }, {"target"}},
        Wrong{"bias", [](Call& call) { call.inputs.bias.data = nullptr; }, {"bias"}},
        Wrong{"loss", [](Call& call) { call.outputs.loss.data = nullptr; }, {"loss"}},
        Wrong{"grad_weight",
              [](Call& call) { call.outputs.grad_weight.data = nullptr; },
              {"grad_weight"}},
        Wrong{"no_hidden", [](Call& call) { call.inputs.hidden = {}; }, {"hidden"}},
        Wrong{"no_weight", [](Call& call) { call.inputs.weight = {}; }, {"weight"}},
        Wrong{"no_target", [](Call& call) { call.inputs.target = {}; }, {"target"}},
        Wrong{"no_loss", [](Call& call) { call.outputs.loss = {}; }, {"loss"}}),
    wrong_name);

INSTANTIATE_TEST_SUITE_P(
    Shape, WrongView,
    testing::Values(
        Wrong{"no_vocabulary", [](Call& call) { call.inputs.weight.rows = 0; }, {"weight", "0"}},
        Wrong{"no_width",
              [](Call& call) { call.inputs.hidden.cols = call.inputs.weight.cols = 0; },
              {"hidden", "0"}},
        Wrong{"negative_tokens", [](Call& call) { call.inputs.hidden.rows = -1; }, {"-1"}},
        Wrong{
            "weight_width", [](Call& call) { call.inputs.weight.cols = 3; }, {"weight", "3", "4"}},
        Wrong{
            "target_length", [](Call& call) { call.inputs.target.size = 5; }, {"target", "5", "6"}},
        Wrong{"bias_length", [](Call& call) { call.inputs.bias.size = 8; }, {"bias", "8", "9"}},
        Wrong{"class_weight_length",
              [](Call& call) { call.inputs.class_weight.size = 1; },
              {"class_weight", "1", "9"}},
        Wrong{"token_weight_length",
              [](Call& call) { call.inputs.token_weight.size = 7; },
              {"token_weight", "7", "6"}},
        Wrong{"temperature_length",
              [](Call& call) { call.inputs.temperature.size = 2; },
              {"temperature", "2", "6"}},
        Wrong{"upstream_length",
              [](Call& call) { call.inputs.grad_output.size = 4; },
              {"grad_output", "4", "6"}},
        Wrong{"loss_length", [](Call& call) { call.outputs.loss.size = 1; }, {"loss", "1", "6"}},
        Wrong{"lse_length", [](Call& call) { call.outputs.lse.size = 5; }, {"lse", "5", "6"}},
        Wrong{"argmax_length",
              [](Call& call) { call.outputs.argmax.size = 5; },
              {"argmax", "5", "6"}},
        Wrong{"count_length",
              [](Call& call) { call.outputs.num_valid.size = 6; },
              {"num_valid", "6", "1"}},
        Wrong{"grad_hidden_rows",
              [](Call& call) { call.outputs.grad_hidden.rows = 5; },
              {"grad_hidden", "5", "6"}},
        Wrong{"grad_weight_cols",
              [](Call& call) { call.outputs.grad_weight.cols = 3; },
              {"grad_weight", "3", "4"}},
        Wrong{"grad_bias_length",
              [](Call& call) { call.outputs.grad_bias.size = 10; },
              {"grad_bias", "10", "9"}},
        Wrong{"topk_of_two_sizes",
              [](Call& call) { call.outputs.topk_index.cols = 2; },
              {"topk_index", "2", "3"}},
        Wrong{"topk_alone", [](Call& call) { call.outputs.topk_index = {}; }, {"topk_index"}}),
    wrong_name);

INSTANTIATE_TEST_SUITE_P(
    ElementType, WrongView,
    testing::Values(
        Wrong{"integer_hidden",
              [](Call& call) { call.inputs.hidden.dtype = Dtype::kI64; },
              {"hidden", "i64"}},
        Wrong{"weight_of_another",
              [](Call& call) { call.inputs.weight.dtype = Dtype::kBF16; },
              {"weight", "bf16", "f32"}},
        Wrong{"float_target",
              [](Call& call) { call.inputs.target.dtype = Dtype::kF32; },
              {"target", "f32", "i64"}},
        Wrong{"wide_bias",
              [](Call& call) { call.inputs.bias.dtype = Dtype::kF64; },
              {"bias", "f64", "f32"}},
        Wrong{"half_class_weight",
              [](Call& call) { call.inputs.class_weight.dtype = Dtype::kF16; },
              {"class_weight", "f16", "f32"}},
        Wrong{"integer_token_weight",
              [](Call& call) { call.inputs.token_weight.dtype = Dtype::kI32; },
              {"token_weight", "i32", "f32"}},
        Wrong{"half_upstream",
              [](Call& call) { call.inputs.grad_output.dtype = Dtype::kBF16; },
              {"grad_output", "bf16", "f32"}},
        Wrong{"half_loss",
              [](Call& call) { call.outputs.loss.dtype = Dtype::kBF16; },
              {"loss", "bf16"}},
        Wrong{"wide_lse", [](Call& call) { call.outputs.lse.dtype = Dtype::kF64; }, {"lse", "f64"}},
        Wrong{"narrow_argmax",
              [](Call& call) { call.outputs.argmax.dtype = Dtype::kI32; },
              {"argmax", "i32", "i64"}},
        Wrong{"narrow_topk",
              [](Call& call) { call.outputs.topk_index.dtype = Dtype::kI32; },
              {"topk_index", "i32", "i64"}},
        Wrong{"grad_hidden_of_another",
              [](Call& call) { call.outputs.grad_hidden.dtype = Dtype::kBF16; },
              {"grad_hidden", "bf16", "f32"}},
        Wrong{"narrow_grad_weight",
              [](Call& call) { call.outputs.grad_weight.dtype = Dtype::kF16; },
              {"grad_weight", "f16", "f32"}},
        Wrong{"bias_gradient_without_bias",
              [](Call& call) { call.inputs.bias = {}; },
              {"grad_bias"}}),
    wrong_name);

INSTANTIATE_TEST_SUITE_P(
    Stride, WrongView,
    testing::Values(
        Wrong{
            "hidden", [](Call& call) { call.inputs.hidden.col_stride = 2; }, {"hidden", "stride"}},
        Wrong{
            "weight", [](Call& call) { call.inputs.weight.col_stride = 9; }, {"weight", "stride"}},
        Wrong{"grad_hidden",
              [](Call& call) { call.outputs.grad_hidden.col_stride = -1; },
              {"grad_hidden", "stride"}},
        Wrong{"grad_weight",
              [](Call& call) { call.outputs.grad_weight.col_stride = 0; },
              {"grad_weight", "stride"}},
        Wrong{"topk",
              [](Call& call) { call.outputs.topk_logprob.col_stride = 2; },
              {"topk_logprob", "stride"}},
        Wrong{"rows_into_each_other",
              [](Call& call) { call.outputs.grad_weight.row_stride = 3; },
              {"grad_weight", "3", "4"}},
        Wrong{"one_row_for_all",
              [](Call& call) { call.outputs.grad_hidden.row_stride = 0; },
              {"grad_hidden", "0"}},
        Wrong{"one_element_for_all", [](Call& call) { call.outputs.lse.stride = 0; }, {"lse"}}),
    wrong_name);

INSTANTIATE_TEST_SUITE_P(
    Overlap, WrongView,
    testing::Values(Wrong{"gradient_in_its_input",
                          [](Call& call) {
                            call.outputs.grad_hidden.data = call.inputs.hidden.data;
                            call.outputs.grad_hidden.row_stride = 4;
                          },
                          {"grad_hidden", "hidden", "overlap"}},
                    Wrong{"gradient_in_the_weight",
                          [](Call& call) {
                            call.outputs.grad_weight.data = call.inputs.weight.data;
                            call.outputs.grad_weight.row_stride = 4;
                          },
                          {"grad_weight", "weight", "overlap"}},
                    Wrong{"two_gradients",
                          [](Call& call) {
                            call.outputs.grad_hidden.data =
                                static_cast<float*>(call.outputs.grad_weight.data) + 6;
                          },
                          {"grad_hidden", "grad_weight", "overlap"}},
                    Wrong{"two_token_outputs",
                          [](Call& call) {
                            call.outputs.lse.data = static_cast<float*>(call.outputs.loss.data) + 2;
                          },
                          {"loss", "lse", "overlap"}},
                    Wrong{"loss_in_the_bias",
                          [](Call& call) { call.outputs.loss.data = call.inputs.bias.data; },
                          {"loss", "bias", "overlap"}}),
    wrong_name);

// The narrow types have rules of their own.
TEST(ElementTypes, SixteenBitProblems) {
  const auto refused = [](Dtype dtype, auto spoil, std::vector<std::string> words) {
    expect_refused(right_case(dtype), {"", spoil, std::move(words)});
  };
  refused(Dtype::kBF16, [](Call& call) { call.inputs.bias.dtype = Dtype::kF16; },
          {"bias", "f16", "bf16"});
  refused(Dtype::kF16, [](Call& call) { call.inputs.weight.dtype = Dtype::kBF16; },
          {"weight", "bf16", "f16"});
  refused(Dtype::kBF16, [](Call& call) { call.outputs.loss.dtype = Dtype::kBF16; },
          {"loss", "bf16", "f32"});
  refused(Dtype::kBF16, [](Call& call) { call.outputs.grad_weight.dtype = Dtype::kF16; },
          {"grad_weight", "f16"});
  refused(Dtype::kF64, [](Call& call) { call.outputs.loss.dtype = Dtype::kF32; },
          {"loss", "f32", "f64"});
  refused(Dtype::kF64, [](Call& call) { call.outputs.grad_weight.dtype = Dtype::kF32; },
          {"grad_weight", "f32", "f64"});
}

}  // namespace
}  // namespace flce_test
