"""How often Hypothesis draws."""

from hypothesis import settings

ALL = 60
SOME = 20


def draws(count: int) -> settings:
    """So many draws where all cases run, and a third as many, two at least, where some do."""
    if settings.default.max_examples >= ALL:
        return settings(max_examples=count)
    return settings(max_examples=max(2, count * SOME // ALL))
