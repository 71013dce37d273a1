/* N-body: gravity of all particles on all, a particle being four doubles (32 bytes).
 *
 * usage: nbody [PARTICLES] [STEPS]
 *
 * Every thread reads all particles for each of its own.
 */
#include "kernels.h"
#include <math.h>

struct particle {
    double x, y, z, mass;
};

static void forces(long n, const struct particle *p, double (*force)[3]) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        double fx = 0, fy = 0, fz = 0;
        for (long j = 0; j < n; j++) {
            const double dx = p[j].x - p[i].x, dy = p[j].y - p[i].y, dz = p[j].z - p[i].z;
            const double square = dx * dx + dy * dy + dz * dz + 1e-3;
            const double pull = p[j].mass / (square * sqrt(square));
            fx += pull * dx;
            fy += pull * dy;
            fz += pull * dz;
        }
        force[i][0] = fx;
        force[i][1] = fy;
        force[i][2] = fz;
    }
}

static void move(long n, struct particle *p, double (*speed)[3], double (*force)[3], double dt) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++) speed[i][k] += dt * force[i][k];
        p[i].x += dt * speed[i][0];
        p[i].y += dt * speed[i][1];
        p[i].z += dt * speed[i][2];
    }
}

int main(int argc, char **argv) {
    const long n = argument(argc, argv, 1, 8000, 1), steps = argument(argc, argv, 2, 2, 1);
    struct particle *p = array(n, sizeof *p);
    double(*speed)[3] = array(n, sizeof *speed), (*force)[3] = array(n, sizeof *force);
    for (long i = 0; i < n; i++) {
        p[i] = (struct particle){cos(i), sin(2. * i), cos(3. * i), 1. + i % 3};
        for (int k = 0; k < 3; k++) speed[i][k] = 0;
    }
    const double begin = omp_get_wtime();
    for (long step = 0; step < steps; step++) {
        forces(n, p, force);
        move(n, p, speed, force, 1e-6);
    }
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < n; i++) checksum += p[i].x + p[i].y + p[i].z;
    report(checksum, seconds);
    return 0;
}
