"""What all measuring jobs share: the model, the targets, the reference, the contest of plans, the package."""
