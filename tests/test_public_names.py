"""What a version promises by name and arguments is listed, and changes with a word to users."""

import pytest
from write_public_names import FILE, current, recorded, untold

AGAIN = f"""not in {FILE.name} as in the code: `python tests/write_public_names.py` records what is
new; of what is gone or changed CHANGELOG.md must tell first (docs/releases.md)"""


def test_every_public_name_is_recorded_with_its_arguments():
    lines = current()
    lost, new = set(recorded()) - set(lines), set(lines) - set(recorded())
    assert not lost | new, f"{sorted(lost | new)} {AGAIN}"
    assert recorded() == lines


BEFORE = ["nn.Layer(width)", "    .forward(x)", "nn.make(name='a')"]
RELEASED = (
    "# Changelog\n\n## 0.2.0 (unreleased)\n\n{}\n\n## 0.1.0 (2027-01-31)\n\nAll of `Layer`.\n"
)


@pytest.mark.parametrize(
    ("now", "told", "silent"),
    [
        (BEFORE, "", []),
        ([*BEFORE, "nn.other()"], "", []),
        (BEFORE[:2], "", ["nn.make"]),
        (BEFORE[:2], "- `make` is gone; write `Layer`.", []),
        ([*BEFORE[:2], "nn.make(name='b')"], "- `maker` is new.", ["nn.make"]),
        ([BEFORE[0], BEFORE[2]], "- `Layer` is quicker.", ["nn.Layer.forward"]),
        ([BEFORE[0], BEFORE[2]], "- `Layer.forward` is gone.", []),
    ],
)
def test_what_goes_or_changes_after_a_release_is_told(now, told, silent):
    assert untold(BEFORE, now, RELEASED.format(told)) == silent


def test_nothing_is_promised_before_the_first_release():
    assert untold(BEFORE, [], "# Changelog\n\n## 0.1.0 (unreleased)\n") == []
