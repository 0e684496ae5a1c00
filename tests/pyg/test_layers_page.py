"""docs/pyg_layers.md says what is so."""

from write_layers import FILE, page


def test_the_page_of_layers_is_as_it_would_be_written():
    again = "python tests/write_layers.py writes it anew"
    assert FILE.read_text(encoding="utf-8") == page(), again
