"""What docs/ecosystem.md shows is run, and the tests that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "ecosystem.md").read_text()


def test_blocks_run_in_order_as_one_program():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    namespace = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, "ecosystem.md", "exec"), namespace)
    assert namespace["out"].shape == (34, 16)
    assert namespace["batch"].num_graphs == 2


def test_the_tests_that_are_named_exist():
    named = re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py)`", GUIDE)
    assert len(named) >= 9
    for name in named:
        assert (ROOT / (name if "/" in name else f"tests/ecosystem/{name}")).is_file(), name


def test_options_of_graphgym_exist():
    source = (ROOT / "pyg_outerconv" / "graphgym.py").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    options = [*re.findall(r"^  (\w+):", text.partition("outerconv:\n")[2], re.MULTILINE)]
    options += re.findall(r"\w+", text.partition("of outerattention:")[2])
    assert len(options) >= 10
    for option in options:
        assert f"cfg.outerconv.{option} = " in source
