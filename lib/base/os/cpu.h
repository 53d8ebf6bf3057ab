/* Cpu: a word to the processor in loops that wait for memory to change. Any thread. */
#ifndef TUTTI_BASE_OS_CPU_H
#define TUTTI_BASE_OS_CPU_H

/* This loop waits: the other thread of the core may run, and the loop's end is not mispredicted. */
static inline void
tutti_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
