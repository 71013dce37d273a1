#!/bin/bash
#SBATCH --nodes=1 --exclusive --time=10
srun stencil
