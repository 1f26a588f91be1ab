"""YAML texts of a few lines that stand for too much."""

import pytest
import yaml

from streamkit.yaml_bounds import MOST_LEVELS, MOST_REPEATED, YamlTooLargeError, check_bounds

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 30)
)
"""Lists of lists, that would have 10 to the power of 30 values."""
MERGED = "a0: &a0 {k: v, l: v}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 30)
)
"""The same with merge keys."""
CYCLE = "a: 1\nb: &b\n  - c\n  - *b\n"
DEEP = "a:\n  " + "[" * 200_000 + "]" * 200_000 + "\n"
"""PyYAML's loader in C overflows the stack of the process with it, and ends the process."""

TOO_LARGE = {
    "lists of lists": (LAUGHS, 5, f"the aliases up to here stand for more than {MOST_REPEATED} values"),
    "merged mappings": (MERGED, 6, f"the aliases up to here stand for more than {MOST_REPEATED} values"),
    "a list that contains itself": (CYCLE, 4, "an alias stands for a value that contains it"),
    "a mapping that is merged into itself": ("a: &a\n  <<: *a\n", 2, "an alias stands for a value that contains it"),
    "a long text": (
        f"a: &a {'x' * 64_000}\nb: [{', '.join(['*a'] * 200)}]\n",
        2,
        f"the aliases up to here stand for more than {MOST_REPEATED} values",
    ),
    "brackets": (DEEP, 2, f"lists and mappings have more than {MOST_LEVELS} levels here"),
}


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_text_that_stands_for_too_much_is_an_error_with_its_line(name: str, loader: type) -> None:
    """Before a value is made of it."""
    text, line, says = TOO_LARGE[name]
    with pytest.raises(YamlTooLargeError) as caught:
        check_bounds(text, loader)
    assert (caught.value.line, str(caught.value)) == (line, says)


def test_usual_anchors_are_accepted() -> None:
    """Each document has anchors of its own, and an anchor may be given again."""
    check_bounds("a: &a {x: 1}\nb: {<<: *a}\nc: &a [1]\nd: *a\n---\nd: &d 1\ne: *d\n", yaml.SafeLoader)
    check_bounds("a: " + "[" * (MOST_LEVELS - 1) + "]" * (MOST_LEVELS - 1), yaml.SafeLoader)
