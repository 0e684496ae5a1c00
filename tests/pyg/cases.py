"""All classes of ``pyg_outerconv.pyg`` with their options and inputs."""

from pyg import cases_adjacency, cases_attention, cases_gcn, cases_relational

PARTS = (cases_gcn, cases_adjacency, cases_attention, cases_relational)
CASES = {case.name: case for part in PARTS for case in part.CASES}
