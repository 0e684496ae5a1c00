"""Benchmarks: sparse against dense, ours against peers, each against the bound of the machine.

    case (what is compared) ──► run (agree, then time in turn) ──► report (JSON, tables, page)

A new case is one function below ``@case(...)`` in a file of ``cases/``.
"""
