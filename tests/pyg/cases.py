"""All classes of ``pyg_outerconv.pyg`` with their options and inputs."""

from pyg import cases_adjacency, cases_attention, cases_gcn

CASES = {
    case.name: case for part in (cases_gcn, cases_adjacency, cases_attention) for case in part.CASES
}
