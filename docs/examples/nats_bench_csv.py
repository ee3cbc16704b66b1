"""Accuracies of NATS-Bench and latencies of HW-NAS-Bench as a csv for `gnomon space import`, by their own packages.

pip install nats_bench, a clone of GATECH-EIC/HW-NAS-Bench as the working folder, and NATS-Bench's files in TORCH_HOME.
Both load pickles, which run code: take the files from their authors.
"""

import csv
from pathlib import Path

from hw_nas_bench_api import HWNASBenchAPI
from nats_bench import create

nats = create(None, "tss", fast_mode=True, verbose=False)
latencies = HWNASBenchAPI("HW-NAS-Bench-v1_0.pickle", search_space="nasbench201")
with Path("nasbench201.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["arch", "accuracy", "latency_ms"])
    for index in range(0, len(nats), 15):
        accuracy = nats.get_more_info(index, "cifar10", hp="200", is_random=False)["test-accuracy"] / 100
        rows.writerow([nats.arch(index), accuracy, latencies.query_by_index(index, "cifar10")["raspi4_latency"]])
