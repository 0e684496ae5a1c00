"""The number of draws: 60, of which `make test` runs some, or as many as ``--draws`` says."""


def pytest_generate_tests(metafunc):
    if "draw" in metafunc.fixturenames:
        count = metafunc.config.getoption("--draws") or 60
        name = metafunc.function.__name__.removeprefix("test_")
        metafunc.parametrize("draw", range(count), ids=[f"{name}-{n}" for n in range(count)])
