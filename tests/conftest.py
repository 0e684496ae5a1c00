"""What all tests share: repeatable randomness, poisoned memory, the data sets beside the clone.

torch and the package are imported by fixtures: the process that hands tests out needs neither.
"""

import gc
import random
import sys
import zlib
from pathlib import Path

import pytest
from fresh import Fresh
from tiers import covering, every_case, quickest, shared


def pytest_addoption(parser):
    """How many cases run, and how often training is killed."""
    parser.addoption("--all", action="store_true", help="every case of every test, not some")
    parser.addoption("--draws", type=int, help="configurations of each fuzz test")
    parser.addoption("--kills", type=int, help="kills of training at random moments")


def pytest_sessionstart(session):
    """Hypothesis draws the same at every run, and less often where only some cases run."""
    if getattr(session.config.option, "numprocesses", None):
        return  # other processes collect and run
    from draws import ALL, SOME
    from hypothesis import settings

    draws = ALL if every_case(session.config) else SOME
    settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=draws)
    settings.load_profile("repeatable")


@pytest.hookimpl(hookwrapper=True)
def pytest_generate_tests(metafunc):
    """Some cases of each test, unless all are asked for, or some by name: no others are made."""
    yield
    if metafunc._calls and not every_case(metafunc.config):
        test = metafunc.definition
        cases = {f"{test.nodeid}[{call.id}]": call for call in metafunc._calls}
        kept = set(covering(cases, test.get_closest_marker("slow")))
        metafunc._calls[:] = [call for name, call in cases.items() if name in kept]


def pytest_ignore_collect(collection_path, config):
    """The quick tests are of the mathematics: other files need not be read for them."""
    is_quick = collection_path == Path(__file__).parent or room_of(collection_path) in QUICK
    return None if config.option.markexpr != "fast" or is_quick else True


def pytest_collection_modifyitems(config, items):
    """Large tests share out their cases, unless all are asked for; the quick ones are marked."""
    if not every_case(config):
        cases = [item for item in items if room_of(item.path) != "fuzz"]  # which draws its cases
        left_out = set(map(id, cases)) - set(map(id, shared(cases)))
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
    for item in quickest(items):
        if room_of(item.path) in QUICK:
            item.add_marker("fast")


def pytest_collection_finish():
    """What was collected stays: every later collection of garbage would look through it."""
    gc.collect()
    gc.freeze()


def room_of(path):
    """The folder of tests that a file is in, or the file."""
    return path.relative_to(Path(__file__).parent).parts[0]


MATHEMATICS = {"attention", "basis", "contract", "families", "fuzz", "graph", "kernels", "nn"}
QUICK = MATHEMATICS - {"fuzz"}  # one case of each test there is marked `fast`
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def repeatable():
    """Seeds, NaN in memory that was never written (torch fills it in deterministic mode).

    And choices of orders made anew, which tests before made for graphs of about one size; after it
    nothing is compiled, for torch compiles the same code a few times only.
    """
    import numpy as np
    import torch

    from pyg_outerconv.contract import plan
    from pyg_outerconv.kernels.dispatch import CHOSEN
    from pyg_outerconv.nn.bases import recent

    plan.PLANS.clear()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.default_generator.manual_seed(0)  # torch.manual_seed looks at the stack for each device
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    torch.use_deterministic_algorithms(True)
    CHOSEN.clear()  # of a test that changed what backends can do
    recent.clear()
    yield
    torch.use_deterministic_algorithms(False)
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and dynamo.convert_frame.FRAME_COUNTER:
        dynamo.reset()


@pytest.fixture(autouse=True)
def either_way(request, monkeypatch):
    """Half of the tests of the mathematics multiply their small graphs as large ones are.

    Not those of training: runs of several processes are compared to the last bit there.
    """
    if room_of(request.path) in MATHEMATICS and zlib.crc32(request.node.nodeid.encode()) % 2:
        from pyg_outerconv.kernels import edge_sums, head_copies

        monkeypatch.setattr(edge_sums, "MOST", -1)
        monkeypatch.setattr(head_copies, "OFTEN", 0)


@pytest.fixture(scope="session")
def fresh():
    """Runs code in a process of its own that has imported torch and PyG, and nothing of ours."""
    with Fresh() as process:
        yield process


@pytest.fixture
def shared_data():
    """The folder of real data sets beside the clone; the test is skipped where there is none."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the data sets of ../shared/data are not here")
    return SHARED_DATA


@pytest.fixture
def registries(monkeypatch):
    """Registries that forget what a test, such as a page of a guide, defines."""
    from pyg_outerconv import attention, families
    from pyg_outerconv.contract import order
    from pyg_outerconv.kernels import BACKENDS

    monkeypatch.setattr(order, "_of_kind", {})
    registries = families.FAMILIES, attention.SCORES, order.ORDERS, BACKENDS
    before = [dict(names) for names in registries]
    yield
    for names, entries in zip(registries, before, strict=True):
        names.clear()
        names.update(entries)
