"""`torch.compile(model, backend="fusebound")`: TorchDynamo finds the graphs, AOTAutograd splits them into forward and
backward, fusebound compiles each."""
