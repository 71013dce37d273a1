#!/bin/bash
#SBATCH --job-name=heat
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --time=10

srun ./heat 1000000 100
