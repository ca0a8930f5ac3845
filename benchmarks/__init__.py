"""
What lardon costs, measured beside its peers in one run.

`python -m benchmarks` prints the short form, `python -m benchmarks --full` the long one;
`benchmarks/README.md` says what each table means.
"""
