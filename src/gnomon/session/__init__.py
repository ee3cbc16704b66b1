"""The parts that all measuring jobs share: model, targets, reference, comparison of plans, package."""
