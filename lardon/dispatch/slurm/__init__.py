"""
Slurm: governed jobs on a cluster, and no unanswered call that undoes a later decision.

    from lardon.dispatch.slurm import SlurmBackend, SshTransport

    backend = SlurmBackend(SshTransport("login.cluster.example"))

Every call that changes a job runs behind a deadline (`wrapper`), its answer is read strictly
(`reader`), and what is left open is settled at a time that is known (`bound`). Importing this
package registers it under the name ``slurm``.
"""

from lardon.dispatch.registry import register
from lardon.dispatch.slurm.backend import SlurmBackend
from lardon.dispatch.slurm.bound import LandingTerms, landing_bound
from lardon.dispatch.slurm.faults import ClusterUnreachable, UnreadableAnswer
from lardon.dispatch.slurm.transport import LocalTransport, SshTransport, Transport

__all__ = [
    # The backend, and where its commands run
    "SlurmBackend",
    "LocalTransport",
    "SshTransport",
    "Transport",
    # How late a call can land
    "LandingTerms",
    "landing_bound",
    # What reading can come to
    "ClusterUnreachable",
    "UnreadableAnswer",
]

register("slurm", SlurmBackend.from_settings)
