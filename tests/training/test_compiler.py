"""PyTorch's compiler is loaded by what compiles, and by nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[space]'")

FIRST = """
import inspect, sys
from gnomon.training.network import torch_package
torch = torch_package()
from torch import nn
with torch.device("meta"):
    nn.Conv2d(1, 2, 3)
net = nn.Linear(3, 2)
for made in (torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.optim.AdamW(net.parameters())):
    net(torch.ones(4, 3)).sum().backward()
    made.step()
    made.zero_grad()
    made.load_state_dict(made.state_dict())
assert inspect.getmodule(torch_package.__code__) is sys.modules["gnomon.training.network"]
assert "torch._dynamo.utils" not in sys.modules
"""
LATER = """
from torch._dynamo.utils import counters
import torch._dynamo.utils
assert counters is torch._dynamo.utils.counters
assert torch.equal(torch.compile(net, backend="eager")(torch.ones(4, 3)), net(torch.ones(4, 3)))
made.step()
import types
assert type(torch._dynamo) is types.ModuleType and torch._dynamo is sys.modules["torch._dynamo"]
"""


def test_optimizers_do_without_it_and_who_wants_it_has_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST + LATER], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
