from __future__ import annotations

import mmap
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tinyllm.errors import InferenceError
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model


def test_a_cache_is_float32_and_as_long_as_the_context(config):
    cache = KVCache(config)
    assert cache.k.shape == cache.v.shape == (3, 2, 40, 6)
    assert cache.k.dtype == cache.v.dtype == np.float32
    assert cache.length == 0


def test_appending_returns_all_positions_so_far_and_leaves_the_length(config):
    cache = KVCache(config)
    first, second = np.ones((2, 3, 6), np.float32), np.full((2, 6), 2.0, np.float32)
    cache.append(1, first, 10 * first)
    assert cache.length == 0
    cache.length = 3
    k, v = cache.append(1, second, 10 * second)
    assert k.shape == (2, 4, 6)
    assert k[1, :, 0].tolist() == [1, 1, 1, 2]
    assert v[0, :, 5].tolist() == [10, 10, 10, 20]
    assert cache.length == 3


def test_rewinding_keeps_the_first_positions(config):
    cache = KVCache(config)
    cache.length = 5
    cache.rewind(5)
    cache.rewind(np.int64(2))
    assert cache.length == 2
    cache.rewind(0)
    assert cache.length == 0


@pytest.mark.parametrize("n", [-1, 6, 2.0, True, None])
def test_rewinding_to_what_is_not_held_is_refused(config, n):
    cache = KVCache(config)
    cache.length = 5
    with pytest.raises(InferenceError, match="0 to 5"):
        cache.rewind(n)
    assert cache.length == 5


def test_a_rewound_cache_gives_the_logits_of_a_fresh_one(model):
    cache = KVCache(model.config)
    model.forward([5, 6, 7, 8, 9], cache)
    cache.rewind(2)
    warm = model.forward([1, 2, 3], cache)
    assert np.array_equal(warm, model.forward([5, 6, 1, 2, 3])[2:])
    assert cache.length == 5


def test_a_cache_that_another_model_filled_is_refused(config, weights, model):
    cache = KVCache(config)
    model.forward([5, 6], cache)
    for other in (Model(config, weights), Model(config, weights, exact=False)):
        with pytest.raises(InferenceError, match="filled by another model"):
            other.forward([7], cache)
    assert cache.length == 2
    cache.rewind(0)
    other.forward([7], cache)
    with pytest.raises(InferenceError, match="filled by another model"):
        model.forward([7], cache)


def test_a_fork_shares_the_array_until_both_have_gone_on(model):
    cache = KVCache(model.config)
    model.forward([5, 6, 7], cache)
    fork = cache.fork()
    assert fork.k is cache.k
    assert fork.length == 3
    model.forward([8], fork)  # the first to append goes on where it is
    assert fork.k is cache.k
    model.forward([9], cache)  # the other takes a copy of the three it holds
    assert fork.k is not cache.k
    assert np.array_equal(fork.k[:, :, :3], cache.k[:, :, :3])
    for held, ids in ((fork, [5, 6, 7, 8]), (cache, [5, 6, 7, 9])):
        assert held.length == 4
        assert np.array_equal(model.forward([1], held), model.forward([*ids, 1])[-1:])


def test_a_fork_is_safe_from_what_its_origin_overwrites_after_a_rewind(model):
    cache = KVCache(model.config)
    model.forward([5, 6, 7, 8], cache)
    fork, later = cache.fork(), cache.fork()
    cache.rewind(1)
    model.forward([9, 9, 9], cache)
    later.rewind(2)
    model.forward([4], later)
    for held, ids in ((fork, [5, 6, 7, 8]), (later, [5, 6, 4]), (cache, [5, 9, 9, 9])):
        assert np.array_equal(model.forward([1], held), model.forward([*ids, 1])[-1:])


def test_a_fork_of_a_longer_cache_does_not_give_away_what_a_shorter_one_took(model):
    """A claims positions 3 and 4; a fork of B, which holds 3, must not get them."""
    a = KVCache(model.config)
    model.forward([5, 6, 7], a)
    b = a.fork()
    model.forward([8, 9], a)
    c = b.fork()
    model.forward([1, 2], c)
    right = model.forward([5, 6, 7, 8, 9, 1])[-1:]
    assert np.array_equal(model.forward([1], a), right)


def test_of_two_threads_that_claim_the_same_slots_one_gets_them(config, model):
    room = KVCache(config)
    model.forward([5, 6, 7], room)
    forks = [room.fork() for _ in range(8)]
    gate = threading.Barrier(len(forks))

    def claim(fork):
        gate.wait()
        fork.claim(model, 1)

    threads = [threading.Thread(target=claim, args=(fork,)) for fork in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(fork.k is room.k for fork in forks) == 1
    assert len({id(fork.k) for fork in forks}) == len(forks)


def test_a_fork_without_memory_for_its_copy_is_a_typed_error(model, monkeypatch):
    cache = KVCache(model.config)
    model.forward([5, 6], cache)
    fork = cache.fork()
    model.forward([7], cache)
    with monkeypatch.context() as patch:
        patch.setattr("tinyllm.model.cache.mmap.mmap", full)
        with pytest.raises(InferenceError, match="no memory"):
            model.forward([8], fork)
    assert fork.length == 2
    assert np.array_equal(model.forward([8], fork), model.forward([5, 6, 8])[-1:])


def full(*_):
    raise MemoryError


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_cache_without_memory_is_a_typed_error(config, monkeypatch, error):
    def none(*_):
        raise error

    monkeypatch.setattr("tinyllm.model.cache.mmap.mmap", none)
    with pytest.raises(InferenceError, match="smaller max_position_embeddings"):
        KVCache(config)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells only on Linux")
def test_a_long_context_costs_memory_only_where_it_is_written(config):
    """In pages of 2 MiB the first position, which lies in 96 places, took 192 MiB."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    long = replace(config, n_layers=12, n_kv_heads=4, n_ctx=2**14, head_dim=32)
    before = resident()
    cache = KVCache(long)
    for layer in range(12):
        one = np.ones((4, 1, 32), np.float32)
        cache.append(layer, one, one)
    assert cache.k.nbytes + cache.v.nbytes == 192 * 2**20
    assert resident() - before < 16 * 2**20
