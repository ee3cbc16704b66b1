"""An estimator's expected latency as a differentiable function of PyTorch."""

import torch

from gnomon.formats.nets_csv import NetRow
from gnomon.jobs.estimator.job import described, fit_estimator
from gnomon.spaces.loading import draw

# A simulated device: in practice, networks and their latencies come from `gnomon estimator measure`.
found = described(None, "mobilenetv2-cifar10")
nets = draw(found.tables, 80, seed=0)
times = 1e-3 * found.tables.counts(nets).sum(axis=1) / 100
samples = [NetRow(assignment=tuple(n), latency_s=float(t)) for n, t in zip(nets.tolist(), times, strict=True)]
relaxed = fit_estimator(found, samples).relaxed()


class Latency(torch.autograd.Function):
    """The expected latency in milliseconds of a relaxed network: one vector of probabilities a slot."""

    @staticmethod
    def forward(context, *chances):
        """The expected latency."""
        told = relaxed.expected([chance.detach().cpu().double().numpy() for chance in chances])
        pairs = zip(told.gradient_s, chances, strict=True)
        context.gradients = [torch.as_tensor(1e3 * g).to(c) for g, c in pairs]
        return chances[0].new_tensor(1e3 * told.time_s)

    @staticmethod
    def backward(context, above):
        """The gradient by each probability."""
        return tuple(above * gradient for gradient in context.gradients)


slots = found.space.space.slots
chances = [torch.rand(len(slot.choices), dtype=torch.double, requires_grad=True) for slot in slots]
torch.autograd.gradcheck(Latency.apply, chances)  # raises where they differ

logits = [torch.zeros(len(slot.choices), requires_grad=True) for slot in slots]
optimizer = torch.optim.Adam(logits, lr=0.1)
history = []
for _ in range(30):
    latency_ms = Latency.apply(*(z.softmax(0) for z in logits))
    optimizer.zero_grad()
    latency_ms.backward()  # a task's loss would be added here
    optimizer.step()
    history.append(latency_ms.item())
print(f"{history[0]:.3f} ms, then {history[-1]:.3f} ms")
