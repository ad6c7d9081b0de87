"""The heap of Spark's Java process, chosen by the memory of machines and containers, which are files here."""

import os

import pytest

from headrace.pipeline.spark.heap import chosen_heap, machine_memory_bytes

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory_gib", "heap"),
    [(0.5, "512m"), (1, "768m"), (1.5, "1024m"), (2, "1024m"), (8, "4096m"), (24, "12288m"), (256, "31744m")],
)
def test_half_of_the_memory_within_bounds(memory_gib, heap):
    assert chosen_heap(int(memory_gib * GIB)) == heap


def container(root, membership, files):
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return machine_memory_bytes(root)


PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("membership", "files", "memory"),
    [
        ("0::/\n", {"memory.max": "max\n"}, PHYSICAL),
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/app/run\n", {"app/memory.max": "800000000\n", "app/run/memory.max": "max\n"}, 800_000_000),
        ("0::/../host/path\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("4:memory:/docker/1\n0::/\n", {"memory/docker/1/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        ("4:cpu,memory:/gone\n", {"memory/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, PHYSICAL),
        ("3:cpuset:/\n", {}, PHYSICAL),
    ],
)
def test_a_container_has_what_its_control_group_allows(tmp_path, membership, files, memory):
    assert container(tmp_path, membership, files) == memory


def test_a_system_without_control_groups_has_its_physical_memory(tmp_path):
    assert machine_memory_bytes(tmp_path) == PHYSICAL
