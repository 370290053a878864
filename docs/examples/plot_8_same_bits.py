"""
A cluster, the same bits
========================

A fit in this process and one on a Dask cluster have the same weights, to the last bit. The plan says beforehand what a
worker needs.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from distributed import Client

import distls
from distls.planning.fit_plan import plan_fit

folder = Path(tempfile.mkdtemp())
distls.generate("rcv1-4", folder / "train", rows=30_000, partition_size=2**21)
settings = {"loss": "hinge", "alpha": 1e-5}

# %%
# A fit runs on the client that is open. The workers of this one are threads; another would have an address.
here = distls.fit(
    "mcid", folder / "train", params=settings, passes=2, executor="serial"
)
with Client(
    processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
):
    there = distls.fit("mcid", folder / "train", params=settings, passes=2)
print("in this process  ", here.model.sha256[:32])
print("on a Dask cluster", there.model.sha256[:32])
assert here.model.sha256 == there.model.sha256

# %%
# The plan is made from metadata. A fit that exceeds the memory of its workers is refused before anything is read.
plan = plan_fit("mcid", folder / "train", settings, passes=2)
print(plan)
figure, axes = plt.subplots(figsize=(5, 2.6), layout="constrained")
left = 0
for name, size in plan.worker_parts.items():
    axes.barh(["a worker"], size / 2**20, left=left, label=name)
    left += size / 2**20
axes.set(xlabel="MiB")
figure.legend(ncols=3, loc="outside lower center", fontsize="small")
plt.show()
