# SPDX-License-Identifier: Apache-2.0
"""One line replaced: the head's product and the cross-entropy of its logits become one call.

python examples/jax/minimal.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from flce.jax import linear_cross_entropy


def with_logits(hidden: jax.Array, weight: jax.Array, target: jax.Array) -> jax.Array:
    """Before: logits of tokens x vocab, and their gradient."""
    log_p = jax.nn.log_softmax(hidden @ weight.T)
    valid = target != -100
    picked = jnp.take_along_axis(log_p, jnp.where(valid, target, 0)[:, None], axis=1)[:, 0]
    return -jnp.where(valid, picked, 0.0).sum() / valid.sum()


def main() -> None:
    tokens, hidden_size, vocab = 512, 64, 8192
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (tokens, hidden_size))
    weight = jax.random.normal(keys[1], (vocab, hidden_size)) * 0.1
    target = jax.random.randint(keys[2], (tokens,), 0, vocab)
    target = target.at[:50].set(-100)  # a prompt, which is not trained on

    steps = {}
    for function in (with_logits, linear_cross_entropy):
        step = jax.jit(jax.value_and_grad(function, argnums=(0, 1)))
        program = step.lower(hidden, weight, target).compile()
        held = program.memory_analysis().temp_size_in_bytes
        steps[function] = step(hidden, weight, target)
        print(f"{function.__name__}: loss {steps[function][0]:.6f}, {held / 1e6:.1f} MB beside")

    # After: the same numbers, and nothing of that size.
    ours, theirs = steps[linear_cross_entropy][1], steps[with_logits][1]
    for name, a, b in zip(("hidden", "weight"), ours, theirs, strict=True):
        error = float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
        print(f"gradient of {name}: relative difference {error:.1e}")
        if error > 1e-5:
            raise SystemExit(f"the gradients of {name} differ")


if __name__ == "__main__":
    main()
