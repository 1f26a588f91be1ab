"""No module imports one that imports it, on whatever way round; imports for annotations alone count."""

from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGES = (
    "streamkit",
    "binders.inmemory",
    "binders.kafka",
    "binders.rocket",
    "rocket_remoting",
    "rocket_client",
    "rocket_broker",
    "service_manager",
    "pyspark_rocketmq",
    "pyspark_streamkit",
)


def test_no_import_goes_round_in_a_circle() -> None:
    """The error names the circle."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 500
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(reversed(error.args[1]))) from None
