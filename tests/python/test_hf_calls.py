# SPDX-License-Identifier: Apache-2.0
"""How a patched model is called: labels, divisors, logits, tuples, options, refusals."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("transformers")

from flce.torch import patch
from hf_support import VOCAB, assert_same_gradients, batch, close, pair, tiny_model

# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_c103_labels_and_shift_labels(training: bool) -> None:
    model, oracle = pair("llama")
    patch(model).train(training)
    oracle.train(training)
    tokens = torch.tensor([[1, 2, 3, 4]])
    shifted = torch.tensor([[2, 3, 4, -100]])
    wanted = oracle(input_ids=tokens, labels=tokens).loss
    close(model(input_ids=tokens, labels=tokens).loss, wanted)
    # Alone they give a loss, which the model by itself does not compute.
    assert oracle(input_ids=tokens, shift_labels=shifted).loss is None
    close(model(input_ids=tokens, shift_labels=shifted).loss, wanted)
    # Both: shift_labels win, as in the model's own loss.
    other = torch.tensor([[5, 6, 7, 8]])
    both = {"input_ids": tokens, "labels": tokens, "shift_labels": other}
    close(model(**both).loss, oracle(**both).loss)
    assert abs(model(**both).loss - wanted) > 0.01


def test_shift_labels_where_the_model_keeps_them_from_its_loss() -> None:
    model, oracle = pair("llama")
    own = type(oracle).forward

    def forward(self: Any, input_ids: Any, labels: Any = None, **kwargs: Any) -> Any:
        kwargs.pop("shift_labels", None)
        return own(self, input_ids=input_ids, labels=labels, **kwargs)

    model.__class__ = type("Deaf", (type(model),), {"forward": forward})
    patch(model)
    inputs = batch()
    shifted = F.pad(inputs["labels"], (0, 1), value=-100)[:, 1:]
    wanted = oracle(input_ids=inputs["input_ids"], labels=inputs["labels"]).loss
    close(model(inputs["input_ids"], shift_labels=shifted).loss, wanted)


def test_labels_by_position() -> None:
    model, oracle = pair("llama")
    patch(model)
    inputs = batch()
    names = list(inspect.signature(oracle.forward).parameters)
    args: list[Any] = [None] * (names.index("labels") + 1)
    args[0], args[-1] = inputs["input_ids"], inputs["labels"]
    got, wanted = model(*args), oracle(*args)
    close(got.loss, wanted.loss)
    assert got.logits is None
    args[-1] = None
    shifted = F.pad(inputs["labels"], (0, 1), value=-100)[:, 1:]
    close(model(*args, shift_labels=shifted).loss, wanted.loss)


@pytest.mark.parametrize("items", [17, torch.tensor(17), torch.tensor(17.0), torch.tensor([17])])
def test_num_items_in_batch_divides_the_sum(items: Any) -> None:
    model, oracle = pair("llama")
    patch(model)
    got = model(**batch(), num_items_in_batch=items).loss
    wanted = oracle(**batch(), num_items_in_batch=items).loss
    close(got, wanted.reshape(()))
    got.backward()
    wanted.sum().backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_ignore_index_and_other_arguments_of_the_loss() -> None:
    model, oracle = pair("llama")
    patch(model)
    inputs = batch(ignored=0)
    inputs["labels"][0, :5] = 7
    close(model(**inputs, ignore_index=7).loss, oracle(**inputs, ignore_index=7).loss)
    assert abs(model(**inputs, ignore_index=7).loss - model(**inputs).loss) > 1e-3


def test_all_tokens_ignored() -> None:
    model, oracle = pair("llama")
    patch(model)
    inputs = batch()
    inputs["labels"][:] = -100
    assert torch.isnan(oracle(**inputs).loss)
    assert torch.isnan(model(**inputs).loss)
    loss = model(**inputs, num_items_in_batch=5).loss
    assert loss.item() == 0.0
    loss.backward()
    assert all(torch.count_nonzero(p.grad) == 0 for p in model.parameters() if p.grad is not None)
    assert model.lm_head.weight.grad is not None


def test_a_loss_of_the_users_own() -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        shifted = logits[..., :-1, :].contiguous().float().view(-1, vocab_size)
        return F.cross_entropy(shifted, labels[..., 1:].reshape(-1), label_smoothing=0.2)

    model, oracle = pair("gemma2")
    model.loss_function = oracle.loss_function = loss
    patch(model)
    got, wanted = model(**batch()).loss, oracle(**batch()).loss
    close(got, wanted)
    got.backward()
    wanted.backward()
    assert_same_gradients(model, oracle, 2e-5)


def test_masked_logits_and_a_loss_module() -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        mask = labels[..., 1:] != -100
        return torch.nn.CrossEntropyLoss()(
            logits[..., :-1, :][mask].contiguous(), labels[..., 1:][mask].contiguous()
        )

    model, oracle = pair("llama")
    model.loss_function = oracle.loss_function = loss
    patch(model)
    close(model(**batch()).loss, oracle(**batch()).loss)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda x: x.sin(), "sin"),
        (lambda x: torch.exp(x), "exp"),
        (lambda x: x * torch.ones(()), "product"),
        (lambda x: torch.ones(()) * x, "mul"),
        (lambda x: x[..., :5], "over classes"),
        (lambda x: x.view(-1, 5), "view"),
        (lambda x: x.tanh().tanh(), "second tanh"),
        (lambda x: x + 1.0, "__add__"),
    ],
)
def test_what_is_not_known_of_logits_is_refused_by_name(change: Any, word: str) -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        return F.cross_entropy(change(logits).view(-1, vocab_size), labels.view(-1))

    model, _ = pair("llama")
    model.loss_function = loss
    patch(model)
    with pytest.raises(RuntimeError, match=word) as caught:
        model(**batch())
    assert "unpatch" in str(caught.value)
    # The head is whole again after the failure.
    assert isinstance(model(input_ids=batch()["input_ids"]).logits, torch.Tensor)


# --- logits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("choice", ["auto", "always", "never", "on_demand"])
def test_c073_when_there_are_logits(choice: str, training: bool) -> None:
    model, oracle = pair("gemma2")
    patch(model, logits=choice).train(training)
    oracle.train(training)
    got, wanted = model(**batch()), oracle(**batch())
    close(got.loss, wanted.loss)
    if choice == "never" or (choice == "auto" and training):
        assert got.logits is None
        assert "logits" not in got
        return
    if choice == "on_demand":
        assert not isinstance(got.logits, torch.Tensor)
        assert got.logits.shape == wanted.logits.shape
        assert got.logits.dtype == wanted.logits.dtype
        correct = (got.logits.argmax(-1) == wanted.logits.argmax(-1)).all()
        assert correct
        torch.testing.assert_close(torch.softmax(got.logits, -1), torch.softmax(wanted.logits, -1))
        torch.testing.assert_close(got.logits[:, -1], wanted.logits[:, -1])
        for operation in (
            lambda x: x * 2.0,
            lambda x: x / 2.0,
            lambda x: 1.0 - x,
            lambda x: -x + x,
            lambda x: x > 0.0,
            lambda x: x.float().view(-1, VOCAB),
            lambda x: x.tanh(),
            lambda x: torch.stack(list(x)),
            lambda x: F.cross_entropy(x.view(-1, VOCAB), batch()["labels"].view(-1)),
        ):
            torch.testing.assert_close(operation(got.logits), operation(wanted.logits))
    else:
        torch.testing.assert_close(got.logits, wanted.logits)


def test_logits_on_demand_have_a_gradient() -> None:
    model, oracle = pair("llama")
    patch(model, logits="on_demand")
    for m in (model, oracle):
        output = m(**batch())
        (output.loss + output.logits.float().pow(2).mean()).backward()
    assert_same_gradients(model, oracle, 2e-5)


@pytest.mark.parametrize("training", [True, False])
def test_return_dict_false(training: bool) -> None:
    model, oracle = pair("llama")
    patch(model).train(training)
    oracle.train(training)
    got, wanted = model(**batch(), return_dict=False), oracle(**batch(), return_dict=False)
    assert isinstance(got, tuple)
    close(got[0], wanted[0])
    if training:
        assert len(got) == len(wanted) - 1
        assert type(got[1]) is type(wanted[2])
    else:
        torch.testing.assert_close(got[1], wanted[1])


def test_logits_to_keep() -> None:
    model, oracle = pair("llama")
    patch(model).eval()
    oracle.eval()
    inputs = batch(ignored=0)
    kept = {"input_ids": inputs["input_ids"], "logits_to_keep": 3}
    torch.testing.assert_close(model(**kept).logits, oracle(**kept).logits)
    got = model(**kept, labels=inputs["labels"][:, -3:])
    wanted = oracle(**kept, labels=inputs["labels"][:, -3:])
    close(got.loss, wanted.loss)
    assert got.logits.shape == (2, 3, VOCAB)
    torch.testing.assert_close(got.logits, wanted.logits)
    # Labels of another length are an error of the model's own loss, and of this one.
    with pytest.raises(ValueError):
        oracle(**kept, labels=inputs["labels"])
    with pytest.raises((ValueError, RuntimeError)):
        model(**kept, labels=inputs["labels"])


def test_hidden_states_and_attentions_are_still_there() -> None:
    model, oracle = pair("llama")
    patch(model)
    more = {"output_hidden_states": True, "output_attentions": True}
    got, wanted = model(**batch(), **more), oracle(**batch(), **more)
    torch.testing.assert_close(got.hidden_states, wanted.hidden_states)
    torch.testing.assert_close(got.attentions, wanted.attentions)


# --- options --------------------------------------------------------------------------------------


def oracle_logits(oracle: Any) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = batch()
    logits = oracle(input_ids=inputs["input_ids"]).logits[:, :-1].reshape(-1, VOCAB)
    return logits.double(), inputs["labels"][:, 1:].reshape(-1)


def test_options_of_the_loss() -> None:
    model, oracle = pair("llama")
    logits, target = oracle_logits(oracle)
    weights = torch.rand(VOCAB)
    valid = target != -100
    z = torch.logsumexp(logits, -1)[valid].pow(2).mean()
    plain = F.cross_entropy(logits, target)
    for options, wanted in (
        ({"z_loss": 0.01}, plain + 0.01 * z),
        ({"label_smoothing": 0.3}, F.cross_entropy(logits, target, label_smoothing=0.3)),
        ({"weight": weights}, F.cross_entropy(logits, target, weight=weights.double())),
        ({"method": "recompute"}, plain),
        ({"method": "fused", "chunk": 5}, plain),
        ({"budget": "1MiB"}, plain),
    ):
        patch(model, **options)
        torch.testing.assert_close(model(**batch()).loss.double(), wanted, rtol=2e-6, atol=0)


def test_methods_and_budgets_reach_the_operation() -> None:
    model, _ = pair("llama")
    with pytest.raises(Exception, match="budget|bytes"):
        patch(model, budget=1)(**batch())
    with pytest.raises(Exception, match="no_such_method"):
        patch(model, method="no_such_method")(**batch())
    with pytest.raises(Exception, match="chunk"):
        patch(model, chunk=-3)(**batch())


@pytest.mark.parametrize(
    "name",
    ["reduction", "softcap", "scale", "shift", "normalizer", "return_lse", "ignore_index", "typo"],
)
def test_options_that_come_from_the_model_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"does not take {name}="):
        patch(tiny_model("llama"), **{name: 1})


def test_logits_choice_is_checked() -> None:
    with pytest.raises(ValueError, match="on_demand"):
        patch(tiny_model("llama"), logits="sometimes")


def test_a_model_that_goes_past_its_head() -> None:
    model, oracle = pair("llama")
    own = type(oracle).forward

    def forward(self: Any, input_ids: Any, labels: Any = None, **kwargs: Any) -> Any:
        hidden = self.model(input_ids).last_hidden_state
        logits = F.linear(hidden, self.lm_head.weight)
        loss = self.loss_function(logits=logits, labels=labels, vocab_size=VOCAB)
        return {"loss": loss, "logits": logits}

    model.__class__ = type("Bypass", (type(model),), {"forward": forward})
    close(model(**batch())["loss"], own(oracle, **batch()).loss)
    with pytest.raises(RuntimeError, match="without calling its head"):
        patch(model)(**batch())


def test_a_head_called_by_keyword() -> None:
    model, oracle = pair("llama")

    def forward(self: Any, input_ids: Any, labels: Any = None, **kwargs: Any) -> Any:
        logits = self.lm_head(input=self.model(input_ids).last_hidden_state)
        loss = self.loss_function(logits=logits, labels=labels, vocab_size=VOCAB)
        return {"loss": loss, "logits": logits}

    model.__class__ = type("ByKeyword", (type(model),), {"forward": forward})
    output = patch(model)(**batch())
    close(output["loss"], oracle(**batch()).loss)
    assert output["logits"] is None


def test_an_option_that_the_models_loss_sets_too() -> None:
    def loss(logits: Any, labels: Any, vocab_size: int, **kwargs: Any) -> torch.Tensor:
        return F.cross_entropy(logits.view(-1, vocab_size), labels.view(-1), label_smoothing=0.2)

    model, _ = pair("llama")
    model.loss_function = loss
    patch(model, label_smoothing=0.1)
    with pytest.raises(ValueError, match="leave out one"):
        model(**batch())
