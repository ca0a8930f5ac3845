"""The photo job on a Slurm cluster: what is planned, what a job does, and who follows them."""
