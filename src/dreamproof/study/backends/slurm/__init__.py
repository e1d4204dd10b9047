"""The Slurm backend: jobs through sbatch, squeue, scontrol and sacct."""
