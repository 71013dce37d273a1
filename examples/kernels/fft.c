/* Fast Fourier transforms of many rows: Stockham's, radix 2, complex numbers in double precision.
 *
 * usage: fft [LOG2_LENGTH] [ROWS] [STEPS]
 *
 * A thread transforms rows of its own forth and back between its row and a private buffer; the
 * stride between the parts that an iteration joins halves from pass to pass.
 */
#include <math.h>
#include <string.h>
#include "kernels.h"

typedef struct {
    double re, im;
} Complex;

static void pass(long half, long stride, const Complex *root, const Complex *from, Complex *to) {
    for (long j = 0; j < half; j++) {
        const Complex w = root[j * stride];
        for (long k = 0; k < stride; k++) {
            const Complex a = from[k + stride * j], b = from[k + stride * (j + half)];
            const double re = a.re - b.re, im = a.im - b.im;
            Complex *low = to + k + stride * 2 * j, *high = low + stride;
            low->re = a.re + b.re;
            low->im = a.im + b.im;
            high->re = re * w.re - im * w.im;
            high->im = re * w.im + im * w.re;
        }
    }
}

int main(int argc, char **argv) {
    const long bits = argument(argc, argv, 1, 14, 1), rows = argument(argc, argv, 2, 64, 1);
    const long steps = argument(argc, argv, 3, 10, 1);
    if (bits > 26) {
        fprintf(stderr, "%s: argument 1 must be at most 26\n", argv[0]);
        return 2;
    }
    const long length = 1L << bits;
    Complex *data = array(rows * length, sizeof *data), *root = array(length / 2, sizeof *root);
    for (long j = 0; j < length / 2; j++) {
        const double angle = -2 * M_PI * j / length;
        root[j] = (Complex){cos(angle), sin(angle)};
    }
#pragma omp parallel for
    for (long i = 0; i < rows * length; i++) data[i] = (Complex){1. + i % 7, 0};
    const double scale = 1 / sqrt(length), begin = omp_get_wtime();
#pragma omp parallel
    {
        Complex *buffer = array(length, sizeof *buffer);
        for (long s = 0; s < steps; s++) {
#pragma omp for schedule(static)
            for (long r = 0; r < rows; r++) {
                Complex *from = data + r * length, *to = buffer;
                for (long half = length / 2, stride = 1; half > 0; half /= 2, stride *= 2) {
                    pass(half, stride, root, from, to);
                    Complex *other = from;
                    from = to;
                    to = other;
                }
                for (long i = 0; i < length; i++) {
                    data[r * length + i].re = from[i].re * scale;
                    data[r * length + i].im = from[i].im * scale;
                }
            }
        }
        free(buffer);
    }
    const double seconds = omp_get_wtime() - begin;
    double checksum = 0;
    for (long i = 0; i < rows * length; i += 97) checksum += fabs(data[i].re) + fabs(data[i].im);
    report(checksum, seconds);
    return 0;
}
