"""The number of draws: some in every run of the tests, as many as ``--draws`` says on demand."""


def pytest_generate_tests(metafunc):
    if "draw" in metafunc.fixturenames:
        count = metafunc.config.getoption("--draws")
        name = metafunc.function.__name__.removeprefix("test_")
        metafunc.parametrize("draw", range(count), ids=[f"{name}-{n}" for n in range(count)])
