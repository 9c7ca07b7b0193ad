from __future__ import annotations

import mmap
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tinyllm.errors import CacheError
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
    with pytest.raises(CacheError, match="0 to 5"):
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
        with pytest.raises(CacheError, match="filled by another model"):
            other.forward([7], cache)
    assert cache.length == 2
    cache.rewind(0)
    other.forward([7], cache)
    with pytest.raises(CacheError, match="filled by another model"):
        model.forward([7], cache)


def test_a_fork_goes_its_own_way_whatever_its_origin_overwrites(model):
    cache = KVCache(model.config)
    model.forward([5, 6, 7, 8], cache)
    fork, later = cache.fork(), cache.fork()
    cache.rewind(1)
    model.forward([9, 9, 9], cache)
    later.rewind(2)
    model.forward([4], later)
    for held, ids in ((fork, [5, 6, 7, 8]), (later, [5, 6, 4]), (cache, [5, 9, 9, 9])):
        assert np.array_equal(model.forward([1], held), model.forward([*ids, 1])[-1:])


def test_a_fork_belongs_to_the_same_model(config, weights, model):
    cache = KVCache(config)
    model.forward([5, 6], cache)
    with pytest.raises(CacheError, match="filled by another model"):
        Model(config, weights).forward([7], cache.fork())


def test_a_fork_without_memory_is_a_typed_error_and_its_origin_goes_on(
    model, monkeypatch
):
    cache = KVCache(model.config)
    model.forward([5, 6], cache)
    with monkeypatch.context() as patch:
        patch.setattr("tinyllm.model.cache.mmap.mmap", full)
        with pytest.raises(CacheError, match="no memory"):
            cache.fork()
    assert np.array_equal(model.forward([8], cache), model.forward([5, 6, 8])[-1:])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells only on Linux")
def test_a_fork_costs_the_memory_of_its_positions_not_of_the_context(config):
    long = replace(config, n_ctx=2**16)
    cache = KVCache(long)
    cache.k[:, :, :100] = cache.v[:, :, :100] = 1
    cache.length = 100
    before = resident()
    forks = [cache.fork() for _ in range(100)]
    assert cache.k.nbytes == 9 * 2**20
    assert resident() - before < 100 * 2**17  # two pages for each of 12 runs of 2,400 B
    assert all(
        np.array_equal(fork.v[:, :, :100], cache.v[:, :, :100]) for fork in forks
    )


def resident() -> int:
    """The bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def full(*_):
    raise MemoryError


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_cache_without_memory_is_a_typed_error(config, monkeypatch, error):
    def none(*_):
        raise error

    monkeypatch.setattr("tinyllm.model.cache.mmap.mmap", none)
    with pytest.raises(CacheError, match="smaller n_ctx"):
        KVCache(config)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells only on Linux")
def test_a_long_context_costs_memory_only_where_it_is_written(config):
    """In pages of 2 MiB the first position, which lies in 96 places, took 192 MiB."""
    long = replace(config, n_layers=12, n_kv_heads=4, n_ctx=2**14, head_dim=32)
    before = resident()
    cache = KVCache(long)
    for layer in range(12):
        one = np.ones((4, 1, 32), np.float32)
        cache.append(layer, one, one)
    assert cache.k.nbytes + cache.v.nbytes == 192 * 2**20
    assert resident() - before < 16 * 2**20
