"""No module imports one that imports it, directly or indirectly; imports for annotations count."""

from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGES = (
    "streamkit",
    "binders.inmemory",
    "binders.kafka",
    "binders.rocket",
    "rocket_remoting",
    "rocket_client",
    "rocket_admin",
    "rocket_broker",
    "rocket_console",
    "pyspark_rocketmq",
    "pyspark_streamkit",
)


def test_imports_have_no_cycle() -> None:
    """The error names the cycle."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 500
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(reversed(error.args[1]))) from None
