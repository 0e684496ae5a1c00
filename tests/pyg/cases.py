"""All classes of ``pyg_outerconv.pyg`` with their options and inputs."""

from pyg import (
    cases_adjacency,
    cases_attention,
    cases_edge_functions,
    cases_gcn,
    cases_nonlinear_messages,
    cases_polynomials,
    cases_relational,
    cases_structures,
    cases_updates,
)

PARTS = (
    cases_adjacency,
    cases_attention,
    cases_edge_functions,
    cases_gcn,
    cases_nonlinear_messages,
    cases_polynomials,
    cases_relational,
    cases_structures,
    cases_updates,
)
CASES = {case.name: case for part in PARTS for case in part.CASES}
