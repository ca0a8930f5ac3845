"""
Slurm: governed jobs on a cluster, and no unanswered call that undoes a later decision.

Every call that changes a job runs behind a deadline (`wrapper`), its answer is read strictly
(`reader`), and what is left open is settled at a time that is known (`bound`).
"""

from lardon.dispatch.slurm.bound import LandingTerms, landing_bound

__all__ = ["LandingTerms", "landing_bound"]
