"""The number of draws: 100, or as many as ``--draws`` says."""


def pytest_generate_tests(metafunc):
    if "draw" in metafunc.fixturenames:
        count = metafunc.config.getoption("--draws") or 100
        name = metafunc.function.__name__.removeprefix("test_")
        metafunc.parametrize("draw", range(count), ids=[f"{name}-{n}" for n in range(count)])
