"""The constants of the cost model: measured, kept, read back, and left alone where garbage."""

import json
import math

import pytest
import torch

from pyg_outerconv import OuterConv, cli
from pyg_outerconv.basis import Relation
from pyg_outerconv.contract import calibrate as measuring
from pyg_outerconv.contract import constants, contraction_path, machine


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A cache folder of its own, and sizes at which measuring takes no time."""
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(tmp_path))
    monkeypatch.setattr(measuring, "ROWS", (8, 16, 32, 64, 128))
    monkeypatch.setattr(measuring, "MOVED_ROWS", (8, 16))
    monkeypatch.setattr(measuring, "LEAST_ENTRIES", 10)
    monkeypatch.setattr(machine, "_measured", {})
    return tmp_path


def test_every_constant_is_measured(small):
    found = measuring.rounded(measuring.calibrate())
    numbers = [found.dense_flops, found.call_seconds, found.group_seconds]
    numbers += [number for pair in found.gather + found.move for number in pair]
    assert all(math.isfinite(number) and number > 0 for number in numbers)
    assert [size for size, _ in found.gather] == [256.0 * rows for rows in measuring.ROWS]
    assert found.source == "measured"


def test_what_is_kept_is_read_back_and_used(small):
    found = measuring.rounded(measuring.calibrate(dtype=torch.float64))
    path = machine.keep("cpu", torch.float64, found)
    assert path.parent == small
    machine._measured.clear()
    assert constants("cpu", torch.float64).source == "built in"
    machine.read()
    assert constants("cpu", torch.float64) == found


def test_types_without_constants_of_their_own_take_those_of_float32(small):
    found = measuring.calibrate()
    machine.keep("cpu", torch.float32, found)
    assert constants("cpu", torch.bfloat16) == found
    assert constants("cuda", torch.bfloat16).source == "built in"
    assert constants("mps", torch.float32).source == "built in"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 99}', '{"format": 1, "constants": {"cpu float32": {}}}']
)
def test_a_file_that_is_not_understood_is_left_alone_with_a_warning(small, content):
    path = small / "constants.json"
    path.write_text(content)
    with pytest.warns(UserWarning, match="'outerconv calibrate' measures them anew"):
        machine.read()
    assert constants("cpu", torch.float32).source == "built in"
    assert path.read_text() == content


def test_a_folder_that_cannot_be_written_is_refused(small, monkeypatch):
    (small / "file").write_text("")
    monkeypatch.setenv("PYG_OUTERCONV_CACHE", str(small / "file"))
    with pytest.raises(ValueError, match="measured constants are kept in a file"):
        machine.keep("cpu", torch.float32, constants("cpu", torch.float32))


def test_the_command_measures_and_keeps(small, capsys):
    assert cli.main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert "Gflop/s" in out
    assert "GB/s" in out
    content = json.loads((small / "constants.json").read_text())
    assert list(content["constants"]) == ["cpu float32"]
    assert cli.main(["calibrate", "--device", "abacus"]) == 2


def test_a_layer_prints_its_path_and_where_the_constants_are_from(small):
    edge_index, types = torch.randint(9, (2, 40)), torch.randint(3, (40,))
    conv = OuterConv(4, 3, Relation(3))
    path = conv.contraction_path(torch.randn(9, 4), edge_index, edge_type=types)
    text = str(path)
    assert "'outerconv calibrate' measures this machine" in text
    assert f"→ {path.chosen[0]}" in text
    assert "recurrence_forward" in text
    assert path.seconds > 0
    machine.keep("cpu", torch.float32, measuring.calibrate())
    basis = conv.family.basis(edge_index, edge_type=types, size=(9, 9))
    again = contraction_path(basis, torch.randn(9, 4), conv.theta.parameter())
    assert str(again).endswith("constants of the cost model: measured")
