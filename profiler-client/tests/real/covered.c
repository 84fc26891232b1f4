/* A bit of each way that control goes. Compiled with counters, it counts its own lines and branches. */
#include <stdio.h>

static long sink;

static int is_prime(int n) {
    if (n < 2)
        return 0;
    for (int by = 2; by * by <= n; by++)
        if (n % by == 0)
            return 0;
    return 1;
}

static int steps(int n) {
    int count = 0;
    while (n != 1) { /* jumps to its condition */
        if (n % 2)
            n = 3 * n + 1;
        else
            n /= 2;
        if (++count == 40)
            break;
    }
    return count;
}

static const char *kind(int n) {
    switch (n % 7) {
    case 0:
        return "zero";
    case 1:
    case 2:
        sink += n;
        break;
    case 5:
        sink -= n;
        /* falls through */
    case 6:
        sink ^= n;
        break;
    default:
        return "other";
    }
    return "some";
}

static int digits(int n) {
    int count = 0;
    do {
        n /= 10;
        count++;
    } while (n > 0);
    return count;
}

static int conditions(int a, int b) {
    if (a > 3 && b % 3 == 0)
        return 1;
    if (a == 2 || b == 11 || a + b == 40)
        return 2;
    int larger = a > b ? a : b;
    sink += larger;
    return !(a & 1);
}

static int depth(int n) {
    if (n <= 0)
        return 0;
    return 1 + depth(n / 2 - n % 3);
}

static long skipped(int n) {
    long sum = 0;
    for (int at = 0;
         at < n;
         at++) {
        if (at % 4 == 3)
            continue;
        if (at > 25)
            goto out;
        sum += at;
    }
out:
    return sum;
}

static int spaces(const char *text) {
    int count = 0;
    for (; *text; text++) count += *text == ' '; /* a loop on one line */
    return count;
}

__attribute__((noinline)) static int work(void) {
    int primes = 0;
    for (int n = 0; n < 60; n++) {
        primes += is_prime(n);
        sink += steps(n + 1);
        sink += kind(n)[0] + digits(n * n);
        sink += conditions(n % 7, n) + depth(n);
        if (skipped(n) % 5 == 0)
            sink += spaces("how many are there");
    }
    return primes;
}

int main(void) {
    puts("ready");
    fflush(stdout);
    getchar();
    int primes = work(); /* from here on there are probes */
    printf("%d primes, %ld\n", primes, sink);
    return 0;
}
