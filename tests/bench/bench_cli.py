#!/usr/bin/env python3
"""Wall time of `octet trace deepseek3-671b` as a whole process, beside the same program doing nothing.

    bench_cli.py OCTET [ROUNDS]

The commands run in turn, so that what else the machine does hits all of them; medians are printed. The goal is
below 10 ms for the unrolled model (1,052 lines); the ratio says how much of the time is more than starting a
process.
"""
import statistics
import subprocess
import sys
import time

MODEL = ["deepseek3-671b", "mtp_num_layers=1", "quantization=fp8_full", "quantize_mtp=true"]
COMMANDS = {
    "octet --version": ["--version"],
    "octet trace, scanned layers": ["trace", *MODEL],
    "octet trace, unrolled layers": ["trace", *MODEL, "scan_layers=false"],
    "octet check, unrolled layers": ["check", *MODEL, "scan_layers=false"],
}


def seconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    octet, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 50
    times = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, words in COMMANDS.items():
            times[name].append(seconds([octet, *words]))
    floor = statistics.median(times["octet --version"])
    print(f"{'':30}{'median ms':>10}{'ratio':>8}   of {rounds} runs each")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:30}{median * 1e3:10.2f}{median / floor:8.1f}")


main()
