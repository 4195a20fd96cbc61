// SPDX-License-Identifier: Apache-2.0
// `flce`: the command line. Parses, runs one command, and turns every failure into one line on
// stderr. Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or input.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "commands.hpp"
#include "common.hpp"

namespace flce::cli {
namespace {

constexpr int kWrong = 2;

constexpr const char* kFooter =
    R"(Examples:
  flce plan --preset llama3-8b --tokens 16384        does fusing pay, and how many bytes
  flce plan --config config.json --tokens 8192 --device-caps a100-80
  flce run --input problem.safetensors --output result.safetensors
  flce verify "n37_h65_v129 bf16 mean softcap=30"
  flce train text.txt --method fused

'flce COMMAND --help' shows each command's options and examples.
Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or input.)";

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// One line without control characters, whatever the text holds. Allocates nothing: there may be no
// memory left.
int report(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::fputs("flce: error: ", stderr);
  while (!text.empty()) {
    const char* stop = std::find_if(text.begin(), text.end(), is_control);
    const std::size_t end = static_cast<std::size_t>(stop - text.data());
    std::fwrite(text.data(), 1, end, stderr);
    if (end < text.size()) std::fputc(' ', stderr);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::fputc('\n', stderr);
  return kWrong;
}

// CLI11 says of a wrong command only that one is missing.
std::string without_command(const CLI::App& app) {
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  const std::vector<std::string> words = app.remaining();
  if (words.empty()) return fmt::format("no command was given; known: {} (see flce --help)", known);
  const char* kind = words.front().starts_with('-') ? "option" : "command";
  return fmt::format("unknown {} '{}'; known commands: {} (see flce --help)", kind, words.front(),
                     known);
}

int report_out_of_memory() {
  return report("out of memory: the problem needs more than this machine gives");
}

// Others' code may need memory where it may not throw: to destroy a JSON value, its library makes a
// list. Files in the making have no name yet, so that nothing is left behind here either.
[[noreturn]] void end_at_once() {
  try {
    if (const std::exception_ptr failure = std::current_exception()) {
      std::rethrow_exception(failure);
    }
  } catch (const std::bad_alloc&) {
    std::_Exit(report_out_of_memory());
  } catch (...) {
  }
  std::abort();
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  const auto called = app.get_subcommands();
  if (called.empty()) return report(without_command(app));
  return report(fmt::format("{} (see flce {} --help)", error.what(), called.front()->get_name()));
}

// CLI11 takes the next argument for the value that is missing after '=', and an empty value for
// none. Returns what is wrong, or nothing.
std::string without_value(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return "";
  const std::vector<const CLI::App*> commands =
      app.get_subcommands([&](const CLI::App* one) { return one->get_name() == words.front(); });
  if (commands.empty()) return "";
  for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
    const std::size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const CLI::Option* option =
        name.starts_with("--") ? commands.front()->get_option_no_throw(name) : nullptr;
    if (option == nullptr || option->get_items_expected_max() == 0) continue;
    const bool is_empty = equals == std::string::npos ? i + 1 < words.size() && words[i + 1].empty()
                                                      : equals + 1 == words[i].size();
    if (!is_empty) continue;
    return fmt::format(
        "{} has an empty value; give one, or leave out the option (see flce {} --help)", name,
        words.front());
  }
  return "";
}

int run(int argc, char** argv) {
  CLI::App app{"Cross-entropy of hidden @ weight^T without ever holding the tokens x vocab logits.",
               "flce"};
  app.set_version_flag("--version", std::string("flce ") + version());
  app.require_subcommand(1);
  app.footer(kFooter);
  const std::array commands{add_plan(app),  add_run(app),  add_verify(app), add_bench(app),
                            add_train(app), add_tune(app), add_info(app)};
  const std::string fault = without_value(app, {argv + std::min(argc, 1), argv + argc});
  if (!fault.empty()) return report(fault);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& answer) {  // --help, --version
    return app.exit(answer);
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.action();
  }
  return report(without_command(app));
}

}  // namespace
}  // namespace flce::cli

int main(int argc, char** argv) {
  std::set_terminate(flce::cli::end_at_once);
  try {
    return flce::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return flce::cli::report_out_of_memory();
  } catch (const std::exception& error) {
    return flce::cli::report(error.what());
  } catch (...) {
    return flce::cli::report("unknown failure");
  }
}
