from types import SimpleNamespace

from infeed.components.feed import capacity
from infeed.components.feed.capacity import Machine


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_a_cgroup_v2_quota_limits_the_cores(tmp_path):
    write(tmp_path, cpu_dot_max="50000 100000")
    assert Machine.here(tmp_path).cpus == 1


def test_a_cgroup_v2_memory_limit_counts_not_the_machines_memory(tmp_path):
    write(tmp_path, memory_dot_max="123456789")
    assert Machine.here(tmp_path).memory_bytes == 123456789


def test_cgroup_v1_limits_are_read_too(tmp_path):
    write(
        tmp_path,
        cpu__cpu_dot_cfs_quota_us="100000",
        cpu__cpu_dot_cfs_period_us="100000",
        memory__memory_dot_limit_in_bytes="987654321",
    )
    assert Machine.here(tmp_path) == Machine(cpus=1, memory_bytes=987654321)


def test_no_limit_means_the_whole_machine(tmp_path):
    unlimited = Machine.here(tmp_path)
    write(tmp_path, cpu_dot_max="max 100000", memory_dot_max="max")
    assert Machine.here(tmp_path) == unlimited
    assert unlimited.cpus >= 1
    assert unlimited.memory_bytes > 1 << 20


def test_free_disk_counts_what_our_own_files_take(tmp_path, monkeypatch):
    def usage(folder):  # of a disk on which nobody else writes meanwhile
        return SimpleNamespace(free=(1 << 30) - sum(f.stat().st_blocks * 512 for f in tmp_path.rglob("*.values")))

    monkeypatch.setattr(capacity.shutil, "disk_usage", usage)
    assert Machine.here(tmp_path).disk_bytes == 0  # no folder, no disk
    cache = tmp_path / "not" / "yet"
    before = Machine.here(tmp_path, str(cache)).disk_bytes
    assert before == 1 << 30
    (cache / "key").mkdir(parents=True)
    (cache / "key" / "0.values").write_bytes(bytes(1 << 16))
    assert Machine.here(tmp_path, str(cache)).disk_bytes == before
