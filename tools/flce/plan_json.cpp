// SPDX-License-Identifier: Apache-2.0
// `flce plan --json`. Keys are only added, never renamed; a number that is unknown is null.
#include <nlohmann/json.hpp>

#include "plan_answer.hpp"

namespace flce::cli {
namespace {

using Json = nlohmann::ordered_json;

Json seconds_or_null(double seconds) { return seconds > 0.0 ? Json(seconds) : Json(nullptr); }

Json text_or_null(const char* text) { return *text != '\0' ? Json(text) : Json(nullptr); }

Json method_json(const MethodReport& r) {
  // A method that cannot serve the problem has no bytes; one that does not fit has.
  const bool has_bytes = r.peak_bytes > 0;
  const auto number = [&](auto value) { return has_bytes ? Json(value) : Json(nullptr); };
  return {{"name", name_of(r.method)},
          {"extra_bytes", number(r.extra_bytes)},
          {"peak_bytes", number(r.peak_bytes)},
          {"workspace_bytes", number(r.workspace_bytes)},
          {"saved_bytes", number(r.saved_bytes)},
          {"gemms", r.gemms},
          {"chunk", number(r.chunk)},
          {"num_chunks", number(r.num_chunks)},
          {"seconds", seconds_or_null(r.seconds)},
          {"refused", text_or_null(r.refusal.data())},
          {"route", r.route != Route::kAuto ? Json(name_of(r.route)) : Json(nullptr)},
          {"route_reason", text_or_null(r.route_reason.data())}};
}

Json pays_json(Pays pays) {
  return pays == Pays::kUnknown ? Json(nullptr) : Json(pays == Pays::kTrue);
}

Json verdict_json(const Verdict& v) {
  Json json = Json::object();
  json["pays"] = pays_json(v.pays);
  json["reason"] = v.reason;
  if (v.method != Method::kAuto) {
    json["method"] = name_of(v.method);
    json["saved_bytes"] = v.saved_bytes;
    json["saved_share"] = v.saved_share;
    json["step_bytes"] = v.step_bytes;
  }
  if (v.eager_step_bytes > 0) {
    json["eager"] = {{"pays", pays_json(v.eager_pays)},
                     {"saved_bytes", v.eager_saved_bytes},
                     {"saved_share", v.eager_saved_share},
                     {"step_bytes", v.eager_step_bytes}};
  }
  return json;
}

Json device_json(const PlanQuestion& q) {
  return {{"kind", name_of(q.caps.kind)},
          {"name", q.caps.name.data()},
          {"at_hand", q.at_hand},
          {"memory_bytes", q.caps.memory_bytes > 0 ? Json(q.caps.memory_bytes) : Json(nullptr)},
          {"num_threads", q.caps.kind == DeviceKind::kCpu ? Json(q.caps.num_threads) : Json()}};
}

Json chunk_json(const PlanAnswer& a) {
  Json costs = Json::array();
  for (const ChunkCost& c : a.chunks) {
    costs.push_back({{"chunk", c.chunk},
                     {"num_chunks", c.num_chunks},
                     {"gemm_calls", c.gemm_calls},
                     {"extra_bytes", c.extra_bytes},
                     {"logits_over_hidden", c.logits_over_hidden},
                     {"seconds", seconds_or_null(c.seconds)},
                     {"route", c.route != Route::kAuto ? Json(name_of(c.route)) : Json(nullptr)}});
  }
  const bool is_liger = a.question.request.policy == ChunkPolicy::kLiger;
  return {{"policy", is_liger ? "liger" : "measured"},
          {"costs", costs},
          {"liger",
           {{"inc", a.liger.inc},
            {"chunk", a.liger.chunk},
            {"chunks", a.liger.chunks},
            {"logits_over_hidden", a.liger.logits_over_hidden}}}};
}

Json offers_json(const PlanAnswer& a) {
  Json offers = Json::array();
  for (std::size_t i = 0; i < a.offers.size(); ++i) {
    const Offer& offer = a.offers[i];
    offers.push_back({{"step", offer.step},
                      {"command", a.commands[i]},
                      {"method", name_of(offer.method)},
                      {"chunk", offer.chunk},
                      {"gemm_calls", offer.gemm_calls},
                      {"extra_bytes", offer.extra_bytes},
                      {"seconds", seconds_or_null(offer.seconds)}});
  }
  return offers;
}

Json step_json(const PlanAnswer& a) {
  const StepMemory& s = *a.step;
  Json terms = Json::array();
  for (const MemoryTerm* term : {&s.weights, &s.gradients, &s.optimizer, &s.hidden, &s.activations,
                                 &s.checkpoints, &s.recomputed_layer}) {
    terms.push_back({{"name", term->name}, {"bytes", term->bytes}, {"formula", term->formula}});
  }
  Json totals = Json::array();
  for (const Method method : kPrintedMethods) {
    if (a.of(method).peak_bytes == 0) continue;
    totals.push_back({{"method", name_of(method)},
                      {"bytes", a.step_bytes(method, false)},
                      {"bytes_with_checkpointing", a.step_bytes(method, true)}});
  }
  const ParameterCount count = count_parameters(*a.question.model);
  return {{"model", a.question.model->name},
          {"parameters", count.parameters},
          {"parameters_formula", count.formula},
          {"shards", a.question.advice.shards},
          {"checkpointing", a.question.advice.checkpointing},
          {"terms", terms},
          {"totals", totals}};
}

}  // namespace

std::string plan_as_json(const PlanAnswer& a) {
  const PlanQuestion& q = a.question;
  const Problem& p = q.problem;
  Json json = Json::object();
  json["problem"] = format_problem(p, q.request);
  json["mode"] = q.advice.mode == Mode::kInfer ? "infer" : "train";
  json["device"] = device_json(q);
  const bool has_route = a.report.route != Route::kAuto;
  json["route"] = has_route ? Json(name_of(a.report.route)) : Json(nullptr);
  const bool is_chosen = a.report.method != Method::kAuto;
  json["route_reason"] =
      is_chosen ? text_or_null(a.of(a.report.method).route_reason.data()) : Json(nullptr);
  json["products"] = text_or_null(describe_products(a.report).c_str());
  json["tf32"] = q.request.allow_tf32;
  json["tokens"] = p.tokens;
  json["hidden"] = p.hidden;
  json["vocab"] = p.vocab;
  json["dtype"] = name_of(p.dtype);
  json["hidden_bytes"] = a.hidden_bytes;
  json["weight_bytes"] = a.weight_bytes;
  json["logits_bytes"] = a.logits_bytes;
  json["input_bytes"] = a.report.input_bytes;
  json["output_bytes"] = a.report.output_bytes;
  json["budget_bytes"] = q.request.budget_bytes > 0 ? Json(q.request.budget_bytes) : Json(nullptr);
  json["methods"] = Json::array();
  for (const Method method : kPrintedMethods) json["methods"].push_back(method_json(a.of(method)));
  json["chosen"] = is_chosen ? Json(name_of(a.report.method)) : Json(nullptr);
  json["chunk"] = is_chosen ? Json(a.report.chunk) : Json(nullptr);
  json["slots"] = Json::object();
  for (int i = 0; i < kNumSlots; ++i) {
    const SlotPlace& slot = a.report.slots[static_cast<std::size_t>(i)];
    if (slot.bytes > 0) json["slots"][name_of(static_cast<Slot>(i))] = slot.bytes;
  }
  json["chunk_rule"] = chunk_json(a);
  if (a.step) json["step"] = step_json(a);
  json["verdict"] = verdict_json(a.verdict);
  json["checklist"] = a.checklist;
  json["offers"] = offers_json(a);
  json["largest_tokens"] = a.largest.empty() ? Json(nullptr) : Json::object();
  for (std::size_t i = 0; i < a.largest.size(); ++i) {
    json["largest_tokens"][name_of(kPrintedMethods[i])] = a.largest[i];
  }
  return json.dump(2) + '\n';
}

}  // namespace flce::cli
