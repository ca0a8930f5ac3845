"""Whether an execution has certainly ceased, also where its node was lost."""

from __future__ import annotations

from lardon.dispatch.enums import Cause, State
from lardon.dispatch.model import Cessation, Observation
from lardon.dispatch.slurm.cluster import Cluster


def cessation(cluster: Cluster, seen: Observation) -> Cessation:
    """
    Return whether no execution of the object that was *seen* can be running any more.

    Slurm ends the job of a node that falls silent, while its processes may run on there; when
    the node's slurmd registers again, it ends what does not belong to it any more.
    """
    if seen.state is State.ENDED:
        if seen.cause is Cause.NODE_LOST:
            return _after_node_lost(cluster, seen)
        return Cessation(ceased=True, detail=seen.detail)
    absent_s = None if seen.known else cluster.absent_for(seen.ref)
    if absent_s is not None and absent_s >= cluster.settings.lost_after_s:
        return Cessation(ceased=True, detail=f"lost: {seen.detail}")
    return Cessation(ceased=False, detail=seen.detail)


def _after_node_lost(cluster: Cluster, seen: Observation) -> Cessation:
    states = cluster.node_states(seen.nodes) if seen.nodes else {}
    # A star behind the state of a node says that it does not answer.
    silent = sorted(node for node, state in states.items() if state.endswith("*"))
    if silent or not states:
        return Cessation(ceased=False, detail=f"{', '.join(silent) or 'its node'} is silent")
    return Cessation(ceased=True, detail=f"{', '.join(sorted(states))} answers again")
