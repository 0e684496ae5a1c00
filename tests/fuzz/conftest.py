"""The number of draws: 30, or as many as ``--draws`` says."""


def pytest_generate_tests(metafunc):
    if "draw" in metafunc.fixturenames:
        count = metafunc.config.getoption("--draws") or 30
        name = metafunc.function.__name__.removeprefix("test_")
        metafunc.parametrize("draw", range(count), ids=[f"{name}-{n}" for n in range(count)])
